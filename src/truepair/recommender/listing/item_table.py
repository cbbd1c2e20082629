"""ItemTable: facts about the items of a model, one row an item, for filters and quotas."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import Codes, IdMap, to_arrow
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError, did_you_mean
from truepair.evaluation.metrics import Mask
from truepair.storage.types import Table

_ROW = "row of the item table"  # a column that a caller's expression does not name by chance


@dataclass(frozen=True, eq=False)
class ItemTable:
    """A table with a row for each item of a model; it may have rows of other items, too."""

    source: str
    """The table's name in messages."""
    table: pa.Table
    rows: Codes  # [n_items], the row of each item of the model; -1: none
    index: object = None  # labels of the rows, where the table is from pandas

    @staticmethod
    def of(source: Table, ids: IdMap, needed: Mask, unknown: str) -> ItemTable:
        """The table of a path, a table (pandas, polars, DuckDB, Arrow) or a dict of columns.

        The column of the ids is found by its name, as in `read_interactions`. An item in `needed` that has no
        row is an error if `unknown` is "error".
        """
        found = IdTable.read(source, ids, "item", "items")
        rows = found.rows_of(ids)
        missing = np.flatnonzero(needed & (rows < 0))
        if len(missing) and unknown == "error":
            shown, more = ", ".join(map(repr, ids.outside(missing[:5]).to_pylist())), len(missing) - 5
            raise InputError(
                f"{found.source} has no row for {len(missing):,} of the model's items: "
                f"{shown}{f' and {more:,} more' if more > 0 else ''}; add them, or pass unknown='drop'."
            )
        return ItemTable(found.source, found.table, rows, _index_of(source))

    def where(self, condition: object) -> Mask:
        """Which items of the model have a row that meets the condition; a null does not meet it.

        The condition is an Arrow expression, its text (see `expression_of`), or a mask over the table's rows.
        """
        if isinstance(condition, str):
            condition = expression_of(condition)
        is_expression = isinstance(condition, pc.Expression)
        met = self._evaluated(condition) if is_expression else self._mask(condition)
        return (self.rows >= 0) & met[self.rows]

    def values(self, column: str) -> Codes:
        """A number for each distinct value of a column, [n_items]; -1 for items without a value."""
        self._check_column(column)
        values = to_arrow(self.table.column(column), column)
        try:
            numbers = values.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
        except (pa.ArrowException, NotImplementedError) as error:
            raise InputError(
                f"quota: {column!r} of {self.source} is of type {values.type}; give numbers, text or dates."
            ) from error
        return np.where(self.rows >= 0, numbers[self.rows], -1).astype(np.int64)

    def _check_column(self, name: object) -> None:
        times = self.table.column_names.count(name)
        if times != 1:
            how = "has no column" if not times else f"has {times} columns"
            hint = did_you_mean(str(name), self.table.column_names)
            raise InputError(f"{self.source} {how} {name!r}; {self._columns()}.{hint}")

    def _columns(self) -> str:
        return f"its columns are {', '.join(map(repr, self.table.column_names))}"

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
            why = f"cannot be evaluated on {self.source}: {str(error).splitlines()[0]:.300}"
            raise InputError(f"where = {condition!s:.200} {why}.") from error
        met = np.zeros(len(self.table), dtype=bool)
        met[kept.to_numpy()] = True
        return met

    def _mask(self, mask: object) -> Mask:
        remedy = (
            f"give an Arrow expression, text such as 'price < 10', or a mask over the rows of {self.source}"
        )
        if callable(mask) or isinstance(mask, bool | int | float | bytes | Mapping):
            raise InputError(f"where is a {type(mask).__name__}, which cannot be used here; {remedy}.")
        labels = _index_of(mask)
        if self.index is not None and labels is not None and not labels.equals(self.index):
            raise InputError(
                f"where is a mask whose index is not that of {self.source}; make it from the same table."
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


# --- conditions as text ----------------------------------------------------------------------------------


_LONGEST = 2000  # characters; bounds the depth of the tree, too
_ALLOWED = "columns, numbers, text, True, False, comparisons, `in` with a list of values, and, or, not"

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def expression_of(text: str) -> pc.Expression:
    """The Arrow expression of a condition on items, such as "price < 10 and category in ('tea', 'jam')".

    The text has Python's syntax and is never executed: its syntax tree may hold names of columns, numbers,
    text, True and False, comparisons, `in`, `and`, `or` and `not`. Everything else is an error.

    >>> expression_of("5 <= price < 10 and not sold")
    <pyarrow.compute.Expression (((5 <= price) and (price < 10)) and invert(sold))>
    """
    if len(text) > _LONGEST:
        raise InputError(f"where has {len(text):,} characters, more than {_LONGEST:,}; pass a mask instead.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own, about backslashes in the text
            tree = ast.parse(text.strip(), mode="eval")
        return _condition(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"where = {text!r:.200} cannot be read: {reason}; it may have {_ALLOWED}.") from None


def _condition(node: ast.expr) -> pc.Expression:
    if isinstance(node, ast.BoolOp):
        combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
        return reduce(combine, map(_condition, node.values))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ~_condition(node.operand)
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        compared = zip(node.ops, pairwise(sides), strict=True)
        return reduce(operator.and_, (_comparison(kind, *both) for kind, both in compared))
    if isinstance(node, ast.Name):
        return pc.field(node.id)
    raise _refused(node)


def _comparison(kind: ast.cmpop, left: ast.expr, right: ast.expr) -> pc.Expression:
    if isinstance(kind, ast.In | ast.NotIn):
        if not isinstance(right, ast.List | ast.Tuple | ast.Set):
            raise _refused(right)
        found = _operand(left).isin([_value(one) for one in right.elts])
        return ~found & _operand(left).is_valid() if isinstance(kind, ast.NotIn) else found
    if type(kind) not in _COMPARISONS:
        raise InputError(f"where: `is` is not allowed; it may have {_ALLOWED}.")
    return _COMPARISONS[type(kind)](_operand(left), _operand(right))


def _operand(node: ast.expr) -> pc.Expression:
    return pc.field(node.id) if isinstance(node, ast.Name) else pc.scalar(_value(node))


def _value(node: ast.expr) -> bool | int | float | str:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand)
        if isinstance(value, int | float):
            return -value
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    raise _refused(node)


def _refused(node: ast.expr) -> InputError:
    return InputError(f"where: {ast.unparse(node)!r:.100} is not allowed here; it may have {_ALLOWED}.")


def _index_of(source: object) -> Any:
    """The labels of the rows of a pandas table or column; None for anything else."""
    return source.index if hasattr(source, "iloc") and hasattr(source, "index") else None
