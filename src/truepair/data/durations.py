"""Durations of data time, such as "7d", dates, and the unit of a time column.

A time column has no unit of its own: integers are kept as they are, dates and ISO text are microseconds. The
unit of clock times follows from their size, because today's seconds, milliseconds, microseconds and
nanoseconds since 1970 differ by factors of 1000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_number

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Units of durations in seconds."""

# The largest absolute time -> units of the column in a second: seconds below 10^11 (until the year 5138), …
_PER_SECOND = ((1e8, None), (1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (np.inf, 1e9))
_PART = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([a-z]+)\s*", re.ASCII)


def total_seconds(text: str, units: Mapping[str, float] = UNITS) -> float | None:
    """The seconds of a text of numbers with units; None if it is none, or 0.

    >>> total_seconds("1d12h"), total_seconds("2w"), total_seconds("7"), total_seconds("1 month")
    (129600.0, 1209600.0, None, None)
    """
    found, place = 0.0, 0
    while (part := _PART.match(text, place)) is not None and part[2] in units:
        found, place = found + float(part[1]) * units[part[2]], part.end()
    return found if found and place == len(text) else None


def budget_seconds(budget: str | float) -> float:
    """A budget of time in seconds: "90s", "2min", "1h30min" or a number of seconds.

    >>> budget_seconds("1h30min"), budget_seconds(20)
    (5400.0, 20.0)
    """
    if not isinstance(budget, str):
        remedy = "Give seconds, or a text such as '2min'."
        return check_number("budget", budget, 0, open_low=True, remedy=remedy)
    found = total_seconds(budget, {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0})
    if found is None:
        raise InputError(f"budget = {budget!r:.60} is no time; give one such as '90s', '2min' or '1h30min'.")
    return found


def check_half_life(what: str, value: object) -> str | float:
    """A duration such as "7d", or a number above 0 in the unit of the times; else an error.

    >>> check_half_life("half_life", "7d")
    '7d'
    """
    if isinstance(value, str) and total_seconds(value) is None:
        raise InputError(
            f"{what} = {value!r:.60} is not a duration; give text such as '7d' (units: {', '.join(UNITS)}), "
            "or a number in the unit of the time column."
        )
    return value if isinstance(value, str) else check_number(what, value, 0, open_low=True)


def time_length(what: str, duration: str | float, interactions: Interactions) -> float:
    """The duration in the unit of the time column: text such as "7d", or a number in that unit.

    >>> from truepair.data.reading import read_interactions
    >>> day = read_interactions({"user": [1, 2], "item": [1, 1], "time": ["2024-05-30", "2024-05-31"]})
    >>> time_length("every", "1d", day)  # dates are microseconds
    86400000000.0
    """
    remedy = (
        f"Give text such as '7d' (units: {', '.join(UNITS)}), or a number in the unit of the time column."
    )
    if not isinstance(duration, str):
        return check_number(what, duration, 0, open_low=True, remedy=remedy)
    seconds = total_seconds(duration)
    if seconds is None:
        raise InputError(f"{what} = {duration!r:.60} is no duration. {remedy}")
    return seconds * _clock_units(what, duration, _largest(interactions))


def moment_in(what: str, moment: object, interactions: Interactions) -> object:
    """A date or an ISO text, in UTC unless it has a zone, in the unit of the time column; else as it is.

    >>> from truepair.data.ids import IdMap
    >>> zero, one = np.array([0]), IdMap.range(1)
    >>> day = Interactions(zero, zero, one, one, time=np.array([1_700_000_000]))
    >>> moment_in("at", "2023-11-14", day)
    1699920000
    """
    return moment_of(what, moment, _largest(interactions))


def moment_of(what: str, moment: object, largest: float) -> object:
    """The same in the unit of times of which this is the largest."""
    if not isinstance(moment, str | date | np.datetime64):
        return moment
    try:
        found = datetime.fromisoformat(str(moment))
    except ValueError:
        raise InputError(
            f"{what} = {moment!r:.60} is no time; give a date such as '2024-06-15', or a number."
        ) from None
    since = (found if found.tzinfo else found.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    whole, rest = divmod(
        since // timedelta(microseconds=1) * int(_clock_units(what, moment, largest)), 1_000_000
    )
    return whole + rest / 1e6 if rest else whole


def _clock_units(what: str, given: object, largest: float) -> float:
    """How many units of the times are a second; raise where they are not times of a clock."""
    if (per_second := units_per_second(largest)) is None:
        raise InputError(
            f"{what} = {given!r:.60} needs dates; times are at most {largest:g}: give a number in their unit."
        )
    return per_second


def _largest(interactions: Interactions) -> float:
    time = np.asarray(interactions.time, np.float64)  # of integers, -2**63 has no absolute value
    return float(np.abs(time).max(initial=0))


def units_per_second(largest: float) -> float | None:
    """How many units of a time column make a second, by its largest time; None below any time since 1973."""
    return next(units for bound, units in _PER_SECOND if largest < bound)


def shown_time(time: float, interactions: Interactions) -> str:
    """A time for people: a date and a time of day, or the number where the unit is not known.

    >>> from truepair.data.ids import IdMap
    >>> zero, one = np.array([0]), IdMap.range(1)
    >>> day = Interactions(zero, zero, one, one, time=np.array([1.7e9]))
    >>> shown_time(1.7e9, day)
    '2023-11-14 22:13'
    """
    if (per_second := units_per_second(_largest(interactions))) is None:
        return f"{time:g}"
    moment = np.datetime64(int(time / per_second), "s")
    return str(moment)[:16].replace("T", " ")
