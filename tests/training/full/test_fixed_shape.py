"""Steps of one shape, as they are recorded on CUDA: against steps that fit their block."""

import dataclasses

import numpy as np
import pytest
import torch

from loss_values import WeightedInfoNCE, two_of_each
from truepair.losses import BPR, DPL, PSL, SL
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.sampling.draws import epoch_batches
from truepair.training import Job, Settings, fit, fit_many
from truepair.training.full import scoring
from truepair.training.full.cuda_graphs import EpochBuffers, RecordedFullTrainer
from truepair.training.full.engine import is_recordable
from truepair.training.full.losses import has_row_form
from truepair.training.full.scoring import Blocks
from truepair.training.full.trainer import FullTrainer
from worlds import interactions_of

pytest.importorskip("triton")
gpu_sums = pytest.importorskip("truepair.training.full.gpu_pair_sums").gpu_sums

# NumPy, which Triton's interpreter computes with, warns of branches that `where` does not take
pytestmark = [
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),
    pytest.mark.usefixtures("one_thread"),
]

HAS_GPU = torch.cuda.is_available()
CPU = torch.device("cpu")
DEVICE = "cuda" if HAS_GPU else "cpu"  # where Triton's kernels run: without a GPU, in its interpreter


def world(n_users=9, n_items=20):
    """One user has all items, one has none; rows are of different lengths."""
    mask = np.random.default_rng(0).random((n_users, n_items)) < np.linspace(0.05, 0.5, n_users)[:, None]
    mask[3], mask[4] = True, False
    return interactions_of([np.flatnonzero(row) for row in mask], n_items)


DATA = world()
TAUS = tuple(np.linspace(0, 0.4, DATA.n_users).tolist())
LOSSES = [
    *(loss for loss in two_of_each(TAUS) if has_row_form(loss)),
    WeightedInfoNCE(),
]
COSINE, GRAPH = MF(dim=6, scoring="cosine", temperature=0.3), LightGCN(dim=6, hops=2)
SETTINGS = Settings(
    epochs=2, batch_size=5, learning_rate=0.05, weight_decay=1e-3, l2_users=0.01, l2_items=0.003, device="cpu"
)


def named(value):
    return type(value).__name__


class Unrecorded(RecordedFullTrainer):
    """Its steps are made, not played."""

    def __init__(self, job):
        super().__init__(job)
        self.sums = gpu_sums

    def play(self, size):
        self.step(size)


@pytest.mark.parametrize(
    ("loss", "encoder", "epochs"),
    # Every loss for an epoch. A second epoch and the graph do not depend on the loss: with one that has no
    # sums over pairs, and with one that has them, priors per user and a floor.
    [*((loss, COSINE, 1) for loss in LOSSES), (LOSSES[1], GRAPH, 2), (LOSSES[7], GRAPH, 2)],
    ids=named,
)
def test_a_filled_block_is_the_block(loss, encoder, epochs):
    job = Job(encoder, loss, Full(step=0), DATA, dataclasses.replace(SETTINGS, device=DEVICE))
    fixed, plain = Unrecorded(job), FullTrainer(job)
    for epoch in range(epochs):
        rate = 0.05 / (1 + epoch)
        found, expected = fixed.train(epoch, rate, lambda n: None), plain.train(epoch, rate, lambda n: None)
        torch.testing.assert_close(found.losses, expected.losses, rtol=1e-5, atol=1e-5)
        assert found.clamped == expected.clamped
    (users, items), (plain_users, plain_items) = fixed.matrices(), plain.matrices()
    scores = plain_users @ plain_items.T
    assert (users @ items.T - scores).abs().max() < 5e-5 * scores.abs().max()


