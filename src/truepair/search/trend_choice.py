"""The trend, chosen on pairs held out in time: what is popular lately, and what each user did lately.

First the weights under which the held-out pairs are most likely: a conditional logit of what each user took,
from all items that they did not have, by the scores of the model and the logs of recent shares as of the
moment of the cut. It has a few numbers to learn from all held-out pairs, and is convex. Then the best lists
near these weights, by the metric, because likely pairs of long histories need not be at the top of a list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.log import Log
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import Validation
from truepair.evaluation.metrics import Floats
from truepair.models.trend import FINE_HALF_LIVES, Counts, Trend, lately, lengths_of, tried_half_lives
from truepair.recommender.holdout import cut_in_time
from truepair.search.blend_choice import Judge, is_clear
from truepair.storage.types import Json

_CELLS = 4_000_000  # scores that weights are learnt from
_LEAST_USERS = 100
_OWN_HALF_LIVES = (3.0, 10.0, 30.0)  # in events of a user
_SINGLE_WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # in deviations of the scores
_POPULARITY_WEIGHTS = (-0.5, 0.0, 0.25, 0.5, 1.0, 2.0)
_OWN_WEIGHTS = (0.0, 0.5, 1.0, 2.0, 4.0)
_POPULARITY = "of all time"
_PULL = 10.0  # users of all-time popularity, beside those without history
_LEAST_SCALE = 0.02  # of the model's scores beside the trend


class TrendChoice(NamedTuple):
    """The chosen trend (None: it is not better), and the scores that decided."""

    trend: Trend | None
    alone: float
    with_trend: float
    doubled: float
    """How many times as likely an item is whose share of recent events is twice that of all time."""


def choose_trend(judge: Judge, scores: Tensor, items: Tensor, log: Log, moment: float) -> TrendChoice:
    """The best trend for these scores and vectors of items; events of the log at the moment or later are not
    read.

    The most likely weights are where the search for the best lists begins. What it finds replaces them, and a
    trend is chosen, only if the gain in the metric is larger than the standard error of that gain.
    """
    alone = judge.per_user(scores)
    before = log.before(moment)
    half_lives = tried_half_lives(before)
    if not half_lives:
        return TrendChoice(None, float(alone.mean()), float(alone.mean()), 1.0)
    tried = tuple(dict.fromkeys([*half_lives, *tried_half_lives(before, FINE_HALF_LIVES)]))
    counts = Counts.of(before, moment, lengths_of(tried, before))
    features, trained = counts.features(), counts.total > 0
    unit = F.normalize(items.to(scores))[judge.order]
    own = {
        half_life: lately(items, before, half_life, judge.rows).to(scores) @ unit.T
        for half_life in _OWN_HALF_LIVES
    }
    order = judge.order.cpu().numpy()
    everything = _Future(
        judge, scores, own, dict(zip((_POPULARITY, *tried), features[:, order], strict=True))
    )
    some = everything.some(max(_LEAST_USERS, _CELLS // scores.shape[1]))
    likely, scale = some.most_likely(half_lives)
    found = some.best(likely, tried)
    if not is_clear(everything.per_user(found) - everything.per_user(likely)):
        found = likely
    places = [0, *(1 + tried.index(half_life) for half_life in found.half_lives)]
    new_users = _of_new_users(judge.new_users[trained], features[places][:, trained])
    found = replace(found, new_users=new_users)
    gain = everything.per_user(found) - alone
    means = round(float(alone.mean()), 6), round(float((alone + gain).mean()), 6)
    return TrendChoice(found if is_clear(gain) else None, *means, 2 ** (sum(found.weights) * scale))


def best_half_life(part: Split, metric: str) -> str | float:
    """The half-life of popularity whose lists are best for what is held out in time."""
    assert part.valid is not None
    moment = cut_in_time(part)
    log, validation = part.train.log, Validation(part.valid, part.train, metric)
    if moment is None or not (tried := tried_half_lives(log, FINE_HALF_LIVES)):
        raise InputError("half_life = 'auto' needs times of a clock; give a half-life, or None.")
    counts = Counts.of(log, moment, lengths_of(tried, log)).features()
    rows = np.ones((part.train.n_users, 1))
    return max(
        tried, key=lambda one: validation.score(rows, (counts[0] + counts[1 + tried.index(one)])[:, None])
    )


@dataclass(frozen=True, eq=False)
class _Future:
    """Scores of the users who judge, and what a trend can add to them."""

    judge: Judge
    scores: Tensor
    own: Mapping[float, Tensor]
    """By half-life, what users did lately."""
    features: Mapping[str | float, Floats]
    """By half-life, the logs of recent shares; those of all-time shares."""

    def some(self, n: int) -> _Future:
        """The first n of the users."""
        if n >= len(self.scores):
            return self
        own = {half_life: values[:n] for half_life, values in self.own.items()}
        return replace(self, judge=self.judge.some(n), scores=self.scores[:n], own=own)

    def per_user(self, trend: Trend) -> Floats:
        """The metric of each user's list with this trend."""
        term = trend.popularity * self.features[_POPULARITY]
        for half_life, weight in zip(trend.half_lives, trend.weights, strict=True):
            term = term + weight * self.features[half_life]
        scores = self.scores + torch.as_tensor(term).to(self.scores)
        if trend.own:
            scores += trend.own * self.own[trend.own_half_life]
        return self.judge.per_user(scores)

    def most_likely(self, half_lives: tuple[str | float, ...]) -> tuple[Trend, float]:
        """The most likely weights, in the unit of the scores, and how much a score counts."""
        features = np.array([self.features[one] for one in (_POPULARITY, *half_lives)])
        best: _Weights | None = None
        for half_life, own in self.own.items():
            start = None if best is None else best.all
            tried = _most_likely([self.scores, own], self.judge.seen, self.judge.target, features, start)
            if best is None or tried.loss < best.loss:
                best, own_half_life = tried, half_life
        assert best is not None
        scale = max(best.of_scores[0], _LEAST_SCALE)
        popularity, *weights = (_rounded(weight / scale) for weight in best.of_features)
        own_weight = _rounded(max(best.of_scores[1], 0.0) / scale)
        return Trend(half_lives, tuple(weights), popularity, own_weight, own_half_life), scale

    def best(self, found: Trend, half_lives: tuple[str | float, ...]) -> Trend:
        """The best of a trend and its neighbours: one half-life alone or none, then the weight of popularity,
        then that of what users did lately. Weights go by the deviation of the scores."""
        unit = float(self.scores.std())
        best = float(self.per_user(found).mean())
        changes: list[list[Json]] = [
            [
                {"half_lives": (one,), "weights": (_rounded(unit * weight),)}
                for one in half_lives for weight in _SINGLE_WEIGHTS
            ]
            + [{"weights": (0.0,) * len(found.weights)}],
            [{"popularity": _rounded(unit * weight)} for weight in _POPULARITY_WEIGHTS],
            [
                {"own_half_life": one, "own": _rounded(unit / max(float(own.std()), 1e-6) * weight)}
                for one, own in self.own.items() for weight in _OWN_WEIGHTS
            ],
        ]  # fmt: skip
        for kind in changes:
            start = found
            for change in kind:
                tried = replace(start, **change)
                if (score := float(self.per_user(tried).mean())) > best:
                    found, best = tried, score
        return found


