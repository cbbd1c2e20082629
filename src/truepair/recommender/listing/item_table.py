"""ItemTable: facts about the items of a model, one row an item, for filters and quotas."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.columns import MISSING_TEXT, Raw, identifiers, role_of
from truepair.data.formats import open_path
from truepair.data.ids import Codes, IdMap, is_text, to_arrow
from truepair.data.in_memory import memory_source
from truepair.errors import InputError, did_you_mean
from truepair.evaluation.metrics import Mask
from truepair.recommender.listing.expression_text import expression_of

_ROW = "row of the item table"  # a column that a caller's expression does not name by chance


@dataclass(frozen=True, eq=False)
class ItemTable:
    """A table with a row for each item of a model; it may have rows of other items, too."""

    source: str
    """The table's name in messages."""
    table: pa.Table
    rows: Codes  # [n_items], the row of each item of the model; -1: none
    index: Any = None  # labels of the rows, where the table is from pandas

    @staticmethod
    def of(source: Any, ids: IdMap, needed: Mask, unknown: str) -> ItemTable:
        """The table of a path, a table (pandas, polars, DuckDB, Arrow) or a dict of columns.

        The column of the ids is found by its name, as in `read_interactions`. An item in `needed` that has no
        row is an error if `unknown` is "error".
        """
        raw = _opened(source)
        columns = [to_arrow(column, name) for name, column in _columns(raw)]
        try:
            table = pa.table(
                [column if raw.typed else _typed(column) for column in columns], names=list(raw.names)
            )
        except pa.ArrowException as error:
            raise InputError(f"{raw.source} is not a table: {error}.") from error
        place = _item_column(raw)
        found = _ids(raw, columns[place], ids)
        _check_distinct(raw, found)
        rows = np.full(len(ids), -1)
        codes = ids.find(found, "item")
        rows[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
        missing = np.flatnonzero(needed & (rows < 0))
        if len(missing) and unknown == "error":
            shown, more = ", ".join(map(repr, ids.outside(missing[:5]).to_pylist())), len(missing) - 5
            raise InputError(
                f"{raw.source} has no row for {len(missing):,} of the model's items: "
                f"{shown}{f' and {more:,} more' if more > 0 else ''}; add them, or pass unknown='drop' "
                "to recommend none of them."
            )
        return ItemTable(raw.source, table, rows, _index_of(source))

    def has_row(self) -> Mask:
        """Which items of the model have a row."""
        return np.asarray(self.rows >= 0)

    def where(self, condition: Any) -> Mask:
        """Which items of the model have a row that meets the condition; a null does not meet it.

        The condition is an Arrow expression, its text (see `expression_of`), or a mask over the table's rows.
        """
        if isinstance(condition, str):
            condition = expression_of(condition)
        is_expression = isinstance(condition, pc.Expression)
        met = self._evaluated(condition) if is_expression else self._mask(condition)
        return self.has_row() & met[self.rows]

    def values(self, column: str) -> Codes:
        """A number for each distinct value of a column, [n_items]; -1 for items without a value."""
        self._check_column(column)
        values = to_arrow(self.table.column(column), column)
        try:
            numbers = values.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, NotImplementedError) as error:
            raise InputError(
                f"quota: {column!r} of {self.source} is of type {values.type}; give a column that has one "
                "number, text or date in each row."
            ) from error
        return np.where(self.rows >= 0, numbers[self.rows], -1).astype(np.int64)

    def _check_column(self, name: object) -> None:
        times = self.table.column_names.count(name)
        if times != 1:
            how = "has no column" if not times else f"has {times} columns"
            raise InputError(f"{self.source} {how} {name!r}; {self._columns()}.{self._hint(str(name))}")

    def _columns(self) -> str:
        return f"its columns are {', '.join(map(repr, self.table.column_names))}"

    def _hint(self, name: str) -> str:
        return did_you_mean(name, self.table.column_names)

    def _evaluated(self, condition: pc.Expression) -> Mask:
        numbers = pa.table({_ROW: np.arange(len(self.table))})
        try:
            numbers.filter(condition)  # a table without the caller's columns
        except pa.ArrowException:
            pass
        else:
            raise InputError(
                f"where = {condition!s:.200} names no column of {self.source}; {self._columns()}."
            )
        try:
            kept = self.table.append_column(_ROW, numbers.column(_ROW)).filter(condition).column(_ROW)
        except pa.ArrowException as error:
            if found := re.search(r"FieldRef\.Name\((.*?)\)", str(error)):
                self._check_column(found[1])
            raise InputError(
                f"where = {condition!s:.200} cannot be evaluated on {self.source}: "
                f"{str(error).splitlines()[0]:.300}."
            ) from error
        met = np.zeros(len(self.table), dtype=bool)
        met[kept.to_numpy()] = True
        return met

    def _mask(self, mask: Any) -> Mask:
        remedy = (
            f"give an Arrow expression, text such as 'price < 10', or a mask over the rows of {self.source}"
        )
        if callable(mask) or isinstance(mask, bool | int | float | bytes | Mapping):
            raise InputError(f"where is a {type(mask).__name__}, which cannot be used here; {remedy}.")
        labels = _index_of(mask)
        if self.index is not None and labels is not None and not labels.equals(self.index):
            raise InputError(
                f"where is a mask whose index is not that of {self.source}, so its values may be of other "
                "rows; make it from the same table, or pass mask.to_numpy() if it has the order of the rows."
            )
        try:
            array = to_arrow(mask, "where")
        except InputError:
            raise InputError(f"where is a {type(mask).__name__}, which is no mask; {remedy}.") from None
        if not pa.types.is_boolean(array.type):
            raise InputError(f"where is of type {array.type}, not boolean; {remedy}.")
        if len(array) != len(self.table):
            raise InputError(f"where has {len(array):,} values for {len(self.table):,} rows; {remedy}.")
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def _opened(source: Any) -> Raw:
    if isinstance(source, str | os.PathLike):
        return open_path(Path(os.path.expanduser(source)))
    if not isinstance(source, Mapping) and not hasattr(source, "__arrow_c_stream__"):
        raise InputError(
            f"items is a {type(source).__name__}, which cannot be used here; give a path, a table (pandas, "
            "polars, DuckDB, pyarrow) or a dict of columns, one row an item."
        )
    return memory_source(source)


