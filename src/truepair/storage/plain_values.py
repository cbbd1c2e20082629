"""Plain values of TOML and JSON files: numbers, and lists and tables, which may be nested only so deep."""

from __future__ import annotations

import dataclasses
import sys
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from truepair.errors import InputError

_Record = TypeVar("_Record")

DEEPEST = 32
"""How many lists and tables may lie within each other."""


def every_value(value: object) -> list[object]:
    """The value and all values within it; raise if they are nested more than `DEEPEST` times.

    Parsers read more levels than functions that call themselves can handle.

    >>> every_value({"a": [1, 2]})
    [{'a': [1, 2]}, [1, 2], 1, 2]
    """
    found: list[object] = []
    level = [value]
    for _ in range(DEEPEST + 1):
        found += level
        level = [part for one in level for part in _parts(one)]
        if not level:
            return found
    raise InputError(f"lists and tables lie more than {DEEPEST} deep within each other.")


def is_number(value: object) -> bool:
    """Whether the value is an int or a float that a float can hold: neither NaN, infinite nor larger.

    >>> is_number(3), is_number(True), is_number(float("inf")), is_number(10**400)
    (True, False, False, False)
    """
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def read_record(kind: type[_Record], value: object) -> _Record:
    """The dataclass with these fields, from JSON; a ValueError if one is missing, unknown or wrong."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    types, needed = get_type_hints(kind), {f.name for f in fields if not _has_default(f)}
    if not isinstance(value, dict) or not needed <= value.keys() <= types.keys():
        raise ValueError(f"{value!r:.80} does not have the fields {', '.join(types)}")
    for name, each in value.items():
        if not _fits(each, types[name]):
            raise ValueError(f"{name} = {each!r:.60} is not allowed")
    return kind(**value)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _fits(value: object, kind: Any) -> bool:
    """Whether a JSON value is of the type of a field; tuples are lists in JSON."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is float:
        return is_number(value)
    if kind is int:
        return type(value) is int and value >= 0  # all whole fields are counts
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is UnionType:
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        if not isinstance(value, list):
            return False
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    return isinstance(value, origin or kind)
