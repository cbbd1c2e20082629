"""The plateau method: τ from the plateau of the share of held-out positives as a function of the score.

Consider the pairs that are not in the training part. If the observed pairs are a random sample of the
positives, the probability that such a pair is a held-out positive is

    P(held out | x) = c · F(x),    F(x) = P(positive | x),    c = held-out / (held-out + hidden),

so the shape of F is observable, and c is the plateau that the curve approaches where all pairs are positive.
The model of F is

    F = 1 − (1 + λ e^η)^(−1/λ),    η = a + b·z + d·log(1+n_u) + e·z·log(1+n_u),

where z is the standardised score and n_u the number of positives of the user. λ = 1 is the logistic curve,
λ → 0 the complementary log-log, which reaches its plateau sooner. The parameters maximise the likelihood of
the counts. Unlike the ratio methods, this one needs no score above which all pairs are positive. It assumes
instead that the curve has this form beyond the observed scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from truepair.prior.holdout_scores import Floats
from truepair.prior.score_counts import Cells

_STARTS = (0.9, 0.3, 0.05)  # of c
_LEAST_SHAPE = 0.01  # acts as 0
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Plateau:
    """The fitted curve; `prior` is the share of hidden positives among the counted unlabelled pairs."""

    share: float  # c
    shape: float  # λ
    weights: Floats  # a, b, d, e
    prior: float
    point: Floats  # a starting point for later fits

    def positive(self, score: Floats, log_count: Floats) -> Floats:
        """P(positive) of a pair that is not in the training part."""
        return _curve(_features(score, log_count) @ self.weights, self.shape)[0]

    def hidden(self, score: Floats, log_count: Floats) -> Floats:
        """P(positive) of an unlabelled pair: F(1 − c) / (1 − cF)."""
        chance = self.positive(score, log_count)
        return chance * (1 - self.share) / np.maximum(1 - self.share * chance, _TINY)


def fit_plateau(
    cells: Cells, shapes: tuple[float, float] = (0.0, 1.0), start: Floats | None = None
) -> Plateau:
    """The maximum likelihood curve with λ between `shapes`; equal bounds fix λ."""
    held_out, unlabelled = cells.by_group
    score, log_count = np.broadcast_arrays(cells.score, cells.log_count[:, None])
    used = (held_out + unlabelled) > 0
    features, held_out, unlabelled = _features(score[used], log_count[used]), held_out[used], unlabelled[used]
    low, high = max(shapes[0], _LEAST_SHAPE), max(shapes[1], _LEAST_SHAPE)

    def objective(point: Floats) -> tuple[float, Floats]:
        return _likelihood(point, features, held_out, unlabelled, low, high)

    starts = [_start(share) for share in _STARTS] if start is None else [start]
    found = [
        minimize(objective, point, jac=True, method="L-BFGS-B", options={"maxiter": 500}) for point in starts
    ]
    best = min(found, key=lambda one: float(one.fun)).x
    share = float(expit(best[0]))
    hidden = held_out.sum() * (1 - share) / share
    shape = low + (high - low) * float(expit(best[1]))
    prior = min(hidden / unlabelled.sum(), 1 - 1e-9)
    return Plateau(share, shape, best[2:], float(prior), best)


def _start(share: float) -> Floats:
    return np.array([np.log(share / (1 - share)), 0.0, -3.0, 1.0, 0.0, 0.0])


def _features(score: Floats, log_count: Floats) -> Floats:
    return np.stack([np.ones_like(score), score, log_count, score * log_count], axis=-1)


def _curve(eta: Floats, shape: float) -> tuple[Floats, Floats, Floats]:
    """F, dF/dη, dF/dλ."""
    power = np.exp(np.clip(eta, -40.0, 40.0))
    base = 1 + shape * power
    log_base = np.log1p(shape * power)
    miss = np.exp(-log_base / shape)  # 1 − F
    by_shape = miss * (power / (shape * base) - log_base / shape**2)
    return -np.expm1(-log_base / shape), miss * power / base, by_shape


def _likelihood(
    point: Floats, features: Floats, held_out: Floats, unlabelled: Floats, low: float, high: float
) -> tuple[float, Floats]:
    """The negative mean log-likelihood per held-out pair, and its gradient."""
    share, mix = expit(point[0]), expit(point[1])
    rise, by_eta, by_shape = _curve(features @ point[2:], low + (high - low) * mix)
    chance = np.clip(share * rise, _TINY, 1 - _TINY)
    total = held_out.sum()
    value = -(held_out @ np.log(chance) + unlabelled @ np.log1p(-chance)) / total
    slope = -(held_out / chance - unlabelled / (1 - chance)) / total  # d value / d chance
    gradient = np.concatenate(
        [
            [slope @ rise * share * (1 - share)],
            [slope @ by_shape * share * (high - low) * mix * (1 - mix)],
            (slope * by_eta * share) @ features,
        ]
    )
    return float(value), gradient
