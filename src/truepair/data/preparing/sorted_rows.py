"""Rows that others have sorted, such as a cluster: a stream of tables -> ids, then rows in codes.

The functions of `prepare` parse the columns, so that the arrays are its arrays. A table is in memory, and the
ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import Raw
from truepair.data.ids import IdMap, canonical_ids
from truepair.data.interactions import EXTRA, Step
from truepair.data.preparing.row_files import Block
from truepair.data.preparing.texts import Columns, Texts
from truepair.data.reading import absent_rows
from truepair.data.rows.options import ReadOptions
from truepair.errors import InputError

Tables = Callable[[], Iterator[pa.Table]]
Maps = dict[str, IdMap]

_MANY = 1 << 24  # ids, repeated ones among them, that are kept before they are made distinct


class SortedRows:
    """A stream of tables with the columns `user` and `item`, and `rating`, `weight` and `time` if there are.

    `tables()` is called twice, by `id_maps` and then by `blocks`, and must give the same rows: sorted by
    user, then item, text by its bytes; rows of one pair are in the order of the source.
    """

    def __init__(self, tables: Tables, source: str, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.steps: list[Step] = []
        """What was removed by the first pass."""
        self._tables = tables
        self._raw = Raw(source, (), lambda positions: [])
        self._texts = Texts(self._raw)

    # --- the first pass ----------------------------------------------------------------------------

    def id_maps(self) -> Maps:
        """The distinct ids of both roles, in rows that no rule removes."""
        every, kept = _DistinctIds(), _DistinctIds()
        for table in filter(len, self._tables()):
            for role in ("user", "item"):
                if role not in table.column_names:
                    columns = ", ".join(table.column_names)
                    raise InputError(f"{self.source} has no column {role!r}; it has {columns}.")
            high = self._high(self._parsed(table))
            every.add(table)
            if high is not None:
                kept.add(table.filter(high))
        if not every.rows:
            raise InputError(f"{self.source} has no rows; give at least one pair.")
        maps, least, low = every.maps(self.source), self.options.min_rating, every.rows - kept.rows
        if least is None or not low:
            return maps
        what = f"rating below {float(least):g}"
        if not kept.rows:
            raise InputError(
                f"{self.source}: no row is left, all {low:,} rows have a {what}; check that column, or "
                "lower the bound."
            )
        left = kept.maps(self.source)
        self.steps.append(Step(what, low, *(len(maps[role]) - len(left[role]) for role in ("user", "item"))))
        return left

    # --- the second pass ---------------------------------------------------------------------------

    def blocks(self, users: IdMap, items: IdMap) -> Iterator[Block]:
        """The codes and columns of each table; an error if rows are not in order."""
        read, start, last = 0, 0, -1  # the rows, the code of the last user, the key of the last row
        for table in filter(len, self._tables()):
            columns = self._texts.settled(self._parsed(table))
            self._check(table, columns)
            if (high := self._high(columns)) is not None:
                table, columns = table.filter(high), {role: c.filter(high) for role, c in columns.items()}
            if not len(table):
                continue
            near = IdMap(users.ids.slice(start, len(table) + 1))  # the table's own users
            of_users, of_items = near.find(table["user"], "user"), items.find(table["item"], "item")
            keys = (of_users + start) * len(items) + of_items
            if (of_users < 0).any() or keys[0] < last or (np.diff(keys) < 0).any():
                raise InputError(
                    f"{self.source} is not sorted by user, then item, text by its bytes; sort it so."
                )
            block: Block = {role: column.to_numpy() for role, column in columns.items()}
            yield {
                "users": of_users + start,
                "items": of_items,
                "row": np.arange(read, read + len(table)),
                **block,
            }
            read, start, last = read + len(table), start + int(of_users[-1]), int(keys[-1])

    # --- both --------------------------------------------------------------------------------------

    def _parsed(self, table: pa.Table) -> Columns:
        """The columns beside the ids; text of times stays text until all of it is seen."""
        raw = replace(self._raw, place=partial(_place, table))
        return {
            role: self._texts.parse(raw, role, table[role]) for role in EXTRA if role in table.column_names
        }

    def _high(self, columns: Columns) -> pa.Array | None:
        """Which rows have a rating that is not too low; a missing one is found by `_check`."""
        if self.options.min_rating is None:
            return None
        ratings = columns["rating"].to_numpy(zero_copy_only=False)
        return pa.array(~(ratings < float(self.options.min_rating)))

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


class _DistinctIds:
    """The distinct ids of both roles in tables that come one after the other."""

    def __init__(self) -> None:
        self.rows = 0
        self._found: dict[str, list[pa.Array]] = {"user": [], "item": []}

    def add(self, table: pa.Table) -> None:
        """Count the table's rows, and keep its ids."""
        self.rows += len(table)
        for role, kept in self._found.items():
            kept.append(pc.unique(table[role]))
            if sum(map(len, kept)) > _MANY:
                kept[:] = [pc.unique(pa.concat_arrays(kept))]

    def maps(self, source: str) -> Maps:
        """The ids of all tables in order; an error if one is missing: null, NaN or empty."""
        return {role: IdMap.of(_complete(kept, role, source), role) for role, kept in self._found.items()}


def _complete(found: list[pa.Array], role: str, source: str) -> pa.Array:
    ids = canonical_ids(pa.concat_arrays(found), role)
    is_text = ids.type in (pa.large_string(), pa.large_binary())
    if ids.null_count or (is_text and pc.any(pc.equal(pc.binary_length(ids), 0)).as_py()):
        raise InputError(
            f"{source}: {role} has missing ids (null, NaN or empty); correct them, or drop their rows."
        )
    return ids


def _place(table: pa.Table, row: int) -> str:
    """A row's location for a reader of a message: rows of a cluster have no numbers."""
    return f"the row of user {table['user'][row].as_py()!r} and item {table['item'][row].as_py()!r}"
