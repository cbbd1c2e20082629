"""Reading: files, tables, matrices and arrays -> Interactions, with a report of what was removed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import Raw, identifiers, numbers, timestamps
from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import (
    EXTRA,
    Interactions,
    Origin,
    Step,
    dislikes_note,
    trusted_interactions,
    without_columns,
)
from truepair.data.log import Log, Mask, Policy, positions, sorted_log
from truepair.data.prepared.opening import is_prepared, open_prepared
from truepair.data.rows.options import ReadOptions, with_options
from truepair.data.rows.pairs import DUPLICATES, Repeats, codes_of, has_ties, merge, part_dislikes, repeats
from truepair.data.rows.weighting import Weighting, kind_texts
from truepair.data.sources.file_opening import expanded
from truepair.data.sources.in_memory import table_type
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.storage.types import Ids, Source

_ROW = "row"  # the column of the rows' numbers in the source, where rows were removed


@with_options(ReadOptions)
def read_interactions(source: Source, options: ReadOptions) -> Interactions:
    """Read interactions from `source`. `Interactions.report()` lists what each step of cleaning removed.

    `source` is a path (CSV, TSV, MovieLens, LightGCN adjacency, RecBole, Parquet, Arrow, SciPy `.npz`;
    text formats may be compressed), the URL of a database (`postgresql://…`, `sqlite:///file.db`,
    `duckdb:///file.duckdb`) with a `query` or with `#table` at its end, any table that supports the Arrow C
    stream interface (pandas, polars, DuckDB, pyarrow), a dict of arrays, a SciPy sparse matrix (rows are
    users, values are ratings), a NumPy array of 2 to 4 columns (user, item, rating, time) or a tuple of such
    arrays.

    - `user` … `time`: a column's name or position; None finds it by its name, False ignores it.
    - `chronological`: True where the rows are in order of time and there is no time column: the row's number
      becomes the time. In adjacency files it is the position among the user's items, which compares pairs of
      one user only.
    - `query`: the rows of a database, `"select user_id, item_id from clicks"`: docs/sql.md.
    - `format`, `header`, `encoding`: for files that are not recognised by suffix and first lines.
    - `missing`: "drop" removes rows without an id, rating, weight or time; "error" names the first one.
    - `min_rating`: rows with a lower rating are removed.
    - `duplicates`: which row of a repeated pair is kept: the "last" or "first" (by time, else by row), the
      one with the "max" rating, the "strongest" by weight (after the half-life), or the last with the "sum"
      of the weights (1 each without a weight column). "error" raises an error. The default is "last", with
      `feedback` "strongest".
    - `core`: the least number of items per user and of users per item, as one number or two; see
      `Interactions.k_core`.
    - `items`: the catalogue, as ids or as a text file with one id a line. The result then contains all of its
      items, also those that nobody has; they count as unlabelled, in the density and in training.
    - `feedback`: weights of kinds of rows, {"view": 1, "cart": 3, "buy": 10}, with the column `kind`. A kind
      with a number below 0 is a dislike; rows of a kind with 0 are removed.
    - `counts`: what the weight of a pair is made of its count: "log" is 1 + log(count), "cap:10" at most 10.
      The count is the weight column, or with duplicates="sum" the number of rows.
    - `half_life`: "90d" halves a weight for every 90 days between the row and `now`, which is the newest time
      unless it is given; units are s, min, h, d and w.
    - `max_disliked_rating`: rows with this rating or a lower one are dislikes.
    - `dislikes`: True where a weight below 0 marks a dislike; otherwise it is an error.

    Where there are times, `Interactions.log` keeps all rows in order, and splits by time cut them before
    pairs are merged: docs/evaluation.md.

    A weight above 0 scales the loss of its pair: docs/living-data.md. A pair with likes and dislikes is what
    its last row says (with duplicates="first" the first one, with "max" the one with the highest rating).

    Without `items`, the result contains only items with a like or a dislike, and always only such users.

    >>> read_interactions({"user": ["ann", "bob", "bob"], "item": [7, 7, 9]})
    <Interactions: 2 users x 2 items, 3 pairs, density 75.00%>
    """
    if is_prepared(source):
        return _prepared(source, options)
    with closing(options.open(source)) as raw:
        columns = read_columns(raw, options.find_columns(raw))
    if options.chronological:
        columns["time"] = pa.array(np.arange(len(columns["user"])))
    rows = _without_missing(_Rows(raw, columns, list(raw.steps)), options.missing)
    rows = _weighted(rows, options.weighting)
    if options.min_rating is not None:
        liked = pc.greater_equal(rows.columns["rating"], options.min_rating)
        if "disliked" in rows.columns:
            liked = pc.or_(liked, rows.columns["disliked"])
        rows = rows.filter(liked, f"rating below {options.min_rating:g}")
    found = _interactions(rows, replace(options.policy, table=table_type(source)))
    if options.chronological and raw.order == "user":
        found = _in_order_of_users(found)
    if options.items is not None:
        return found.with_items(catalogue_ids(options.items, found.item_ids.ids.type))
    if options.cores is None:
        return found
    try:
        return found.k_core(*options.cores)
    except InputError as error:
        raise InputError(f"{raw.source}: {error}") from error


def _prepared(source: Source, options: ReadOptions) -> Interactions:
    """The interactions of a prepared folder, which takes no options: they were given to `prepare`."""
    without = [role for role in EXTRA if getattr(options, role) is False]
    for each in dataclasses.fields(options):
        value = getattr(options, each.name)
        if value is not None and each.name not in without and (each.default is None or value != each.default):
            raise InputError(f"{each.name} = {value!r:.60} has no effect on {source}; give it to `prepare`.")
    found = open_prepared(source)
    if isinstance(found, Split):
        parts = ", ".join(f"{source}/{name}" for name in found.parts)
        raise InputError(f"{source} is a split; give one of its parts ({parts}), or use open_prepared.")
    return without_columns(found, without) if without else found


# --- cleaning --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    raw: Raw
    columns: dict[str, pa.Array]
    steps: list[Step]

    def filter(self, keep: pa.Array, what: str) -> _Rows:
        """Only the rows to keep, with a step that counts the removed ones."""
        total = len(keep)
        left = pc.sum(keep, min_count=0).as_py()
        if left == total:
            return self
        if left == 0:
            raise no_row_left_error(self.raw.source, total, what)
        columns = {role: column.filter(keep) for role, column in self.columns.items()}
        removed = [_count(self.columns[role]) - _count(columns[role]) for role in ("user", "item")]
        return _Rows(self.raw, columns, [*self.steps, Step(what, total - left, *removed)])


def read_columns(raw: Raw, at: Mapping[str, int]) -> dict[str, pa.Array]:
    """All rows, parsed by their roles."""
    parse = {"user": identifiers, "item": identifiers, "time": timestamps, "kind": kind_texts}
    values = dict(zip(at, raw.read(list(at.values())), strict=True))
    # a column is let go as soon as it is parsed: a large source is not in memory twice
    columns = {}
    for role in at:
        columns[role] = parse.get(role, numbers)(raw, role, values.pop(role))
        pa.default_memory_pool().release_unused()
    lengths = {role: len(column) for role, column in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{role} {length:,}" for role, length in lengths.items())
        raise InputError(f"{raw.source}: the columns differ in length ({counts}); give one length.")
    if not lengths["user"]:
        raise InputError(f"{raw.source} has no rows; give at least one interaction.")
    return columns


def _in_order_of_users(found: Interactions) -> Interactions:
    """The interactions with positions 0, 1, … among each user's pairs as times."""
    made = replace(found, time=positions(found.users, np.asarray(found.time)), time_kind="order")
    log = found.stored_log
    if log is not None:
        log = replace(log, time=positions(log.users, np.asarray(log.time)), time_kind="order")
    return made.made_from(Origin(found.origin.policy, log))


