"""The GPU engine's draws, gradients and steps against `Draws`, float64 autograd and the reference loop.

Without a GPU its kernels run in Triton's interpreter, so worlds are tiny; sums have the same order there.
"""

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from scipy import stats

import truepair
from loss_values import one_of
from truepair.losses import BPR, DCL, DPL, HCL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.randomness import stream_key
from truepair.sampling import BNS, DNS, Draws, Popularity, Uniform
from truepair.training import Job, Settings
from truepair.training.reference.trainer import ReferenceTrainer
from truepair.training.sampled.plan import FUSED_LOSSES
from worlds import interactions_of, two_tastes

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
gpu_graph = pytest.importorskip("truepair.training.sampled.gpu.lightgcn")
gpu_kernels = pytest.importorskip("truepair.training.sampled.gpu.kernels")
gpu_rivals = pytest.importorskip("truepair.training.sampled.gpu.in_batch")
gpu_runs = pytest.importorskip("truepair.training.sampled.gpu.runs")
GpuRuns = gpu_runs.GpuRuns

# NumPy, which the interpreter computes with, warns of branches that `where` does not take
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")


@pytest.fixture(autouse=True)
def lazy_however_small(monkeypatch):
    """So that tiny worlds meet the lazy updates too."""
    monkeypatch.setattr("truepair.training.sampled.gpu.runs._LAZY_PARAMETERS", 0)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Adam divides by the gradient's size, so on a GPU the order of a sum can move a weight visibly
CLOSE = {"rtol": 1e-2, "atol": 2e-3} if DEVICE == "cuda" else {"rtol": 1e-4, "atol": 5e-6}

SMALL = two_tastes(n_users=8, n_items=10, each=3)
SETTINGS = Settings(batch_size=10, n_extra=2, n_unlabelled=3, learning_rate=0.05, device=DEVICE, seed=5)
LOSSES = [one_of(kind, tau=0.3) for kind in FUSED_LOSSES] + [
    InfoNCE(temperature=0.5),
    DCL(tau=0.2, min_score=-0.5),
    HCL(tau=0.1, temperature=0.7, beta=0.5, min_score=-2.0),
    DPL(tau=0.6, clamp="relative", floor=0.3),
]


def job_of(encoder, loss, sampler=None, data=SMALL, **changes):
    return Job(encoder, loss, sampler or Uniform(), data, dataclasses.replace(SETTINGS, **changes))


def odd_world():
    """Users with every item, all but one (the first, the last, one between), one, none, and some."""
    all_ = range(9)
    rows = [all_, all_[1:], all_[:-1], [i for i in all_ if i != 4], [4], [], [0, 8], [3, 4, 5]]
    return interactions_of([*rows, *([u % 9, (u + 2) % 9] for u in range(4))], n_items=9)


# --- draws ---------------------------------------------------------------------------------------------


class OnlyDraws(GpuRuns):
    """Draws the tables of an epoch and keeps what it drew; trains nothing."""

    def _draw(self, table, order):
        super()._draw(table, order)
        shape = len(self.jobs), table.entries
        n = shape[0] * table.entries
        users = self.entry_users[:n].view(shape) & 0x7FFFFFFF  # the sign says who updates the row
        rows = self.entry_rows[: n * self.plan.width].view(*shape, self.plan.width) & 0x7FFFFFFF
        self.__dict__.setdefault("drawn", []).append((users.long().cpu(), rows.long().cpu() - self.n_users))

    def _step(self, table, step):
        pass

    def entries(self, epochs):
        """(users [runs, n_anchors], items [runs, n_anchors, 1 + M + pool]) of an epoch of each run."""
        self.drawn, self.epochs_run = (
            [],
            0,
        )  # as if it were the first: no captured graph
        self.train(epochs, [0.1] * len(epochs))
        return tuple(torch.cat(parts, dim=1) for parts in zip(*self.drawn, strict=True))


