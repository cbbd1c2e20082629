"""The prior of DPL behind implicit's interface."""

import pytest

from truepair.adapters.implicit.dpl import DebiasedPairwise
from truepair.losses import DPL


@pytest.mark.parametrize("tau", [0.0, 0.3, "density", (0.1, 0.2)])
def test_the_loss_has_the_prior_that_was_given(tau):
    model = DebiasedPairwise(tau=tau, n_extra=3, n_unlabelled=4)
    assert model._loss() == DPL(tau=tau)
    assert model._loss_of(0.25) == DPL(tau=0.25)
    assert model._numbers() == (3, 4)
