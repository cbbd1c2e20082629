"""Ranks that hang, end, or would train something else; too little memory."""

import dataclasses
import os
import time

import numpy as np
import pytest
import torch
from torch.distributed import HashStore

from ranks import on_ranks
from truepair.distributed.cost import TrainingSize
from truepair.errors import InputError, TrainingError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.distributed import engine
from truepair.training.distributed.engine import check_memory, size_of
from truepair.training.distributed.processes import absent_ranks, device_of, group_of, rank_of_process
from worlds import interactions_of, two_tastes

SETTINGS = Settings(epochs=3, batch_size=40, device="cpu")


def job(data=None, **changes):
    data = two_tastes() if data is None else data
    return Job(MF(dim=4), InfoNCE(), Full(), data, dataclasses.replace(SETTINGS, **changes))


def hanging(seconds):
    """Rank 1 hangs after the first epoch, or ends without a word."""

    def on_epoch(state):
        if rank_of_process() == 1:
            if not seconds:
                os._exit(9)
            time.sleep(seconds)

    fit(job(), on_epoch, engine="distributed")


def other_seed():
    fit(job(seed=7 * rank_of_process()), engine="distributed")


def other_data():
    fit(job(two_tastes(seed=rank_of_process())), engine="distributed")


def other_code():
    if rank_of_process() == 2:
        engine.source_digest = lambda package: "older"
    fit(job(), engine="distributed")


def other_validation():
    fit(job(), [None, lambda state: 1.0][rank_of_process()], engine="distributed")


@pytest.mark.long
def test_a_rank_that_hangs_is_named():
    first, _ = on_ranks(2, hanging, 4, TRUEPAIR_TIMEOUT="1")
    assert isinstance(first, TrainingError)
    assert str(first).startswith("rank 1 of 2 does not answer: the process has ended, or it hangs")


def test_a_rank_that_has_ended_is_named():
    first, second = on_ranks(2, hanging, 0, TRUEPAIR_TIMEOUT="2")
    assert str(first).startswith("rank 1 of 2 does not answer")
    assert str(second) == "rank 1 ended with 9"


@pytest.mark.parametrize(
    ("ranks", "function", "message"),
    [
        (2, other_seed, "rank 1 would not train the same model as rank 0: seed is 7 there and 0 on rank 0"),
        (2, other_data, "rank 1 would not train the same model as rank 0: interactions is "),
        (
            3,
            other_code,
            "rank 2 would not train the same model as rank 0: source of truepair is 'older' there",
        ),
        (
            2,
            other_validation,
            "rank 1 would not train the same model as rank 0: on_epoch is 'a function' there",
        ),
    ],
)
def test_ranks_that_would_train_something_else_are_refused(ranks, function, message):
    for error in on_ranks(ranks, function):
        assert isinstance(error, InputError)
        assert str(error).startswith(message)


def test_a_roll_call_finds_who_has_not_signed():
    store = HashStore()
    assert absent_ranks(store, 0, 3, 0.01) == [1, 2]
    assert absent_ranks(store, 2, 3, 0.01) == [1]

    class Lost:
        def set(self, key, value):
            raise RuntimeError("connection lost")

    assert absent_ranks(Lost(), 0, 3, 0.01) == []


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_a_timeout_must_be_a_number_of_seconds(monkeypatch, text):
    for name, value in {"TRUEPAIR_TIMEOUT": text, "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=r"TRUEPAIR_TIMEOUT = .* must be a number of seconds above 0"):
        group_of(torch.device("cpu"))


def test_a_process_takes_the_device_of_its_rank(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_of(torch.device("cuda")) == torch.device("cuda:1")
    assert device_of(torch.device("cuda:0")) == torch.device("cuda:0")
    assert device_of(torch.device("cpu")) == torch.device("cpu")


# --- memory ----------------------------------------------------------------------------------------------

LARGE = TrainingSize(1_000_000, 100_000, 10_000_000, 64, 1024, 100_000, "adam")


def test_more_ranks_need_less_memory_each():
    needed = [LARGE.rank_bytes(ranks) for ranks in (1, 2, 4, 8)]
    assert needed == sorted(needed, reverse=True)
    tables = 1_100_000 * 64 * 4 * 4
    scores = 1024 * 100_000 * 4 * 3
    assert needed[0] == pytest.approx(tables + scores, rel=0.15)
    for room in (needed[2], needed[2] - 1):
        fitting = LARGE.ranks_for(room)
        assert LARGE.rank_bytes(fitting) <= room < LARGE.rank_bytes(fitting - 1)
    assert LARGE.ranks_for(needed[0]) == 1
    assert LARGE.ranks_for(1000) is None


def test_the_size_is_that_of_the_job():
    data = interactions_of([np.arange(3)] * 200, n_items=5000)
    assert size_of(job(data, batch_size=50)) == TrainingSize(
        200, 5000, 600, job().encoder.dim, 50, 5000, "adam"
    )


def test_too_little_memory_is_said_before_training(monkeypatch):
    data = interactions_of([np.arange(3)] * 200, n_items=5000)
    wide = job(data, batch_size=200)
    needed = size_of(wide).rank_bytes(1)
    monkeypatch.setattr(engine, "free_bytes", lambda device: needed)
    check_memory(wide, 1, torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setattr(engine, "free_bytes", lambda device: needed // 3)
    with pytest.raises(
        InputError, match=r"a rank of 1 needs about 0\.01 GB, .*; [345] ranks with as much would"
    ):
        check_memory(wide, 1, torch.device("cpu"))
    monkeypatch.setattr(engine, "free_bytes", lambda device: 1000)
    with pytest.raises(InputError, match="no number of ranks would fit; lower batch_size or dim"):
        fit(wide, engine="distributed")
    monkeypatch.setattr(engine, "free_bytes", lambda device: size_of(wide).rank_bytes(2))
    check_memory(wide, 2, torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # each has half of it
    with pytest.raises(InputError, match=r"a rank of 2 needs about 0\.01 GB"):
        check_memory(wide, 2, torch.device("cpu"))
    monkeypatch.setattr(engine, "free_bytes", lambda device: None)
    check_memory(wide, 1, torch.device("cpu"))
