"""Periods: where the time of a backtest is cut, what may be learnt before a cut, what is judged after it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from truepair.data.durations import shown_time, time_length
from truepair.data.interactions import Interactions
from truepair.data.log import Mask
from truepair.data.rows.pairs import interactions_of
from truepair.data.split_recipes import clock_times
from truepair.errors import InputError, check_whole

_MOST = 1000  # periods: more are a mistake in the unit


@dataclass(frozen=True)
class Period:
    """A period [start, end), in the unit of the time column, and what is new in it.

    A pair is counted in the period of its first like: what a user liked before is not judged again. A new
    user or item has no pair before the period. Pairs of new items are not judged: nobody could have
    recommended them.
    """

    number: int  # from 1
    start: float
    end: float
    date: str  # the start as text
    train_start: float | None  # the start of the training window; None: everything before
    pairs: int
    judged_pairs: int
    users: int  # with a judged pair
    new_user_pairs: int
    new_item_pairs: int
    catalogue: int  # items with a pair before the period
    new_items: int  # items whose first pair is in the period

    @property
    def new_user_share(self) -> float:
        """The share of the period's pairs whose user is new."""
        return self.new_user_pairs / self.pairs

    @property
    def new_item_share(self) -> float:
        """The share of the period's pairs whose item is new."""
        return self.new_item_pairs / self.pairs

    @property
    def newness(self) -> float:
        """The share of new items in the catalogue at the end of the period."""
        return self.new_items / (self.catalogue + self.new_items)


