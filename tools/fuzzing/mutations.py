"""Changed bytes and changed plain values: the inputs that no coverage guides."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

_NUMBERS = (0, 1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
_TOKENS = (
    *(b"\0", b'"', b"'", b"\n", b"\r", b"\r\n", b",", b";", b"\t", b"|", b"::", b" ", b"-", b".", b"=", b"#"),
    *(b"[", b"]", b"{", b"}", b"nan", b"inf", b"-1", b"1e999", b"null", b"NULL", b"true", b"\xef\xbb\xbf"),
    *(b"\xff\xfe", b"\x80", b"\xc3\x28", b"\xed\xa0\x80", "\u00a0".encode(), "\u2028".encode(), b"\x1c"),
    *(b"9" * 30, b"9" * 5000, b"[" * 2000, b"{" * 2000, b'"' * 3, b"user", b"item", b"rating", b"time"),
)

ALPHABET = "aZ09 -_.,;:|=#@~$\t\n\r\"'\\[]{}()\0é\u00a0\u2028\ud800\U0001f600"
"""Characters of generated text: those that parsers treat in a way of their own, and a few others."""


def mutated(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to four changes of `data`; parts of the other inputs may come into it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        data = rng.choice(_CHANGES)(rng, data, others)
    return data


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _flip_bit(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _set_number(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    number = (rng.choice(_NUMBERS) % (1 << 8 * size)).to_bytes(size, rng.choice(("little", "big")))
    at = _place(rng, data)
    return data[:at] + number + data[at + size :]


def _cut(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    first, last = sorted((_place(rng, data), _place(rng, data)))
    return data[:first] + data[last:]


def _truncate(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)]


def _repeat(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    first, last = sorted((_place(rng, data), _place(rng, data)))
    return (
        data[:last] + data[first:last] * rng.choice((1, 2, 50)) + data[last:] if last - first < 4096 else data
    )


def _insert(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + rng.choice((rng.choice(_TOKENS), rng.randbytes(rng.randrange(1, 9)))) + data[at:]


def _overwrite(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at, part = _place(rng, data), rng.choice((rng.choice(_TOKENS)[:16], rng.randbytes(rng.randrange(1, 9))))
    return data[:at] + part + data[at + len(part) :]


def _splice(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return data[: _place(rng, data)] + other[_place(rng, other) :]


_CHANGES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    *(_flip_bit, _flip_bit, _flip_bit, _set_number, _set_number, _overwrite),
    *(_insert, _cut, _truncate, _repeat, _splice),
)


# --- plain values --------------------------------------------------------------------------------------


def places_of(value: Any) -> list[tuple[str | int, ...]]:
    """The paths of all values within a plain value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(), *((key, *rest) for key, part in inside for rest in places_of(part))]


def with_change(value: Any, place: Sequence[str | int], new: Any, drop: bool = False) -> Any:
    """The plain value with the one at `place` replaced by `new`, or dropped."""
    if not place:
        return new
    key, *rest = place
    changed = dict(value) if isinstance(value, dict) else list(value)
    if drop and not rest:
        del changed[key]  # type: ignore[arg-type]
    else:
        changed[key] = with_change(value[key], rest, new, drop)  # type: ignore[index]
    return changed
