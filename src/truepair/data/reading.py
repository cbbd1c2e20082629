"""Reading: files, tables, matrices and arrays -> Interactions, with a report of what was removed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import Column, Raw, find_columns, identifiers, numbers, timestamps
from truepair.data.file_opening import expanded
from truepair.data.formats import FORMATS, open_path
from truepair.data.ids import Codes, IdMap
from truepair.data.in_memory import memory_source
from truepair.data.interactions import Interactions, Step, Values
from truepair.errors import InputError, check_choice, check_number, check_whole

DUPLICATES = ("last", "first", "max", "sum", "error")
"""Policies for rows that repeat a pair."""

MISSING = ("error", "drop")
"""Policies for rows with a missing value."""


def read_interactions(
    source: Any,
    *,
    user: Column = None,
    item: Column = None,
    rating: Column = None,
    weight: Column = None,
    time: Column = None,
    chronological: bool = False,
    format: str | None = None,
    header: bool | None = None,
    encoding: str = "utf-8",
    min_rating: float | None = None,
    duplicates: Literal["last", "first", "max", "sum", "error"] = "last",
    missing: Literal["error", "drop"] = "error",
    core: int | tuple[int, int] | None = None,
    items: Any = None,
) -> Interactions:
    """Read interactions from `source`. `Interactions.report()` lists what each step of cleaning removed.

    `source` is a path (CSV, TSV, MovieLens, LightGCN adjacency, RecBole, Parquet, Arrow, SciPy `.npz`;
    text formats may be compressed), any table that supports the Arrow C stream interface (pandas, polars,
    DuckDB, pyarrow), a dict of arrays, a SciPy sparse matrix (rows are users, values are ratings), a NumPy
    array of 2 to 4 columns (user, item, rating, time) or a tuple of such arrays.

    - `user` … `time`: a column's name or position; None finds it by its name, False ignores it.
    - `chronological`: True where the rows are in order of time and there is no time column: the row's number
      becomes the time. In adjacency files it is the position among the user's items, which compares pairs of
      one user only.
    - `format`, `header`, `encoding`: for files that are not recognised by suffix and first lines.
    - `missing`: "drop" removes rows without an id, rating, weight or time; "error" names the first one.
    - `min_rating`: rows with a lower rating are removed.
    - `duplicates`: which row of a repeated pair is kept: the "last" or "first" (by time, else by row), the
      one with the "max" rating, or the last with the "sum" of the weights (1 each without a weight column).
      "error" raises an error.
    - `core`: the least number of items per user and of users per item, as one number or two; see
      `Interactions.k_core`.
    - `items`: the catalogue, as ids or as a text file with one id a line. The result then contains all of its
      items, also those that nobody has; they count as unlabelled, in the density and in training.

    Without `items`, the result contains only items with an interaction, and always only such users.

    >>> read_interactions({"user": ["ann", "bob", "bob"], "item": [7, 7, 9]})
    <Interactions: 2 users x 2 items, 3 pairs, density 75.00%>
    """
    check_choice("duplicates", duplicates, DUPLICATES)
    check_choice("missing", missing, MISSING)
    least = None if min_rating is None else check_number("min_rating", min_rating)
    cores = None if core is None else _checked_core(core)
    given = {"user": user, "item": item, "rating": rating, "weight": weight, "time": time}
    raw = _open(source, given, format=format, header=header, encoding=encoding)
    at = find_columns(raw, given)
    if "rating" not in at:
        _check_rating_column(raw, least, duplicates)

    if not isinstance(chronological, bool):
        raise InputError(f"chronological = {chronological!r:.60} is not allowed; pass True or False.")
    columns = _columns(raw, at)
    if chronological:
        columns["time"] = _row_numbers(raw, at, len(columns["user"]))
    rows = _Rows(raw.source, columns, list(raw.steps))
    rows = _without_missing(rows, raw, missing)
    if least is not None:
        rows = rows.filter(pc.greater_equal(rows.columns["rating"], least), f"rating below {least:g}")
    found = _interactions(rows, duplicates)
    if chronological and raw.order == "user":
        found = _in_order_of_users(found)
    if items is not None:
        if cores is not None:
            raise InputError("core removes items, and items adds those that nobody has; use one of them.")
        return found.with_items(_catalogue(items, found.item_ids))
    return found if cores is None else _core(found, cores, raw.source)


def _open(source: Any, given: Mapping[str, Column], format: str | None, **text: Any) -> Raw:
    if format is not None:
        check_choice("format", format, FORMATS)
    if isinstance(source, str | os.PathLike):
        names = frozenset(column for column in given.values() if isinstance(column, str))
        return open_path(expanded(source), format=format, given=names, **text)
    return memory_source(source)


# --- cleaning --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    source: str
    columns: dict[str, pa.Array]
    steps: list[Step]

    def filter(self, keep: pa.Array, what: str) -> _Rows:
        """Only the rows to keep, with a step that counts the removed ones."""
        total = len(keep)
        left = pc.sum(keep, min_count=0).as_py()
        if left == total:
            return self
        if left == 0:
            raise InputError(
                f"{self.source}: no row is left, all {total:,} rows have a {what}; "
                "check that column, or lower the bound."
            )
        columns = {role: column.filter(keep) for role, column in self.columns.items()}
        removed_ids = [_count(self.columns[role]) - _count(columns[role]) for role in ("user", "item")]
        return _Rows(self.source, columns, [*self.steps, Step(what, total - left, *removed_ids)])


def _columns(raw: Raw, at: Mapping[str, int]) -> dict[str, pa.Array]:
    parse = {"user": identifiers, "item": identifiers, "time": timestamps}
    values = dict(zip(at, raw.read(list(at.values())), strict=True))
    columns = {role: parse.get(role, numbers)(raw, role, column) for role, column in values.items()}
    lengths = {role: len(column) for role, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{role} {length:,}" for role, length in lengths.items())
        raise InputError(
            f"{raw.source}: the columns differ in length ({counts}); all columns must have the same length."
        )
    if not lengths["user"]:
        raise InputError(f"{raw.source} has no rows; give at least one interaction.")
    return columns


def _row_numbers(raw: Raw, at: Mapping[str, int], n: int) -> pa.Array:
    """The rows' numbers as times; an error where there is a time column, or where rows have no order."""
    if "time" in at:
        raise InputError(
            f"chronological = True makes the order of rows the time, but {raw.source} has the time column "
            f"{raw.names[at['time']]!r}; leave out chronological, or pass time=False."
        )
    if raw.order == "none":
        raise InputError(
            f"chronological = True: {raw.source} is a matrix, and its entries have no order; leave it out."
        )
    return pa.array(np.arange(n))


