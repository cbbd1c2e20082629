"""Plain values of TOML and JSON files: numbers, and lists and tables, which may be nested only so deep."""

from __future__ import annotations

import dataclasses
import json
import sys
from contextlib import suppress
from types import UnionType
from typing import Any, Literal, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

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


def as_text(value: object) -> str:
    """A value as text; bytes are decoded."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def as_json(value: object) -> str:
    """A value as JSON, with text for what JSON does not have, such as UUIDs and bytes."""
    return json.dumps(value, ensure_ascii=False, default=as_text)


def from_json(text: str | bytes) -> Any:
    """The value that JSON says; a ValueError for NaN and infinities, which JSON does not have."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"it holds {constant}, which JSON does not have")


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def read_record(kind: type[_Record], value: object) -> _Record:
    """The dataclass with these fields, from JSON; a ValueError if one is missing, unknown or wrong."""
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)  # type: ignore[arg-type]
    hints, needed = get_type_hints(kind), {f.name for f in fields if not _has_default(f)}
    types = {field.name: hints[field.name] for field in fields}
    if not isinstance(value, dict) or not needed <= value.keys() <= types.keys():
        raise ValueError(f"{value!r:.80} does not have the fields {', '.join(types)}")
    return kind(**{name: _read(name, each, types[name]) for name, each in value.items()})


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _read(name: str, value: object, kind: Any) -> Any:
    """A JSON value as the type of a field; tuples are lists in JSON."""
    origin, parts = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return read_record(cast(type[object], kind), value)
    if origin is UnionType:
        for part in parts:
            with suppress(ValueError):
                return _read(name, value, part)
    elif origin is dict and isinstance(value, dict):
        return {key: _read(name, each, parts[1]) for key, each in value.items()}
    elif origin is tuple and isinstance(value, list):
        kinds = parts[:1] * len(value) if parts[-1] is ... else parts
        if len(value) == len(kinds):
            return tuple(_read(name, each, part) for each, part in zip(value, kinds, strict=True))
    elif kind is float and is_number(value):
        return float(cast(float, value))
    elif _fits(value, kind, origin, parts):
        return value
    raise ValueError(f"{name} = {value!r:.60} is not allowed")


def _fits(value: object, kind: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    if kind is int:
        return type(value) is int and value >= 0  # all whole fields are counts
    if origin is Literal:
        return isinstance(value, str) and value in parts
    return kind is Any or (kind is not float and isinstance(value, origin or kind))
