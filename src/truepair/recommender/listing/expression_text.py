"""Conditions on items as text, such as "price < 10 and category in ('tea', 'jam')" -> an Arrow expression.

The text has Python's syntax and is never executed: its syntax tree may hold names of columns, numbers, text,
True and False, comparisons, `in`, `and`, `or` and `not`. Everything else is an error.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from truepair.errors import InputError

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
    """The Arrow expression of a condition.

    >>> expression_of("5 <= price < 10 and not sold")
    <pyarrow.compute.Expression (((5 <= price) and (price < 10)) and invert(sold))>
    """
    if len(text) > _LONGEST:
        raise InputError(
            f"where has {len(text):,} characters, more than {_LONGEST:,}; pass an Arrow expression or a mask."
        )
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