def _index_of(source: Any) -> Any:
    """The labels of the rows of a pandas table or column; None for anything else."""
    return source.index if hasattr(source, "iloc") and hasattr(source, "index") else None


def _columns(raw: Raw) -> list[tuple[str, Any]]:
    return list(zip(raw.names, raw.read(range(len(raw.names))), strict=True))


def _item_column(raw: Raw) -> int:
    """Where the ids are: the column recognised as the item; of several, the one that is named item…"""
    places = [at for at, name in enumerate(raw.names) if role_of(name) == "item"]
    if len(places) > 1:  # a table of songs may have columns for album and artist
        places = [at for at in places if raw.names[at].lower().startswith("item")] or places
    if len(places) == 1:
        return places[0]
    names = ", ".join(map(repr, raw.names)) or "none"
    how = "no column that is recognised" if not places else f"{len(places)} columns that are recognised"
    raise InputError(
        f"{raw.source} has {how} as the item; its columns are {names}. Name the one with the ids 'item'."
    )


def _ids(raw: Raw, column: pa.Array, ids: IdMap) -> pa.Array:
    found = identifiers(raw, "item", column)
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        raise InputError(f"{raw.source} has no item id at {raw.place(row)}; remove the row.")
    return found.cast(ids.ids.type) if not raw.typed and is_text(ids.ids.type) else found


def _check_distinct(raw: Raw, ids: pa.Array) -> None:
    distinct = IdMap.of(ids, "item")
    times = np.bincount(distinct.find(ids, "item"), minlength=len(distinct))
    if (repeated := np.flatnonzero(times > 1)).size:
        shown = ", ".join(map(repr, distinct.outside(repeated[:5]).to_pylist()))
        raise InputError(
            f"{raw.source} has several rows for {len(repeated):,} items: {shown}; keep one row an item."
        )


def _typed(text: pa.Array) -> pa.Array:
    """Text of a file as integers, numbers or booleans, if every cell is one; "007" stays text."""
    text = pc.utf8_trim_whitespace(text)
    text = pc.if_else(pc.is_in(text, pa.array(["", *MISSING_TEXT], text.type)), None, text)
    if text.null_count == len(text):
        return text
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            values = text.cast(kind)
        except pa.ArrowInvalid:
            continue
        same = kind != pa.int64() or values.cast(text.type).equals(text)
        return values if same else text
    return text
