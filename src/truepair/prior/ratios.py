"""Ratio methods: estimates of τ from the ratio of the unlabelled to the positive density of scores.

If unlabelled = τ·positive + (1−τ)·negative, then τ is at most this ratio at any score, and equal to it where
there are no negatives. Both methods search for such scores. Usually even the highest scores include
negatives, so the estimates are too high: upper bounds, if the observed pairs are a random sample of the
positives. Otherwise they are not: in lab/docs/prior.md both are above the truth in all 98 cases that were
observed at random, and of the other 61 cases DEDPUL is in 12 and BBE in 35.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from truepair.prior.holdout_scores import Floats
from truepair.prior.score_counts import Cells

_CONFIDENCE, _SLACK = 0.1, 0.01  # δ and γ of BBE
_TOLERANCE = 0.01  # of DEDPUL's fixed point


def threshold_ratios(cells: Cells) -> tuple[Floats, Floats, Floats]:
    """For each bin as a threshold: the mean score in it, frac(U ≥ c)/frac(P ≥ c), and frac(P ≥ c)."""
    held_out, unlabelled = cells.by_score
    above_held_out = np.cumsum(held_out[::-1])[::-1] / held_out.sum()
    above = np.cumsum(unlabelled[::-1])[::-1] / unlabelled.sum()
    kept = above_held_out > 0
    return cells.score[kept], above[kept] / above_held_out[kept], above_held_out[kept]


def bbe(cells: Cells) -> float:
    """Best bin estimation: the ratio at the threshold that minimises the ratio plus its error bound.

    min_c  ratio(c) + (1+γ)(√(ln(4/δ)/2n_u) + √(ln(4/δ)/2n_p)) / frac(P ≥ c),  δ = 0.1, γ = 0.01
    """
    _, ratio, above_held_out = threshold_ratios(cells)
    n_held_out = float(cells.held_out.sum())
    error = sum(np.sqrt(np.log(4 / _CONFIDENCE) / 2 / n) for n in (cells.drawn, n_held_out))
    best = int(np.argmin(ratio + (1 + _SLACK) * error / above_held_out))
    return float(min(ratio[best], 1.0))


def dedpul(cells: Cells) -> float:
    """DEDPUL: the largest α that is consistent with the density ratio r = f_P/f_U of the scores.

    α is consistent if α = mean_U min(1, α·r), where min(1, α·r) is the probability that an unlabelled pair is
    positive. The ratio is computed in bins and made non-decreasing in the score by isotonic regression.
    """
    held_out, unlabelled = cells.by_score
    # merge bins without unlabelled pairs with the one below; no α would be consistent with them
    used = np.flatnonzero(unlabelled > 0)
    place = np.maximum(np.searchsorted(used, np.arange(len(held_out)), "right") - 1, 0)
    share = unlabelled[used] / unlabelled.sum()
    ratio = np.bincount(place, held_out, len(used)) / held_out.sum() / share
    ratio = np.asarray(isotonic_regression(ratio, weights=share).x)
    grid = np.geomspace(1e-6, 1.0, 2000)
    expected = np.minimum(1.0, grid[:, None] * ratio[None, :]) @ share
    consistent = np.flatnonzero(grid - expected <= _TOLERANCE * grid)
    return float(grid[consistent[-1]]) if len(consistent) else 0.0
