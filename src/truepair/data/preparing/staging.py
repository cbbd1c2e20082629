"""Staging: a source, a batch at a time -> the table `rows` of the work database, parsed, weighted and marked.

Rows that a rule removes stay in the table with a mark, so that the report can count what each rule removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.ids import restored, storage_of
from truepair.data.interactions import EXTRA, Step
from truepair.data.log import Mask, Policy
from truepair.data.prepared.id_files import id_type
from truepair.data.preparing.texts import Columns, Texts
from truepair.data.preparing.work import Advance, Done, Work
from truepair.data.reading import absent_rows, missing_error, no_row_left_error, read_columns
from truepair.data.rows.options import ReadOptions
from truepair.data.rows.weighting import Clock, clock_of, given_now
from truepair.errors import InputError
from truepair.storage.types import Source

_KEPT, _MISSING, _IGNORED, _LOW = 0, 1, 2, 3  # marks of rows, in the order of the rules
_AT_ONCE = 1 << 19  # rows that are inserted at once


def stage(work: Work, source: Source, options: ReadOptions, advance: Advance) -> Done:
    """Fill the table `rows`; the facts are what later steps need of the source and of the rows."""
    with closing(options.open(source)) as raw:
        at = options.find_columns(raw)
        batches = _whole(raw, at) if raw.batches is None else _parsed(work, raw, at, advance)
        marking = _Marking(raw, options)
        total = _insert(work, "rows", marking.marked(batches), advance)
        work.db.execute("drop table if exists texts")
        if not total:
            raise InputError(f"{raw.source} has no rows; give at least one interaction.")
        absent = [role for role in marking.roles if role in marking.absent]
        if absent and options.missing == "error":
            raise missing_error(raw, absent[0], *marking.absent[absent[0]], total)
        steps, clock = _removed(work, raw, options, total, absent)
    facts = {
        "rows": total,
        "columns": [name for name in EXTRA if name in marking.types],
        "types": {role: _type_of(work, role, marking.types[role]) for role in ("user", "item")},
        "disliked": marking.disliked,
        "in_order": options.chronological and raw.order == "user",
        "source": raw.source,
        "steps": [vars(step) for step in [*raw.steps, *steps]],
        "clock": clock,
        "now": given_now(options.policy, raw),
    }
    return facts, []


def _insert(work: Work, table: str, batches: Iterator[pa.Table], advance: Advance) -> int:
    """A new table of all batches, in one transaction; the number of its rows."""
    total = 0
    work.db.execute(f"drop table if exists {table}")
    work.db.execute("begin")  # an error closes the connection
    for batch in _gathered(batches):
        view = work.db.from_arrow(batch)
        view.insert_into(table) if total else view.create(table)
        total += len(batch)
        advance(total)
    work.db.execute("commit")
    return total


def _gathered(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Fewer, larger batches."""
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) >= _AT_ONCE:
            yield pa.concat_tables(waiting)
            waiting = []
    if any(map(len, waiting)):
        yield pa.concat_tables(waiting)


# --- parsing ---------------------------------------------------------------------------------------


def _whole(raw: Raw, at: Mapping[str, int]) -> Iterator[tuple[int, Columns]]:
    """All rows at once, for sources that have no batches."""
    columns = read_columns(raw, at)
    for first in range(0, len(columns["user"]), _AT_ONCE):
        yield first, {role: column.slice(first, _AT_ONCE) for role, column in columns.items()}


def _parsed(work: Work, raw: Raw, at: Mapping[str, int], advance: Advance) -> Iterator[tuple[int, Columns]]:
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
    batches = chain([first], batches)
    if not texts.kinds:
        return batches
    stored = (
        {"row": _numbers(start, columns)} | {role: storage_of(column) for role, column in columns.items()}
        for start, columns in batches
    )
    _insert(work, "texts", map(pa.table, stored), advance)
    return _settled(work, texts, list(at))


def _settled(work: Work, texts: Texts, roles: list[str]) -> Iterator[tuple[int, Columns]]:
    for batch in work.batches("select * from texts order by row", _AT_ONCE):
        columns = {role: restored(batch.column(role), texts.types[role]) for role in roles}
        yield batch.column("row")[0].as_py(), texts.settled(columns)


def _numbers(start: int, columns: Columns) -> npt.NDArray[np.int64]:
    return np.arange(start, start + len(columns["user"]))


