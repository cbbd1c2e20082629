"""Engine "sequences": steps against the definition, resumed runs to the bit, a planted order is found."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_leave_last_out
from truepair.errors import InputError, StorageError
from truepair.evaluation import Validation
from truepair.losses import DPL, LOSSES, SL, InfoNCE
from truepair.models.encoders import MF, LightGCN, Recurrence, SASRec
from truepair.sampling import DNS, Full, Popularity, Uniform
from truepair.training import Job, Settings, choose_engine, fit
from truepair.training.sequences.engine import SEQUENCES
from truepair.training.sequences.trainer import SequenceTrainer

SETTINGS = Settings(epochs=3, batch_size=16, learning_rate=0.01, n_extra=2, n_unlabelled=3, device="cpu")
KINDS = {"sasrec": SASRec, "recurrence": Recurrence}
every_encoder = pytest.mark.parametrize("name", KINDS)


def walks(n_users=60, n_items=20, seed=0, weight=None):
    """Users who walk around a circle of items: the next item follows from the last."""
    rng = np.random.default_rng(seed)
    rows = [
        (user, (start + step) % n_items, step)
        for user in range(n_users)
        for start, n in [rng.integers(0, n_items, 1).tolist() + rng.integers(2, 12, 1).tolist()]
        for step in range(n)
    ]
    users, items, times = map(np.array, zip(*rows, strict=True))
    ids = IdMap.range(n_users), IdMap.range(n_items)
    weight = None if weight is None else rng.uniform(0.5, 2, len(users))
    return Interactions(users, items, *ids, time=times, weight=weight)


def job_of(name="sasrec", loss=None, sampler=None, data=None, settings=SETTINGS, **fields):
    encoder = KINDS[name](dim=8, **{"dropout": 0.0, **fields})
    return Job(encoder, loss or InfoNCE(), sampler or Full(), data or walks(), settings)


# --- a step ------------------------------------------------------------------------------------------------


def slow_objective(job, model, users, weight=None):
    """The mean loss of all positions, one after the other, over all items."""
    log, total, n = job.interactions.log, 0.0, 0
    vectors = F.normalize(model.item) if job.encoder.scoring == "cosine" else model.item
    for user in users.tolist():
        start = log.histories.indptr[user]
        items = torch.from_numpy(log.histories.of(user)[-job.encoder.length - 1 :].astype(np.int64))
        start = log.histories.indptr[user + 1] - len(items)
        for t in range(1, len(items)):
            state = model.states(items[None, :t], vectors)[:, -1]
            scores = job.encoder.scaled(state) @ items_of(model, vectors).T
            factor = 1.0 if weight is None else weight[start + t]
            total = total + factor * F.cross_entropy(scores / job.loss.temperature, items[t : t + 1])
            n += 1
    return total / n


def items_of(model, vectors):
    return vectors if model.addition is None else torch.cat([vectors, model.addition], dim=1)


@every_encoder
@pytest.mark.parametrize(
    "fields", [{}, {"scoring": "cosine", "temperature": 0.3}, {"popularity": 0.5}, {"length": 4}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_has_the_gradient_of_the_definition(name, fields, weighted):
    data = walks(20, 13, weight=True if weighted else None)
    settings = dataclasses.replace(SETTINGS, optimizer="sgd", learning_rate=0.5)
    job = job_of(name, InfoNCE(temperature=0.8), data=data, settings=settings, **fields)
    trainer, model = SequenceTrainer(job), job.encoder.start(data, 0, torch.device("cpu"))
    weight = None
    if weighted:
        weight = torch.tensor(data.log.weight / data.log.weight.mean(), dtype=torch.float32)
    users = trainer.entries[:7]
    losses, _ = trainer.train_step(users, 5)
    objective = slow_objective(job, model, users, weight)
    gradients = torch.autograd.grad(objective, list(model.parameters()))
    for after, before, gradient in zip(
        trainer.model.parameters(), model.parameters(), gradients, strict=True
    ):
        torch.testing.assert_close(after, before - 0.5 * gradient, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(losses.mean(), objective.detach(), rtol=1e-5, atol=1e-6)


@every_encoder
def test_every_position_once_and_users_of_a_step_are_about_equally_long(name):
    trainer = SequenceTrainer(job_of(name, data=walks(600), length=6))
    users = torch.cat(list(trainer.batches(0)))
    assert sorted(users.tolist()) == trainer.entries.tolist()
    assert trainer.n_anchors == int(trainer.counts.sum())
    assert len(list(trainer.batches(0))) == trainer.steps
    spread = [float(trainer.counts[block].float().std()) for block in trainer.batches(0) if len(block) > 1]
    assert np.mean(spread) < 0.5 * float(trainer.counts[trainer.entries].float().std())
    assert not torch.equal(users, torch.cat(list(trainer.batches(1))))


def test_some_positions_of_each_user():
    trainer = SequenceTrainer(job_of(positions=3))
    vectors = trainer.model.vectors()
    found = [trainer.positions(trainer.entries, key, vectors) for key in (1, 1, 2)]
    counts = torch.bincount(found[0].users, minlength=60)
    assert counts.tolist() == trainer.counts.clamp(max=3).tolist()
    assert trainer.n_anchors == len(found[0].targets)
    assert torch.equal(found[0].places, found[1].places)
    assert not torch.equal(found[0].places, found[2].places)
    everything = SequenceTrainer(job_of()).positions(trainer.entries, 1, vectors)
    for place, state in zip(found[0].places, found[0].states, strict=True):
        torch.testing.assert_close(state, everything.states[everything.places == place][0])


@pytest.mark.parametrize("sampler", [Uniform(), Popularity()])
def test_sampled_items_are_unlabelled_and_extra_ones_come_later(sampler):
    trainer = SequenceTrainer(job_of(loss=DPL(tau=0.1), sampler=sampler))
    at = trainer.positions(trainer.entries, 3, trainer.model.vectors())
    candidates, m = trainer.candidates(at, trainer.draws, 3)
    assert candidates.shape == (len(at.targets), 1 + 2 + 3)
    assert m == 2
    log, data = trainer.job.interactions.log, trainer.job.interactions
    for user, place, (target, *others) in zip(
        at.users.tolist(), at.places.tolist(), candidates.tolist(), strict=True
    ):
        assert log.histories.items[place] == target
        assert set(others[:2]) <= set(log.histories.items[place : log.histories.indptr[user + 1]].tolist())
        assert not data.has(user, others[2:]).any()


def test_columns_are_drawn_by_popularity_and_weigh_the_inverse():
    data = walks(200, 12)
    trainer = SequenceTrainer(job_of(sampler=Full(columns=8, alpha=1.0), data=data))
    drawn = [trainer.columns(key) for key in range(3000)]
    counts = np.bincount(torch.cat([each.items for each in drawn]).numpy(), minlength=12)
    shares = data.item_counts / data.item_counts.sum()
    np.testing.assert_allclose(counts / counts.sum(), shares, atol=0.01)
    assert torch.allclose(drawn[0].log_weights, -torch.from_numpy(np.log(8 * shares)).float()[drawn[0].items])
    sums = [float(each.log_weights.exp().sum()) for each in drawn]
    assert np.mean(sums) == pytest.approx(12, rel=0.02)  # of the sum over all items


# --- runs --------------------------------------------------------------------------------------------------


@every_encoder
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sampler", [Full(), Full(columns=12), Uniform(), Popularity()])
def test_every_loss_learns_the_next_item(name, loss, sampler):
    split = split_leave_last_out(walks(150, 16))
    scoring = "cosine" if LOSSES[loss].needs_cosines else "dot"
    settings = dataclasses.replace(SETTINGS, epochs=10, learning_rate=0.02, weight_decay=1e-4)
    made = LOSSES[loss]().with_density(split.train.density)
    job = job_of(name, made, sampler, split.train, settings, scoring=scoring)
    if lack := SEQUENCES.lacks(job):
        assert isinstance(sampler, Full)
        assert made.uses_extra or sampler.columns is not None
        pytest.skip(lack)
    result = fit(job)
    assert result.engine == "sequences"
    assert Validation(split.test, split.train, "ndcg@5").score(result.users, result.items) > 0.6


@every_encoder
def test_a_run_is_a_function_of_the_seed(name):
    job = job_of(name, dropout=0.3)
    other = dataclasses.replace(job, settings=dataclasses.replace(SETTINGS, seed=1))
    before = torch.get_rng_state()
    one, two, three = fit(job), fit(job), fit(other)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.users, two.users)
    assert torch.equal(one.items, two.items)
    assert not torch.equal(one.items, three.items)


@every_encoder
@pytest.mark.parametrize("sampler", [Full(), Uniform()])
def test_a_resumed_run_ends_with_the_same_bits(name, sampler, tmp_path):
    split = split_leave_last_out(walks())
    settings = dataclasses.replace(SETTINGS, epochs=6)
    job = job_of(name, sampler=sampler, data=split.train, settings=settings, dropout=0.3, positions=4)

    class Interrupted(Validation):
        def __call__(self, state):
            if state.epoch == 4 and self.exclude is split.train:
                raise KeyboardInterrupt
            return super().__call__(state)

    validation = Validation(split.test, split.train)
    whole = fit(job, validation)
    with pytest.raises(KeyboardInterrupt):
        fit(job, Interrupted(split.test, split.train), checkpoint=tmp_path / "c")
    resumed = fit(job, validation, checkpoint=tmp_path / "c")
    again = fit(job, validation, checkpoint=tmp_path / "c")  # it is over
    for found in (resumed, again):
        assert (found.epoch, found.score) == (whole.epoch, whole.score)
        assert torch.equal(found.users, whole.users)
        assert torch.equal(found.items, whole.items)
        assert found.network.keys() == whole.network.keys()
        assert all(torch.equal(found.network[key], whole.network[key]) for key in whole.network)


def test_another_order_is_another_run(tmp_path):
    rows = {"user": [0, 0, 0, 1, 1], "item": [0, 1, 2, 2, 0]}
    data = read_interactions(rows, chronological=True)
    turned = read_interactions({name: column[::-1] for name, column in rows.items()}, chronological=True)
    fit(job_of(data=data), checkpoint=tmp_path / "c")
    with pytest.raises(StorageError, match="histories was"):
        fit(job_of(data=turned), checkpoint=tmp_path / "c")


def test_the_best_epoch_has_its_network(tmp_path):
    split = split_leave_last_out(walks())
    job, scores = job_of(data=split.train), iter([0.2, 0.9, 0.1])
    result = fit(job, lambda state: next(scores))
    assert result.epoch == 2
    model = job.encoder.start(split.train, 0, torch.device("cpu"))
    model.item.data.copy_(result.items)
    model.network.load_state_dict(dict(result.network))
    assert torch.equal(model()[0], result.users)


def test_a_hostile_checkpoint_is_refused(tmp_path):
    from truepair.storage.tensor_file import read_tensors, write_tensors
    from truepair.training.checkpoints import KIND, VERSION

    job, validation = job_of(), lambda state: 1 / state.epoch
    fit(job, validation, checkpoint=tmp_path / "c")
    tensors, facts = read_tensors(tmp_path / "c", KIND, VERSION)
    name = next(name for name in tensors if name.startswith("best.network."))
    for change, message in (
        ({name: tensors[name][:1]}, "of shape"),
        ({name: torch.full_like(tensors[name], torch.nan)}, "NaN"),
        ({"best.network.more": torch.zeros(1)}, "does not belong"),
    ):
        write_tensors(tmp_path / "c", KIND, VERSION, tensors | change, facts)
        with pytest.raises(StorageError, match=message):
            fit(job, validation, checkpoint=tmp_path / "c")


def test_a_start_goes_on_from_weights():
    job = job_of()
    reached = fit(job, keep_start=True).start
    assert not reached.has_moments
    start = dataclasses.replace(job, start=reached)
    assert fit(start).history[0].loss < fit(job).history[0].loss
    assert start != job


# --- what it takes and what it does not --------------------------------------------------------------------


def test_auto_is_this_engine():
    assert choose_engine(job_of()) == choose_engine(job_of(sampler=Uniform())) == "sequences"


@pytest.mark.parametrize("engine", ["full", "reference", "cpu", "gpu", "distributed"])
def test_other_engines_say_what_they_lack(engine):
    with pytest.raises(InputError, match=f"engine = '{engine}': it .* Use sequences"):
        choose_engine(job_of(sampler=Uniform() if engine in ("cpu", "gpu") else Full()), engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": MF(dim=8)}, "it has no encoder MF; it has SASRec, Recurrence"),
        ({"encoder": LightGCN(dim=8)}, "it has no encoder LightGCN"),
        ({"sampler": DNS()}, "it has no sampler DNS; it has Full, Uniform and Popularity"),
        ({"loss": DPL(tau=0.1)}, "no loss DPL, which reads other items of a user; use the loss 'infonce'"),
        ({"loss": SL(), "sampler": Full(columns=3)}, "sampled columns of the catalogue"),
        ({"settings": dataclasses.replace(SETTINGS, l2_items=1.0)}, "it has weight_decay"),
        ({"settings": dataclasses.replace(SETTINGS, l2_users=1.0)}, "it has weight_decay"),
        ({"anchors": np.ones(len(walks()), bool)}, "neither anchors nor negatives"),
    ],
)
def test_what_it_lacks(change, message):
    job = dataclasses.replace(job_of(), **change)
    with pytest.raises(InputError, match=message):
        choose_engine(job, "sequences")


def test_order_is_needed():
    data = Interactions(np.array([0, 0]), np.array([0, 1]), IdMap.range(1), IdMap.range(3))
    with pytest.raises(InputError, match="the order of the events is not known"):
        fit(job_of(data=data))


def test_one_event_for_each_user_is_nothing_to_learn_from():
    data = Interactions(np.arange(3), np.arange(3), IdMap.range(3), IdMap.range(4), time=np.arange(3))
    with pytest.raises(InputError, match="no user has two events"):
        fit(job_of(data=data))


@every_encoder
def test_long_histories_and_repeats(name):
    n = 10_000
    rows = {"user": [0] * n + [1, 2, 2], "item": [k % 7 for k in range(n)] + [3, 1, 2], "time": range(n + 3)}
    data = read_interactions(rows)
    job = job_of(name, data=data, length=50)
    trainer = SequenceTrainer(job)
    assert trainer.n_anchors == 50 + 1
    result = fit(job)
    assert len(data.log) == n + 3
    assert result.users.isfinite().all()
    assert result.users[1].abs().sum() > 0  # a history of one event has a state


def test_users_with_every_item_have_no_sampled_positions():
    data = Interactions(
        np.array([0, 0, 0, 1, 1]),
        np.array([0, 1, 2, 0, 1]),
        IdMap.range(2),
        IdMap.range(3),
        time=np.arange(5),
    )
    trainer = SequenceTrainer(job_of(sampler=Uniform(), data=data))
    assert trainer.entries.tolist() == [1]
    assert trainer.n_saturated_users == 1
