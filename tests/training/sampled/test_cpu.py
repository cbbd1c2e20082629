"""The engine "cpu": its draws, its steps against autograd in float64, determinism, resuming, refusals."""

import dataclasses
import itertools
import re

import numpy as np
import pytest
import torch

from truepair.errors import TrainingError
from truepair.losses import BPR, DPL, LOSSES, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.randomness import stream_key
from truepair.sampling import BNS, DNS, Draws, Popularity, Uniform
from truepair.training import Job, Settings, fit
from truepair.training.sampled.cpu import draw_tables
from truepair.training.sampled.cpu.arithmetic import compiled
from truepair.training.sampled.cpu.draws import anchor_at, order_of
from truepair.training.sampled.cpu.engine import CPU
from truepair.training.sampled.cpu.inner_loop import Visits, draw_block
from truepair.training.sampled.cpu.memory import space_for
from truepair.training.sampled.cpu.trainer import CpuTrainer
from truepair.training.sampled.plan import FUSED_LOSSES
from worlds import interactions_of, two_tastes

SETTINGS = Settings(
    epochs=3, n_extra=2, n_unlabelled=3, optimizer="sgd", learning_rate=0.1, schedule="linear", device="cpu"
)
FUSED = [name for name, kind in LOSSES.items() if kind in FUSED_LOSSES]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def job_of(encoder=None, loss=None, sampler=None, data=None, **changes):
    data = two_tastes() if data is None else data
    loss = (loss or DPL()).with_density(data.density)
    return Job(
        encoder or MF(dim=4), loss, sampler or Uniform(), data, dataclasses.replace(SETTINGS, **changes)
    )


def fit_fast(job, on_epoch=None, checkpoint=None):
    assert CPU.lacks(job) is None
    return fit(job, on_epoch, engine="cpu", checkpoint=checkpoint)


draw_block_of = compiled(
    lambda model, visits, plan, space, first, count: draw_block(model, visits, plan, space, first, count)
)


def entries_of(job, epoch=0):
    """Users [n] and items [n, 1 + m + pool] of all entries of an epoch, in their order."""
    trainer = CpuTrainer(job)
    seed, space = job.settings.seed, space_for(trainer.plan)
    key = np.uint64(stream_key(seed, epoch, 1))
    visits = Visits(trainer.tables, order_of(trainer.n_anchors, seed, epoch), key)
    users, items = [], []
    for first in range(0, trainer.n_anchors, len(space.users)):
        count = min(len(space.users), trainer.n_anchors - first)
        draw_block_of(trainer.model, visits, trainer.plan, space, first, count)
        users.append(space.users[:count].copy())
        items.append(space.items.reshape(len(space.users), -1)[:count].copy())
    return np.concatenate(users), np.concatenate(items)


# --- draws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64, 65, 1000, 4097])
def test_the_order_visits_every_anchor_once(n):
    orders = [order_of(n, seed, epoch) for seed, epoch in [(0, 0), (0, 1), (7, 0)]]
    seen = [[int(anchor_at(order, np.uint64(place))) for place in range(n)] for order in orders]
    assert all(sorted(places) == list(range(n)) for places in seen)
    if n > 10:
        assert len({tuple(places) for places in seen}) == 3


def test_the_order_looks_random():
    n = 4096 * 3 // 2
    places = np.array([int(anchor_at(order_of(n, 1, 2), np.uint64(p))) for p in range(n)])
    assert abs(np.corrcoef(places, np.arange(n))[0, 1]) < 0.05
    assert abs(np.corrcoef(places[1:], places[:-1])[0, 1]) < 0.05
    steps = np.diff(places) % n
    assert np.bincount(steps).max() < 20  # a multiplication alone would take the same step again and again


def worlds():
    """Dense and sparse users; users with nearly all items; a catalogue too large for full filters."""
    rng = np.random.default_rng(0)
    nearly_all = [list(range(1, 50)), [i for i in range(50) if i not in (7, 20, 21)], [30], list(range(50))]
    yield "two tastes", two_tastes()
    yield "nearly all", interactions_of(nearly_all, 50)
    rows = [np.sort(rng.choice(70_000, size, replace=False)) for size in (1, 3, 40, 900)]
    chosen = [rows[u % (4 if u < 40 else 3)] for u in range(1000)]
    yield "many users and items", interactions_of([list(row) for row in chosen], 70_000)


