"""Schedule: when a trainer starts, by time and by new events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from truepair.data.durations import budget_seconds
from truepair.errors import InputError, StorageError, check_whole
from truepair.serving.retraining.versions import State

_COUNT_SHARE = 50  # counting the events takes at most one part in so many of the time


@dataclass
class Schedule:
    """Every so many seconds, or on so many new events, or both; None: not by itself."""

    seconds: float | None = None
    events: int | None = None
    clock: Callable[[], float] = time.time
    started: float = field(init=False)
    """When this process started its last trainer; at first, itself."""
    _counted: int = 0
    _next_count: float = 0.0

    def __post_init__(self) -> None:
        self.started = self.clock()

    @staticmethod
    def of(every: str | None, events: int | None) -> Schedule:
        """The schedule of the options --retrain and --retrain-events."""
        if events is not None:
            check_whole("--retrain-events", events, 1)
        try:
            return Schedule(None if every is None else budget_seconds(every), events)
        except InputError:
            raise InputError(f"--retrain {every!r:.60} is no time; give '6h', '30min' or '90s'.") from None

    def next_time(self, state: State) -> float | None:
        """When the next training is due by the clock; also attempts of other processes count."""
        return None if self.seconds is None else max(self.started, state.attempted) + self.seconds

    def is_due(self, state: State, count: Callable[[], int]) -> bool:
        """Whether a trainer should start now; `count` gives the number of events in the store."""
        following = self.next_time(state)
        if following is not None and self.clock() >= following:
            return True
        if self.events is None or self.clock() < self._next_count:
            return False
        began = self.clock()
        try:
            n = count()
        except StorageError:
            n = 0
        self._next_count = self.clock() + max(1.0, _COUNT_SHARE * (self.clock() - began))
        return n - max(self._counted, state.counted) >= self.events

    def restart(self, count: Callable[[], int]) -> None:
        """Count time and events from now: a trainer was started, or the model was rolled back."""
        self.started = self.clock()
        if self.events is not None:
            try:
                self._counted = count()
            except StorageError:
                self._next_count = self.clock() + 60.0