def _in_order_of_users(found: Interactions) -> Interactions:
    """The interactions with positions 0, 1, … among each user's pairs as times."""
    order = np.lexsort(
        (np.asarray(found.time), found.users)
    )  # rows are sorted by user, so each user's block stays
    position = np.empty(len(found), dtype=np.int64)
    position[order] = np.arange(len(found)) - found.indptr[found.users]
    return replace(found, time=position, time_kind="order")


def _without_missing(rows: _Rows, raw: Raw, missing: str) -> _Rows:
    absent = {role: _absent(column) for role, column in rows.columns.items()}
    absent = {role: mask for role, mask in absent.items() if mask.any()}
    if not absent:
        return rows
    if missing == "error":
        role, mask = next(iter(absent.items()))
        raise InputError(
            f"{raw.source}: {mask.sum():,} of {len(mask):,} rows have no {role} (null, NaN or empty), the "
            f"first at {raw.place(int(mask.argmax()))}; correct them, or pass missing='drop' to remove them."
        )
    return rows.filter(
        pa.array(~np.logical_or.reduce(list(absent.values()))), f"missing {' or '.join(absent)}"
    )


def _absent(column: pa.Array) -> npt.NDArray[np.bool_]:
    present = column.is_valid()
    if pa.types.is_floating(column.type):
        present = pc.is_finite(column).fill_null(False)
    return ~np.asarray(present.to_numpy(zero_copy_only=False), dtype=bool)


def _count(ids: pa.Array) -> int:
    return len(IdMap.of(ids.drop_null()))


