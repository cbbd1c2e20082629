"""Strategies: where the model of a period comes from."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from truepair.data.interactions import Interactions
from truepair.recommender.estimator import Recommender
from truepair.reporting.backtesting.periods import Period, Timeline
from truepair.spec.parameters import as_json, from_json


class Source:
    """What strategies share: the timeline, the parameters, and the model of the first period, fitted once.

    Settings that `fit` chooses automatically are chosen for the first period, and kept for the others,
    because a search for each period would take several times as long; with `anew` they are chosen for each.
    """

    def __init__(
        self, timeline: Timeline, model: Recommender, anew: bool, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.timeline, self._parameters, self._anew = timeline, model.get_params(), anew
        self.settings = settings  # of the first period, as JSON
        self._first: tuple[Recommender, float] | None = None

    def first(self) -> tuple[Recommender, float]:
        """The model of the first period, and the seconds of its fit; treat it as read-only."""
        if self._first is None:
            self._first = self.fitted(self.timeline.train(self.timeline.periods[0]))
            self._settle(self._first[0])
        return self._first

    def fitted(self, pairs: Interactions) -> tuple[Recommender, float]:
        """A new model of these pairs, and the seconds of its fit."""
        kept = {} if self._anew or self.settings is None else restored(self.settings)
        model = Recommender(**{**self._parameters, **kept})
        return timed(lambda: model.fit(pairs))

    def later(self, pairs: Interactions) -> tuple[Recommender, float]:
        """The same with the settings of the first period, for a later one."""
        if self.settings is None and not self._anew:
            self.first()
        return self.fitted(pairs)

    def _settle(self, model: Recommender) -> None:
        if self.settings is None:
            chosen = model.facts_.get("automatic", {}).get("chosen", {})
            self.settings = {**chosen, "auto": False} if self._parameters["auto"] and chosen else {}


def restored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of `Recommender` from settings as JSON."""
    found = {name: value for name, value in from_json(settings).items() if name in settings}
    Recommender().set_params(**found)  # raises an error for an unknown name
    return found


def timed(make: Callable[[], Recommender]) -> tuple[Recommender, float]:
    """The model, and the seconds that it took."""
    began = time.perf_counter()
    return make(), time.perf_counter() - began


class Strategy(Protocol):
    """A way to have a model for each period."""

    about: str

    def __init__(self, source: Source) -> None: ...

    def model(self, period: Period) -> tuple[Recommender, float]:
        """The model with which the period is served, and the seconds of its training."""


class Retrain:
    """A new model for each period."""

    about = "trained from scratch for each period"

    def __init__(self, source: Source) -> None:
        self._source = source

    def model(self, period: Period) -> tuple[Recommender, float]:
        """Fitted on the pairs of the period's window."""
        if period.number == 1:
            return self._source.first()
        return self._source.later(self._source.timeline.train(period))


class Update:
    """The model of the first period, updated before each other one."""

    about = "the model of the period before, updated with the pairs since"

    def __init__(self, source: Source) -> None:
        self._source = source
        self._model: Recommender | None = None
        self._until = source.timeline.periods[0]

    def model(self, period: Period) -> tuple[Recommender, float]:
        """Updated up to the period; updates that an interrupted run had done before are done again."""
        seconds = 0.0
        if self._model is None:
            first, seconds = self._source.first()
            self._model = copy.deepcopy(first)  # `update` changes it, and other strategies use it
        timeline = self._source.timeline
        for later in timeline.periods[self._until.number : period.number]:
            new = timeline.since(self._until, later)
            self._model, seconds = timed(partial(self._model.update, new))
            self._until = later
        return self._model, seconds


class Nothing:
    """The model of the first period for all."""

    about = "the model of the first period, never changed"

    def __init__(self, source: Source) -> None:
        self._source = source

    def model(self, period: Period) -> tuple[Recommender, float]:
        """That of the first period; later periods take no time."""
        first, seconds = self._source.first()
        return first, seconds if period.number == 1 else 0.0


class MostPopular:
    """The items with the most users."""

    about = "the items with the most users in the pairs that retraining learns from"

    def __init__(self, source: Source) -> None:
        self._source = source

    def model(self, period: Period) -> tuple[Recommender, float]:
        """Counted in the period's window."""
        pairs = self._source.timeline.train(period)
        return timed(lambda: Recommender(encoder="popular").fit(pairs))


STRATEGIES: dict[str, type[Strategy]] = {
    "retrain": Retrain,
    "update": Update,
    "nothing": Nothing,
    "popularity": MostPopular,
}
"""Where the model of a period comes from, by name."""


def stated(model: Recommender) -> dict[str, Any]:
    """The parameters as JSON."""
    return {name: as_json(value) for name, value in model.get_params().items()}
