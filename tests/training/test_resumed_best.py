"""A run whose best epoch lies before a checkpoint keeps the matrices of that epoch."""

import pytest
import torch

from truepair.losses import BPR
from truepair.models.encoders import MF
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit
from worlds import two_tastes


def trained(epochs, scores, checkpoint=None):
    settings = Settings(epochs=epochs, batch_size=64, learning_rate=0.05, device="cpu")
    job = Job(MF(dim=3), BPR(), Uniform(), two_tastes(), settings)
    return fit(job, lambda state: scores[state.epoch - 1], engine="reference", checkpoint=checkpoint)


@pytest.mark.parametrize("scores", [(0.9, 0.1, 0.2), (0.9, 0.9, 0.2)], ids=["best", "first of the best"])
def test_a_resumed_run_keeps_the_matrices_of_its_best_epoch(scores, tmp_path):
    trained(2, scores, tmp_path / "checkpoint")
    resumed, whole = trained(3, scores, tmp_path / "checkpoint"), trained(3, scores)
    assert (resumed.epoch, resumed.score) == (whole.epoch, whole.score) == (1, 0.9)
    assert torch.equal(resumed.users, whole.users)
    assert torch.equal(resumed.items, whole.items)
