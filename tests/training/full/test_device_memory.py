"""What a run on one device needs, and the errors before it starts."""

import dataclasses

import pytest
import torch

from truepair.errors import InputError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import Job, Settings
from truepair.training.full import engine as memory
from truepair.training.full.engine import FULL, check_memory, needs
from worlds import interactions_of

DATA = interactions_of([[u % 10, 10 + u % 7] for u in range(640)], 20)  # 1,280 pairs
TABLE = 640 * 8 * 4  # bytes of the users' vectors


def job_of(**changes):
    settings = dataclasses.replace(Settings(batch_size=10, device="cpu"), **changes)
    return Job(MF(dim=8), InfoNCE(), Full(columns=5), DATA, settings)


def test_states_and_pairs_are_counted_where_they_are():
    device, half, host = (needs(job_of(optimizer_state=s), True, True) for s in ("device", "half", "host"))
    assert device[0] - half[0] == half[0] - host[0] == TABLE
    assert device[1] == half[1] == host[1] - 2 * 32768  # pinned memory is a power of two
    assert needs(job_of(), True, False)[0] - device[0] == 1280 * 8
    assert needs(job_of(), False, True)[0] - device[0] == TABLE  # gradients of all users
    assert needs(job_of(optimizer="sgd"), False, True)[0] < needs(job_of(), False, True)[0]
    assert needs(job_of(batch_size=20), True, True)[0] > device[0]


def test_at_the_size_of_a_thousand_million_pairs():
    """10⁷ users x 10⁶ items, d = 64: users 2.56 GB twice, their states 5.12 GB, items 1.28 GB."""

    class Large:
        n_users, n_items = 10_000_000, 1_000_000

        def __len__(self):
            return 1_000_000_000

    job = job_of(batch_size=8192)
    object.__setattr__(job, "interactions", Large())
    object.__setattr__(job, "encoder", MF(dim=64))
    object.__setattr__(job, "sampler", Full(columns=8192))
    assert 12e9 < needs(job, True, True)[0] < 15e9
    assert needs(job, True, False)[0] - needs(job, True, True)[0] == 8e9


@pytest.fixture
def cuda(monkeypatch):
    """A job that seems to be on CUDA, with so much free memory there and on the host."""
    room = {}
    monkeypatch.setattr(Settings, "torch_device", lambda settings: torch.device("cuda"))
    monkeypatch.setattr(memory, "free_bytes", lambda device: room[device.type])
    monkeypatch.setattr(memory, "is_streamed", lambda data, device: True)
    return room


def test_errors_name_what_would_fit(cuda):
    need = {state: needs(job_of(optimizer_state=state), True, True) for state in ("device", "half", "host")}
    cuda |= {"cuda": need["device"][0], "cpu": need["device"][1]}
    check_memory(job_of(), True)
    for state, words in (
        ("half", "set optimizer_state='half', or lower dim"),
        ("host", "optimizer_state='host'"),
    ):
        cuda |= {"cuda": need[state][0], "cpu": need["host"][1]}
        with pytest.raises(InputError, match=f"GB of the device, and .* are free; .*{words}"):
            check_memory(job_of(), True)
        check_memory(job_of(optimizer_state=state), True)
    with pytest.raises(InputError, match="lower dim or batch_size"):
        check_memory(job_of(), False)
    cuda |= {"cuda": 1 << 40, "cpu": need["host"][1] - 1}
    with pytest.raises(InputError, match=r"of main memory.*optimizer_state='half'"):
        check_memory(job_of(optimizer_state="host"), True)


def test_unknown_memory_and_the_cpu_are_not_checked(cuda, monkeypatch):
    cuda |= {"cuda": None, "cpu": None}
    check_memory(job_of(), True)
    cuda |= {"cuda": 0, "cpu": 0}
    monkeypatch.setattr(Settings, "torch_device", lambda settings: torch.device("cpu"))
    FULL.start(job_of())
