"""A process forked after training: PyTorch must not wait for threads that are not there."""

import os

import pytest
import torch

from truepair.losses import BPR
from truepair.models.encoders import MF
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit
from worlds import two_tastes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_after_training_uses_one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        settings = Settings(epochs=1, n_extra=0, device="cpu")
        fit(Job(MF(dim=2), BPR(), Uniform(), two_tastes(), settings), engine="reference")
        child = os.fork()
        if not child:
            os._exit(torch.get_num_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
