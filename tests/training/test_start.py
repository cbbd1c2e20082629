"""A job that starts where another one ended."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.errors import InputError, StorageError
from truepair.losses import BPR, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.models.start import Side, Start
from truepair.sampling import Full, Uniform
from truepair.training import Job, Settings, fit
from worlds import two_tastes

DATA = two_tastes()
SETTINGS = Settings(epochs=4, batch_size=64, learning_rate=0.02, seed=3, device="cpu")


def job_of(encoder=None, sampler=None, **changes):
    encoder = MF(8) if encoder is None else encoder
    sampler = Full() if sampler is None else sampler
    loss = InfoNCE() if isinstance(sampler, Full) else BPR()
    return Job(encoder, loss, sampler, DATA, dataclasses.replace(SETTINGS, **changes))


def continued(job, engine, start):
    return fit(dataclasses.replace(job, start=start), engine=engine, keep_start=True)


@pytest.fixture(params=["one table", "many users"])
def trainer_kind(request, monkeypatch):
    if request.param == "many users":
        monkeypatch.setattr("truepair.training.full.engine.MANY_STEPS", 0)


@pytest.mark.parametrize("engine", ["full", "reference"])
@pytest.mark.parametrize("encoder", [MF(8, scoring="cosine", temperature=0.2), LightGCN(8)], ids=str)
def test_two_halves_are_a_whole(engine, encoder, trainer_kind):
    # one step an epoch, of all users: the order, which the number of the epoch draws, changes nothing
    whole = fit(job_of(encoder), engine=engine)
    half = fit(job_of(encoder, epochs=2), engine=engine, keep_start=True)
    assert half.start.steps == 2
    second = continued(job_of(encoder, epochs=2), engine, half.start)
    assert second.start.steps == 4
    torch.testing.assert_close(second.users, whole.users, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second.items, whole.items, rtol=1e-4, atol=1e-5)
    fresh = continued(job_of(encoder, epochs=2), engine, half.start.without_moments())
    assert (fresh.items - whole.items).abs().max() > 1e-3  # Adam began anew


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_lock_free_threads_start_from_vectors(optimizer, one_thread):
    job = job_of(sampler=Uniform(), epochs=1, optimizer=optimizer, learning_rate=1e-9)
    start = fit(job, engine="cpu", keep_start=True).start
    assert not start.has_moments
    start.users.vectors[:] = 0.25
    found = continued(job, "cpu", start)  # so slow that it stays where it is
    torch.testing.assert_close(found.users, start.users.vectors)


def test_a_result_of_an_earlier_epoch_has_no_start():
    scores = iter([0.1, 0.4, 0.3, 0.2])
    found = fit(job_of(), lambda state: next(scores), keep_start=True)
    assert found.epoch == 2
    assert found.start is None
    assert fit(job_of(), lambda state: float(state.epoch), keep_start=True).start is not None
    assert fit(job_of()).start is None


def test_a_checkpoint_goes_on_after_a_start(tmp_path):
    start = fit(job_of(epochs=1), keep_start=True).start
    job = dataclasses.replace(job_of(), start=start)
    whole = fit(job, checkpoint=tmp_path / "whole")
    fit(dataclasses.replace(job, settings=dataclasses.replace(SETTINGS, epochs=2)), checkpoint=tmp_path / "c")
    resumed = fit(job, checkpoint=tmp_path / "c")
    assert torch.equal(whole.users, resumed.users)
    assert torch.equal(whole.items, resumed.items)
    with pytest.raises(StorageError, match="start was"):
        fit(job_of(), checkpoint=tmp_path / "whole")


def test_jobs_are_equal_if_they_start_alike():
    start = fit(job_of(epochs=1), keep_start=True).start
    one, other = (dataclasses.replace(job_of(), start=s) for s in (start, start.without_moments()))
    assert one == dataclasses.replace(one)
    assert one != other
    assert one != job_of()


def test_rows_are_taken_and_new_ones_are_zero():
    rows = torch.arange(6.0).reshape(3, 2)
    start = Start(Side(rows, rows + 1, rows + 2), Side(rows, rows, rows), steps=4)
    taken = start.take(np.array([2, -1]), np.array([0]))
    assert taken.users.second.tolist() == [[6.0, 7.0], [0.0, 0.0]]
    assert taken.users.vectors.tolist() == [[4.0, 5.0], [0.0, 0.0]]
    assert taken.items.vectors.tolist() == [[0.0, 1.0]]
    assert taken.steps == 4


ROWS = torch.ones(3, 2)
BAD = {
    "no steps": (Side(ROWS, ROWS, ROWS), Side(ROWS, ROWS, ROWS), 0),
    "steps without moments": (Side(ROWS), Side(ROWS), 3),
    "moments of one side": (Side(ROWS, ROWS, ROWS), Side(ROWS), 3),
    "one moment": (Side(ROWS, ROWS), Side(ROWS, ROWS), 3),
    "another shape": (Side(ROWS, ROWS[:2], ROWS), Side(ROWS, ROWS, ROWS), 3),
    "another width": (Side(ROWS), Side(torch.ones(3, 4)), 0),
    "another type": (Side(ROWS.double()), Side(ROWS), 0),
    "NaN": (Side(ROWS * float("nan")), Side(ROWS), 0),
    "negative squares": (Side(ROWS, ROWS, ROWS), Side(ROWS, ROWS, ROWS - 2 * torch.eye(3, 2)), 3),
}


@pytest.mark.parametrize("name", BAD)
def test_a_start_is_checked(name):
    with pytest.raises(InputError):
        Start(*BAD[name])


def test_a_start_must_fit_the_job():
    start = fit(job_of(epochs=1), keep_start=True).start
    with pytest.raises(InputError, match=r"40 users and 30 items, with dim = 4"):
        dataclasses.replace(job_of(MF(4)), start=start)
    with pytest.raises(InputError, match="moments of Adam"):
        dataclasses.replace(job_of(optimizer="sgd"), start=start)
    with pytest.raises(InputError, match="start is a str"):
        dataclasses.replace(job_of(), start="here")