def _without_missing(rows: _Rows, missing: str) -> _Rows:
    absent = {role: mask for role, column in rows.columns.items() if (mask := absent_rows(column)).any()}
    if not absent:
        return rows
    if missing == "error":
        role, mask = next(iter(absent.items()))
        raise missing_error(rows.raw, role, int(mask.sum()), int(mask.argmax()), len(mask))
    present = ~np.logical_or.reduce(list(absent.values()))
    rows.columns[_ROW] = pa.array(np.arange(len(present)))  # messages name the row of the source
    return rows.filter(pa.array(present), f"missing {' or '.join(absent)}")


def missing_error(raw: Raw, role: str, count: int, first: int, total: int) -> InputError:
    """The error of missing = "error"."""
    return InputError(
        f"{raw.source}: {count:,} of {total:,} rows have no {role} (null, NaN, infinite or empty), the first "
        f"at {raw.place(first)}; correct them, or pass missing='drop' to remove them."
    )


def no_row_left_error(source: str, n: int, what: str) -> InputError:
    """The error where a rule removes all rows."""
    return InputError(f"{source}: no row is left, all {n:,} have a {what}; check the column or the bound.")


def absent_rows(column: pa.Array) -> Mask:
    """Whether the value of each row is null, NaN or infinite."""
    is_float = pa.types.is_floating(column.type)
    if not column.null_count and not is_float:
        return np.zeros(len(column), dtype=bool)
    present = pc.is_finite(column).fill_null(False) if is_float else column.is_valid()
    return ~np.asarray(present.to_numpy(zero_copy_only=False), dtype=bool)