def expected_entries(job, epoch, m, pool):
    """The same from `Draws`, step by step."""
    sampler = Uniform() if isinstance(job.sampler, DNS | BNS) else job.sampler
    draws, settings = Draws(job.interactions, sampler), job.settings
    found = [
        draws.batch(anchors, m, pool, stream_key(settings.seed, epoch, step))
        for step, anchors in enumerate(draws.epoch(settings.seed, epoch, settings.batch_size))
    ]
    users = torch.cat([batch.users for batch in found])
    return users, torch.cat([torch.cat([b.pos[:, None], b.extra, b.unlabelled], dim=1) for b in found])


@pytest.mark.parametrize("data", [SMALL, odd_world()], ids=["small", "odd users"])
@pytest.mark.parametrize(
    ("sampler", "m", "n", "pool"),
    [
        (Uniform(), 2, 3, 3),
        (Uniform(), 0, 1, 1),
        (Popularity(0.75), 1, 4, 4),
        (DNS(pool=7), 2, 3, 7),
        (BNS(in_batch=True), 2, 3, 5),
    ],
    ids=str,
)
def test_draws_are_those_of_the_reference(sampler, m, n, pool, data):
    runs = OnlyDraws([job_of(MF(dim=2), DPL(tau=0.1), sampler, data, n_extra=m, n_unlabelled=n)])
    assert runs.n_anchors % runs.batch  # the last batch is smaller
    for epoch in (0, 3):
        users, items = runs.entries([epoch])
        expected = expected_entries(runs.jobs[0], epoch, m, pool)
        assert torch.equal(users[0], expected[0])
        assert torch.equal(items[0], expected[1])


@pytest.mark.parametrize("encoder", [MF(dim=2), LightGCN(dim=2)], ids=str)
@pytest.mark.parametrize("batch", [3, 7])
def test_draws_of_several_runs_in_several_tables(encoder, batch, monkeypatch):
    monkeypatch.setattr(gpu_runs, "_TABLE_BYTES", 2 * 3 * (batch * 16 + SMALL.n_users + SMALL.n_items))
    jobs = [job_of(encoder, BPR(), batch_size=batch, n_unlabelled=2, seed=seed) for seed in (5, 0, 2**63 - 1)]
    runs = OnlyDraws(jobs)
    assert len(runs.tables) > 1
    assert sum(table.steps for table in runs.tables) == runs.steps
    epochs = [0, 4, 1]
    users, items = runs.entries(epochs)
    for run, epoch in enumerate(epochs):
        expected = expected_entries(jobs[run], epoch, 0, 2)
        assert torch.equal(users[run], expected[0])
        assert torch.equal(items[run], expected[1])


def test_a_table_has_no_more_steps_than_a_grid_can_have():
    """CUDA's grids go up to 65,535 in their second dimension, which is the step of a draw."""
    data = two_tastes(n_users=700, n_items=200, each=100)
    runs = GpuRuns([job_of(MF(dim=1), BPR(), data=data, batch_size=1, n_unlabelled=1)])
    assert sum(table.steps for table in runs.tables) == 70_000
    assert max(table.steps for table in runs.tables) <= 65_535


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(0.5)], ids=str)
def test_unlabelled_items_are_unknown_and_follow_their_weights(sampler):
    data = odd_world()
    runs = OnlyDraws([job_of(MF(dim=2), BPR(), sampler, data, batch_size=100, n_unlabelled=120)])
    users, items = (x[0].numpy() for x in runs.entries([0]))
    known = data.csr().toarray() > 0
    unlabelled = items[:, 1:]
    assert not known[users[:, None], unlabelled].any()
    assert known[users, items[:, 0]].all()
    weights = sampler.item_weights(data.item_counts)
    surprise, freedom = 0.0, 0
    for user in set(users):
        drawn, free = unlabelled[users == user].ravel(), np.flatnonzero(~known[user])
        expected = weights[free] / weights[free].sum() * len(drawn)
        seen = np.bincount(drawn, minlength=data.n_items)[free]
        surprise, freedom = surprise + ((seen - expected) ** 2 / expected).sum(), freedom + len(free) - 1
    assert 1e-4 < stats.chi2.sf(surprise, freedom) < 1 - 1e-4


