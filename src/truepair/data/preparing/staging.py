"""Staging: a source, a batch at a time -> the table `rows` of the work database, parsed, weighted and marked.

Rows that a rule removes stay in the table with a mark, so that the report can count what each rule removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.preparing.texts import Columns, Texts
from truepair.data.preparing.work import Work, database_errors
from truepair.data.reading import ReadOptions, absent_rows, missing_error, read_columns
from truepair.errors import InputError

KEPT, MISSING, IGNORED, LOW = 0, 1, 2, 3
"""Marks of rows, in the order of the rules."""

_AT_ONCE = 1 << 19  # rows that are inserted at once


def stage(
    work: Work, raw: Raw, at: Mapping[str, int], options: ReadOptions, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Fill the table `rows`; the result are facts that later steps need."""
    batches = _whole(raw, at) if raw.batches is None else _parsed(work, raw, at, advance)
    marking = _Marking(raw, options)
    total = _insert(work, "rows", marking.marked(batches), advance)
    work.table("drop table if exists texts")
    if not total:
        raise InputError(f"{raw.source} has no rows; give at least one interaction.")
    if marking.absent and options.missing == "error":
        role, found = next((role, marking.absent[role]) for role in marking.roles if role in marking.absent)
        raise missing_error(raw, role, *found, total)
    return {
        "rows": total,
        "absent": [role for role in marking.roles if role in marking.absent],
        "columns": [name for name in ("rating", "weight", "time") if name in marking.types],
        "types": {role: _type_of(work, role, marking.types[role]) for role in ("user", "item")},
        "disliked": marking.disliked,
        "order": raw.order,
        "source": raw.source,
        "steps": [vars(step) for step in raw.steps],
    }


def _insert(work: Work, table: str, batches: Iterator[pa.Table], advance: Callable[[int], None]) -> int:
    """A new table of all batches, in one transaction; the number of its rows."""
    total = 0
    work.table(f"drop table if exists {table}")
    work.table("begin")
    try:
        for batch in _gathered(batches):
            with database_errors("staging the rows fails"):
                view = work.db.from_arrow(batch)
                view.create(table) if not total else view.insert_into(table)
            total += len(batch)
            advance(total)
        work.table("commit")
    except BaseException:
        work.table("rollback")
        raise
    return total


def _gathered(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Fewer, larger batches."""
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= _AT_ONCE:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting and sum(map(len, waiting)):
        yield pa.concat_tables(waiting)


# --- parsing ---------------------------------------------------------------------------------------


def _whole(raw: Raw, at: Mapping[str, int]) -> Iterator[tuple[int, Columns]]:
    """All rows at once, for sources that have no batches."""
    columns = read_columns(raw, at)
    for first in range(0, len(columns["user"]), _AT_ONCE):
        yield first, {role: column.slice(first, _AT_ONCE) for role, column in columns.items()}


def _parsed(
    work: Work, raw: Raw, at: Mapping[str, int], advance: Callable[[int], None]
) -> Iterator[tuple[int, Columns]]:
    """The first row's number and the parsed columns of each batch.

    What text becomes depends on all of it: `7` is an id among integers, and text among names. So a source
    with such columns is copied to a table of text first, and parsed from there.
    """
    assert raw.batches is not None
    texts = Texts(raw)
    batches = texts.parsed(raw.batches(list(at.values())), list(at))
    first = next(batches, None)
    if first is None:
        return iter(())
    if not texts.kinds:
        return chain([first], batches)

    def numbered() -> Iterator[pa.Table]:
        for start, columns in chain([first], batches):
            stored = {role: _storage(column) for role, column in columns.items()}
            yield pa.table({"row": np.arange(start, start + len(columns["user"])), **stored})

    _insert(work, "texts", numbered(), advance)
    return _settled(work, texts, list(at))


def _settled(work: Work, texts: Texts, roles: list[str]) -> Iterator[tuple[int, Columns]]:
    for batch in work.batches("select * from texts order by row", _AT_ONCE):
        columns = {role: _restored(batch.column(role), texts.types[role]) for role in roles}
        yield batch.column("row")[0].as_py(), texts.settled(columns)


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _restored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of a table as it was before."""
    if not isinstance(kind, pa.BaseExtensionType):
        return column.cast(kind)
    return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type))


