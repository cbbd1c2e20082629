"""Plain values of TOML and JSON files: numbers, and lists and tables, which may be nested only so deep."""

from __future__ import annotations

import sys

from truepair.errors import InputError

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
