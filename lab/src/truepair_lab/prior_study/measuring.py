"""Measuring: an estimate against the truth, of all pairs and of each user."""

from __future__ import annotations

import numpy as np
from scipy.stats import spearmanr

from truepair.prior import PriorEstimate, estimate_prior
from truepair.prior.holdout_scores import Floats
from truepair_lab.prior_study.cases import RESAMPLES, Place, PriorCase
from truepair_lab.prior_study.lines import EstimateLine


def measure(study: str, place: Place, case: PriorCase, resamples: int = RESAMPLES) -> EstimateLine:
    """Estimate, and compare."""
    found = estimate_prior(case.observed, resamples=resamples, seed=place.seed, device="cpu")
    return EstimateLine(
        study=study,
        exposure=place.exposure,
        level=place.level,
        seed=place.seed,
        tau=case.tau,
        tau_low=case.low,
        tau_high=case.high,
        estimate=found.tau,
        low=found.low,
        high=found.high,
        methods=found.methods,
        separation=found.separation,
        observed=found.observed,
        users=per_user(case, found),
        resamples=resamples,
        seen=found.has_plateau,
    )


def per_user(case: PriorCase, found: PriorEstimate) -> dict[str, float]:
    """Rank correlation with the users' true priors, and the mean absolute error, of several answers.

    own      the estimate for each user
    density  the share of items that a user has; its ranks are those of plain counts
    scaled   the same, scaled so that its mean over unlabelled pairs is the estimated τ
    one      the estimated τ for everyone; `true` the true τ for everyone
    """
    if case.user_tau is None:
        return {}
    counts = case.observed.user_counts
    density, left = counts / case.observed.n_items, case.observed.n_items - counts
    scaled = density * found.tau / max(float(density @ left / left.sum()), 1e-12)
    answers = {"own": found.user_tau, "density": density, "scaled": np.minimum(scaled, 1.0)}
    ranks = {f"rank {name}": _rank(answers[name], case.user_tau) for name in ("own", "density")}
    one = {name: np.full(len(counts), tau) for name, tau in (("one", found.tau), ("true", case.tau))}
    errors = {f"error {n}": float(np.abs(a - case.user_tau).mean()) for n, a in (answers | one).items()}
    return ranks | errors


def _rank(a: Floats, b: Floats) -> float:
    """Spearman's; 0 where one of them is constant."""
    return float(spearmanr(a, b).statistic) if np.ptp(a) > 0 and np.ptp(b) > 0 else 0.0
