"""Errors in one form: the given value, the allowed values, and the remedy."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable
from typing import SupportsFloat, SupportsIndex


class TruepairError(Exception):
    """The base of every error that truepair raises on purpose."""


class InputError(TruepairError, ValueError):
    """An argument or an input file cannot be used. The message states the value and the remedy."""


class NoItemLeftError(InputError):
    """The conditions of a list leave no item to recommend."""


class TrainingError(TruepairError, RuntimeError):
    """Training cannot continue. The message says where it stopped and what to try."""


class StorageError(TruepairError, RuntimeError):
    """A file of truepair cannot be read or written. The message names the file and the reason."""


class DownloadError(TruepairError, RuntimeError):
    """A download failed. The message names the address, and where to put the file by hand."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """`" Did you mean 'user'?"` when an option is close to `name`, else an empty string.

    >>> did_you_mean("usr", ["user", "item"])
    " Did you mean 'user'?"
    """
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""


def check_choice(what: str, value: object, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options`, else raise an error that lists them."""
    names = list(options)
    if isinstance(value, str) and value in names:
        return value
    allowed, hint = ", ".join(map(repr, names)), did_you_mean(str(value), names)
    raise InputError(f"{what} = {value!r} is not known; choose one of {allowed}.{hint}")


def check_type(what: str, value: object, kind: type | tuple[type, ...], remedy: str) -> None:
    """Raise an error with the remedy if `value` is not an instance of `kind`."""
    if not isinstance(value, kind):
        given = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise InputError(f"{what} is {given}, which cannot be used here; {remedy}.")


def settle(frozen: object, **fields: object) -> None:
    """Set fields of a frozen dataclass; for use in its `__post_init__` only."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)


def check_whole(
    what: str, value: SupportsIndex | object, low: int, high: int | None = None, remedy: str = ""
) -> int:
    """Return `value` as an int in [low, high], else raise an error that states the range."""
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
    """Return `value` as a finite float in the interval, else raise an error that states the interval."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):  # OverflowError: an integer above all floats
        number = math.nan
    above = number > low if open_low else number >= low
    below = number < high if open_high else number <= high
    if isinstance(value, bool | str) or not math.isfinite(number) or not (above and below):
        bounds = [f"{'>' if open_low else '≥'} {low:g}"] if low > -math.inf else []
        bounds += [f"{'<' if open_high else '≤'} {high:g}"] if high < math.inf else []
        allowed = " ".join(["a finite number", " and ".join(bounds)]).rstrip()
        raise InputError(f"{what} = {value!r} is out of range; it must be {allowed}. {remedy}".rstrip())
    return number
