"""IdTable: a table with one row for each item, or each user, from a path, a table or a dict of columns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import MISSING_TEXT, Raw, identifiers, role_of
from truepair.data.ids import Codes, IdMap, cast_or_none, is_text, to_arrow
from truepair.data.rows.options import ReadOptions
from truepair.errors import InputError
from truepair.storage.types import Table


@dataclass(frozen=True, eq=False)
class IdTable:
    """A table whose rows have distinct ids."""

    source: str
    """The table's name in messages."""
    table: pa.Table
    ids: pa.Array  # one for each row, distinct
    id_column: int
    is_typed: bool
    """Whether the source has types; a text file has only text, in which numbers were recognised."""

    @staticmethod
    def read(source: Table, known: IdMap, role: str, parameter: str) -> IdTable:
        """The table of a path, a database's URL#table, a table (pandas, polars, DuckDB, Arrow) or a dict.

        `role` is "item" or "user": the column of the ids is found by its name, as in `read_interactions`.
        Text ids of `known` make text of the ids of a file. `parameter` names the source in messages.
        """
        if not isinstance(source, str | os.PathLike | Mapping) and not hasattr(source, "__arrow_c_stream__"):
            raise InputError(
                f"{parameter} is a {type(source).__name__}, not a table; give a path, a table or a dict."
            )
        with closing(ReadOptions().open(source)) as raw:
            found = zip(raw.names, raw.read(range(len(raw.names))), strict=True)
            columns = [to_arrow(column, name) for name, column in found]
        place = _id_column(raw, role)
        try:
            table = pa.table(
                [column if raw.typed else typed_text(column) for column in columns], names=list(raw.names)
            )
        except pa.ArrowException as error:
            raise InputError(f"{raw.source} is not a table: {error}.") from error
        ids = _ids(raw, columns[place], known, role)
        _check_distinct(raw, ids, role)
        return IdTable(raw.source, table, ids, place, raw.typed)

    def rows_of(self, ids: IdMap, what: str = "item") -> Codes:
        """The row of each of these ids; -1: none."""
        rows = np.full(len(ids), -1)
        codes = ids.find(self.ids, what)
        rows[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
        return rows


def _id_column(raw: Raw, role: str) -> int:
    """Where the ids are: the column recognised as the role; of several, the one that is named item…, user…"""
    places = [at for at, name in enumerate(raw.names) if role_of(name) == role]
    if len(places) > 1:  # a table of songs may have columns for album and artist
        places = [at for at in places if raw.names[at].lower().startswith(role)] or places
    if len(places) == 1:
        return places[0]
    names = ", ".join(map(repr, raw.names)) or "none"
    how = "no column that is recognised" if not places else f"{len(places)} columns that are recognised"
    raise InputError(
        f"{raw.source} has {how} as the {role}; its columns are {names}. Name that of the ids {role!r}."
    )


def _ids(raw: Raw, column: pa.Array, known: IdMap, role: str) -> pa.Array:
    found = identifiers(raw, role, column)
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        raise InputError(f"{raw.source} has no {role} id at {raw.place(row)}; remove the row.")
    return found.cast(known.ids.type) if not raw.typed and is_text(known.ids.type) else found


def _check_distinct(raw: Raw, ids: pa.Array, role: str) -> None:
    distinct = IdMap.of(ids, role)
    times = np.bincount(distinct.find(ids, role), minlength=len(distinct))
    if (repeated := np.flatnonzero(times > 1)).size:
        shown = ", ".join(map(repr, distinct.outside(repeated[:5]).to_pylist()))
        raise InputError(
            f"{raw.source} has several rows for {len(repeated):,} {role}s: {shown}; keep one row."
        )


def typed_text(text: pa.Array) -> pa.Array:
    """Text of a file as integers, numbers or booleans, if every cell is one; "007" stays text."""
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, pa.array(["", *MISSING_TEXT], text.type)), None, text)
    if text.null_count == len(text):
        return text
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        if (values := cast_or_none(text, kind)) is not None:
            same = kind != pa.int64() or values.cast(text.type).equals(text)
            return values if same else text
    return text
