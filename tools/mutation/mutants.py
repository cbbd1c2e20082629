"""Mutants: the text of a module -> copies of it with one small change each."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}

KINDS = ("comparison", "operator", "constant", "and/or", "not", "return", "condition", "keyword")
"""The kinds of changes."""


@dataclass(frozen=True)
class Mutant:
    """A module with one change: what kind, in which line, what it was and became, and the new text."""

    kind: str
    line: int
    before: str
    after: str
    text: str


def mutants(text: str) -> list[Mutant]:
    """Every mutant of a module, in the order of the source.

    Annotations, docstrings and the expressions in f-strings are left alone. The change is made in the text,
    so that the lines before it keep their numbers.
    """
    tree = ast.parse(text)
    skipped = {id(below) for node in ast.walk(tree) for part in _left_alone(node) for below in ast.walk(part)}
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for kind, old, new in _changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or old.lineno) - 1] + (old.end_col_offset or 0)
            raw = text.encode()
            after = ast.unparse(new)
            if isinstance(new, ast.expr) and not isinstance(new, ast.Call | ast.Constant):
                after = f"({after})"
            mutated = (raw[:start] + after.encode() + raw[end:]).decode()
            found.append(Mutant(kind, old.lineno, raw[start:end].decode(), after, mutated))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.kind, mutant.before, mutant.after))


def sampled(text: str, count: int, seed: str) -> list[Mutant]:
    """`count` of the mutants of a module, or all if there are fewer; equal for an equal text and seed."""
    found = mutants(text)
    chosen = random.Random(seed).sample(range(len(found)), min(count, len(found)))
    return [found[number] for number in sorted(chosen)]


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.JoinedStr):
        yield node
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
        yield node


_Place = ast.expr | ast.stmt


def _changes(node: ast.AST) -> Iterator[tuple[str, _Place, _Place]]:
    """For each change of the node itself: its kind, the part of the source, and what replaces it."""
    match node:
        case ast.Compare(left, [operator], right):
            yield "comparison", node, ast.Compare(left, [_COMPARISONS[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS and not _is_text(left, right):
            yield "operator", node, ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.Constant(bool() as value):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield "constant", node, ast.Constant(value + 1)
        case ast.BoolOp(operator, values):
            yield "and/or", node, ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", node, operand
        case ast.Return(value) if value is not None and ast.unparse(value) != "None":
            yield "return", node, ast.Return(ast.Constant(None))
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            if not isinstance(test, ast.UnaryOp | ast.Constant):  # those have a change of their own
                yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.Call(function, args, keywords):
            for number, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    rest = keywords[:number] + keywords[number + 1 :]
                    yield "keyword", node, ast.Call(function, args, rest)


def _is_text(*operands: ast.expr) -> bool:
    return any(
        isinstance(operand, ast.JoinedStr)
        or (isinstance(operand, ast.Constant) and isinstance(operand.value, str))
        for operand in operands
    )
