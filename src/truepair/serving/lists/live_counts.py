"""LiveCounts: the counts behind a model's trend, moved on to now with the events of a store."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from truepair.data.durations import units_per_second
from truepair.data.ids import Codes
from truepair.models.trend import Counts
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoreReader
from truepair.serving.id_texts import IdTexts

_STEP = 1e-3  # of the shortest half-life: after that time the counts have faded by less than a thousandth
_Times = npt.NDArray[np.float64]
_NOTHING = np.empty(0, np.int64), np.empty(0)


class LiveCounts:
    """The counts of a model and of every like in a store that is newer than the model's log.

    An event counts from its own time on. Where events were deleted, all of the store are counted again.
    """

    def __init__(
        self, known: Counts | None, items: IdTexts, kinds: Kinds, clock: Callable[[], float]
    ) -> None:
        self._items, self._kinds, self._clock = items, kinds, clock
        self._known = self._counts = known
        self._per_second = None if known is None else units_per_second(known.moment)
        self._marks, self._last = (0, 0), 0  # the number of the last event that was read
        self._coming: tuple[Codes, _Times] = _NOTHING  # items and times after now

    def moved(self, reader: StoreReader) -> Counts | None:
        """The counts as of now; None where they would be the same, without a trend, and where times are not
        those of a clock. One thread at a time."""
        if self._known is None or self._counts is None or self._per_second is None:
            return None
        marks = reader.marks()
        if marks[1] != self._marks[1]:
            self._counts, self._last, self._coming = self._known, 0, _NOTHING
        now = max(self._clock() * self._per_second, self._counts.moment)
        is_soon = now - self._counts.moment < _STEP * min(self._counts.lengths)
        if marks == self._marks and is_soon and not (self._coming[1] <= now).any():
            return None
        counts, last, (items, times) = self._counts.at(now), self._last, self._coming
        since = math.ceil(self._known.moment / self._per_second * 1e6)
        for rows in reader.since(since, last):
            likes = [
                (self._items.codes[item], time)
                for _, item, kind, weight, time in rows
                if item in self._items.codes and self._kinds.numbers.get(kind, 0.0) * weight > 0
            ]
            if likes:
                codes, found = zip(*likes, strict=True)
                items = np.append(items, np.array(codes, np.int64))
                times = np.append(times, np.array(found) * (self._per_second / 1e6))
            last = int(rows[-1][0])
        is_now = times <= now
        counts.add(items[is_now], times[is_now])
        self._coming = items[~is_now], times[~is_now]
        self._counts, self._last, self._marks = counts, max(last, marks[0]), marks
        return counts
