"""A budget of time: "90s", "2min", "1h30min" or a number of seconds."""

from __future__ import annotations

import time

from truepair.data.durations import total_seconds
from truepair.errors import InputError, check_number

_UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str | float | None) -> float | None:
    """The budget in seconds; None for none.

    >>> seconds_of("1h30min"), seconds_of("90s"), seconds_of(20)
    (5400.0, 90.0, 20.0)
    """
    if budget is None:
        return None
    if not isinstance(budget, str):
        return check_number(
            "budget", budget, 0, open_low=True, remedy="Give seconds, or a text such as '2min'."
        )
    found = total_seconds(budget, _UNITS)
    if found is None:
        raise InputError(f"budget = {budget!r:.60} is no time; give one such as '90s', '2min' or '1h30min'.")
    return found


class Stopwatch:
    """The time since it was made, and what is left of a limit."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self._began = limit, time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a limit."""
        return float("inf") if self.limit is None else self.limit - self.seconds
