"""RateLimit: so many requests a second for each caller, in a bounded memory."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from truepair.errors import check_number

_CALLERS = 10_000  # that are remembered; of more, those who have been silent for longest are forgotten


class RateLimit:
    """A token bucket for each caller: it holds the tokens of one second, at least one.

    Of a bucket, only the time at which it will be full again is stored.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = check_number("rate", per_second, 0, 1e6, open_low=True)
        self._clock = clock
        self._room = max(1.0, 1 / self.per_second)  # seconds until an empty bucket is full
        self._full_at: OrderedDict[bytes, float] = OrderedDict()

    def wait(self, caller: bytes) -> int:
        """0 if the caller may ask now, which then counts; else the seconds to wait."""
        now = self._clock()
        full_at = max(self._full_at.pop(caller, now), now) + 1 / self.per_second
        over = full_at - now - self._room
        if over > 1e-9:
            full_at -= 1 / self.per_second  # a refused request costs nothing
        self._full_at[caller] = full_at
        if len(self._full_at) > _CALLERS:
            self._full_at.popitem(last=False)
        return math.ceil(over) if over > 1e-9 else 0
