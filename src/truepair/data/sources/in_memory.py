"""Tables, dicts, matrices and arrays in memory -> raw columns, without a copy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.columns import BY_POSITION, Raw
from truepair.data.interactions import Interactions, Step
from truepair.errors import InputError
from truepair.storage.types import Array, Source, Table


def table_type(source: object, default: str = "arrow") -> str:
    """The type of tables for results: that of a table of the caller, or of the one that was read.

    >>> table_type({"user": [1], "item": [2]})
    'arrow'
    """
    if isinstance(source, Interactions):
        return source.origin.policy.table
    family = type(source).__module__.partition(".")[0]
    return {"pandas": "pandas", "polars": "polars", "pyarrow": "arrow"}.get(family, default)


def memory_source(source: Source) -> Raw:
    """The raw columns of an object. For other types the error lists those that can be read."""
    if sp.issparse(source):
        return matrix_source(source, "the matrix")
    if isinstance(source, np.ndarray):
        return _array(source)
    if isinstance(source, tuple) and 2 <= len(source) <= len(BY_POSITION):
        return _arrays("the tuple", BY_POSITION, source)
    if isinstance(source, Mapping):
        return _arrays("the dict", [str(name) for name in source], list(source.values()))
    if hasattr(source, "__arrow_c_stream__"):
        return _table(source)
    raise InputError(
        f"source of type {type(source).__name__} cannot be read; give a path, a table (pandas, polars, "
        "DuckDB, pyarrow), a dict of arrays, a SciPy sparse matrix, a NumPy array of 2 to 4 columns, or a "
        "tuple (users, items, ratings, times) of 2 to 4 arrays."
    )


def matrix_source(matrix: Source, source: str) -> Raw:
    """The nonzero entries of a SciPy matrix: rows are users, columns are items, values are ratings."""
    if matrix.ndim != 2:
        raise InputError(f"{source} has {matrix.ndim} dimension(s); give a users x items matrix.")
    entries = matrix.tocoo()
    nonzero = entries.data != 0
    users, items = (np.asarray(index, np.int64) for index in (entries.row, entries.col))
    n_users, n_items = len(np.unique(users)), len(np.unique(items))
    empty = Step("empty row or column of the matrix", 0, matrix.shape[0] - n_users, matrix.shape[1] - n_items)
    columns = [users[nonzero], items[nonzero], entries.data[nonzero]]
    left_users, left_items = len(np.unique(columns[0])), len(np.unique(columns[1]))
    zero = Step("explicit zero", int((~nonzero).sum()), n_users - left_users, n_items - left_items)
    return Raw(
        source,
        BY_POSITION[:3],
        lambda positions: [columns[at] for at in positions],
        lambda row: f"row {columns[0][row]}, column {columns[1][row]} (counting from 0)",
        steps=tuple(step for step in (empty, zero) if step.rows or step.users or step.items),
        order="none",
    )


def _arrays(source: str, names: Sequence[str], arrays: Sequence[object]) -> Raw:
    return Raw(source, names[: len(arrays)], lambda positions: [arrays[at] for at in positions])


def _array(array: Array) -> Raw:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array cannot be read; pass the rows without masked values.")
    if array.dtype.names is not None:
        flat = array.reshape(-1)
        return _arrays("the array", array.dtype.names, [flat[name] for name in array.dtype.names])
    if array.ndim == 2 and 2 <= array.shape[1] <= len(BY_POSITION):
        return _arrays("the array", BY_POSITION, list(np.asarray(array).T))
    raise InputError(
        f"an array of shape {array.shape} has not 2 to 4 columns (user, item, rating, time); if it is a "
        "users x items matrix, pass scipy.sparse.csr_array(array)."
    )


def _table(source: Table) -> Raw:
    try:
        table = source if isinstance(source, pa.Table) else pa.table(without_index(source))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"the {type(source).__name__} cannot be read as a table: {error}. Pass only the columns needed."
        ) from error
    return Raw("the table", table.column_names, lambda positions: [table.column(at) for at in positions])


def without_index(source: Table) -> Table:
    """A table of pandas as one of Arrow, without its index but for levels that have a name: they become
    columns. Any other table as it is."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(source, pandas.DataFrame):
        return source
    table = pa.Table.from_pandas(source, preserve_index=False)
    for name in source.index.names:
        if name is not None and str(name) not in table.column_names:
            table = table.append_column(str(name), pa.Array.from_pandas(source.index.get_level_values(name)))
    return table