def _type_of(work: Work, role: str, kind: pa.DataType) -> str:
    """The manifest's name of the type of ids."""
    from truepair.data.prepared.id_files import id_type

    if kind == pa.uint64():
        fits = work.value(f'select coalesce(max("{role}"), 0) < 9223372036854775808 from rows')
        kind = pa.int64() if fits else kind
    return id_type(kind)


# --- marking ---------------------------------------------------------------------------------------


@dataclass
class _Marking:
    """Finds missing values, weights rows, and marks those that a rule removes."""

    raw: Raw
    options: ReadOptions
    absent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Role -> how many rows have no value, and the first of them."""
    roles: list[str] = field(default_factory=list)
    types: dict[str, pa.DataType] = field(default_factory=dict)
    disliked: bool = False

    def marked(self, batches: Iterator[tuple[int, Columns]]) -> Iterator[pa.Table]:
        """Batches of the table `rows`."""
        for start, columns in batches:
            rows = np.arange(start, start + len(columns["user"]))
            if self.options.chronological:
                columns["time"] = pa.array(rows)
            self.roles = list(columns)
            present = self._present(columns, start)
            if present is not None:
                yield self._table(columns, rows, ~present, MISSING)
                columns = {role: column.filter(pa.array(present)) for role, column in columns.items()}
                rows = rows[present]
            if self.absent and self.options.missing == "error":  # will be raised when all are counted
                yield self._table(columns, rows, np.ones(len(rows), dtype=bool), MISSING)
            else:
                yield self._weighted(columns, rows)

    def _present(self, columns: Columns, start: int) -> npt.NDArray[np.bool_] | None:
        """Which rows have all values; None if all do."""
        masks = []
        for role, column in columns.items():
            if (mask := absent_rows(column)).any():
                count, first = self.absent.get(role, (0, start + int(mask.argmax())))
                self.absent[role] = count + int(mask.sum()), first
                masks.append(mask)
        return ~np.logical_or.reduce(masks) if masks else None

    def _weighted(self, columns: Columns, rows: npt.NDArray[np.int64]) -> pa.Table:
        weighting = replace(self.options.weighting, half_life=None, now=None)
        found = weighting.row_values(columns, self.raw, lambda row: self.raw.place(int(rows[row])))
        marks = np.zeros(len(rows), dtype=np.int8)
        if self.options.min_rating is not None:
            low = columns["rating"].to_numpy() < float(self.options.min_rating)
            marks[low if found.disliked is None else low & ~found.disliked] = LOW
        if found.ignored is not None:
            marks[found.ignored] = IGNORED
        if found.weight is not None:
            columns = {**columns, "weight": pa.array(found.weight)}
        disliked = np.zeros(len(rows), dtype=bool) if found.disliked is None else found.disliked
        self.disliked |= found.disliked is not None
        return self._table(columns, rows, np.ones(len(rows), dtype=bool), marks, disliked)

    def _table(
        self,
        columns: Columns,
        rows: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.bool_],
        marks: int | npt.NDArray[np.int8],
        disliked: npt.NDArray[np.bool_] | None = None,
    ) -> pa.Table:
        n = int(chosen.sum())
        some = {
            role: column if n == len(chosen) else column.filter(pa.array(chosen))
            for role, column in columns.items()
        }
        made = {"row": pa.array(rows[chosen])}
        for role in ("user", "item"):
            made[role] = _storage(some[role])
            self.types.setdefault(role, some[role].type)
        for role in ("rating", "weight", "time"):
            if role in some or (role == "weight" and self.options.feedback is not None):
                made[role] = some.get(role, pa.nulls(n, pa.float64()))
                self.types.setdefault(role, made[role].type)
        if self._may_dislike:
            made["disliked"] = pa.array(np.zeros(n, dtype=bool) if disliked is None else disliked)
        made["mark"] = pa.array(np.full(n, marks, dtype=np.int8))
        return pa.table(made)

    @property
    def _may_dislike(self) -> bool:
        options = self.options
        return options.dislikes or options.max_disliked_rating is not None or options.feedback is not None
