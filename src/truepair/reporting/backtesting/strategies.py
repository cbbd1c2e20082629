"""Strategies: where the model of a period comes from, and how its lists are judged.

A model may not know all users and items of a period. Its lists hold items that it knows; users without a
trained pair get the most popular ones. What was taken counts in any case: an item that the model does not
know is a miss.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from truepair.data.interactions import Interactions
from truepair.evaluation import Evaluation, parse_metric
from truepair.evaluation.metrics import METRICS
from truepair.models.closed_forms import Popular
from truepair.ranking.hidden import Hidden
from truepair.ranking.selection import checked_k, has_pairs
from truepair.recommender.estimator import Recommender, with_model
from truepair.recommender.lister import ListedUsers, known_users
from truepair.recommender.lists import model_lister
from truepair.recommender.model import Model
from truepair.reporting.backtesting.periods import Period, Timeline
from truepair.spec.parameters import as_json, from_json
from truepair.storage.types import Json

Timed: TypeAlias = tuple[Recommender, float]  # a model, and the seconds of its training


@dataclass(frozen=True)
class Cell:
    """The result of one strategy in one period: the mean of the metric over users, and its 95% interval."""

    period: int
    strategy: str
    value: float
    low: float
    high: float
    users: int
    known_users: int  # with a pair before the period: the same for all strategies
    known: float | None  # their mean; None without any
    new: float | None  # the mean of new users
    trained_users: int  # with a pair that the model was trained on; the others get the most popular items
    unknown_pairs: int  # judged pairs whose item the model does not know
    train_pairs: int  # pairs that the model knows
    seconds: float  # of training


class PeriodModels:
    """The models of one backtest; that of the first period is fitted once, and strategies share it.

    Settings that `fit` chooses automatically are chosen for the first period, and kept for the others,
    because a search for each period would take several times as long; with `anew` they are chosen for each.
    """

    def __init__(
        self, timeline: Timeline, model: Recommender, anew: bool, settings: Json | None = None
    ) -> None:
        self.timeline, self._parameters, self._anew = timeline, model.get_params(), anew
        self.metric = model.metric
        self.settings = settings  # of the first period, as JSON
        self._first: Timed | None = None
        self._updated: Recommender | None = None
        self._retrained: tuple[int, Timed] | None = None  # the period, and its model
        self._until = timeline.periods[0]  # what the updated model knows is before it

    def retrained(self, period: Period) -> Timed:
        """A new model of the period's window."""
        if period.number == 1:
            return self._of_first_period()
        if self._retrained is None or self._retrained[0] != period.number:
            if self.settings is None and not self._anew:
                self._of_first_period()
            self._retrained = period.number, self.fitted(self.timeline.train(period))
        return self._retrained[1]

    def timeless(self, period: Period) -> Timed:
        """That of `retrained` without its trend."""
        model, seconds = self.retrained(period)
        return with_model(model.model_.timeless()), seconds

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

    def recent(self, period: Period) -> Timed:
        """What is popular lately, with the best half-life for the end of the period's window."""
        return _timed(
            partial(Recommender(encoder=Popular("auto"), metric=self.metric).fit, self.timeline.train(period))
        )

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
    "timeless": Strategy("the model of retrain without its trend", PeriodModels.timeless),
    "update": Strategy("the model of the period before, updated with the pairs since", PeriodModels.updated),
    "nothing": Strategy("the model of the first period, never changed", PeriodModels.unchanged),
    "popularity": Strategy(
        "the items with the most users in the pairs that retraining learns from", PeriodModels.popular
    ),
    "recent": Strategy(
        "the items that are popular lately, with the half-life that was best before the period",
        PeriodModels.recent,
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


def judge(model: Recommender, target: Interactions, before: Interactions, metric: str) -> Evaluation:
    """The metric for each user of the target; pairs of `before` are not recommended again.

    Both have the codes of all interactions, which include those of the model.
    """
    users, fitted = np.flatnonzero(target.user_counts), model.model_
    own = fitted.seen.user_ids.find(target.user_ids, "user")[users]  # -1: the model does not know the user
    block = known_users(fitted, target.user_ids.outside(users), own, exclude_seen=False)
    return judge_lists(fitted, block, target, before, metric)


def judge_lists(
    fitted: Model, block: ListedUsers, target: Interactions, before: Interactions, metric: str
) -> Evaluation:
    """The same for users as the lister takes them: those of the target with a pair, in their order."""
    name, k = parse_metric(metric)
    checked_k(k, fitted.seen.n_items)
    users = np.flatnonzero(target.user_counts)
    codes = target.item_ids.codes(fitted.seen.item_ids, "item")  # of the model's items
    place = np.full(before.n_items, -1)  # of each item among those that the model knows
    place[codes] = np.arange(len(codes))
    hidden = Hidden.joined([block.hidden, Hidden.pairs_of(before, users).recoded(place)], len(users))
    listed = model_lister(fitted).top_k(block._replace(hidden=hidden), k).items
    listed = np.pad(listed, ((0, 0), (0, k - listed.shape[1])), constant_values=-1)
    listed, trained = np.where(listed < 0, -1, codes[listed]), ~block.popular
    hits = has_pairs(target, np.repeat(users, k), listed.ravel()).reshape(listed.shape)
    values = METRICS[name](hits, target.user_counts[users])
    return Evaluation(
        users,
        {metric: values},
        catalogue={},
        ks=(k,),
        n_users_without_target=target.n_users - len(users),
        n_unseen_pairs=int((~np.isin(target.items, codes)).sum()),
        target=target.hash,
        cold_users=users[~trained],
        cold_per_user={metric: values[~trained]},
    )
