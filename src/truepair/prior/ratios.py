"""Ratio methods: how small can the unlabelled be against the positives?

If unlabelled = τ·positive + (1−τ)·negative, then τ is at most the ratio of the two anywhere, and equal to
it where no negative is left. Both methods look for that place; where the best scores still hold negatives,
as they mostly do, they say too much: they are upper bounds.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from truepair.prior.cells import Cells
from truepair.prior.evidence import Floats

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
    """Best bin estimation: the ratio at the threshold where ratio plus its possible error is least.

    min_c  ratio(c) + (1+γ)(√(ln(4/δ)/2n_u) + √(ln(4/δ)/2n_p)) / frac(P ≥ c),  δ = 0.1, γ = 0.01
    """
    _, ratio, above_held_out = threshold_ratios(cells)
    n_held_out = float(cells.held_out.sum())
    error = np.sqrt(np.log(4 / _CONFIDENCE) / 2 / cells.drawn) + np.sqrt(
        np.log(4 / _CONFIDENCE) / 2 / n_held_out
    )
    best = int(np.argmin(ratio + (1 + _SLACK) * error / above_held_out))
    return float(min(ratio[best], 1.0))


def dedpul(cells: Cells) -> float:
    """DEDPUL: the density ratio r = f_P/f_U over the score, then the largest α that explains itself.

    α is consistent if α = mean_U min(1, α·r): each unlabelled pair is positive with the chance α·r, none
    above 1. The densities are the bins' shares, made rising in the score by isotonic regression.
    """
    held_out, unlabelled = cells.by_score
    # a bin without unlabelled pairs joins the one below, or no α could explain what is held out there
    used = np.flatnonzero(unlabelled > 0)
    place = np.maximum(np.searchsorted(used, np.arange(len(held_out)), "right") - 1, 0)
    share = unlabelled[used] / unlabelled.sum()
    ratio = np.bincount(place, held_out, len(used)) / held_out.sum() / share
    ratio = np.asarray(isotonic_regression(ratio, weights=share).x)
    grid = np.geomspace(1e-6, 1.0, 2000)
    told = np.minimum(1.0, grid[:, None] * ratio[None, :]) @ share
    consistent = np.flatnonzero(grid - told <= _TOLERANCE * grid)
    return float(grid[consistent[-1]]) if len(consistent) else 0.0
