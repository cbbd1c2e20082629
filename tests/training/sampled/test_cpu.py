"""The exact mode of the CPU engine against the reference in float64: step for step, bit for bit."""

import dataclasses
import threading
from functools import partial

import numba
import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError
from truepair.losses import BPR, DCL, DPL, HCL, LOSSES, DPLHalf, DPLHard, InfoNCE
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.randomness import stream_key
from truepair.sampling import BNS, DNS, Draws, Popularity, Sampler, Uniform
from truepair.training import ENGINES, Settings, fit
from truepair.training.job import Job
from truepair.training.reference.trainer import ReferenceTrainer
from truepair.training.sampled.cpu import epoch_order
from truepair.training.sampled.cpu.engine import CPU, FasterThreads
from truepair.training.sampled.cpu.epoch_order import anchor_order, sort_places
from truepair.training.sampled.cpu.in_batch import count_beaten
from truepair.training.sampled.plan import FUSED_LOSSES
from worlds import interactions_of, two_tastes

# 240 anchors in steps of 71: an odd tail
SETTINGS = Settings(batch_size=71, n_extra=3, n_unlabelled=4, learning_rate=0.01, device="cpu")
FUSED = {name: kind for name, kind in LOSSES.items() if kind in FUSED_LOSSES}
ALL_LOSSES = {name: kind(tau=0.1) if kind.uses_prior else kind() for name, kind in FUSED.items()}


@pytest.fixture(scope="module")
def data():
    return two_tastes()


@pytest.fixture
def with_cpu(monkeypatch):
    monkeypatch.setitem(ENGINES, "cpu", CPU)


def job_of(data, encoder=MF(dim=7), loss=DPL(tau=0.1), sampler=Uniform(), **changes):  # noqa: B008, frozen
    return Job(encoder, loss, sampler, data, dataclasses.replace(SETTINGS, **changes))


def nothing(steps):
    pass


def trained(job, epochs=2):
    trainer = CPU.start(job)
    totals = [trainer.train(epoch, job.settings.learning_rate, nothing) for epoch in range(epochs)]
    return trainer, totals


def reference(job, epochs=2):
    """The reference loop in float64."""
    trainer = ReferenceTrainer(job)
    trainer.model.double()
    if trainer.model.graph is not None:
        graph = trainer.model.graph
        graph.to_users, graph.to_items = graph.to_users.double(), graph.to_items.double()
    totals = [trainer.train(epoch, job.settings.learning_rate, nothing) for epoch in range(epochs)]
    return trainer, totals


def parameters(trainer):
    return [trainer.state()[name] for name in ("user", "item")]


def same_bits(one, other):
    return all(torch.equal(a, b) for a, b in zip(parameters(one), parameters(other), strict=True))


def check_equal(job, epochs=2):
    """Parameters, matrices, losses and clamp counts of the two loops, to the accuracy of float32."""
    ours, our_totals = trained(job, epochs)
    theirs, their_totals = reference(job, epochs)
    assert (ours.steps, ours.n_anchors) == (theirs.steps, theirs.n_anchors)
    assert ours.n_saturated_users == theirs.n_saturated_users
    for mine, right in zip(parameters(ours), parameters(theirs), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=2e-6)
    for mine, right in zip(ours.matrices(), theirs.matrices(), strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=2e-5)
    for mine, right in zip(our_totals, their_totals, strict=True):
        torch.testing.assert_close(mine.losses, right.losses, rtol=1e-5, atol=1e-5)
        assert mine.clamped == right.clamped
    return ours


