"""Weights of interactions in every engine: against repeated rows, the reference, and no weights at all."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch

from loss_values import two_of_each
from truepair.losses import BPR, DPL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.randomness import stream_key
from truepair.sampling import DNS, Draws, Full, Popularity, Uniform
from truepair.training import Job, Settings, fit, fold_in
from truepair.training.checkpoints import describe_job
from truepair.training.full.cuda_graphs import RecordedFullTrainer
from truepair.training.full.losses import has_row_form
from truepair.training.full.trainer import FullTrainer, ManyUsersTrainer
from truepair.training.reference.trainer import FullReferenceTrainer, ReferenceTrainer
from truepair.training.sampled.cpu.trainer import CpuTrainer
from worlds import interactions_of, two_tastes

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),  # Triton's interpreter
]

SETTINGS = Settings(
    epochs=2,
    batch_size=7,
    n_extra=2,
    n_unlabelled=3,
    learning_rate=0.05,
    l2_users=0.02,
    l2_items=0.01,
    device="cpu",
    seed=3,
)
COSINE = MF(dim=4, scoring="cosine", temperature=0.3)
TRITON_DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # without a GPU, in its interpreter
TRITON_ACCURACY = 1e-4 if TRITON_DEVICE == "cpu" else 1e-2


def odd_rows():
    """Users with all items, all but one, one, none, and some."""
    rows = [list(range(9)), list(range(1, 9)), [4], [], [0, 8], [3, 4, 5]]
    return interactions_of([*rows, *([u % 9, (u + 2) % 9] for u in range(6))], n_items=9)


def weighted(data, weights=None):
    if weights is None:
        weights = 1.0 + np.arange(len(data)) % 4
    return dataclasses.replace(data, weight=np.asarray(weights))


DATA = weighted(odd_rows())


def job_of(loss=None, sampler=None, encoder=COSINE, data=DATA, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return Job(encoder, loss or DPL(tau=0.2), sampler or Uniform(), data, settings)


def epochs_of(trainer, rate=0.05, epochs=2):
    totals = [trainer.train(epoch, rate, lambda steps: None) for epoch in range(epochs)]
    return trainer.matrices(), torch.cat([one.losses.double() for one in totals])


def assert_alike(found, expected, accuracy=1e-4):
    for mine, right in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(mine.cpu().double(), right.double(), rtol=accuracy, atol=accuracy)
    torch.testing.assert_close(found[1].cpu(), expected[1], rtol=accuracy, atol=accuracy)


def assert_same_bits(one, other):
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    assert torch.equal(one[1], other[1])


def differs(one, other):
    return bool((one[0][0] - other[0][0]).abs().max() > 1e-3)


# --- the factors -------------------------------------------------------------------------------------------


def test_factors_are_1_in_the_mean_of_all_anchors():
    job = job_of()
    anchors = np.flatnonzero(DATA.users != 0)  # the first user has every item, and so no anchor
    assert job.anchor_weights.dtype == np.float32
    assert job.anchor_weights[anchors].mean() == pytest.approx(1)
    np.testing.assert_allclose(job.anchor_weights, DATA.weight / DATA.weight[anchors].mean(), rtol=1e-6)
    some = np.arange(len(DATA)) % 2 == 0
    chosen = np.intersect1d(anchors, np.flatnonzero(some))
    assert dataclasses.replace(job, anchors=some).anchor_weights[chosen].mean() == pytest.approx(1)


def test_weights_near_the_largest_number_do_not_overflow():
    job = job_of(data=weighted(odd_rows(), np.linspace(0.5, 1, len(DATA)) * 1.7e308))
    assert np.isfinite(job.anchor_weights).all()
    assert np.isfinite(job.interactions.weight_in_history).all()


def test_equal_weights_are_none():
    assert job_of(data=odd_rows()).anchor_weights is None
    assert job_of(data=weighted(odd_rows(), np.full(len(DATA), 0.1))).anchor_weights is None
    only_the_saturated = np.where(DATA.users == 0, 5.0, 2.0)
    assert job_of(data=weighted(odd_rows(), only_the_saturated)).anchor_weights is None


def test_a_checkpoint_knows_the_weights():
    one, other = (describe_job(job_of(data=data), None) for data in (DATA, odd_rows()))
    assert one["interactions"] != other["interactions"]


# --- the reference -----------------------------------------------------------------------------------------


def repeated_rows(job, loss_of, vectors):
    """One step by SGD in float64, where a pair of weight w is w entries; the first epoch is one step."""
    users, items = (each.double().requires_grad_() for each in vectors)
    settings, data = job.settings, job.interactions
    entries, penalty = [], 0.0
    for pair in np.flatnonzero(data.user_counts[data.users] < data.n_items):
        value, touched = loss_of(pair, users, items)
        entries += [value] * int(data.weight[pair])
        own = settings.l2_users * users[data.users[pair]].square().sum()
        penalty += int(data.weight[pair]) * (own + settings.l2_items * touched.square().sum()) / 2
    total = (torch.stack(entries).sum() + penalty) / len(entries)
    by = torch.autograd.grad(total, (users, items))
    return [(each - settings.learning_rate * g).detach() for each, g in zip((users, items), by, strict=True)]


def one_step(trainer):
    start = [each.clone() for each in trainer.matrices()]
    trainer.train(0, trainer.job.settings.learning_rate, lambda steps: None)
    return start, trainer.matrices()


ONE_STEP = {"batch_size": 10**4, "optimizer": "sgd", "learning_rate": 2.0, "encoder": MF(dim=4)}


@pytest.mark.parametrize("loss", [BPR(), InfoNCE(temperature=0.5), DPL(tau=0.2)], ids=str)
def test_with_drawn_items_a_whole_weight_is_so_many_equal_rows(loss):
    job = job_of(loss, **ONE_STEP)
    draws, m = Draws(DATA, Uniform()), 2 if loss.uses_extra else 0
    (anchors,) = draws.epoch(3, 0, 10**4)
    batch = draws.batch(anchors, m, 3, stream_key(3, 0, 0))
    row_of = {int(pair): row for row, pair in enumerate(anchors)}

    def loss_of(pair, users, items):
        row = row_of[int(pair)]
        columns = torch.cat([batch.pos[row, None], batch.extra[row], batch.unlabelled[row]])
        scores = (items[columns] @ users[batch.users[row]])[None]
        value = loss(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], batch.users[row, None])
        return value[0], items[columns]

    start, found = one_step(ReferenceTrainer(job))
    for mine, right in zip(found, repeated_rows(job, loss_of, start), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [BPR(), InfoNCE(temperature=0.5), DPL(tau=0.2)], ids=str)
def test_over_the_catalogue_a_whole_weight_is_so_many_equal_rows(loss):
    job = job_of(loss, Full(), **ONE_STEP)

    def loss_of(pair, users, items):
        user, item = int(DATA.users[pair]), int(DATA.items[pair])
        scores, known = items @ users[user], torch.tensor(DATA.csr().toarray()[user] > 0)
        extra = scores[known][None] if loss.uses_extra else scores[None, :0]
        value = loss(scores[item][None], extra, scores[~known][None], torch.tensor([user]))
        return value[0], items

    start, found = one_step(FullReferenceTrainer(job))
    for mine, right in zip(found, repeated_rows(job, loss_of, start), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-6)


# --- every engine equals the reference ---------------------------------------------------------------------


class Unrecorded(RecordedFullTrainer):
    """Its steps are made, not played."""

    def __init__(self, job):
        super().__init__(job)
        self.sums = pytest.importorskip("truepair.training.full.gpu_pair_sums").gpu_sums

    def play(self, size):
        self.step(size)


FULL_LOSSES = two_of_each(0.2)[::2]


@pytest.mark.parametrize("loss", FULL_LOSSES, ids=lambda loss: type(loss).__name__)
def test_full_catalogue_engines_equal_the_reference(loss):
    job = job_of(loss, Full(step=0), optimizer="adam")
    expected = epochs_of(FullReferenceTrainer(job))
    for kind in (FullTrainer, ManyUsersTrainer):
        assert_alike(epochs_of(kind(job)), expected)
    if has_row_form(loss):
        job_there = job_of(loss, Full(step=0), optimizer="adam", device=TRITON_DEVICE)
        assert_alike(epochs_of(Unrecorded(job_there)), expected, TRITON_ACCURACY)
    assert differs(expected, epochs_of(FullReferenceTrainer(job_of(loss, Full(step=0), data=odd_rows()))))


def test_weights_work_with_negatives():
    negatives = np.zeros((DATA.n_users, DATA.n_items), dtype=bool)
    negatives[:, 6:] = True
    negatives[DATA.users, DATA.items] = False
    job = dataclasses.replace(job_of(InfoNCE(), Full()), negatives=negatives)
    assert_alike(epochs_of(FullTrainer(job)), epochs_of(FullReferenceTrainer(job)))


def test_drawn_columns_take_weights():
    job = job_of(InfoNCE(), Full(columns=5))
    assert differs(
        epochs_of(FullTrainer(job)),
        epochs_of(FullTrainer(job_of(InfoNCE(), Full(columns=5), data=odd_rows()))),
    )


SAMPLED = [
    (COSINE, Uniform(), {}),
    (MF(dim=4), Popularity(), {"l2_users": 0.0, "l2_items": 0.0}),
    (MF(dim=4), DNS(pool=5), {"weight_decay": 0.01}),
    (LightGCN(dim=4, hops=2), Uniform(), {}),
]


@pytest.mark.parametrize(("encoder", "sampler", "changes"), SAMPLED, ids=str)
def test_the_gpu_engine_equals_the_reference(encoder, sampler, changes):
    runs = pytest.importorskip("truepair.training.sampled.gpu.runs")
    job = job_of(BPR(), sampler, encoder, device=TRITON_DEVICE, **changes)
    other = dataclasses.replace(job, settings=dataclasses.replace(job.settings, seed=8))
    together = runs.GpuRuns([job, other])
    losses = together.train([0, 0], [0.05, 0.05])
    for run, each in enumerate((job, other)):
        own = dataclasses.replace(each, settings=dataclasses.replace(each.settings, device="cpu"))
        users, items = together.matrices(run)
        found = (users, items), torch.from_numpy(losses[run, : together.steps])
        assert_alike(found, epochs_of(ReferenceTrainer(own), epochs=1), TRITON_ACCURACY)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_whole_weight_scales_a_step_of_the_fast_engine(optimizer):
    """One anchor learns, the other has a tiny weight: the step is that of the reference with that weight."""
    data = weighted(interactions_of([[1], [2]], 30), [3.0, 1e-30])
    changes = {"optimizer": optimizer, "batch_size": 1, "data": data, "loss": BPR(), "n_unlabelled": 1}
    job = job_of(encoder=MF(dim=4), **changes)
    trainer = CpuTrainer(job)
    start = [each.clone() for each in trainer.matrices()]
    losses = trainer.train(0, 0.1, lambda steps: None).losses.sum()
    users, items = trainer.matrices()
    other = int(((items - start[1]).abs().sum(dim=1) > 0).nonzero().flatten().tolist()[-1])
    u, i, j = (x.double().requires_grad_() for x in (start[0][0], start[1][1], start[1][other]))
    value = torch.nn.functional.softplus(u @ j - u @ i)
    penalty = 0.02 * u.square().sum() / 2 + 0.01 * (i.square().sum() + j.square().sum()) / 2
    by = torch.autograd.grad(2.0 * (value + penalty), (u, i, j))  # 3 over the mean, 1.5
    if optimizer == "adagrad":
        by = [g / (g.square().sqrt() + 1e-10) for g in by]
    assert float(losses) == pytest.approx(2 * float(value.detach()), rel=1e-5)
    for mine, old, g in zip((users[0], items[1], items[other]), (u, i, j), by, strict=True):
        torch.testing.assert_close(mine.double(), old.detach() - 0.1 * g, rtol=1e-4, atol=1e-6)


# --- equal weights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["full", "reference", "cpu"])
def test_equal_weights_give_the_bits_of_no_weights(engine):
    sampler = Full() if engine == "full" else Uniform()
    optimizer = "sgd" if engine == "cpu" else "adam"
    plain, sevens = (
        fit(job_of(sampler=sampler, data=data, optimizer=optimizer), engine=engine)
        for data in (odd_rows(), weighted(odd_rows(), np.full(len(DATA), 0.7)))
    )
    assert torch.equal(plain.users, sevens.users)
    assert torch.equal(plain.items, sevens.items)
    assert [one.loss for one in plain.history] == [one.loss for one in sevens.history]


# --- folding in --------------------------------------------------------------------------------------------


def folded(history, sampler, loss=None):
    items = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    popularity = np.arange(1, 31)
    return fold_in(items, MF(dim=4), loss or BPR(), sampler, history, SETTINGS, popularity)


@pytest.mark.parametrize("sampler", [Full(step=0), Uniform()], ids=str)
def test_fold_in_uses_the_weights_of_a_history_relative_to_its_own_mean(sampler):
    history = two_tastes(n_users=6)
    weights = 1.0 + np.arange(len(history)) % 5
    found = folded(weighted(history, weights), sampler)
    assert (found - folded(history, sampler)).abs().max() > 1e-2
    heavier = weights * np.where(history.users == 2, 8.0, 1.0)  # nobody's vector depends on others' weights
    torch.testing.assert_close(folded(weighted(history, heavier), sampler), found)
    alone = history.users == 1
    only = interactions_of([history.items[alone]], 30)
    torch.testing.assert_close(
        folded(weighted(only, weights[alone]), sampler)[0], found[1], rtol=1e-3, atol=1e-4
    )
    assert torch.equal(
        folded(weighted(history, np.full(len(history), 3.0)), sampler), folded(history, sampler)
    )


def test_fold_in_pulls_towards_the_heavy_pair():
    history = interactions_of([[3, 7]], 30)
    items = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    for heavy, light in pairwise([3, 7, 3]):
        weights = np.where(history.items == heavy, 20.0, 1.0)
        scores = items @ folded(weighted(history, weights), Full(step=0))[0]
        assert scores[heavy] > scores[light]
