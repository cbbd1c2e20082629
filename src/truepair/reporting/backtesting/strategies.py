"""Strategies: where the model of a period comes from."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

from truepair.data.interactions import Interactions
from truepair.recommender.estimator import Recommender
from truepair.reporting.backtesting.periods import Period, Timeline
from truepair.spec.parameters import as_json, from_json
from truepair.storage.types import Json

Timed: TypeAlias = tuple[Recommender, float]  # a model, and the seconds of its training


class PeriodModels:
    """The models of one backtest; that of the first period is fitted once, and strategies share it.

    Settings that `fit` chooses automatically are chosen for the first period, and kept for the others,
    because a search for each period would take several times as long; with `anew` they are chosen for each.
    """

    def __init__(
        self, timeline: Timeline, model: Recommender, anew: bool, settings: Json | None = None
    ) -> None:
        self.timeline, self._parameters, self._anew = timeline, model.get_params(), anew
        self.settings = settings  # of the first period, as JSON
        self._first: Timed | None = None
        self._updated: Recommender | None = None
        self._until = timeline.periods[0]  # what the updated model knows is before it

    def retrained(self, period: Period) -> Timed:
        """A new model of the period's window."""
        if period.number == 1:
            return self._of_first_period()
        if self.settings is None and not self._anew:
            self._of_first_period()
        return self.fitted(self.timeline.train(period))

    def updated(self, period: Period) -> Timed:
        """The first model, updated up to the period; an interrupted run's updates are done again."""
        seconds = 0.0
        if self._updated is None:
            first, seconds = self._of_first_period()
            self._updated = copy.deepcopy(first)  # `update` changes it, and other strategies use it
        for later in self.timeline.periods[self._until.number : period.number]:
            new = self.timeline.since(self._until, later)
            self._updated, seconds = _timed(partial(self._updated.update, new))
            self._until = later
        return self._updated, seconds

    def unchanged(self, period: Period) -> Timed:
        """That of the first period; later periods take no time."""
        first, seconds = self._of_first_period()
        return first, seconds if period.number == 1 else 0.0

    def popular(self, period: Period) -> Timed:
        """The items with the most users in the period's window."""
        return _timed(partial(Recommender(encoder="popular").fit, self.timeline.train(period)))

    def fitted(self, pairs: Interactions) -> Timed:
        """A new model of these pairs, with the settings of the first period once they are known."""
        kept = {} if self._anew or self.settings is None else restored(self.settings)
        return _timed(partial(Recommender(**{**self._parameters, **kept}).fit, pairs))

    def _of_first_period(self) -> Timed:
        """Treat the model as read-only."""
        if self._first is None:
            self._first = self.fitted(self.timeline.train(self.timeline.periods[0]))
            chosen = self._first[0].facts_.get("automatic", {}).get("chosen", {})
            if self.settings is None:
                self.settings = {**chosen, "auto": False} if self._parameters["auto"] and chosen else {}
        return self._first


class Strategy(NamedTuple):
    """A way to have a model for each period."""

    about: str
    model: Callable[[PeriodModels, Period], Timed]


STRATEGIES: dict[str, Strategy] = {
    "retrain": Strategy("trained from scratch for each period", PeriodModels.retrained),
    "update": Strategy("the model of the period before, updated with the pairs since", PeriodModels.updated),
    "nothing": Strategy("the model of the first period, never changed", PeriodModels.unchanged),
    "popularity": Strategy(
        "the items with the most users in the pairs that retraining learns from", PeriodModels.popular
    ),
}
"""Where the model of a period comes from, by name."""


def restored(settings: Mapping[str, object]) -> Json:
    """Keyword arguments of `Recommender` from settings as JSON."""
    found = {name: value for name, value in from_json(settings).items() if name in settings}
    Recommender().set_params(**found)  # raises an error for an unknown name
    return found


def stated(model: Recommender) -> Json:
    """The parameters as JSON."""
    return {name: as_json(value) for name, value in model.get_params().items()}


def _timed(make: Callable[[], Recommender]) -> Timed:
    began = time.perf_counter()
    return make(), time.perf_counter() - began
