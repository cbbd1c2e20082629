"""The density ratio over few pairs: its mean over unlabelled pairs is 1, however coarse its bins are."""

import numpy as np
import pytest

from truepair.prior.holdout_scores import Evidence
from truepair_lab.posterior.calibration import density_ratio


@pytest.mark.parametrize("n", [40, 300])
def test_the_mean_of_the_ratio_over_unlabelled_pairs_is_1(n):
    rng = np.random.default_rng(n)
    scores, held_out = rng.normal(size=n) ** 3, rng.normal(size=30) + 1
    weights, nobody = rng.uniform(1, 9, size=n), np.zeros(n, dtype=np.int64)
    (low, high), ratio = density_ratio(
        Evidence(nobody[:30], held_out, nobody, scores, weights, np.array([9]))
    )
    nearest = np.rint((scores - low) / (high - low) * (len(ratio) - 1)).clip(0, len(ratio) - 1)
    assert np.average(ratio[nearest.astype(int)], weights=weights) == pytest.approx(1, rel=1e-12)
