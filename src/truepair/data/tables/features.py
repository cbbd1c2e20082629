"""Features of items or users: a table -> one sparse row of numbers for each of them.

Statistics and vocabularies come from the rows of the training only; later rows are encoded with them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.columns import is_row_number
from truepair.data.ids import Codes, IdMap
from truepair.data.log import Mask
from truepair.data.tables.feature_columns import KINDS, FeatureColumn, Place, kind_of, plain_column
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError
from truepair.storage.plain_values import read_record
from truepair.storage.types import Json, Table


@dataclass(frozen=True)
class FeatureEncoding:
    """How the columns of a table become features."""

    columns: tuple[FeatureColumn, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each feature."""
        return tuple(name for column in self.columns for name in column.features)

    @staticmethod
    def fitted(table: IdTable, rows: Codes, role: str) -> FeatureEncoding:
        """What these rows of the table have; columns that have no feature are left out."""
        found: list[FeatureColumn] = []
        names = table.table.column_names
        for place, name in enumerate(names):
            if place == table.id_column or is_row_number(name):
                continue
            if names.count(name) > 1:
                raise InputError(f"{table.source} has {names.count(name)} columns {name!r}; rename them.")
            column = table.table.column(place).combine_chunks().take(pa.array(rows))
            where = Place(table.source, table.ids.take(pa.array(rows)), role)
            kind = kind_of(column, table.is_typed)
            if kind is not None:
                plain = plain_column(column, name, kind.kind, where)
                found.append(kind.fitted(name, plain, where))
        used = tuple(column for column in found if column.features)
        if not used:
            left = ", ".join(repr(name) for at, name in enumerate(names) if at != table.id_column) or "none"
            raise InputError(
                f"{table.source} has no column that gives features; beside the {role}, it has {left}. Give "
                "text or lists of text that rows share, numbers that differ, or lists of numbers."
            )
        return FeatureEncoding(used)

    def matrix(self, table: IdTable, rows: Codes, role: str = "item") -> sp.csr_array:
        """[n, features], float32: these rows of the table; zeros for -1."""
        parts, some = [], pa.array(rows[rows >= 0])
        where = Place(table.source, table.ids.take(some), role)
        for column in self.columns:
            if column.name not in table.table.column_names:
                names = ", ".join(map(repr, table.table.column_names))
                raise InputError(
                    f"{table.source} has no column {column.name!r} of the model, but {names}. Add it."
                )
            values = table.table.column(column.name).combine_chunks().take(some)
            plain = plain_column(values, column.name, column.kind, where)
            parts.append(column.encode(plain, where))
        found = sp.csr_array(sp.hstack(parts, format="csr", dtype=np.float32))
        place = np.flatnonzero(rows >= 0)
        spread = sp.csr_array(
            (np.ones(len(place), np.float32), (place, np.arange(len(place)))), shape=(len(rows), len(place))
        )
        whole = sp.csr_array(spread @ found)
        whole.sum_duplicates()  # sorts the columns of each row, too
        return whole

    def as_json(self) -> list[Json]:
        """Plain values for a model file."""
        return [column.as_json() for column in self.columns]

    @staticmethod
    def from_json(stored: object) -> FeatureEncoding:
        """From `as_json`; raise if it is not that."""
        if not isinstance(stored, list):
            raise InputError("the feature columns are not a list.")
        found = []
        for column in stored:
            try:
                fields = dict(column)
                found.append(read_record(KINDS[fields.pop("kind")], fields))
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"{column!r:.60} is no feature column: {error}") from error
        return FeatureEncoding(tuple(found))


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """A sparse row of features for each item, or each user, by code."""

    matrix: sp.csr_array  # [n, features], float32
    encoding: FeatureEncoding

    @staticmethod
    def of(source: Table, ids: IdMap, trained: Mask, role: str = "item") -> Features:
        """The features of these ids, from a path, a table or a dict of columns with one row for each.

        The encoding is fitted to the `trained` ones, and these must have a row. Others may have one; rows of
        other ids are not used. Features of items that are not trained are left out, so that training with the
        whole catalogue does not take what they have for disliked.
        """
        return Features.of_table(IdTable.read(source, ids, role, f"{role}_features"), ids, trained, role)

    @staticmethod
    def of_table(table: IdTable, ids: IdMap, trained: Mask, role: str) -> Features:
        """`of` for a table that was read."""
        rows = table.rows_of(ids, role)
        missing = np.flatnonzero(trained & (rows < 0))
        if len(missing):
            shown, more = ", ".join(map(repr, ids.outside(missing[:5]).to_pylist())), len(missing) - 5
            raise InputError(
                f"{table.source} has no row for {len(missing):,} {role}s of the interactions: "
                f"{shown}{f' and {more:,} more' if more > 0 else ''}; add them (cells may be empty)."
            )
        encoding = FeatureEncoding.fitted(table, rows[trained & (rows >= 0)], role)
        rows = np.where(trained, rows, -1) if role == "item" else rows
        return Features(encoding.matrix(table, rows, role), encoding)

    def take(self, codes: Codes) -> Features:
        """Those of some items or users, in this order."""
        return Features(sp.csr_array(self.matrix[codes]), self.encoding)

    @cached_property
    def digest(self) -> str:
        """A checksum of all numbers and names."""
        content = hashlib.blake2b(repr(self.encoding).encode(), digest_size=16)
        for part in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            content.update(np.ascontiguousarray(part.astype("<f8")).tobytes())
        return content.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        names = ", ".join([column.name for column in self.encoding.columns])
        n, width = self.matrix.shape
        return f"<Features of {n:,} rows, {width:,} from {names}, {self.digest[:12]}>"