@pytest.mark.parametrize("encoder", [COSINE, GRAPH], ids=named)
def test_it_starts_where_another_run_ended(encoder):
    job = Job(encoder, LOSSES[1], Full(step=0), DATA, dataclasses.replace(SETTINGS, device=DEVICE))
    before = FullTrainer(job)
    before.train(0, 0.05, lambda n: None)
    start = before.reached()
    trainers = Unrecorded(job), FullTrainer(job)
    for trainer in trainers:
        trainer.begin(start)
        trainer.train(0, 0.05, lambda n: None)
    fixed, plain = (trainer.reached() for trainer in trainers)
    assert fixed.steps == plain.steps == 2 * start.steps > 0
    for found, expected in zip(fixed.sides().values(), plain.sides().values(), strict=True):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_blocks_of_an_epoch_are_those_of_the_engine():
    blocks = Blocks(Job(MF(dim=4), BPR(), Full(), DATA), CPU)
    buffers = EpochBuffers(blocks, batch_size=5)
    for epoch in range(3):
        buffers.fill(5, epoch)
        for users in epoch_batches(blocks.users, 5, epoch, 5):
            assert torch.equal(buffers.members(len(users)), users)
            buffers.step += 1


def test_room_is_made_once_and_grows_when_a_block_needs_it():
    buffers = EpochBuffers(Blocks(Job(MF(dim=4), BPR(), Full(), DATA), CPU), batch_size=5)
    assert buffers.fill(5, 0)
    assert not buffers.fill(5, 1)
    buffers.room = 3
    assert buffers.fill(5, 2)
    assert buffers.room >= max(buffers.bounds.diff().flatten().tolist())


def test_what_can_be_recorded(monkeypatch):
    monkeypatch.setattr(scoring, "free_bytes", lambda device: 1 << 30)

    def asked(device="cuda", **changes):
        job = Job(COSINE, BPR(), Full(), DATA, SETTINGS)
        return is_recordable(dataclasses.replace(job, **changes), torch.device(device))

    assert asked()
    assert not asked("cpu")
    assert not asked(sampler=Full(columns=5))
    assert not asked(loss=PSL(surrogate="relu"))
    assert not asked(settings=dataclasses.replace(SETTINGS, optimizer="sgd"))
    monkeypatch.setattr(scoring, "free_bytes", lambda device: 1)
    assert not asked()  # pairs are streamed, and recorded steps read them on the device


# --- on a GPU ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_GPU, reason="no GPU here to record steps on")
@pytest.mark.parametrize("encoder", [COSINE, GRAPH], ids=named)
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_recorded_training_is_the_references(loss, encoder, tmp_path):
    settings = dataclasses.replace(SETTINGS, device="cuda")
    reference = fit(Job(encoder, loss, Full(), DATA, SETTINGS), engine="reference")
    scores = reference.users @ reference.items.T

    def recorded(epochs, checkpoint=None):
        wanted = dataclasses.replace(settings, epochs=epochs)
        return fit(Job(encoder, loss, Full(), DATA, wanted), engine="full", checkpoint=checkpoint)

    recorded(1, tmp_path / "run.ckpt")
    for found in (recorded(2), recorded(2, tmp_path / "run.ckpt")):
        assert (found.users @ found.items.T - scores).abs().max() < 1e-3 * scores.abs().max()
        assert found.clamped == reference.clamped


@pytest.mark.skipif(not HAS_GPU, reason="no GPU here to record steps on")
def test_runs_side_by_side_are_those_alone():
    settings = dataclasses.replace(SETTINGS, device="cuda")
    jobs = [
        Job(encoder, loss, Full(), DATA, dataclasses.replace(settings, seed=seed, epochs=2 + seed))
        for seed, (encoder, loss) in enumerate([(COSINE, BPR()), (GRAPH, SL()), (COSINE, DPL(tau=0.2))])
    ]
    for job, found in zip(jobs, fit_many(jobs), strict=True):
        alone = fit(job)
        assert (found.engine, len(found.history)) == ("full", job.settings.epochs)
        scores = alone.users @ alone.items.T
        assert (found.users @ found.items.T - scores).abs().max() < 1e-3 * scores.abs().max()