def test_extra_positives_are_uniform_over_the_users_own_items():
    runs = OnlyDraws([job_of(MF(dim=2), DPL(tau=0.1), batch_size=100, n_extra=120, n_unlabelled=1)])
    users, items = (x[0].numpy() for x in runs.entries([0]))
    found = Counter(zip(np.repeat(users, 120), items[:, 1:-1].ravel(), strict=True))
    assert set(found) == set(zip(SMALL.users, SMALL.items, strict=True))
    seen = np.array(list(found.values()))
    surprise = ((seen - 120) ** 2 / 120).sum()  # 3 anchors x 120 over 3 items, of 8 users
    assert 1e-4 < stats.chi2.sf(surprise, 16) < 1 - 1e-4


def test_a_row_has_one_owner_in_each_step():
    """Of all entries of a step that touch a row, exactly one is marked to update it."""
    runs = GpuRuns([job_of(MF(dim=2), BPR(), batch_size=4, n_unlabelled=2)])
    assert runs.lazy
    runs.train([0], [0.1])
    rows = runs.entry_rows.view(-1, 3)
    for first in range(0, runs.n_anchors, 4):
        here = torch.cat([rows[first : first + 4].flatten(), runs.entry_users[first : first + 4]]).cpu()
        owned = (here[here < 0] & 0x7FFFFFFF).tolist()
        assert sorted(owned) == sorted(set((here & 0x7FFFFFFF).tolist()))


# --- gradients -----------------------------------------------------------------------------------------


class Differentiated(BaseException):
    """Ends an epoch after the gradient of its first step."""


class OnlyGradients(GpuRuns):
    """Stops where the first step's gradient is whole."""

    def _adam(self, batch, spread):
        self.found = spread.clone()
        raise Differentiated

    def _lazy_adam(self, batch):
        self._adam(batch, self.gradients)

    def gradient(self):
        with pytest.raises(Differentiated):
            self.train([0], [0.1])
        return self.found[0].cpu(), self.losses[0, : self.batch].cpu(), self.clamps[0, : self.batch].cpu()


def propagated(job, weights):
    """The vectors that are scored, from the parameters [n_rows, d], with the graph as a dense matrix."""
    data, hops = job.interactions, getattr(job.encoder, "hops", 0)
    known = torch.from_numpy(data.csr().toarray() > 0).to(weights.dtype)
    graph = torch.zeros(len(weights), len(weights), dtype=weights.dtype)
    graph[: data.n_users, data.n_users :], graph[data.n_users :, : data.n_users] = known, known.T
    root = graph.sum(dim=1).clamp(min=1).sqrt()
    graph = graph / root[:, None] / root[None, :]
    layers = [weights]
    for _ in range(hops):
        layers.append(graph @ layers[-1])
    return torch.stack(layers).mean(dim=0)


def scored_matrices(job, weights):
    """The two matrices whose products are the scores."""
    n_users = job.interactions.n_users
    users, items = propagated(job, weights).split([n_users, len(weights) - n_users])
    if job.encoder.scoring == "cosine":
        users, items = F.normalize(users) / job.encoder.temperature, F.normalize(items)
    return users, items


def expected_gradient(job, weights):
    """Float64 autograd of the first step: (gradient, losses, clamped)."""
    settings, n_users = job.settings, job.interactions.n_users
    weights = weights.double().requires_grad_()
    users, items = scored_matrices(job, weights)
    draws, m = Draws(job.interactions, job.sampler), settings.n_extra if job.loss.uses_extra else 0
    anchors, key = next(draws.epoch(settings.seed, 0, settings.batch_size)), stream_key(settings.seed, 0, 0)
    batch = draws.batch(anchors, m, settings.n_unlabelled, key, (users.detach(), items.detach()))
    columns = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)
    s = (users[batch.users][:, None, :] * items[columns]).sum(dim=2)
    rows = job.loss.rows(s[:, 0], s[:, 1 : 1 + m], s[:, 1 + m :], batch.users)
    total = rows.loss.sum() + settings.l2_users / 2 * weights[batch.users].square().sum()
    total = total + settings.l2_items / 2 * weights[n_users + columns].square().sum()
    (gradient,) = torch.autograd.grad(total / len(anchors), weights)
    return gradient, rows.loss.detach(), rows.clamped


