"""StopTraining: an on_epoch ends its own run, with the best so far; the others go on."""

import dataclasses

import pytest
import torch

from truepair.losses import BPR
from truepair.models.encoders import MF
from truepair.sampling import Uniform
from truepair.training import ENGINES, Job, Settings, StopTraining, fit, fit_many
from truepair.training.job import Engine
from truepair.training.sampled.gpu.engine import GPU
from worlds import two_tastes

DATA = two_tastes(n_users=4, n_items=8, each=2)
SETTINGS = Settings(epochs=6, batch_size=5, n_extra=1, n_unlabelled=1, learning_rate=0.05, device="cpu")


def job(**changes):
    """By SGD, which the engine "cpu" has; "gpu" has Adam only."""
    changes = {"optimizer": "sgd", **changes}
    return Job(MF(dim=3), BPR(), Uniform(), DATA, dataclasses.replace(SETTINGS, **changes))


def stops_after(*scores):
    """These scores by epoch; the last one is told with the signal."""

    def on_epoch(state):
        score = scores[state.epoch - 1]
        if state.epoch == len(scores):
            raise StopTraining(score)
        return score

    return on_epoch


def alone(each, on_epoch, engine):
    return fit(each, on_epoch, engine=engine)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.usefixtures("one_thread")
def test_fit_ends_with_the_best_so_far(engine):
    result = alone(job(), stops_after(0.1, 0.3, 0.2), engine)
    assert (len(result.history), result.epoch, result.score, result.stopped_early) == (3, 2, 0.3, True)
    assert [record.score for record in result.history] == [0.1, 0.3, 0.2]
    whole = alone(job(epochs=2), lambda state: float(state.epoch), engine)
    assert torch.equal(result.users, whole.users)


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.usefixtures("one_thread")
def test_without_a_score_it_just_ends(engine):
    result = alone(job(), stops_after(None, None), engine)
    assert (len(result.history), result.epoch, result.score) == (2, 2, None)


@pytest.mark.parametrize("engine", ["cpu", "reference", "gpu"])
@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
def test_in_fit_many_the_others_go_on(engine, monkeypatch):
    if engine == "gpu":
        pytest.importorskip("truepair.training.sampled.gpu.runs")
        device = "cuda" if torch.cuda.is_available() else "cpu"
        monkeypatch.setitem(ENGINES, "gpu", Engine(start=GPU.start, lacks=lambda job: None))
        jobs = [job(optimizer="adam", seed=seed, epochs=3, device=device) for seed in range(3)]
    else:
        jobs = [job(seed=seed, epochs=3) for seed in range(3)]
    calls = [lambda state: 0.1 * state.epoch, stops_after(0.5, 0.4), stops_after(0.7)]
    first, second, third = fit_many(jobs, calls, engine=engine)
    assert [len(result.history) for result in (first, second, third)] == [3, 2, 1]
    assert [result.epoch for result in (first, second, third)] == [3, 1, 1]
    assert [result.stopped_early for result in (first, second, third)] == [False, True, True]
    expected = alone(jobs[0], calls[0], engine)
    torch.testing.assert_close(first.users, expected.users, rtol=1e-2, atol=2e-3)
