"""Checkpoints with a right checksum and wrong contents: all of it is checked before it is used."""

import dataclasses

import pytest
import torch

from truepair.errors import StorageError
from truepair.losses import BPR, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full, Uniform
from truepair.storage.tensor_file import read_tensors, write_tensors
from truepair.training import Job, Settings, fit
from truepair.training.checkpoints import KIND, VERSION
from worlds import two_tastes

DATA = two_tastes(12, 10, 3)
SETTINGS = Settings(epochs=2, batch_size=8, n_unlabelled=2, device="cpu")
ADAGRAD = dataclasses.replace(SETTINGS, optimizer="adagrad")
JOBS = {
    "reference": Job(MF(dim=4), BPR(), Uniform(), DATA, SETTINGS),
    "cpu": Job(MF(dim=4), BPR(), Uniform(), DATA, ADAGRAD),
    "full": Job(MF(dim=4, popularity=0.5), InfoNCE(), Full(), DATA, SETTINGS),
}


def score(state):
    return [0.2, 0.1][state.epoch - 1]


def begun(job, engine, path):
    """A checkpoint after the first of two epochs."""
    shorter = dataclasses.replace(job, settings=dataclasses.replace(job.settings, epochs=1))
    fit(shorter, score, engine=engine, checkpoint=path)
    return read_tensors(path, KIND, VERSION)


def refused(job, engine, path, tensors, facts, match):
    write_tensors(path, KIND, VERSION, tensors, facts)
    with pytest.raises(StorageError, match=rf"run\.ckpt .*{match}.*Delete it to start anew"):
        fit(job, score, engine=engine, checkpoint=path)


OTHER_TENSORS = {
    "missing": (lambda t: None, "is missing"),
    "empty": (lambda t: t.reshape(-1)[:0], "of shape"),
    "fewer rows": (lambda t: t[:-1] if t.ndim else t[None], "of shape"),
    "more rows": (lambda t: torch.cat([t, t]) if t.ndim else t[None], "of shape"),
    "one axis more": (lambda t: t[None], "of shape"),
    "one number": (lambda t: t.reshape(-1)[0] if t.ndim else t[None], "of shape"),
    "doubles": (lambda t: t.double(), r"is torch\.float64"),
    "integers": (lambda t: t.int(), r"is torch\.int32"),
    "NaN": (lambda t: t.float() * torch.nan, "NaN|is torch.float32"),
}


@pytest.mark.parametrize("change", OTHER_TENSORS)
@pytest.mark.parametrize("engine", JOBS)
def test_every_tensor_is_compared_with_the_run(engine, change, tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS[engine], engine, path)
    how, message = OTHER_TENSORS[change]
    for name, tensor in tensors.items():
        changed = {**tensors, name: how(tensor)}
        changed = {key: value for key, value in changed.items() if value is not None}
        refused(JOBS[engine], engine, path, changed, facts, f"{name} .*({message})")


@pytest.mark.parametrize("engine", JOBS)
def test_tensors_of_another_run(engine, tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS[engine], engine, path)
    more = {**tensors, "trainer.optimizer.7.exp_avg": torch.zeros(2)}
    refused(JOBS[engine], engine, path, more, facts, "does not belong to this run")


def test_more_steps_than_were_made(tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS["full"], "full", path)
    name = "trainer.optimizer.0.step"
    for number in (-1, 10**6):
        changed = {**tensors, name: torch.full_like(tensors[name], number)}
        refused(JOBS["full"], "full", path, changed, facts, "steps are done")


def test_a_checkpoint_of_the_removed_engine(tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS["cpu"], "cpu", path)
    old = {**tensors, "trainer.steps": torch.tensor(5)}
    refused(JOBS["cpu"], "cpu", path, old, facts, "engine 'cpu' of version 0.1, which no longer exists")


RECORD = {"epoch": 1, "loss": 0.5, "clamped": None, "score": 0.2, "learning_rate": 0.001, "seconds": 0.1}
OTHER_FACTS = {
    "no history": ({"history": None}, "its history is None"),
    "an empty history": ({"history": []}, r"its history is \[\]"),
    "a history of numbers": ({"history": [1]}, "its record of epoch 1 is 1"),
    "a text for a history": ({"history": "x"}, "its history is 'x'"),
    "a record without a loss": ({"history": [{"epoch": 1}]}, "its record of epoch 1"),
    "a record with more": ({"history": [{**RECORD, "x": 1}]}, "its record of epoch 1"),
    "a loss that is text": ({"history": [{**RECORD, "loss": "0.5"}]}, "loss of epoch 1 is '0.5'"),
    "a loss above all floats": ({"history": [{**RECORD, "loss": 10**400}]}, "loss of epoch 1 is 1000"),
    "a loss that is None": ({"history": [{**RECORD, "loss": None}]}, "loss of epoch 1 is None"),
    "a score that is a list": ({"history": [{**RECORD, "score": [1]}]}, r"score of epoch 1 is \[1\]"),
    "another epoch": ({"history": [{**RECORD, "epoch": 2}]}, "record of epoch 1 is of epoch 2"),
    "no best": ({"best": None}, "its best epoch is None"),
    "a best that is a number": ({"best": 1}, "its best epoch is 1"),
    "a best epoch that was not": ({"best": [9, 0.2]}, "its best epoch is"),
    "another best score": ({"best": [1, 0.3]}, "its best epoch is"),
    "a long best": ({"best": [1, 0.2, 3]}, "its best epoch is"),
    "a job that is a list": ({"job": ["x"]}, "does not say which run it is of"),
    "a job that is text": ({"job": "x"}, "does not say which run it is of"),
    "no job": ({"job": None}, "does not say which run it is of"),
}


@pytest.mark.parametrize("name", OTHER_FACTS)
def test_every_fact_is_checked(name, tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS["full"], "full", path)
    changes, message = OTHER_FACTS[name]
    refused(JOBS["full"], "full", path, tensors, {**facts, **changes}, message)


@pytest.mark.parametrize("facts", [[], "x", 3, None])
def test_facts_that_are_no_object(facts, tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, _ = begun(JOBS["full"], "full", path)
    refused(JOBS["full"], "full", path, tensors, facts, "does not say which run it is of")


def test_another_job_without_an_engine(tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS["full"], "full", path)
    job = {name: value for name, value in facts["job"].items() if name != "engine"}
    write_tensors(path, KIND, VERSION, tensors, {**facts, "job": job})
    with pytest.raises(StorageError, match="of another run: engine was None, is 'full'"):
        fit(JOBS["full"], score, engine="full", checkpoint=path)


def test_facts_that_are_nested_deeply(tmp_path):
    path = tmp_path / "run.ckpt"
    tensors, facts = begun(JOBS["full"], "full", path)
    deep = current = {}
    for _ in range(200):
        current["kind"] = current = {}
    refused(
        JOBS["full"], "full", path, tensors, {**facts, "job": {"sampler": deep}}, "deep within each other"
    )


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adagrad"])
@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4)], ids=lambda encoder: type(encoder).__name__)
@pytest.mark.parametrize("engine", ["reference", "full"])
def test_whole_checkpoints_pass(engine, encoder, optimizer, tmp_path):
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer)
    job = Job(encoder, BPR(), Full() if engine == "full" else Uniform(), DATA, settings)
    begun(job, engine, tmp_path / "run.ckpt")
    resumed = fit(job, score, engine=engine, checkpoint=tmp_path / "run.ckpt")
    assert torch.equal(resumed.users, fit(job, score, engine=engine).users)