def check_gradient(job, size=2.0):
    runs = OnlyGradients([job])
    runs.weights.mul_(size)  # large enough scores for every branch
    gradient, losses, clamped = expected_gradient(job, runs.weights[0].cpu())
    ours = runs.gradient()
    torch.testing.assert_close(ours[0].double(), gradient, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(ours[1].double(), losses, rtol=1e-5, atol=1e-5)
    if clamped is not None:
        assert ours[2].bool().tolist() == clamped.tolist()
    return ours[2].float().mean()


@pytest.mark.parametrize(  # every loss with dot products: below, in whole epochs
    ("loss", "scoring"), [*((loss, "cosine") for loss in LOSSES), (LOSSES[0], "dot")], ids=str
)
def test_gradient_of_every_loss(loss, scoring):
    check_gradient(job_of(MF(dim=7, scoring=scoring, temperature=0.5), loss, batch_size=8))


@pytest.mark.parametrize(  # a width that is a power of two and one that is padded, both ways to score
    ("dim", "scoring"), [(1, "cosine"), (32, "dot"), (64, "cosine"), (200, "dot"), (200, "cosine")]
)
def test_gradient_at_every_width(dim, scoring):
    encoder = MF(dim=dim, scoring=scoring, temperature=0.3)
    check_gradient(job_of(encoder, DPL(tau=0.2), batch_size=5, n_extra=3, n_unlabelled=5, l2_users=0.2))


@pytest.mark.parametrize(("m", "n"), [(0, 1), (1, 1), (6, 10)])
def test_gradient_of_other_shapes(m, n):
    check_gradient(job_of(MF(dim=5), HCL(tau=0.1), batch_size=6, n_extra=m, n_unlabelled=n, l2_items=0.3))


@pytest.mark.parametrize(  # none, one, an even and an odd number of hops, both ways to score
    ("hops", "scoring"), [(0, "cosine"), (1, "dot"), (1, "cosine"), (2, "cosine"), (3, "dot")]
)
def test_gradient_through_the_graph(hops, scoring):
    encoder = LightGCN(dim=5, hops=hops, scoring=scoring, temperature=0.5)
    check_gradient(job_of(encoder, DPL(tau=0.2), data=odd_world(), batch_size=6))


def test_gradient_through_rows_with_many_neighbours(monkeypatch):
    monkeypatch.setattr(gpu_graph, "_LONG", 2)
    job = job_of(LightGCN(dim=5, hops=2), InfoNCE(), data=odd_world(), batch_size=6)
    hops = GpuRuns([job]).hops
    assert len(hops.long) > 4
    assert len(hops.short) > 4
    check_gradient(job)


@pytest.mark.parametrize("encoder", [MF(dim=5), LightGCN(dim=5, hops=2, scoring="cosine")], ids=str)
@pytest.mark.parametrize("loss", [DPL(tau=0.3), BPR()], ids=str)
def test_gradient_of_the_hardest_of_a_pool(encoder, loss):
    check_gradient(job_of(encoder, loss, DNS(pool=9), batch_size=6))


@pytest.mark.parametrize(  # each encoder in a batch of several; extreme batches with both kinds
    ("encoder", "batch"),
    [
        (MF(dim=1), 1),
        (MF(dim=1), 6),
        (MF(dim=70), 6),
        (MF(dim=5, scoring="cosine"), 20),
        (LightGCN(dim=5, hops=2), 1),
        (LightGCN(dim=5, hops=2), 20),
        (LightGCN(dim=5, hops=0), 6),
    ],
    ids=str,
)
def test_gradient_of_the_least_risky_of_a_pool(encoder, batch):
    check_gradient(job_of(encoder, DPL(tau=0.3), BNS(pool=6, in_batch=True), odd_world(), batch_size=batch))


def expected_risks(job, weights):
    """`BNS`' formulas of the first step's candidates in float64, one at a time. [B, pool]"""
    settings, data, pool, weight = job.settings, job.interactions, job.sampler.pool, job.sampler.weight
    users, items = scored_matrices(job, weights.double())
    draws = Draws(data, Uniform())
    anchors = next(draws.epoch(settings.seed, 0, settings.batch_size))
    batch = draws.batch(anchors, 0, pool, stream_key(settings.seed, 0, 0))
    scores, known = (users @ items.T).numpy(), data.csr().toarray() > 0
    rivals, share = batch.unlabelled[:, 0].numpy(), data.item_counts / len(data)
    risks = np.zeros((len(anchors), pool))
    for (b, c), item in np.ndenumerate(batch.unlabelled.numpy()):
        u, p = batch.users[b], share[item]
        left = rivals[~known[u, rivals]]
        f = (scores[u, left] <= scores[u, item]).mean()
        evidence = (1 - f) * (1 - p) + f * p
        unbias = (1 - f) * (1 - p) / evidence if evidence else 0.5
        info = 1 / (1 + np.exp(scores[u, batch.pos[b]] - scores[u, item]))
        risks[b, c] = info * (1 - (1 + weight) * unbias)
    return risks


@pytest.mark.parametrize(
    ("encoder", "n_items", "programs"),
    [
        (MF(dim=5), 20, 3),
        (LightGCN(dim=5, scoring="cosine", temperature=0.3), 20, 9),
        (MF(dim=5), 60, 6),
    ],
    ids=str,
)
def test_risks_are_those_of_the_formula(encoder, n_items, programs, monkeypatch):
    """Three programs, three tiles of rivals in one to three shares, none full; items that nobody has.

    The risks agree to rounding, so the choice can differ from the reference's only between equal risks.
    """
    monkeypatch.setattr(gpu_rivals, "SAMPLE", 16)
    monkeypatch.setattr(gpu_rivals, "_PROGRAMS", programs)
    data = two_tastes(n_users=10, n_items=n_items, each=5)
    job = job_of(encoder, DPL(tau=0.2), BNS(pool=9, in_batch=True), data, batch_size=37, n_extra=0)
    runs = OnlyGradients([job])
    assert runs.shares == programs / 3
    runs.weights.mul_(3)
    runs.gradient()
    ours = -runs.scores.view(37, 16)[:, 1:10].cpu().numpy()
    np.testing.assert_allclose(ours, expected_risks(job, runs.weights[0].cpu()), rtol=1e-4, atol=1e-5)


def test_risks_count_rivals_of_equal_score():
    """Scores are whole numbers, so that many are equal to the last bit."""
    data = interactions_of([[0, 1], [2], [3, 4], [5, 0]], 9)
    job = job_of(MF(dim=1), BPR(), BNS(pool=6, in_batch=True), data, batch_size=7)
    runs = OnlyGradients([job])
    runs.weights[0] = torch.tensor([1.0, 1, 2, 1, *(item // 3 for item in range(9))])[:, None]
    runs.gradient()
    risks = -runs.scores.view(7, 8)[:, 1:7].cpu().numpy()
    np.testing.assert_allclose(risks, expected_risks(job, runs.weights[0].cpu()), rtol=1e-5)


def test_the_top_score_on_an_item_that_nobody_has_is_no_nan():
    """F = 1 and p = 0: the two pieces of evidence cancel, and unbias is ½."""
    job = job_of(MF(dim=1), BPR(), BNS(pool=40, in_batch=True), interactions_of([[0], [1]], 4), batch_size=2)
    runs = OnlyGradients([job])
    runs.weights[0] = torch.tensor([1.0, 1, 0, 1, 2, 3])[:, None]
    runs.gradient()
    risks = -runs.scores.view(2, 64)[:, 1:41].cpu().numpy()
    info = 1 / (1 + np.exp(-3.0))  # of item 3 where the anchor is item 0
    assert np.isclose(risks, info * (1 - 6 / 2), rtol=1e-5).any()
    np.testing.assert_allclose(risks, expected_risks(job, runs.weights[0].cpu()), rtol=1e-5)


def test_gradient_with_one_prior_per_user():
    prior = np.random.default_rng(0).uniform(0, 0.9, SMALL.n_users)
    prior[::3] = 0
    clamped = check_gradient(job_of(MF(dim=5), DPL(tau=prior), batch_size=20), size=4.0)
    assert 0 < clamped < 1


# --- whole epochs --------------------------------------------------------------------------------------


def check_epochs(job, epochs=2, rates=(0.05, 0.02)):
    """Parameters, loss sums and clamp counts of every epoch are those of the reference."""
    ours, theirs = GpuRuns([job]).trainers[0], ReferenceTrainer(job)
    assert (ours.steps, ours.n_anchors) == (theirs.steps, theirs.n_anchors)
    assert ours.n_saturated_users == theirs.n_saturated_users
    for epoch in range(epochs):
        told = []
        mine = ours.train(epoch, rates[epoch], told.append)
        expected = theirs.train(epoch, rates[epoch], lambda steps: None)
        assert sum(told) == ours.steps
        torch.testing.assert_close(mine.losses.float(), expected.losses.cpu().float(), rtol=1e-4, atol=1e-4)
        assert mine.clamped == expected.clamped
        for a, b in zip(ours.matrices(), theirs.matrices(), strict=True):
            torch.testing.assert_close(a, b, **CLOSE)
        assert ours.is_finite()


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_epochs_equal_the_reference(loss):
    # A second epoch has other draws and Adam's moments of the first, whatever the loss is
    check_epochs(job_of(MF(dim=7), loss, weight_decay=1e-3), epochs=2 if type(loss) is DPL else 1)


@pytest.mark.parametrize(
    ("encoder", "sampler", "changes"),
    [
        (MF(dim=3, scoring="cosine", temperature=0.2), Popularity(), {"l2_users": 0.1, "l2_items": 0.05}),
        (MF(dim=3), DNS(pool=6), {"weight_decay": 0.01}),
        (MF(dim=3), BNS(pool=6, in_batch=True), {"weight_decay": 0.01}),
        (LightGCN(dim=3, hops=2, scoring="cosine"), BNS(weight=0, in_batch=True), {"l2_items": 0.2}),
        (LightGCN(dim=3, hops=1), Uniform(), {"l2_users": 0.1, "l2_items": 0.05, "weight_decay": 0.01}),
        (LightGCN(dim=3, hops=3, scoring="cosine"), DNS(pool=6), {"l2_items": 0.2}),
    ],
    ids=str,
)
def test_encoders_samplers_and_penalties_equal_the_reference(encoder, sampler, changes):
    # A second epoch with the graph, whose hops have steps of their own
    epochs = 2 if isinstance(encoder, LightGCN) and encoder.hops == 2 else 1
    check_epochs(job_of(encoder, DPL(tau=0.3), sampler, odd_world(), **changes), epochs)


def test_one_prior_per_user_equals_the_reference():
    prior = tuple(np.linspace(0, 0.8, SMALL.n_users))
    check_epochs(job_of(MF(dim=3), DCL(tau=prior)), epochs=1)


def test_a_graph_in_several_tables_equals_the_reference(monkeypatch):
    monkeypatch.setattr(gpu_runs, "_TABLE_BYTES", 2 * (10 * 7 * 4 + 18))
    job = job_of(LightGCN(dim=3, hops=2), DPL(tau=0.2), l2_users=0.1)
    assert [table.steps for table in GpuRuns([job]).tables] == [2, 1]
    check_epochs(job, epochs=1)


# --- rows that wait: Adam only where it matters --------------------------------------------------------


@triton.jit
def free_steps_of(bits, steps, out, WORDS: tl.constexpr):  # noqa: N803
    lane = tl.arange(0, 64)
    found = gpu_kernels._free_steps(bits + lane * WORDS, tl.load(steps), lane < 64)
    tl.store(out + lane, found)


def test_free_steps_by_counting():
    rng = np.random.default_rng(0)
    flags = rng.random((64, 128)) < np.linspace(0, 0.2, 64)[:, None]
    flags[:6] = False
    flags[range(1, 6), [0, 31, 32, 63, 95]] = True
    words = np.packbits(flags, axis=1, bitorder="little").view(np.int32)
    for step in (0, 1, 30, 31, 32, 33, 63, 64):
        out = torch.zeros(64, dtype=torch.int32, device=DEVICE)
        place = torch.tensor([step], dtype=torch.int32, device=DEVICE)
        free_steps_of[(1,)](torch.from_numpy(words).to(DEVICE), place, out, WORDS=4)
        coming = flags[:, step : step + 32]
        expected = np.where(coming.any(axis=1), coming.argmax(axis=1), 32)
        assert out.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("loss", "table_bytes", "changes"),
    [
        (BPR(), 1 << 30, {"batch_size": 1, "n_unlabelled": 1, "weight_decay": 0.01}),
        pytest.param(
            *(DPL(tau=0.2), 8 * 40, {"batch_size": 2, "n_extra": 1, "n_unlabelled": 2, "l2_users": 0.1}),
            marks=pytest.mark.long,
        ),
    ],
    ids=["one table", "several tables"],
)
def test_rows_that_wait_equal_the_reference(loss, table_bytes, changes, monkeypatch):
    """Some rows are swept, some are touched, some wait for an epoch; the penalty moves all of them."""
    monkeypatch.setattr(gpu_runs, "_TABLE_BYTES", table_bytes)
    data = two_tastes(n_users=9, n_items=26, each=4)
    job = job_of(MF(dim=2), loss, data=data, **changes)
    runs = GpuRuns([job])
    assert runs.lazy
    assert runs.n_rows > gpu_kernels.SWEEP
    if len(runs.tables) == 1:
        assert runs.steps == 36 > gpu_kernels.SWEEP
    else:
        assert [table.steps for table in runs.tables] == [6, 6, 6]
    check_epochs(job, epochs=min(2, len(runs.tables)))


def test_what_is_touched_often_does_not_wait():
    assert not GpuRuns([job_of(MF(dim=2), BPR())]).lazy
    assert not GpuRuns([job_of(LightGCN(dim=2), BPR(), batch_size=1, n_unlabelled=1)]).lazy
    assert GpuRuns([job_of(LightGCN(dim=2, hops=0), BPR(), batch_size=1, n_unlabelled=1)]).lazy


# --- a real target -------------------------------------------------------------------------------------


def cannot_compile():
    """Why Triton cannot compile for NVIDIA GPUs here, if it cannot."""
    if "nvidia" not in triton.backends.backends:
        return "this Triton has no NVIDIA backend"
    try:
        assert triton.knobs.nvidia.ptxas
    except (AttributeError, RuntimeError) as error:
        return f"this Triton comes without NVIDIA's assembler: {error}"
    return None


@pytest.mark.long
@pytest.mark.skipif(cannot_compile() is not None, reason=str(cannot_compile()))
def test_every_kernel_compiles_for_an_nvidia_gpu(tmp_path):
    """In a process of its own, where kernels are not interpreted."""
    script = Path(__file__).with_name("compile_kernels.py")
    folders = [str(script.parents[2]), str(Path(truepair.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    compiled = {line.split()[1] for line in run.stdout.splitlines() if line.startswith("compiled ")}
    known = {*vars(gpu_kernels), *vars(gpu_rivals)}
    assert compiled == {name for name in known if name.endswith("_kernel")}


def test_few_parameters_are_not_worth_a_replay(monkeypatch):
    job = job_of(MF(dim=2), BPR(), batch_size=1, n_unlabelled=1)
    assert GpuRuns([job]).lazy
    monkeypatch.setattr(gpu_runs, "_LAZY_PARAMETERS", 2 * (SMALL.n_users + SMALL.n_items) + 1)
    assert not GpuRuns([job]).lazy


# --- where training starts -------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [MF(dim=5), LightGCN(dim=5, hops=1)], ids=str)
@pytest.mark.parametrize("has_moments", [True, False])
def test_it_starts_where_another_run_ended(encoder, has_moments):
    job = job_of(encoder, BPR())
    before = ReferenceTrainer(job)
    before.train(0, 0.05, lambda steps: None)
    start = before.reached() if has_moments else before.reached().without_moments()
    job = dataclasses.replace(job, start=start)
    ours, theirs = GpuRuns([job]).trainers[0], ReferenceTrainer(job)
    for trainer in (ours, theirs):
        trainer.begin(start)
        trainer.train(0, 0.05, lambda steps: None)
    assert ours.reached().steps == theirs.reached().steps == start.steps + theirs.steps
    for mine, expected in zip(
        ours.reached().sides().values(), theirs.reached().sides().values(), strict=True
    ):
        for one, other in zip(mine, expected, strict=True):
            torch.testing.assert_close(one, other, **CLOSE)