def _check_rating_column(raw: Raw, least: float | None, duplicates: str) -> None:
    asked = f"min_rating = {least:g}" if least is not None else f"duplicates = {duplicates!r}"
    if least is not None or duplicates == "max":
        raise InputError(
            f"{asked} needs a rating column, and no column of {raw.source} is recognised as one; its columns "
            f"are {', '.join(map(repr, raw.names))}. Pass rating=<name or position>."
        )


def _checked_core(core: int | tuple[int, int]) -> tuple[int, int]:
    users, items = core if isinstance(core, tuple) and len(core) == 2 else (core, core)
    remedy = "Pass one number, or (least items per user, least users per item)."
    return check_whole("core", users, 1, remedy=remedy), check_whole("core", items, 1, remedy=remedy)


def _core(found: Interactions, cores: tuple[int, int], source: str) -> Interactions:
    try:
        return found.k_core(*cores)
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


# --- repeated pairs and ids ------------------------------------------------------------------------


def _interactions(rows: _Rows, duplicates: str) -> Interactions:
    user_ids, item_ids = (IdMap.of(rows.columns[role], role) for role in ("user", "item"))
    users = user_ids.codes(rows.columns["user"], "user")
    items = item_ids.codes(rows.columns["item"], "item")
    extra = {role: column.to_numpy() for role, column in rows.columns.items() if role not in ("user", "item")}
    key = users * len(item_ids) + items
    order, starts = _group_pairs(key, extra, duplicates)
    steps = list(rows.steps)
    if duplicates == "sum":
        extra = _sum_weights(extra, order, starts)
    if removed := len(key) - len(starts):
        if duplicates == "error":
            _raise_repeats(rows, order, starts)
        steps.append(Step(f"repeated pair ({duplicates} kept)", removed))
    ends = np.append(starts[1:], len(key)) - 1
    chosen = order[starts if duplicates == "first" else ends]
    columns: dict[str, Any] = {role: column[chosen] for role, column in extra.items()}
    return Interactions(users[chosen], items[chosen], user_ids, item_ids, **columns, history=tuple(steps))


def _group_pairs(key: Codes, extra: Mapping[str, Values], duplicates: str) -> tuple[Codes, Codes]:
    """The order of rows with equal pairs adjacent and the preferred row last; the start of each pair."""
    by = {"max": ("time", "rating"), "error": ()}.get(duplicates, ("time",))
    order = np.lexsort([*(extra[role] for role in by if role in extra), key])
    return order, np.flatnonzero(np.diff(key[order], prepend=-1))


def _sum_weights(extra: Mapping[str, Values], order: Codes, starts: Codes) -> dict[str, Values]:
    """The columns, where each row has the total weight of its pair."""
    weight = np.asarray(extra.get("weight", np.ones(len(order))), dtype=np.float64)
    sizes = np.diff(starts, append=len(order))
    total = np.empty_like(weight)
    total[order] = np.repeat(np.add.reduceat(weight[order], starts), sizes)
    return {**extra, "weight": total}


def _raise_repeats(rows: _Rows, order: Codes, starts: Codes) -> None:
    sizes = np.diff(starts, append=len(order))
    firsts = np.where(sizes > 1, order[starts], len(order))  # in row order within a pair
    group = int(firsts.argmin())
    user, item = (rows.columns[role][int(firsts[group])].as_py() for role in ("user", "item"))
    raise InputError(
        f"{rows.source}: user {user!r} and item {item!r} occur in {sizes[group]:,} rows, and "
        f"{(sizes > 1).sum() - 1:,} other pairs are repeated; "
        f"merge them: pass duplicates = one of {', '.join(map(repr, DUPLICATES[:-1]))}."
    )


# --- the catalogue ---------------------------------------------------------------------------------


def _catalogue(items: Any, known: IdMap) -> Any:
    """Ids as they are; the lines of a file as ids of the type of the known ones."""
    if not isinstance(items, str | os.PathLike):
        return items
    try:
        text = expanded(items).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"cannot read the items in {items}: {error}.") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind = known.ids.type
    if not lines:
        raise InputError(f"{items} names no item; write one id a line.")
    try:
        return pa.array(lines, pa.large_string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"{items} has lines that are no item ids of type {kind}, the type in the interactions: {error}."
        ) from error
