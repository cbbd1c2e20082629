"""By definition: moments of a user's unlabelled scores, and the mean of the users' priors."""

import numpy as np
import pytest
import torch

from truepair.prior.estimate import _user_priors
from truepair.prior.holdout_scores import Evidence, moments
from truepair.prior.plateau import fit_plateau
from truepair.prior.score_counts import count_cells
from worlds import two_tastes


def test_moments_are_the_mean_and_the_standard_deviation_of_unlabelled_scores():
    data, chance = two_tastes(), torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 3, generator=chance) + 1 for n in (data.n_users, data.n_items))
    mean, spread = moments(users, items, data)
    scores, known = (users.double() @ items.double().T).numpy(), data.csr().toarray() > 0
    for user in range(data.n_users):
        own = scores[user][~known[user]]
        assert (mean[user], spread[user]) == pytest.approx((own.mean(), own.std()), rel=1e-6)


@pytest.mark.parametrize("tau", [0.01, 0.2])
def test_the_mean_of_the_users_priors_is_the_recommended_one(tau):
    data, rng = two_tastes(), np.random.default_rng(0)
    users = rng.integers(0, 39, size=4_000)  # the last user has no pair
    scores = rng.normal(size=4_000) + 3 * (rng.random(4_000) < 0.1 + users / 200)
    held_out = rng.integers(0, 39, size=400), rng.normal(size=400) + 3
    evidence = Evidence(*held_out, users, scores, np.ones(4_000), data.user_counts)
    cells = count_cells(evidence)
    found = _user_priors(evidence, cells, fit_plateau(cells), data, tau)
    assert found[:39].mean() == pytest.approx(tau)  # all have as many unlabelled items
    assert found[39] == tau
    assert np.corrcoef(found[:39], np.arange(39))[0, 1] > 0.5
