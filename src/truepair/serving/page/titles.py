"""Titles: what an item table says about the items of a model, as readable text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes, IdMap, is_text
from truepair.data.tables.id_table import IdTable
from truepair.storage.types import Json

TITLE, PICTURE = "title", "picture"
"""The columns of the titles and of the addresses of pictures."""
_LONGEST = 300  # characters of a title, or of a value of a row
_LONGEST_ADDRESS = 2000


class Titles(NamedTuple):
    """By the codes of the items; None where the table has nothing."""

    texts: list[str | None]
    pictures: list[str | None]
    rows: Codes  # of the table; -1: none
    table: pa.Table | None
    columns: tuple[str, ...] = ()
    """Those beside the id, the title and the picture."""

    def facts(self, code: int) -> Json:
        """The rest of an item's row: column -> value, of those that have one."""
        row = int(self.rows[code])
        if self.table is None or row < 0:
            return {}
        values = {name: self.table[name][row].as_py() for name in self.columns}
        return {name: _short(value) for name, value in values.items() if value not in (None, "", [])}


def titles_of(table: pa.Table | None, ids: IdMap) -> Titles:
    """The titles of the items in a table with one row an item.

    They are in the column `title`, else in the first column of text beside the ids; the addresses of
    pictures are in the column `picture`, and only those that begin with https:// are used.
    """
    if table is None:
        nothing: list[str | None] = [None] * len(ids)
        return Titles(nothing, nothing, np.full(len(ids), -1), None)
    found = IdTable.read(table, ids, "item", "items")
    rows = found.rows_of(ids)
    names = [name.lower() for name in table.column_names]
    title = names.index(TITLE) if TITLE in names else _first_text(table, found.id_column)
    picture = names.index(PICTURE) if PICTURE in names else None
    texts = _column(table, title, rows, lambda text: text[:_LONGEST])
    pictures = _column(table, picture, rows, _address)
    used = (found.id_column, title, picture)
    others = tuple(name for place, name in enumerate(table.column_names) if place not in used)
    return Titles(texts, pictures, rows, table, others)


def _first_text(table: pa.Table, id_column: int) -> int | None:
    for place, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        if place != id_column and name.lower() != PICTURE and is_text(column.type):
            return place
    return None


def _column(
    table: pa.Table, place: int | None, rows: Codes, shown: Callable[[str], str | None]
) -> list[str | None]:
    """The text of each item in a column, as it is shown."""
    if place is None:
        return [None] * len(rows)
    texts = [None if value is None else str(value) for value in table.column(place).to_pylist()]
    found = (texts[row] if row >= 0 else None for row in rows.tolist())
    return [shown(text) if text else None for text in found]


def _address(text: str) -> str | None:
    return text if text.lower().startswith("https://") and len(text) <= _LONGEST_ADDRESS else None


def _short(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(map(str, value))[:_LONGEST]
    return value if isinstance(value, bool | int | float) else str(value)[:_LONGEST]
