"""Names of types: arrays of any dtype, plain JSON, and what a caller may pass as ids, a table or a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # the command line starts without numpy
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"  # of any dtype; name the dtype where there is one
Json: TypeAlias = dict[str, Any]  # a JSON object
Ids: TypeAlias = Any  # ids of the caller: one, or a sequence, array, series or column of them
Table: TypeAlias = Any  # a table of the caller: a path, a pandas, polars or Arrow table, a dict of columns
Source: TypeAlias = Any  # interactions of the caller: a Table, a query, a matrix, an Interactions
