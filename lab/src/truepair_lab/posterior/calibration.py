"""Calibration: the density ratio of scores of held-out positives to scores of unlabelled pairs.

    r(z) = f(z | held-out positive) / f(z | unlabelled)

It is estimated from counts in about 200 bins of z and made monotone. If the held-out pairs are a random
sample of the positives, P(positive | z) = τ·r(z). The mean of r over unlabelled pairs is 1, so the mean of
P is τ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from truepair.data.interactions import Interactions
from truepair.prior.holdout_scores import Evidence, Floats, moments, standardise
from truepair_lab.posterior.positive_probability import Posterior

_BINS = 200  # half of them quantiles of held-out scores, half of unlabelled scores
_ENTRIES = 1024  # of the table
_QUANTILES = 0.5, 0.9, 0.99, 0.999


def calibrate(
    users: torch.Tensor,
    items: torch.Tensor,
    known: Interactions,
    train: Interactions,
    held_out: Interactions,
    seed: int,
) -> tuple[Posterior, Evidence]:
    """P(positive) of the pairs that are not in `known`, by a first model that was trained on `train`.

    `held_out` are the pairs of `known` that are not in `train`. A user without training pairs has z = 0 for
    every item, so that the weights are equal and have no effect. Scores are computed on the vectors' device.
    """
    evidence = standardise(users, items, known, train, held_out, seed)
    mean, spread = moments(users, items, known)
    users, items = users.cpu().float(), items.cpu().float()
    trained = train.user_counts > 0
    ends, ratio = density_ratio(evidence)
    found = Posterior(
        users=users * torch.tensor(trained)[:, None],
        items=items,
        mean=torch.tensor(np.where(trained, mean, 0.0), dtype=torch.float32),
        spread=torch.tensor(np.where(trained, spread, 1.0), dtype=torch.float32),
        ratio=torch.tensor(ratio, dtype=torch.float32),
        ends=torch.tensor(ends, dtype=torch.float32),
    )
    return found, evidence


def density_ratio(evidence: Evidence) -> tuple[Floats, Floats]:
    """The first and the last z of a table, and r at equally spaced z from one to the other."""
    z, ratio = _steps(evidence)
    low, high = z[0], max(z[-1], z[0] + 1e-3)  # if all scores are equal there is one z, and r = 1
    grid = np.linspace(low, high, _ENTRIES)
    table = np.interp(grid, z, ratio)
    places = np.rint((evidence.scores - low) / (high - low) * (_ENTRIES - 1)).clip(0, _ENTRIES - 1)
    mean = float(np.average(table[places.astype(np.int64)], weights=evidence.weights))
    return np.array([low, high]), table / mean  # interpolation between bins changed the mean slightly


def _steps(evidence: Evidence) -> tuple[Floats, Floats]:
    """The mean z of the unlabelled pairs in each bin, and r there, non-decreasing."""
    edges = _edges(evidence)
    held_out = np.bincount(
        np.searchsorted(edges, evidence.held_out_scores, "right"), minlength=len(edges) + 1
    )
    bins = np.searchsorted(edges, evidence.scores, "right")
    pairs = np.bincount(bins, evidence.weights, len(edges) + 1)
    z = np.bincount(bins, evidence.weights * evidence.scores, len(edges) + 1)
    bin_below = np.maximum.accumulate(np.where(pairs > 0, np.arange(len(pairs)), -1))
    bin_below = np.maximum(
        bin_below, np.flatnonzero(pairs > 0)[0]
    )  # a bin without unlabelled pairs is merged with the one below
    held_out, kept = np.bincount(bin_below, held_out, len(pairs)), pairs > 0
    share, rest = held_out[kept] / held_out.sum(), pairs[kept] / pairs.sum()
    return z[kept] / pairs[kept], isotonic_regression(share / rest, weights=rest).x


def _edges(evidence: Evidence) -> Floats:
    levels = np.linspace(0, 1, _BINS // 2 + 1)[1:-1]
    parts = [np.quantile(scores, levels) for scores in (evidence.held_out_scores, evidence.scores)]
    return np.unique(np.concatenate(parts))


def posterior_facts(posterior: Posterior, evidence: Evidence, tau: Any, cap: float) -> dict[str, Any]:
    """Facts for the model file: the distribution of P over the unlabelled pairs."""
    low, high = posterior.ends.double().numpy()
    places = np.rint((evidence.scores - low) / (high - low) * (_ENTRIES - 1)).clip(0, _ENTRIES - 1)
    own = np.asarray(tau)[evidence.users] if np.ndim(tau) else tau
    p = np.minimum(own * posterior.ratio.double().numpy()[places.astype(np.int64)], cap)
    spread = {f"{level:g}": _rounded(np.quantile(p, level)) for level in _QUANTILES}
    mean, top = np.average(p, weights=evidence.weights), float(p.max())
    return {
        "tau": _rounded(np.mean(tau)),
        "cap": cap,
        "mean": _rounded(mean),
        "quantiles": spread,
        "highest": _rounded(top),
        "held out": len(evidence.held_out_scores),
        "separation": _rounded(evidence.separation),
    }


def _rounded(number: Any) -> float:
    return float(f"{float(number):.3g}")
