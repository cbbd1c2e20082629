"""The counted work of a step, and the threads that it gets."""

import pytest
import torch

from truepair.data.simulation import simulate_world
from truepair.distributed.cost import STEP_WORK, step_work
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import Job, Settings, fit, module_trainer
from truepair.training.module_trainer import threads_for


@pytest.fixture
def threads(monkeypatch):
    """PyTorch on a machine with four threads: what is set, one after the other."""
    made = [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: made[-1])
    monkeypatch.setattr(torch, "set_num_threads", made.append)
    return made


def test_work_is_counted():
    assert step_work(10, 20, 50, 4, 8) == STEP_WORK + 4 * 20 * 58 + 70 * 30 * 8 + 2000 * 20
    assert step_work(10, 20, 50, 400, 8) == step_work(10, 20, 50, 10, 8)  # there are no more users


def test_a_small_step_has_one_thread_and_gives_the_others_back(threads):
    with threads_for(step_work(943, 1682, 80_000, 72, 256)):
        assert torch.get_num_threads() == 1
    assert threads == [4, 1, 4]


def test_a_large_step_has_all_threads(threads):
    with threads_for(step_work(6040, 3706, 800_000, 128, 256)):
        assert torch.get_num_threads() == 4
    assert threads == [4]


def test_threads_are_given_back_after_an_error(threads):
    with pytest.raises(ZeroDivisionError), threads_for(0.0):
        raise ZeroDivisionError
    assert threads[-1] == 4


@pytest.mark.parametrize(("small", "expected"), [(1e12, [4, 1, 4, 1, 4]), (0.0, [4])])
def test_training_asks_for_the_threads_of_its_steps(small, expected, threads, monkeypatch):
    monkeypatch.setattr(module_trainer, "_SMALL_WORK", small)
    data = simulate_world(30, 20, density=0.2, seed=0).observed
    fit(Job(MF(dim=4), InfoNCE(), Full(), data, Settings(epochs=2, device="cpu")), engine="full")
    assert threads == expected