def _count(ids: pa.Array) -> int:
    return len(IdMap.of(ids.drop_null()))


def _weighted(rows: _Rows, weighting: Weighting) -> _Rows:
    """The rows with the columns weight (above 0), decayed and disliked, where the options ask for them."""
    raw, columns = rows.raw, dict(rows.columns)
    line = columns.pop(_ROW).to_numpy() if _ROW in columns else None
    found = weighting.row_values(columns, raw, lambda row: raw.place(row if line is None else int(line[row])))
    columns.pop("kind", None)
    weight = found.weight
    if found.decay is not None:
        weight = np.ones(len(columns["user"])) if weight is None else weight
        columns["decayed"] = pa.array(weight * found.decay)
    columns |= {} if weight is None else {"weight": pa.array(weight)}
    columns |= {} if found.disliked is None else {"disliked": pa.array(found.disliked)}
    newest = columns["time"].to_numpy().max() if "time" in columns else None
    made = _Rows(raw, columns, [*rows.steps, *weighting.steps(newest, raw)])
    return made if found.ignored is None else made.filter(pa.array(~found.ignored), "kind with the number 0")


# --- repeated pairs and ids ------------------------------------------------------------------------


def _interactions(rows: _Rows, policy: Policy) -> Interactions:
    columns, steps = dict(rows.columns), list(rows.steps)
    # columns are let go as soon as they are coded: a large source is not in memory twice
    user_ids, user_codes = IdMap.encode(columns.pop("user"), "user")
    item_ids, item_codes = IdMap.encode(columns.pop("item"), "item")
    rows.columns.clear()
    pa.default_memory_pool().release_unused()
    keys = user_codes.astype(np.int64)
    keys *= len(item_ids)
    keys += item_codes
    del user_codes, item_codes
    extra = {role: column.to_numpy(zero_copy_only=False) for role, column in columns.items()}
    needs_events = policy.changes_weights or (policy.merges_weights and "disliked" in extra)
    events = (keys, dict(extra)) if "time" in extra or needs_events else None
    disliked: Codes | None = None
    if "disliked" in extra:
        liked, disliked = part_dislikes(keys, extra, extra.pop("disliked"), policy.duplicates)
        if not liked.any():
            raise only_dislikes_error(rows.raw.source, len(keys))
        keys, extra = keys[liked], {role: column[liked] for role, column in extra.items()}
    if policy.duplicates == "error" and (found := repeats(keys)) is not None:
        user, item = divmod(found.key, len(item_ids))
        raise repeats_error(rows.raw.source, found, user_ids.ids[user].as_py(), item_ids.ids[item].as_py())
    merged = merge(keys, extra, policy)
    del keys, extra
    if merged.removed:
        steps.append(Step(f"repeated pair ({policy.duplicates} kept)", merged.removed))
    disliked = disliked if disliked is not None and len(disliked) else None
    if disliked is not None:
        steps.append(dislikes_note(len(disliked)))
    users, items = codes_of(merged.keys, len(item_ids))
    fields = {**merged.columns, "history": tuple(steps), "disliked": disliked}
    made = trusted_interactions(users, items, user_ids, item_ids, **fields)
    if events is None:
        return made.made_from(Origin(policy))
    if len(events[0]) > len(made) or needs_events:
        keys, columns = events
        columns.pop("decayed", None)
        log = Log(*codes_of(keys, len(item_ids)), user_ids, item_ids, **columns, policy=policy)
        return made.made_from(Origin(policy, sorted_log(log)))
    del events
    assert made.time is not None
    assert merged.rows is not None
    places = merged.rows.astype(np.uint32) if has_ties(users, made.time) else None
    return made.made_from(Origin(policy, places=places))


def only_dislikes_error(source: str, n: int) -> InputError:
    """The error where no row is a like."""
    return InputError(f"{source}: all {n:,} rows are dislikes; give at least one like.")


def repeats_error(source: str, found: Repeats, user: object, item: object) -> InputError:
    """The error of duplicates = "error": the first pair that is repeated."""
    return InputError(
        f"{source}: user {user!r} and item {item!r} occur in {found.rows:,} rows, and {found.others:,} other "
        f"pairs are repeated; pass duplicates = one of {', '.join(map(repr, DUPLICATES[:-1]))}."
    )


# --- the catalogue ---------------------------------------------------------------------------------


def catalogue_ids(items: Ids, kind: pa.DataType) -> Ids:
    """Ids as they are; the lines of a file as ids of this type, that of the known ones."""
    if not isinstance(items, str | os.PathLike):
        return items
    try:
        text = expanded(items).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"cannot read the items in {items}: {error}.") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"{items} names no item; write one id a line.")
    try:
        return pa.array(lines, pa.large_string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(
            f"{items} has lines that are no item ids of type {kind}, the type in the interactions: {error}."
        ) from error