@pytest.mark.parametrize(
    ("name", "data"), list(worlds()), ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("sampler", [Uniform(), Popularity(), DNS(pool=9)], ids=str)
def test_entries_hold_own_items_then_items_that_the_user_does_not_have(name, data, sampler):
    job = job_of(data=data, sampler=sampler)
    users, items = entries_of(job)
    assert ((items >= 0) & (items < data.n_items)).all()
    known = data.users.astype(np.int64) * data.n_items + data.items  # a number for each pair
    drawn = users[:, None].astype(np.int64) * data.n_items + items
    assert np.isin(drawn[:, :3], known).all()
    assert not np.isin(drawn[:, 3:], known).any()
    full = Draws(data, sampler).free.numpy()[data.users] == 0
    np.testing.assert_array_equal(np.sort(drawn[:, 0]), np.sort(known[~full]))


def test_filters_are_full_for_small_catalogues_only():
    full = {name: draw_tables.entries_of(data, Uniform())[0].full for name, data in worlds()}
    assert full == {"two tastes": True, "nearly all": True, "many users and items": False}


@pytest.mark.parametrize(
    ("name", "data"), list(worlds()), ids=lambda value: value if isinstance(value, str) else ""
)
@pytest.mark.parametrize("sampler", [Uniform(), Popularity()], ids=str)
def test_tables_hold_the_pairs_and_a_bit_for_each_item(name, data, sampler):
    tables, anchors, n_saturated = draw_tables.entries_of(data, sampler)
    exact = Draws(data, sampler)
    kept = exact.anchors.numpy()
    assert np.array_equal(np.arange(len(data)) if anchors is None else anchors, kept)
    assert n_saturated == exact.n_saturated_users
    assert np.array_equal(tables.pairs, np.stack([data.users[kept], data.items[kept]], axis=1))
    assert np.array_equal(tables.items, data.items)
    assert tables.exact.uniform == exact.has_uniform_weights
    for user in range(data.n_users):
        words = tables.filters[tables.filter_start[user] : tables.filter_start[user + 1]]
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        assert set(np.flatnonzero(bits)) == {item % len(bits) for item in data.items_of(user).tolist()}


def test_equal_weights_need_no_tables_of_64_bits():
    tables = draw_tables.entries_of(two_tastes(), Uniform())[0]
    assert {name: len(getattr(tables.exact, name)) for name in ("gaps", "passed", "free")} == {
        "gaps": 0, "passed": 0, "free": 0,
    }  # fmt: skip


def chi_square(counts, expected):
    """How many standard deviations the statistic lies above its mean."""
    statistic, degrees = ((counts - expected) ** 2 / expected).sum(), len(counts) - 1
    return (statistic - degrees) / np.sqrt(2 * degrees)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("sampler", [Uniform(), Popularity(alpha=1.0)], ids=str)
def test_draws_are_distributed_as_they_should_be(full, sampler, monkeypatch):
    if not full:
        monkeypatch.setattr("truepair.training.sampled.cpu.draw_tables.FULL_BYTES", 0)
        monkeypatch.setattr(
            "truepair.training.sampled.cpu.draw_tables.BITS_PER_ITEM", 1
        )  # most tries are looked up
    own = [3, 4, 5, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 38, 39, 60]
    rows = [
        own,
        list(range(99)),
        *([5 * u % 100, 7 * u % 100 + 0] for u in range(1, 20) if 5 * u % 100 != 7 * u % 100),
    ]
    data = interactions_of([sorted(row) for row in rows], 100)
    draws = Draws(data, sampler)
    weights = np.diff(draws.ends.numpy(), prepend=0).astype(float)
    weights[own] = 0
    counts, extra = np.zeros(100), np.zeros(100)
    for epoch in range(60):
        users, items = entries_of(job_of(data=data, sampler=sampler, n_unlabelled=50, n_extra=9), epoch)
        counts += np.bincount(items[users == 0][:, 10:].ravel(), minlength=100)
        extra += np.bincount(items[users == 0][:, 1:10].ravel(), minlength=100)
        assert (items[users == 1][:, 10:] == 99).all()
    free = weights > 0
    assert counts[~free].sum() == 0
    assert abs(chi_square(counts[free], counts.sum() * weights[free] / weights.sum())) < 4
    assert extra.sum() == extra[own].sum()
    assert abs(chi_square(extra[own], np.full(len(own), extra.sum() / len(own)))) < 4


# --- the step ------------------------------------------------------------------------------------------


def step_by_autograd(job, user, items, weights, sums):
    """One entry's step in float64: the gradient of loss and penalties, then the optimizer's formula."""
    settings, loss, encoder = job.settings, job.loss, job.encoder
    u, v = (torch.from_numpy(w).requires_grad_() for w in weights)
    mine, rows = u[user], v[torch.from_numpy(items).long()]
    if encoder.scoring == "cosine":
        scores = torch.nn.functional.cosine_similarity(mine[None], rows) / encoder.temperature
    else:
        scores = rows @ mine
    m = settings.n_extra if loss.uses_extra else 0
    if job.sampler.needs_scores:
        best = scores[1 + m :].argsort(descending=True)[: settings.n_unlabelled] + 1 + m
        chosen = torch.cat([torch.arange(1 + m), best])
        scores, rows = scores[chosen], rows[chosen]
    value = loss(scores[None, 0], scores[None, 1 : 1 + m], scores[None, 1 + m :], torch.tensor([user]))[0]
    penalty = settings.l2_users / 2 * mine.square().sum() + settings.l2_items / 2 * rows.square().sum()
    for k, gradient in enumerate(torch.autograd.grad(value + penalty, [u, v])):
        g = gradient.numpy()
        if settings.optimizer == "adagrad":
            sums[k] += g * g
            g = g / (np.sqrt(sums[k]) + 1e-10)
        weights[k] = weights[k] - settings.learning_rate * g
    return float(value.detach())


def one_entry_world():
    """One anchor; of items 0 … 39 the user has 1 and 30."""
    return interactions_of([[], [1, 30], []], 40)


CASES = [
    *itertools.product(FUSED, ["dot", "cosine"], ["sgd", "adagrad"], [7]),
    *itertools.product(["bpr", "dpl"], ["dot", "cosine"], ["sgd", "adagrad"], [16, 32, 64, 200]),
    *itertools.product(["bpr", "dpl"], ["dot"], ["sgd", "adagrad"], [1]),  # every cosine would be ±1
]


@pytest.mark.parametrize(("loss", "scoring", "optimizer", "dim"), CASES, ids=str)
@pytest.mark.parametrize("sampler", [Uniform(), DNS(pool=6)], ids=["uniform", "dns"])
def test_steps_are_those_of_autograd(loss, scoring, optimizer, dim, sampler):
    data = one_entry_world()
    kind = LOSSES[loss]
    encoder = MF(dim=dim, scoring=scoring, temperature=0.5)
    value = kind(tau=0.1) if kind().uses_prior else kind()
    changes = {"optimizer": optimizer, "l2_users": 0.3, "l2_items": 0.2, "n_unlabelled": 3, "n_extra": 1}
    for seed in itertools.count():  # until a seed's two entries have no item twice
        job = job_of(encoder, value, sampler, data, seed=seed, learning_rate=0.05, **changes)
        users, items = entries_of(job)
        if all(len(set(row)) == len(row) for row in items.tolist()):
            break
    trainer = CpuTrainer(job)
    rng = np.random.default_rng(0)
    for rows in (trainer.model.users, trainer.model.items):
        rows[:, :dim] = rng.normal(size=(len(rows), dim)) * 0.6
    weights = [trainer.rows(rows).double().numpy() for rows in (trainer.model.users, trainer.model.items)]
    sums = [np.zeros_like(w) for w in weights]
    totals = trainer.train(0, 0.05, lambda steps: None)
    expected = sum(
        step_by_autograd(job, user, row, weights, sums) for user, row in zip(users, items, strict=True)
    )
    assert float(totals.losses.sum()) == pytest.approx(expected, rel=1e-5)
    for rows, exact in zip((trainer.model.users, trainer.model.items), weights, strict=True):
        np.testing.assert_allclose(rows[:, :dim], exact, rtol=1e-4, atol=2e-5)
        assert not rows[:, dim:].any()
    if optimizer == "adagrad":
        np.testing.assert_allclose(trainer.model.item_sums[:, :dim], sums[1], rtol=2e-3, atol=1e-6)
        np.testing.assert_allclose(trainer.model.user_sums[:, :dim], sums[0], rtol=2e-3, atol=1e-6)


def test_an_item_that_is_there_twice_is_stepped_twice():
    data = interactions_of([[2]], 5)  # the extra positive can only be the anchor
    job = job_of(MF(dim=3), DPL(tau=0.3), Uniform(), data, n_extra=1, n_unlabelled=1, l2_items=0.5)
    (_,), (items,) = entries_of(job)
    trainer = CpuTrainer(job)
    u, v = (trainer.rows(rows).double() for rows in (trainer.model.users, trainer.model.items))
    trainer.train(0, 0.1, lambda steps: None)
    scores = (v[torch.from_numpy(items).long()] @ u[0]).requires_grad_()
    loss = job.loss(scores[None, 0], scores[None, 1:2], scores[None, 2:])
    anchor, extra, _ = torch.autograd.grad(loss.sum(), scores)[0]
    expected = v[2]
    for slope in (anchor, extra):
        expected = expected - 0.1 * (slope * u[0] + 0.5 * expected)
    torch.testing.assert_close(trainer.rows(trainer.model.items)[2].double(), expected, rtol=1e-5, atol=1e-7)


def test_one_prior_per_user_equals_one_number_where_all_agree():
    one, each = (fit_fast(job_of(loss=DPL(tau=tau))) for tau in (0.25, [0.25] * 40))
    assert torch.equal(one.users, each.users)


def test_every_user_has_a_prior_of_their_own():
    data = interactions_of([[1, 30], [7, 22], [3, 11]], 40)
    for seed in itertools.count():  # until a seed's entries have no item twice
        job = job_of(MF(dim=7), DPL(tau=(0.0, 0.2, 0.6)), Uniform(), data, seed=seed, n_extra=1)
        users, items = entries_of(job)
        if all(len(set(row)) == len(row) for row in items.tolist()):
            break
    trainer = CpuTrainer(job)
    weights = [trainer.rows(rows).double().numpy() for rows in (trainer.model.users, trainer.model.items)]
    totals = trainer.train(0, job.settings.learning_rate, lambda steps: None)
    entries = zip(users, items, strict=True)
    expected = sum(step_by_autograd(job, user, row, weights, [0.0, 0.0]) for user, row in entries)
    assert float(totals.losses.sum()) == pytest.approx(expected, rel=1e-5)
    for rows, exact in zip((trainer.model.users, trainer.model.items), weights, strict=True):
        np.testing.assert_allclose(rows[:, :7], exact, rtol=1e-4, atol=1e-6)


# --- learning ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def enough():
    return two_tastes(n_users=200, n_items=40, each=8)


def taste_auc(result, data):
    """The share of (unseen item of the own taste, item of the other taste) pairs in the right order."""
    scores = (result.users @ result.items.T).numpy()
    own = (np.arange(data.n_users)[:, None] + np.arange(data.n_items)) % 2 == 0
    seen = data.csr().toarray() > 0
    auc = [np.mean(s[o & ~k][:, None] > s[~o][None]) for s, o, k in zip(scores, own, seen, strict=True)]
    return float(np.mean(auc))


@pytest.mark.parametrize("loss", FUSED)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("encoder", [MF(dim=4), MF(dim=4, scoring="cosine", temperature=0.2)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_every_loss_learns_the_two_tastes(loss, optimizer, encoder, threads, enough):
    torch.set_num_threads(threads)
    if LOSSES[loss].needs_cosines:
        encoder = dataclasses.replace(encoder, temperature=1.0)
    epochs = 40 if loss == "dpl-half" else 15  # it meets its floor more often, and learns nothing there
    result = fit_fast(job_of(encoder, LOSSES[loss](), Uniform(), enough, optimizer=optimizer, epochs=epochs))
    assert taste_auc(result, enough) > 0.9
    assert result.history[-1].loss < result.history[0].loss
    assert (result.clamped is None) == (not LOSSES[loss].has_floor)


@pytest.mark.parametrize("sampler", [Popularity(), DNS(pool=8)], ids=str)
def test_every_sampler_learns_the_two_tastes(sampler, enough):
    assert taste_auc(fit_fast(job_of(MF(dim=4), DPL(tau=0.3), sampler, enough, epochs=15)), enough) > 0.9


def test_clamped_rows_are_counted():
    clamped = fit_fast(job_of(loss=DPL(tau=0.9), epochs=1)).clamped
    assert 0 < clamped < 1
    assert clamped * len(two_tastes()) == pytest.approx(round(clamped * len(two_tastes())))


# --- runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_with_one_thread_the_seed_decides(optimizer):
    runs = [fit_fast(job_of(optimizer=optimizer, seed=seed)) for seed in (0, 0, 1)]
    assert torch.equal(runs[0].users, runs[1].users)
    assert torch.equal(runs[0].items, runs[1].items)
    assert not torch.equal(runs[0].users, runs[2].users)
    assert runs[0].history[-1].loss == runs[1].history[-1].loss


def test_arrays_of_a_thread_lie_as_far_apart_in_every_process():
    """A loop over two arrays that lie close to each other adds in another order."""
    plan, distances = CpuTrainer(job_of()).plan, set()
    for k in range(20):
        between = [np.zeros(k, dtype=np.float32) for _ in range(k)]
        space = space_for(plan)
        arrays = space.scores, space.gradient, space.inverse_norms, space.by_other, space.by_self
        starts = [array.ctypes.data for array in arrays]
        assert all(start % 64 == 0 for start in starts)
        distances.add(tuple(np.diff(starts).tolist()))
        memory = space.scores.base
        assert starts[0] - memory.ctypes.data >= 1024
        assert memory.ctypes.data + memory.nbytes - (starts[-1] + arrays[-1].nbytes) >= 1024
        del between
    (steps,) = distances
    assert min(steps) >= space.scores.nbytes + 1024


def test_a_run_does_not_depend_on_how_an_epoch_is_cut_into_pieces(monkeypatch, one_thread):
    whole = fit_fast(job_of())
    monkeypatch.setattr("truepair.training.sampled.cpu.trainer.PIECE", 1000)
    job, advanced = job_of(), []
    trainer = CpuTrainer(job)
    assert trainer.steps > 10
    totals = trainer.train(0, job.settings.learning_rate_at(0), advanced.append)
    assert advanced == [1] * trainer.steps
    assert len(totals.losses) == trainer.steps
    assert float(totals.losses.sum()) / trainer.n_anchors == pytest.approx(whole.history[0].loss)
    assert torch.equal(fit_fast(job).users, whole.users)


class StopHereError(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("scoring", ["dot", "cosine"])
def test_a_resumed_run_ends_with_the_same_bits(optimizer, scoring, tmp_path):
    job = job_of(MF(dim=5, scoring=scoring), optimizer=optimizer, epochs=4)

    def stop(state):
        if state.epoch == 3:
            raise StopHereError

    with pytest.raises(StopHereError):
        fit_fast(job, stop, tmp_path / "run")
    resumed, whole = fit_fast(job, lambda state: None, tmp_path / "run"), fit_fast(job)
    assert torch.equal(resumed.users, whole.users)
    assert torch.equal(resumed.items, whole.items)
    assert [r.loss for r in resumed.history] == [r.loss for r in whole.history]


def test_a_state_of_another_shape_is_refused():
    small, large = CpuTrainer(job_of(MF(dim=3))), CpuTrainer(job_of(MF(dim=4)))
    with pytest.raises(ValueError, match=r"user is \(40, 4\), not \(40, 3\)"):
        small.restore(large.state())
    with pytest.raises(KeyError):
        CpuTrainer(job_of(MF(dim=3), optimizer="adagrad")).restore(small.state())


@pytest.mark.parametrize("loss", FUSED)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_that_diverges_stops_with_advice(loss, threads):
    torch.set_num_threads(threads)
    with pytest.raises(
        TrainingError, match=r"(became (nan|-?inf)|infinite or NaN) at epoch .*Lower learning_rate"
    ):
        fit_fast(job_of(loss=LOSSES[loss](), learning_rate=1e30, l2_users=1.0, l2_items=1.0, epochs=50))


def test_users_with_every_item_have_no_anchors():
    data = interactions_of([list(range(10)), [4], [1, 5, 9], []], 10)
    result = fit_fast(job_of(data=data))
    started = MF(dim=4).start(data, 0, torch.device("cpu"))
    assert result.n_saturated_users == 1
    assert torch.equal(result.users[[0, 3]], started.user[[0, 3]].detach())
    assert not torch.equal(result.users[1], started.user[1].detach())


# --- what it refuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"encoder": LightGCN(dim=4)}, "it has no encoder LightGCN; it has MF."),
        ({"sampler": BNS(pool=9, in_batch=True)}, "it has no sampler BNS; it has Uniform, Popularity, DNS."),
        (
            {"optimizer": "adam"},
            "optimizer = 'adam' .* Set optimizer='adagrad' .* weight_decay=0, l2_users=.*",
        ),
        ({"weight_decay": 1e-5}, "optimizer = 'sgd' with weight_decay = 1e-05 .* weight_decay=0, .*"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_named_with_what_it_can(job, message):
    assert re.fullmatch(message, CPU.lacks(job_of(**job)))


def test_a_loss_it_does_not_know():
    class Other(InfoNCE):
        pass

    assert CPU.lacks(job_of(loss=Other())).startswith("it has no loss Other; it has InfoNCE, BPR, ")


def test_it_is_for_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert CPU.lacks(job_of(device="auto")) is None  # asked for by name, it trains where it can
    assert "not on device = 'cuda'" in CPU.lacks(job_of(device="cuda"))
    assert CPU.lacks(job_of(loss=BPR())) is None
