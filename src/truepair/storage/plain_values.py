"""Plain values of TOML and JSON files, which may be nested only so deep."""

from __future__ import annotations

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


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