def _type_of(work: Work, role: str, kind: pa.DataType) -> str:
    """The manifest's name of the type of ids."""
    if kind == pa.uint64() and work.value(
        f'select coalesce(max("{role}"), 0) < 9223372036854775808 from rows'
    ):
        kind = pa.int64()
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
            rows = _numbers(start, columns)
            if self.options.chronological:
                columns["time"] = pa.array(rows)
            self.roles = list(columns)
            if (absent := self._absent(columns, start)).any():
                yield self._table(_filtered(columns, absent), rows[absent], _MISSING)
                columns, rows = _filtered(columns, ~absent), rows[~absent]
            if self.absent and self.options.missing == "error":  # will be raised when all are counted
                yield self._table(columns, rows, _MISSING)
            else:
                yield self._weighted(columns, rows)

    def _absent(self, columns: Columns, start: int) -> Mask:
        """Which rows lack a value."""
        found = np.zeros(len(columns["user"]), dtype=bool)
        for role, column in columns.items():
            if (mask := absent_rows(column)).any():
                count, first = self.absent.get(role, (0, start + int(mask.argmax())))
                self.absent[role] = count + int(mask.sum()), first
                found |= mask
        return found

    def _weighted(self, columns: Columns, rows: npt.NDArray[np.int64]) -> pa.Table:
        weighting = replace(self.options.weighting, policy=Policy())
        found = weighting.row_values(columns, self.raw, lambda row: self.raw.place(int(rows[row])))
        disliked = np.zeros(len(rows), dtype=bool) if found.disliked is None else found.disliked
        marks = np.full(len(rows), _KEPT)
        if self.options.min_rating is not None:
            low = columns["rating"].to_numpy() < float(self.options.min_rating)
            marks[low & ~disliked] = _LOW
        if found.ignored is not None:
            marks[found.ignored] = _IGNORED
        if found.weight is not None:
            columns = {**columns, "weight": pa.array(found.weight)}
        self.disliked |= found.disliked is not None
        return self._table(columns, rows, marks, disliked)

    def _table(
        self,
        columns: Columns,
        rows: npt.NDArray[np.int64],
        marks: int | npt.NDArray[np.int64],
        disliked: Mask | bool = False,
    ) -> pa.Table:
        n = len(rows)
        made = {"row": pa.array(rows)}
        for role in ("user", "item", *EXTRA):
            if role in columns or (role == "weight" and self.options.feedback is not None):
                column = columns.get(role, pa.nulls(n, pa.float64()))
                self.types.setdefault(role, column.type)
                made[role] = storage_of(column)
        made["disliked"] = pa.array(np.full(n, disliked))
        made["mark"] = pa.array(np.full(n, marks, dtype=np.int8))
        return pa.table(made)


def _filtered(columns: Columns, rows: Mask) -> Columns:
    return {role: column.filter(pa.array(rows)) for role, column in columns.items()}


# --- what was removed ------------------------------------------------------------------------------


def _removed(
    work: Work, raw: Raw, options: ReadOptions, total: int, absent: list[str]
) -> tuple[list[Step], Clock | None]:
    """The steps before rows are merged, and the clock of a half-life; an error if no row is left."""
    counts = dict(work.db.execute("select mark, count(*) from rows group by mark").fetchall())
    left = [_last_marks(work, role) for role in ("user", "item")] if set(counts) != {_KEPT} else []
    steps: list[Step] = []
    clock: Clock | None = None
    for mark, what in (
        (_MISSING, f"missing {' or '.join(absent)}"),
        (_IGNORED, "kind with the number 0"),
        (_LOW, "" if options.min_rating is None else f"rating below {float(options.min_rating):g}"),
    ):
        if rows := counts.get(mark, 0):
            if rows == total:
                raise no_row_left_error(raw.source, total, what)
            total -= rows
            steps.append(Step(what, rows, *(of_role.get(mark, 0) for of_role in left)))
        if mark == _MISSING:
            newest = work.value("select max(time) from rows where mark <> 1") if options.half_life else None
            clock = None if newest is None else _clock(work, raw, options, newest)
            steps += options.weighting.steps(newest, raw)
    return steps, clock


def _last_marks(work: Work, role: str) -> dict[int, int]:
    """Mark -> how many ids have their last row removed by this rule."""
    last = f'select max(case mark when 0 then 9 else mark end) as mark from rows where "{role}" is not null'
    return dict(
        work.db.execute(f'select mark, count(*) from ({last} group by "{role}") group by 1').fetchall()
    )


def _clock(work: Work, raw: Raw, options: ReadOptions, newest: float) -> Clock:
    """The clock of the half-life; an error for a time after now."""
    clock = clock_of(options.policy, newest, raw)
    late = f"mark <> 1 and time / cast({clock.per_second!r} as double) > {clock.now!r}"
    if found := work.db.execute(f"select time, row from rows where {late} order by row limit 1").fetchone():
        raise clock.late(raw.source, found[0], raw.place(found[1]))
    return clock