# --- step for step -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", ["dot", "cosine"])
@pytest.mark.parametrize("encoder", [MF(dim=7), LightGCN(dim=7, hops=2)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("loss", FUSED)
def test_every_loss_encoder_and_scoring_equals_the_reference(loss, encoder, scoring, data):
    encoder = dataclasses.replace(encoder, scoring=scoring, temperature=0.5 if scoring == "cosine" else 1.0)
    check_equal(job_of(data, encoder, ALL_LOSSES[loss]))


SHAPES = [
    {"encoder": MF(dim=1)},
    {"encoder": MF(dim=32), "n_extra": 0},
    {"encoder": MF(dim=64), "n_unlabelled": 1},
    {"encoder": MF(dim=200), "n_extra": 0, "n_unlabelled": 1, "loss": BPR()},
    {"encoder": LightGCN(dim=1, hops=1)},
    {"encoder": LightGCN(dim=64, hops=3)},
    {"encoder": LightGCN(dim=200, hops=1, scoring="cosine", temperature=0.2), "loss": InfoNCE()},
    {"encoder": LightGCN(dim=40, hops=4), "n_unlabelled": 17},
    {"encoder": LightGCN(dim=7, hops=0)},
    {"batch_size": 1000},
    {"batch_size": 1, "learning_rate": 0.001},
    {"batch_size": 7, "encoder": LightGCN(dim=32, hops=2), "learning_rate": 0.001},  # few rows are active
]
RULES = [
    {"optimizer": "sgd", "learning_rate": 0.5},
    {"optimizer": "sgd", "learning_rate": 0.5, "l2_users": 0.3, "l2_items": 0.1, "weight_decay": 0.02},
    {"weight_decay": 0.01},
    {"weight_decay": 0.01, "encoder": LightGCN(dim=7, hops=1)},
    {"l2_users": 0.2},
    {"l2_items": 0.2, "encoder": LightGCN(dim=7, hops=1, scoring="cosine")},
    {"l2_users": 0.2, "l2_items": 0.1, "encoder": MF(dim=7, scoring="cosine", temperature=0.1)},
]
KINDS = [
    {"sampler": Popularity()},
    {"sampler": Popularity(alpha=0)},
    {"sampler": DNS(pool=9)},
    {"sampler": DNS(pool=9), "encoder": LightGCN(dim=7, hops=1, scoring="cosine"), "n_unlabelled": 2},
    {"sampler": BNS(pool=9, in_batch=True)},
    {"sampler": BNS(pool=9, weight=0, in_batch=True), "batch_size": 1000, "loss": BPR()},
    {"sampler": BNS(pool=5, in_batch=True), "encoder": MF(dim=33, scoring="cosine", temperature=0.3)},
    {"sampler": BNS(pool=6, in_batch=True), "encoder": LightGCN(dim=7, hops=2), "l2_items": 0.1},
    {"loss": DPL(tau=np.linspace(0, 0.6, 40))},
    {"loss": DCL(tau=np.linspace(0, 0.6, 40), temperature=0.5)},
    {"loss": DPL(tau=0.9), "encoder": MF(dim=32)},
    {"loss": DPL(tau=0.9, clamp="relative")},
    {"loss": DPLHard(tau=0.3, beta=3.0)},
    {"loss": DPLHalf(tau=np.linspace(0, 0.6, 40), clamp="relative", floor=0.5)},
    {"loss": HCL(tau=0.3, beta=0.5, temperature=2.0)},
    {"loss": DPL(tau=0)},
]


@pytest.mark.parametrize("changes", SHAPES + RULES + KINDS, ids=str)
def test_every_shape_rule_and_kind_equals_the_reference(changes, data):
    check_equal(job_of(data, **changes), epochs=1)


@pytest.mark.parametrize(
    "changes", [{}, {"encoder": LightGCN(dim=7, hops=1)}, {"sampler": BNS(pool=9, in_batch=True)}], ids=str
)
def test_too_many_pairs_to_list_are_searched_with_the_same_bits(changes, data, monkeypatch):
    """Unlabelled items come from a list in small worlds, such as all others here, and else from a search."""
    listed, _ = trained(job_of(data, **changes))
    monkeypatch.setattr(epoch_order, "LISTED", 0)
    searched, _ = trained(job_of(data, **changes))
    assert len(listed.narrow.listed) == 40 * data.n_items - len(data)
    assert len(searched.narrow.listed) == 0
    assert same_bits(listed, searched)


def test_bns_with_many_rows_of_a_user_and_many_rivals_of_an_item():
    """Each is scored once."""
    few = interactions_of([range(4), [2, 5], [0, 3, 6]], 7)
    for batch_size in (2, 9):
        check_equal(job_of(few, sampler=BNS(pool=5, in_batch=True), batch_size=batch_size), epochs=3)


def test_bns_counts_rivals_of_equal_score():
    @numba.njit
    def counted(among, times, score):
        return count_beaten(among, times, score)

    among = np.array([1, 2, 2, 3, np.inf], dtype=np.float32)
    times = np.array([5, 1, 2, 7, 9], dtype=np.int32)
    assert [counted(among, times, np.float32(score)) for score in (0, 1, 2, 3)] == [0, 5, 8, 15]


def test_clamped_rows_are_counted(data):
    _, totals = trained(job_of(data, loss=DPL(tau=0.9)), epochs=1)
    assert 0 < totals[0].clamped < 240
    assert trained(job_of(data, loss=BPR()), epochs=1)[1][0].clamped is None


def test_users_with_all_one_or_no_items():
    rows = [range(10), [4], [1, 5, 9], []]
    users = np.repeat(np.arange(4), [len(r) for r in rows])
    data = Interactions(users, np.concatenate(rows).astype(int), IdMap.range(4), IdMap.range(11))
    full = Interactions(users, np.concatenate(rows).astype(int), IdMap.range(4), IdMap.range(10))
    for encoder in (MF(dim=7), LightGCN(dim=7, hops=2)):
        check_equal(job_of(data, encoder, batch_size=3, l2_items=0.1), epochs=1)
        assert check_equal(job_of(full, encoder, batch_size=3), epochs=1).n_saturated_users == 1


def test_bns_with_items_that_nobody_has_and_users_with_nearly_all():
    """F = 1 with p = 0 is 0/0, and a batch's rivals are mostly known to a user with nearly every item."""
    sampler = BNS(pool=9, in_batch=True)
    unseen = two_tastes(n_users=10, n_items=60, each=3)
    assert (unseen.item_counts == 0).sum() > 20
    check_equal(job_of(unseen, sampler=sampler, batch_size=16))
    nearly = interactions_of([range(1, 12), [3], range(11), [0, 5, 7], [], range(12)], 12)
    for encoder in (MF(dim=7), LightGCN(dim=7, hops=2)):
        check_equal(job_of(nearly, encoder, sampler=sampler, batch_size=8), epochs=1)
    check_equal(job_of(nearly, sampler=sampler, batch_size=1, learning_rate=0.001), epochs=1)


def test_the_change_of_one_step_is_the_gradient_of_float64_autograd(data):
    """SGD with rate 1 and one batch: what the parameters lose is the gradient itself."""
    encoder, loss = LightGCN(dim=5, hops=2, scoring="cosine", temperature=0.3), DPL(tau=0.2)
    job = job_of(data, encoder, loss, batch_size=1000, optimizer="sgd", learning_rate=1.0)
    start = encoder.start(data, job.settings.seed, torch.device("cpu"))
    draws = Draws(data, Uniform())
    (anchors,) = draws.epoch(job.settings.seed, 0, 1000)
    batch = draws.batch(anchors, 3, 4, stream_key(job.settings.seed, 0, 0))

    user, item = (p.detach().double().requires_grad_() for p in (start.user, start.item))
    ones = torch.from_numpy(data.csr().toarray()).double()
    weights = ones / (ones.sum(1, keepdim=True) * ones.sum(0).clamp(min=1)).sqrt()
    users, items = user, item
    layers = [(users, items)]
    for _ in range(2):
        users, items = weights @ items, weights.T @ users
        layers.append((users, items))
    users, items = (torch.stack(side).mean(0) for side in zip(*layers, strict=True))
    users, items = users / users.norm(dim=1, keepdim=True) / 0.3, items / items.norm(dim=1, keepdim=True)
    columns = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)
    scores = (users[batch.users][:, None] * items[columns]).sum(-1)
    value = loss(scores[:, 0], scores[:, 1:4], scores[:, 4:]).mean()
    gradients = torch.autograd.grad(value, [user, item])

    trainer, totals = trained(job, epochs=1)
    assert float(totals[0].losses[0]) == pytest.approx(float(value.detach()) * len(anchors), rel=1e-6)
    for after, before, gradient in zip(parameters(trainer), (user, item), gradients, strict=True):
        change = before.detach() - after.double()
        torch.testing.assert_close(change, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_the_order_of_the_anchors_is_the_references(data):
    for n, seed, epoch in [(240, 0, 0), (240, 3, 7)]:
        (right,) = Draws(data, Uniform()).epoch(seed, epoch, n)
        assert np.array_equal(anchor_order(seed, epoch, n), right.numpy())
    assert list(anchor_order(0, 0, 1)) == [0]


def test_of_equal_words_the_first_comes_first():
    words = np.random.default_rng(0).integers(0, 50, 1000).astype(np.uint64) << np.uint64(57)
    bins, places = np.zeros(9, dtype=np.int64), np.empty(1000, dtype=np.int64)
    sort_places(words, 3, bins, places, np.empty_like(words))
    assert np.array_equal(places, np.argsort(words, kind="stable"))


# --- bit for bit ---------------------------------------------------------------------------------------

THREADS = [n for n in (2, 3, 4) if n <= numba.config.NUMBA_NUM_THREADS]
BITS = [
    {},
    {"encoder": LightGCN(dim=33, hops=2, scoring="cosine"), "sampler": DNS(pool=6), "l2_items": 0.1},
    {"encoder": LightGCN(dim=32, hops=1), "batch_size": 7, "optimizer": "sgd"},
    {"encoder": LightGCN(dim=33, hops=2, scoring="cosine"), "sampler": BNS(pool=6, in_batch=True)},
]


@pytest.mark.parametrize("changes", BITS, ids=str)
def test_any_number_of_threads_gives_the_same_bits(changes, data, monkeypatch):
    monkeypatch.setattr(FasterThreads, "choose", lambda chosen: chosen.counts[0])
    job, allowed = job_of(data, **changes), numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        alone, _ = trained(job)
        for threads in THREADS:
            numba.set_num_threads(threads)
            together, _ = trained(job)
            assert same_bits(alone, together)
            assert all(map(torch.equal, alone.matrices(), together.matrices()))
    finally:
        numba.set_num_threads(allowed)


def test_one_thread_is_used_while_it_is_faster(monkeypatch):
    monkeypatch.setattr(numba, "get_num_threads", lambda: 4)
    now = [0.0]
    threads = FasterThreads(clock=lambda: now[0])
    assert threads.choose() == 4
    threads.note(4, 1.0)
    assert threads.choose() == 1
    threads.note(1, 0.9)  # not clearly faster
    assert threads.choose() == 4
    threads.note(1, 0.4)
    assert threads.choose() == 1
    now[0] = 6.0
    threads.note(1, 0.5)
    assert threads.choose() == 1
    now[0] = 11.0  # long enough for another look at four
    assert threads.choose() == 4
    threads.note(4, 0.2)
    assert threads.choose() == 4


def test_two_python_threads_may_train_at_once(data):
    job = job_of(data)
    alone, _ = trained(job)
    found = []
    workers = [threading.Thread(target=lambda: found.append(trained(job)[0])) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [same_bits(alone, trainer) for trainer in found] == [True, True]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_run_goes_on_from_its_state_with_the_same_bits(optimizer, data):
    job = job_of(data, LightGCN(dim=7, hops=1), optimizer=optimizer)
    whole, _ = trained(job, epochs=3)
    first, _ = trained(job, epochs=2)
    second = CPU.start(job)
    second.restore(first.state())
    second.train(2, job.settings.learning_rate, nothing)
    assert same_bits(whole, second)


def test_a_state_of_other_sizes_is_refused(data):
    state = CPU.start(job_of(data)).state()
    with pytest.raises(ValueError, match=r"user has the shape \(40, 7\), not \(40, 8\)"):
        CPU.start(job_of(data, MF(dim=8))).restore(state)
    with pytest.raises(KeyError):
        CPU.start(job_of(data)).restore({"user": state["user"]})


def test_an_interrupted_fit_ends_with_the_same_bits(data, tmp_path, with_cpu):
    settings = dataclasses.replace(SETTINGS, epochs=4, schedule="linear")
    run = partial(fit, Job(MF(dim=7), DPL(), Uniform(), data, settings), engine="cpu")
    whole = run(on_epoch=lambda state: None)
    told = []

    def interrupt(state):
        told.append(state.epoch)
        if told == [1, 2, 3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(on_epoch=interrupt, checkpoint=tmp_path / "run")
    resumed = run(on_epoch=interrupt, checkpoint=tmp_path / "run")
    assert told == [1, 2, 3, 3, 4]
    assert torch.equal(whole.users, resumed.users)
    assert torch.equal(whole.items, resumed.items)


def test_what_was_handed_out_does_not_change(data):
    trainer, _ = trained(job_of(data), epochs=1)
    state, matrices = trainer.state(), trainer.matrices()
    kept = [state["user"].clone(), state["user.first"].clone(), matrices[0].clone()]
    trainer.train(1, 0.01, nothing)
    assert all(map(torch.equal, kept, [state["user"], state["user.first"], matrices[0]]))


def test_progress_is_told_of_every_step(data):
    told = []
    trainer = CPU.start(job_of(data, batch_size=3))
    trainer.train(0, 0.01, told.append)
    assert sum(told) == trainer.steps == 80


# --- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [MF(dim=4), LightGCN(dim=4, hops=1)], ids=["mf", "lightgcn"])
@pytest.mark.parametrize("loss", FUSED)
def test_a_run_that_diverges_is_told(loss, encoder, data, with_cpu):
    settings = dataclasses.replace(
        SETTINGS, learning_rate=1e25, optimizer="sgd", weight_decay=0.3, epochs=50, batch_size=16
    )
    with pytest.raises(
        TrainingError, match=r"(became (nan|inf)|infinite or NaN) at epoch .*Lower learning_rate"
    ):
        fit(Job(encoder, LOSSES[loss](), Uniform(), data, settings), engine="cpu")


@dataclasses.dataclass(frozen=True)
class OtherEncoder(Encoder):
    pass


@dataclasses.dataclass(frozen=True)
class OtherSampler(Sampler):
    pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": OtherEncoder()}, "it has no encoder OtherEncoder; it has MF, LightGCN."),
        (
            {"sampler": OtherSampler()},
            "it has no sampler OtherSampler; it has Uniform, Popularity, DNS, BNS.",
        ),
        (
            {"sampler": BNS()},
            "it has no BNS that ranks among the whole catalogue; it has BNS(in_batch=True).",
        ),
        ({"optimizer": "adagrad"}, "it has no optimizer 'adagrad'; it has 'adam', 'sgd'."),
    ],
    ids=str,
)
def test_what_it_lacks_is_named_with_what_it_has(changes, message, data, with_cpu):
    job = job_of(data, **changes)
    assert CPU.lacks(job) == message
    with pytest.raises(InputError, match=r"engine = 'cpu': it has no .* Use .*reference"):
        fit(job, engine="cpu")


def test_it_lacks_nothing_of_what_it_has(data):
    assert [CPU.lacks(job_of(data, loss=loss)) for loss in ALL_LOSSES.values()] == [None] * len(FUSED)
    assert CPU.lacks(job_of(data, device="auto")) is None


def test_it_does_not_train_on_another_device(data):
    job = job_of(data)
    elsewhere = dataclasses.replace(job, settings=dataclasses.replace(job.settings))
    object.__setattr__(elsewhere.settings, "device", "cuda")  # its constructor asks for a GPU
    assert CPU.lacks(elsewhere) == "it trains on the CPU, not on device = 'cuda'; it has 'cpu' and 'auto'."


def test_one_user_with_one_item():
    check_equal(job_of(interactions_of([[1]], 3), batch_size=8), epochs=3)
