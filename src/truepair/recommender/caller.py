"""What the caller gives and gets: ids, one or several, known or not; tables of the type that was given."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes, IdMap, canonical_ids
from truepair.errors import InputError
from truepair.storage.notebook import show_arrow_tables
from truepair.storage.types import Ids, Table

Unknown = Literal["error", "drop", "popular"]

_REMEDIES = {
    "item": "unknown='drop' ignores unknown ids",
    "user": "unknown='popular' gives unknown users the most popular items, unknown='drop' leaves them out",
}


def as_ids(values: Ids, what: str) -> pa.Array:
    """One id or several, as an Arrow array; a mapping is an error."""
    if isinstance(values, Mapping):
        raise InputError(f"{what} ids are given as a mapping; give a list. Only exclude_items can be one.")
    if isinstance(values, str | bytes | int | uuid.UUID | np.generic):
        values = [values]
    return canonical_ids(values, what)


def codes_of(ids: IdMap, values: Ids, what: str, unknown: str, remedy: str | None = None) -> Codes:
    """The codes of one id or several; an unknown one is -1, or an error if `unknown` says so."""
    array = as_ids(values, what)
    codes = ids.find(array, what)
    if unknown == "error" and (codes < 0).any():
        try:
            ids.codes(array, what)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; {remedy or _REMEDIES[what]}.") from None
    return codes


OUTPUTS = ("arrow", "pandas", "polars")


def to_output(table: pa.Table, output: str) -> Table:
    """The table as pandas, polars or pyarrow, which a notebook shows as HTML."""
    if output == "pandas":
        return table.to_pandas()
    if output == "polars":
        import polars

        return polars.from_arrow(table)
    show_arrow_tables()
    return table
