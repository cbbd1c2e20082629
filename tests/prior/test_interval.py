"""The interval of the prior: a bootstrap over users, and its level."""

import numpy as np
import pytest

from truepair.prior import LEVEL
from truepair.prior.estimate import _interval
from truepair.prior.holdout_scores import Evidence
from truepair.prior.plateau import fit_plateau
from truepair.prior.score_counts import count_cells

SHAPES = (0.0, 2.0)  # of the curves that an interval allows


@pytest.fixture(scope="module")
def cells():
    """Few users, half of whom have far more hidden positives: which are drawn makes a difference."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 60, size=6_000)
    positive = rng.random(6_000) < np.where(users % 2, 0.05, 0.3)
    held_out_users = rng.integers(0, 60, size=800)
    scores, held_out_scores = rng.normal(size=6_000) + 3 * positive, rng.normal(size=800) + 3
    counts = np.full(60, 20)
    return count_cells(Evidence(held_out_users, held_out_scores, users, scores, np.ones(6_000), counts))


def priors_of_resamples(cells, curve, resamples, seed):
    """The least and the largest prior of each bootstrap sample, the data themselves first."""
    rng = np.random.default_rng(seed)
    fitted = [fit_plateau(cells, (shape, shape), curve.point) for shape in SHAPES] + [curve]
    found = [[one.prior for one in fitted]]
    for _ in range(resamples):
        drawn = cells.resampled(rng)
        found.append([fit_plateau(drawn, (one.shape, one.shape), one.point).prior for one in fitted])
    return np.min(found, axis=1), np.max(found, axis=1)


def test_the_interval_is_from_the_5th_to_the_95th_percentile(cells):
    curve = fit_plateau(cells)
    least, largest = priors_of_resamples(cells, curve, 30, seed=2)
    assert LEVEL == 0.9
    found = _interval(cells, curve, 30, seed=2)
    assert found == pytest.approx((np.quantile(least, 0.05), np.quantile(largest, 0.95)))


def test_the_bootstrap_widens_the_interval(cells):
    curve = fit_plateau(cells)
    low, high = _interval(cells, curve, 0, seed=2)
    wider_low, wider_high = _interval(cells, curve, 30, seed=2)
    assert wider_low < 0.97 * low
    assert wider_high > 1.03 * high


def test_a_resample_keeps_the_pairs_of_a_user_together(cells):
    """Drawn clusters bring their held-out and their unlabelled pairs; their number stays."""
    drawn = cells.resampled(np.random.default_rng(1))
    pairs = {(h.tobytes(), u.tobytes()) for h, u in _clusters(cells)}
    found = [(h.tobytes(), u.tobytes()) for h, u in _clusters(drawn)]
    assert set(found) < pairs
    assert len(found) == len(_clusters(cells))


def _clusters(cells):
    groups, clusters, _ = cells.held_out.shape
    return [(cells.held_out[g, k], cells.unlabelled[g, k]) for g in range(groups) for k in range(clusters)]
