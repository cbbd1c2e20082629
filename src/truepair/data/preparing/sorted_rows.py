"""Rows that others have sorted, such as a cluster: a stream of tables -> ids, then blocks of distinct pairs.

The functions of `prepare` parse the columns and decide what a pair becomes of its rows, so that the arrays
are its arrays. A table and the rows of one pair are in memory, and the ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import EXTRA, Step
from truepair.data.log import Values
from truepair.data.preparing.distinct_ids import DistinctIds, Maps
from truepair.data.preparing.texts import Columns, Texts
from truepair.data.reading import ReadOptions, absent_rows, repeats_error
from truepair.data.rows.pairs import Repeats, codes_of, merge, repeats
from truepair.errors import InputError

Tables = Callable[[], Iterator[pa.Table]]
Mask = npt.NDArray[np.bool_]


class KeyedRows(NamedTuple):
    """Rows in the order of their pairs; a key is user·n_items + item."""

    keys: Codes
    columns: dict[str, Values]


class Pairs(NamedTuple):
    """Distinct pairs, in order."""

    users: Codes
    items: Codes
    columns: dict[str, Values]


class SortedRows:
    """A stream of tables with the columns `user` and `item`, and `rating`, `weight` and `time` if there are.

    `tables()` is called twice, by `id_maps` and then by `pairs`, and must give the same rows: sorted by user,
    then item, text by its bytes; rows of one pair are in the order of the source.
    """

    def __init__(self, tables: Tables, source: str, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.steps: list[Step] = []
        """What was removed; complete when both passes are done."""
        self._tables = tables
        self._raw = Raw(source, (), lambda positions: [])
        self._texts = Texts(self._raw)

    # --- the first pass ----------------------------------------------------------------------------

    def id_maps(self) -> Maps:
        """The distinct ids of both roles, in rows that no rule removes."""
        every, kept, low = DistinctIds(), DistinctIds(), 0
        for table in filter(len, self._tables()):
            self._check_ids(table)
            mask = self._high(self._parsed(table))
            every.add(table)
            if mask is not None:
                kept.add(table.filter(pa.array(mask)))
                low += len(mask) - int(mask.sum())
        if not every.rows:
            raise InputError(f"{self.source} has no rows; give at least one pair.")
        maps = every.maps(self.source)
        return self._without_low(maps, kept, low, every.rows) if low else maps

    def _check_ids(self, table: pa.Table) -> None:
        for role in ("user", "item"):
            if role not in table.column_names:
                raise InputError(
                    f"{self.source} has no column {role!r}; it has {', '.join(table.column_names)}."
                )

    def _without_low(self, maps: Maps, kept: DistinctIds, low: int, rows: int) -> Maps:
        """The ids that have a row with a rating that is high enough."""
        assert self.options.min_rating is not None
        what = f"rating below {float(self.options.min_rating):g}"
        if low == rows:
            raise InputError(
                f"{self.source}: no row is left, all {rows:,} rows have a {what}; check that column, or "
                "lower the bound."
            )
        left = kept.maps(self.source)
        self.steps.append(Step(what, low, *(len(maps[role]) - len(left[role]) for role in ("user", "item"))))
        return left

    # --- the second pass ---------------------------------------------------------------------------

    def pairs(self, users: IdMap, items: IdMap) -> Iterator[Pairs]:
        """The distinct pairs, a block at a time."""
        removed, policy = 0, self.options.policy
        again: list[Repeats] = []
        for rows in whole_pairs(self._coded(users, items)):
            if policy == "error" and (found := repeats(rows.keys)) is not None:
                again.append(found)
            merged = merge(rows.keys, rows.columns, policy, self.options.weighting)
            removed += merged.removed
            yield Pairs(*codes_of(merged.keys, len(items)), merged.columns)
        if again:
            first = again[0]._replace(others=sum(each.others + 1 for each in again) - 1)
            user, item = divmod(first.key, len(items))
            raise repeats_error(self.source, first, users.ids[user].as_py(), items.ids[item].as_py())
        self.steps += [Step(f"repeated pair ({policy} kept)", removed)] if removed else []

    def _coded(self, users: IdMap, items: IdMap) -> Iterator[KeyedRows]:
        """The keys and columns of each table; an error if rows are not in order."""
        start, last = 0, -1  # the code of the last user, the key of the last row
        for table in filter(len, self._tables()):
            columns = self._texts.settled(self._parsed(table))
            self._check(table, columns)
            if (mask := self._high(columns)) is not None:
                chosen = pa.array(mask)
                table, columns = table.filter(chosen), {role: c.filter(chosen) for role, c in columns.items()}
            if not len(table):
                continue
            near = IdMap(users.ids.slice(start, len(table) + 1))  # the table's own users
            of_users = near.find(table["user"], "user")
            keys = (of_users + start) * len(items) + items.find(table["item"], "item")
            if (of_users < 0).any() or keys[0] < last or (np.diff(keys) < 0).any():
                raise InputError(
                    f"{self.source} is not sorted by user, then item, text by its bytes; sort it so."
                )
            start, last = start + int(of_users[-1]), int(keys[-1])
            yield KeyedRows(keys, {role: column.to_numpy() for role, column in columns.items()})

    # --- both --------------------------------------------------------------------------------------

    def _parsed(self, table: pa.Table) -> Columns:
        """The columns beside the ids; text of times stays text until all of it is seen."""
        raw = replace(self._raw, place=partial(_place, table))
        return {
            role: self._texts.parse(raw, role, table[role]) for role in EXTRA if role in table.column_names
        }

    def _high(self, columns: Columns) -> Mask | None:
        """Rows whose rating is not too low; a missing one is found by `_check`."""
        if self.options.min_rating is None:
            return None
        ratings = columns["rating"].to_numpy(zero_copy_only=False)
        return np.asarray(~(ratings < float(self.options.min_rating)))

    def _check(self, table: pa.Table, columns: Columns) -> None:
        """Raise for a missing value, and for a weight that is not above 0."""
        for role, column in columns.items():
            if (absent := absent_rows(column)).any():
                raise InputError(
                    f"{self.source}: {_place(table, int(absent.argmax()))} has no {role} (null, NaN, "
                    f"infinite or empty); correct or drop such rows, or leave the column out: {role}=False."
                )
        if "weight" in columns and (bad := (weights := columns["weight"].to_numpy()) <= 0).any():
            row = int(bad.argmax())
            raise InputError(
                f"{self.source}: weight {weights[row]:g} at {_place(table, row)} is not above 0; drop such "
                "rows, or leave the column out: weight=False."
            )


def whole_pairs(blocks: Iterator[KeyedRows]) -> Iterator[KeyedRows]:
    """The same rows in blocks none of which ends within the rows of a pair."""
    waiting: list[KeyedRows] = []  # rows of the last pair so far
    for rows in blocks:
        cut = int(np.searchsorted(rows.keys, rows.keys[-1]))  # where the last pair begins
        if cut or (waiting and waiting[-1].keys[-1] != rows.keys[0]):
            yield _joined([*waiting, _slice(rows, 0, cut)])
            waiting = []
        waiting.append(_slice(rows, cut, len(rows.keys)))
    if waiting:
        yield _joined(waiting)


def _slice(rows: KeyedRows, first: int, end: int) -> KeyedRows:
    return KeyedRows(rows.keys[first:end], {role: values[first:end] for role, values in rows.columns.items()})


def _joined(parts: list[KeyedRows]) -> KeyedRows:
    columns: dict[str, Any] = {
        role: np.concatenate([part.columns[role] for part in parts]) for role in parts[0].columns
    }
    return KeyedRows(np.concatenate([part.keys for part in parts]), columns)


def _place(table: pa.Table, row: int) -> str:
    """A row's location for a reader of a message: rows of a cluster have no numbers."""
    return f"the row of user {table['user'][row].as_py()!r} and item {table['item'][row].as_py()!r}"