class Timeline:
    """Interactions and their periods: which pairs a model may learn from, and which judge it."""

    def __init__(
        self,
        interactions: Interactions,
        every: str | float | None = None,
        train: str | float | None = None,
        periods: int | None = None,
    ) -> None:
        self.pairs, self.time = interactions, clock_times(interactions, "backtest")
        self._log = interactions.stored_log
        if self._log is not None:  # each pair at its first like
            self.pairs = interactions_of(self._log.take(self._log.is_first_like), interactions.history)
            self.time = clock_times(self.pairs, "backtest")
        self._event_time = self.time if self._log is None else np.asarray(self._log.time)
        if not len(interactions):
            raise InputError("there are no pairs to backtest on; give interactions with times.")
        window = None if train is None else time_length("train", train, interactions)
        if periods is not None:
            check_whole("periods", periods, 2, _MOST, "A backtest compares two periods or more.")
        if every is None and periods is not None:
            cuts = self._equal_counts(periods)
        else:
            cuts = self._equal_times("7d" if every is None else every, window, periods)
        spans = [self._described(start, end, window) for start, end in itertools.pairwise(cuts)]
        judged = [period for period in spans if period.judged_pairs]
        self.left_out = len(spans) - len(judged)
        if len(judged) < 2:
            raise InputError(
                f"only {len(judged)} of {len(cuts) - 1} periods have pairs of known items; a backtest needs "
                "two or more. Give shorter or fewer periods."
            )
        self.periods = [replace(period, number=number) for number, period in enumerate(judged, 1)]

    def train(self, period: Period) -> Interactions:
        """What a model of this period may learn from: the pairs of its window, with their users and items."""
        return self._between(period.train_start, period.start)

    def since(self, earlier: Period, period: Period) -> Interactions:
        """The pairs from the start of an earlier period to that of this one."""
        return self._between(earlier.start, period.start)

    def before(self, period: Period) -> Interactions:
        """All pairs before the period, in the codes of all pairs: nobody is recommended them again."""
        return self._part(None, period.start)

    def target(self, period: Period) -> Interactions:
        """The judged pairs, in the codes of all pairs."""
        known = self._known_items(period.start)[self.pairs.items]
        return self.pairs.take(self._within(period.start, period.end) & known)

    def _between(self, start: float | None, end: float) -> Interactions:
        part = self._part(start, end)
        if not len(part):
            date = shown_time(end, self.pairs)
            raise InputError(f"there is no pair to learn from before {date}; give a longer train.")
        if (dislikes := part.dislikes) is None:
            return part.k_core(1)
        users, items = part.user_counts + dislikes.user_counts, part.item_counts + dislikes.item_counts
        return part.only(users > 0, items > 0)

    def _part(self, start: float | None, end: float) -> Interactions:
        """The pairs of the events from the start, if there is one, and before the end."""
        rows = self._event_time < end
        if start is not None:
            rows &= self._event_time >= start
        if self._log is None:
            return self.pairs.take(rows)
        return interactions_of(self._log.take(rows), self.pairs.history)

    def _within(self, start: float, end: float) -> Mask:
        return np.asarray((self.time >= start) & (self.time < end))

    def _known_items(self, start: float) -> Mask:
        return np.asarray(np.bincount(self.pairs.items[self.time < start], minlength=self.pairs.n_items) > 0)

    def _described(self, start: float, end: float, window: float | None) -> Period:
        users, items = self.pairs.users, self.pairs.items
        within, known_items = self._within(start, end), self._known_items(start)
        known_users = np.bincount(users[self.time < start], minlength=self.pairs.n_users) > 0
        judged, new = within & known_items[items], within & ~known_items[items]
        return Period(
            0,  # they are numbered when all are known
            start,
            end,
            shown_time(start, self.pairs),
            None if window is None else start - window,
            pairs=int(within.sum()),
            judged_pairs=int(judged.sum()),
            users=len(np.unique(users[judged])),
            new_user_pairs=int((within & ~known_users[users]).sum()),
            new_item_pairs=int(new.sum()),
            catalogue=int(known_items.sum()),
            new_items=len(np.unique(items[new])),
        )

    # --- cuts ----------------------------------------------------------------------------------------------

    def _end(self) -> float:
        """A time after the last event."""
        last = self._event_time.max()
        return int(last) + 1 if self.time.dtype.kind == "i" else float(np.nextafter(last, np.inf))

    def _equal_times(self, every: str | float, window: float | None, periods: int | None) -> list[float]:
        """The starts of periods of one length, and the end; the last one ends with the data."""
        length = time_length("every", every, self.pairs)
        if window is not None and window < length:
            raise InputError(
                f"the training window is shorter than a period ({window:g} and {length:g} in the unit of the "
                "time column); give a longer train, or a shorter every."
            )
        first, end = self.time.min(), self._end()
        # before the first period comes a window; half a period of it may be missing: data rarely fits exactly
        possible = int((end - first - (length if window is None else window)) / length + 0.5)
        if possible < (periods or 2):
            span = " to ".join(shown_time(at, self.pairs) for at in (first, self.time.max()))
            raise InputError(
                f"every = {every!r} leaves {max(possible, 0)} periods to judge; {periods or 2} are needed. "
                f"The data goes from {span}, and {'one period' if window is None else 'the training window'} "
                "comes first; give shorter periods, or a shorter train."
            )
        if periods is None and possible > _MOST:
            raise InputError(
                f"every = {every!r} gives {possible:,} periods, and at most {_MOST:,} are allowed; give a "
                "longer one, or the number of the last periods: periods=10."
            )
        n = possible if periods is None else periods
        cuts = [end - k * length for k in range(n, 0, -1)]
        whole = self.time.dtype.kind == "i"
        return [*(round(cut) if whole else cut for cut in cuts), end]

    def _equal_counts(self, periods: int) -> list[float]:
        """The starts of periods with about equally many pairs, and the end; before the first are as many."""
        ordered = np.sort(self.time)
        places = [len(ordered) * k // (periods + 1) for k in range(1, periods + 1)]
        cuts = [*(ordered[place].item() for place in places), self._end()]
        if min(np.diff([ordered[0].item(), *cuts])) <= 0:
            raise InputError(
                f"periods = {periods} of equal numbers of pairs are not possible: too many pairs have the "
                "same time; give fewer periods, or their length: every='7d'."
            )
        return cuts