def _rounded(weight: float) -> float:
    return float(f"{weight:.4g}")


class _Weights(NamedTuple):
    loss: float
    of_scores: Floats
    of_features: Floats

    @property
    def all(self) -> Floats:
        return np.concatenate([self.of_scores, self.of_features])


def _most_likely(
    scores: Sequence[Tensor], seen: Tensor, target: Tensor, features: Floats,
    start: Floats | None = None,
) -> _Weights:  # fmt: skip
    """The weights of scores [n, items] and of features [k, items] that make each user's pairs most likely.

    Each user counts once. Weights of features are pulled to 0 as by one user more.
    """
    shown = [each.masked_fill(seen, 0.0) for each in scores]
    columns = torch.tensor(features, dtype=shown[0].dtype, device=seen.device)
    hidden = torch.zeros_like(shown[0]).masked_fill_(seen, -math.inf)
    taken = (target & ~seen).to(columns.dtype)
    taken /= taken.sum(dim=1, keepdim=True).clamp(min=1) * len(target)
    of_users = taken.sum(dim=1)
    wanted = _sums(taken, shown, columns)

    def loss(weights: Floats) -> tuple[float, Floats]:
        chances = hidden + torch.tensor(weights[len(shown) :] @ features).to(columns)
        for weight, each in zip(weights, shown, strict=False):
            chances.add_(each, alpha=float(weight))
        log_total = chances.logsumexp(dim=1)
        chances.sub_(log_total[:, None]).exp_().mul_(of_users[:, None])
        pull = np.concatenate([np.zeros(len(shown)), weights[len(shown) :] / len(target)])
        value = float(of_users @ log_total) - float(wanted @ weights) + float(pull @ weights) / 2
        return value, _sums(chances, shown, columns) - wanted + pull

    if start is None:
        start = np.zeros(len(shown) + len(features))
        start[0] = 1 / max(float(shown[0].std()), 1e-6)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-7})
    return _Weights(float(found.fun), found.x[: len(shown)], found.x[len(shown) :])


def _sums(shares: Tensor, scores: Sequence[Tensor], columns: Tensor) -> Floats:
    """The sums of shares [n, items] times each of the scores [n, items], and of the columns [k, items]."""
    of_scores = [torch.dot(shares.view(-1), each.view(-1)) for each in scores]
    return torch.cat([torch.stack(of_scores), columns @ shares.sum(dim=0)]).double().cpu().numpy()


def _of_new_users(taken: Floats, features: Floats) -> tuple[float, ...]:
    """The weights of features that make most likely what users without history took.

    They are pulled to those of all-time popularity, as by a few users more.
    """
    n, popular = taken.sum(), np.eye(len(features))[0]

    def loss(weights: Floats) -> tuple[float, Floats]:
        scores, away = weights @ features, weights - popular
        log_total = float(scipy.special.logsumexp(scores))
        gradient = features @ (n * np.exp(scores - log_total) - taken) + _PULL * away
        return float(n * log_total - taken @ scores + _PULL * (away @ away) / 2), gradient

    found = scipy.optimize.minimize(loss, popular, jac=True, method="L-BFGS-B").x
    return tuple(_rounded(weight) for weight in found)
