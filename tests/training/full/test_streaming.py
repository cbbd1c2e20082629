"""Pairs that are streamed to the device: the same bits as with all of them there; how the thread ends."""

import dataclasses
import threading

import numpy as np
import pytest
import torch

import truepair as tp
from truepair.losses import DPL, InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.sampling.draws import epoch_batches
from truepair.training import Job, Settings, fit
from truepair.training.full import scoring
from truepair.training.full.engine import FULL
from truepair.training.full.large import streaming
from truepair.training.full.large.streaming import StreamedBlocks, prefetch
from truepair.training.full.scoring import Blocks, is_mapped, is_streamed

pytestmark = pytest.mark.usefixtures("one_thread")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CPU = torch.device("cpu")


def world(weights=False):
    rng = np.random.default_rng(3)
    mask = rng.random((150, 40)) < 0.2
    mask[0], mask[1] = False, True  # nothing, and everything
    users, items = mask.nonzero()
    table = {"user": users, "item": items} | ({"weight": 1.0 + rng.random(len(users))} if weights else {})
    return tp.read_interactions(table)


def job_of(data, device=CPU, **changes):
    settings = Settings(epochs=2, batch_size=8, learning_rate=0.02, device=str(device), seed=5)
    settings = dataclasses.replace(settings, **changes)
    return Job(MF(dim=6), InfoNCE(), Full(columns=20), data, settings)


@pytest.fixture
def streamed(monkeypatch):
    """All pairs are streamed, whatever their number."""
    for place in ("trainer", "engine"):
        monkeypatch.setattr(f"truepair.training.full.{place}.is_streamed", lambda data, device: True)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("batch", [8, 2, 1000])
def test_the_same_bits_as_on_the_device(weights, batch, request):
    job = job_of(world(weights), batch_size=batch)
    whole = fit(job)
    request.getfixturevalue("streamed")
    assert isinstance(FULL.start(job).blocks, StreamedBlocks)
    found = fit(job)
    assert torch.equal(found.users, whole.users)
    assert torch.equal(found.items, whole.items)
    assert threading.active_count() == 1 or not any(
        "truepair-prefetch" in t.name for t in threading.enumerate()
    )


def test_the_blocks_are_the_same_on_this_device():
    data = world(weights=True)
    weights = np.asarray(data.weight, np.float32)
    blocks, streams = (
        kind(Job(MF(dim=4), DPL(tau=0.1), Full(), data), DEVICE, weights=weights)
        for kind in (Blocks, StreamedBlocks)
    )
    other = torch.tensor([5, 3, 60], device=DEVICE)  # not a block of an epoch
    for epoch in range(2):
        batches = [list(epoch_batches(each.users, 7, epoch, 9)) for each in (blocks, streams)]
        for users, same in zip(batches[0], streams.streamed(batches[1]), strict=True):
            assert torch.equal(users, same)
            ours, whole = streams.select(same, 3), blocks.select(users, 3)
            assert all(
                (a is None and b is None) or torch.equal(a, b) for a, b in zip(ours, whole, strict=True)
            )
            assert torch.equal(streams.select(other, 3).items, blocks.select(other, 3).items)
    assert torch.equal(streams.select(other, 3).items, blocks.select(other, 3).items)


def test_mapped_pairs_are_streamed_where_they_are_many(tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    data = world()
    mapped = tp.prepare_interactions(data.to_table(), tmp_path / "prepared")
    assert is_mapped(mapped.items)
    assert not is_mapped(data.items)
    assert not is_streamed(mapped, CPU)
    monkeypatch.setattr(scoring, "MANY_PAIRS", len(data))
    assert is_streamed(mapped, CPU)
    assert not is_streamed(data, CPU)
    assert torch.equal(fit(job_of(mapped)).users, fit(job_of(data)).users)


def test_pairs_that_crowd_a_device_are_streamed(monkeypatch):
    data, cuda = world(), torch.device("cuda")
    monkeypatch.setattr(scoring, "free_bytes", lambda device: 32 * len(data))
    assert not is_streamed(data, cuda)
    monkeypatch.setattr(scoring, "free_bytes", lambda device: 32 * len(data) - 1)
    assert is_streamed(data, cuda)
    assert not is_streamed(data, CPU)
    monkeypatch.setattr(scoring, "free_bytes", lambda device: None)
    assert not is_streamed(data, cuda)


@pytest.mark.usefixtures("streamed")
def test_an_error_while_gathering_ends_the_fit(monkeypatch):
    def broken(*arguments):
        raise OSError("the file is gone")

    monkeypatch.setattr("truepair.training.full.large.row_adam.gather", broken)
    monkeypatch.setattr(streaming, "announce_compilation", lambda functions: None)
    with pytest.raises(OSError, match="the file is gone"):
        fit(job_of(world()))
    assert not any(thread.name.startswith("truepair-prefetch") for thread in threading.enumerate())


@pytest.mark.usefixtures("streamed")
def test_the_thread_ends_when_training_is_interrupted():
    trainer = FULL.start(job_of(world()))

    def interrupt(steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        trainer.train(0, 0.02, interrupt)
    assert caught.tb is not None  # frames are still alive
    assert not any(thread.name.startswith("truepair-prefetch") for thread in threading.enumerate())
    assert trainer.blocks.current is None


# --- ahead -------------------------------------------------------------------------------------------------


def test_values_are_made_ahead_and_no_further():
    made, first = [], threading.Event()

    def values():
        for value in range(9):
            made.append(value)
            if value == 3:
                first.set()
            yield value

    found = prefetch(values(), 2)
    assert next(found) == 0
    assert first.wait(10)  # two are ready, and one more is made
    assert made == [0, 1, 2, 3]
    assert list(found) == list(range(1, 9))


def test_an_error_comes_in_the_place_of_its_value():
    def values():
        yield 1
        raise ValueError("no more")

    found = prefetch(values(), 4)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no more"):
        next(found)


def test_no_value_at_all():
    assert list(prefetch([], 1)) == []
