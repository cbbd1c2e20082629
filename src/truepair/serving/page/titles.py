"""Titles: what an item table says about items, as readable text; CatalogueSearch looks through them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import Codes, IdMap, is_text
from truepair.data.tables.id_table import IdTable
from truepair.evaluation.metrics import Mask
from truepair.serving.events.records import PICTURE, TITLE
from truepair.storage.types import Json

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
    fields = enumerate(table.schema)
    able = (at for at, field in fields if field.name.lower() != PICTURE and is_text(field.type))
    return next((at for at in able if at != id_column), None)


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


# --- search ----------------------------------------------------------------------------------------------


class CatalogueSearch:
    """Ids and titles by code; a question looks through all of them: 11 to 33 ms for 100,000.

    Weights are how many interactions each has. What is found is in the order of the ids, or the heaviest
    first.
    """

    def __init__(
        self,
        ids: Sequence[str],
        weights: Codes,
        titles: Sequence[str | None] = (),
        heaviest_first: bool = False,
    ) -> None:
        self._ids = pa.array([text.casefold() for text in ids], pa.large_string())
        self._words: pa.Array | None = None
        if any(titles):
            self._words = pa.array([" " + plain(title or "") for title in titles], pa.large_string())
        self._weights, self._heaviest_first = weights, heaviest_first

    def find(self, query: str, limit: int) -> Codes:
        """The codes of the best matches, the id itself first.

        An item matches if its id begins with the query, or if each word of the query begins a word of the
        title; where no title matches so, if each is a part of the title.
        """
        if not query.strip():
            return self._without_query(limit)
        text = query.strip().casefold()
        found = _mask(pc.starts_with(self._ids, text))
        words = plain(query).split()
        if self._words is not None and words:
            begins = self._having([f" {word}" for word in words])
            found = found | (begins if begins.any() else self._having(words))
        codes = np.flatnonzero(found)
        if self._heaviest_first:
            codes = codes[np.argsort(-self._weights[codes], kind="stable")]
        exact = np.flatnonzero(_mask(pc.equal(self._ids, text)))
        return np.concatenate([exact, codes[~np.isin(codes, exact)]])[:limit]

    def _without_query(self, limit: int) -> Codes:
        """The heaviest; or some that have interactions and are spread over all ids."""
        if self._heaviest_first:
            return np.argsort(-self._weights, kind="stable")[:limit]
        able = np.flatnonzero(self._weights)
        return able[np.linspace(0, len(able) - 1, min(limit, len(able))).astype(np.int64)]

    def _having(self, parts: Sequence[str]) -> Mask:
        masks = [_mask(pc.match_substring(self._words, part)) for part in parts]
        return np.asarray(np.logical_and.reduce(masks))


def plain(text: str) -> str:
    """Lower case without accents, and a space for all that is no letter and no digit.

    >>> plain("Amélie (2001)")
    'amelie  2001 '
    """
    text = text.casefold()
    if not text.isascii():
        letters = unicodedata.normalize("NFKD", text)
        text = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return re.sub(r"[\W_]", " ", text)


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
