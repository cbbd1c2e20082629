"""One voice for errors: what was given, what is allowed, and what to do about it."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex


class TruepairError(Exception):
    """The base of every error that truepair raises on purpose."""


class InputError(TruepairError, ValueError):
    """Something the caller gave cannot be used; the message says what, and the remedy."""


class TrainingError(TruepairError, RuntimeError):
    """Training cannot go on; the message says where it stopped and what to try."""


class StorageError(TruepairError, RuntimeError):
    """A file that truepair wrote, or should write, cannot be used; the message names it and says why."""


class DownloadError(TruepairError, RuntimeError):
    """A file cannot be had from elsewhere; the message names the address and what to put where instead."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`" Did you mean 'user'?"` when an option is close to `name`, else an empty string.

    >>> did_you_mean("usr", ["user", "item"])
    " Did you mean 'user'?"
    """
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def check_choice(what: str, value: object, options: Iterable[str]) -> str:
    """`value` if it is one of `options`, else an error that lists them."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    raise InputError(
        f"{what} = {value!r} is not known; choose one of {', '.join(map(repr, names))}."
        + did_you_mean(str(value), names)
    )


def check_type(what: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """An error with the remedy if `value` is not of the kind that is needed."""
    if not isinstance(value, kind):
        given = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise InputError(f"{what} is {given}, which cannot be used here; {remedy}.")


def settle(frozen: object, **fields: object) -> None:
    """Give the fields of a frozen value, under construction, what checking them made of them."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def check_whole(
    what: str, value: SupportsIndex | object, low: int, high: int | None = None, remedy: str = ""
) -> int:
    """`value` as an int in [low, high], else an error that states the range."""
    allowed = f"a whole number ≥ {low}" if high is None else f"a whole number from {low} to {high}"
    try:
        whole = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        whole = None
    if whole is None or isinstance(value, bool) or whole < low or (high is not None and whole > high):
        raise InputError(f"{what} = {value!r} is out of range; it must be {allowed}. {remedy}".rstrip())
    return whole


def check_number(
    what: str,
    value: SupportsFloat | object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    remedy: str = "",
) -> float:
    """`value` as a finite float in the stated interval, else an error that states it."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if isinstance(value, bool | str) or not math.isfinite(number) or not (above and below):
        bounds = [f"{'>' if open_low else '≥'} {low:g}"] if low > -math.inf else []
        bounds += [f"{'<' if open_high else '≤'} {high:g}"] if high < math.inf else []
        allowed = " ".join(["a finite number", " and ".join(bounds)]).rstrip()
        raise InputError(f"{what} = {value!r} is out of range; it must be {allowed}. {remedy}".rstrip())
    return number
