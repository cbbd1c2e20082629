"""Full-catalogue training of many users: rows that a step does not use are caught up exactly."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.losses import DPL, InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.full.engine import FULL, MANY_STEPS, has_many_users
from truepair.training.full.large import row_adam
from truepair.training.full.large.table_adam import TableAdam
from truepair.training.full.trainer import FullTrainer, ManyUsersTrainer
from worlds import interactions_of

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = Settings(epochs=3, batch_size=2, learning_rate=0.02, schedule="cosine", device="cpu", seed=5)
COSINE = MF(dim=5, scoring="cosine", temperature=0.3, popularity=0.1)


def many_users(n_users=2 * MANY_STEPS + 1, n_items=12):
    """Users with some items; the first has none, the second all."""
    mask = np.random.default_rng(1).random((n_users, n_items)) < 0.3
    mask[:, 0] |= ~mask.any(axis=1)
    mask[0], mask[1] = False, True
    return interactions_of([np.flatnonzero(row) for row in mask], n_items)


DATA = many_users()


def job_of(encoder=COSINE, loss=None, sampler=None, **changes):
    settings = dataclasses.replace(SETTINGS, **changes)
    return Job(encoder, loss or InfoNCE(temperature=0.5), sampler or Full(), DATA, settings)


def after_epochs(trainer, epochs, first=0):
    for epoch in range(first, first + epochs):
        trainer.train(epoch, trainer.job.settings.learning_rate_at(epoch), lambda steps: None)
    return trainer


def assert_alike(states, accuracy=1e-4):
    ours, dense = states
    assert ours.keys() == dense.keys()
    for name, value in dense.items():
        assert ours[name].shape == value.shape
        assert ours[name].dtype == value.dtype
        largest = max(float(value.abs().max()), 1e-30)
        assert float((ours[name] - value).abs().max()) <= accuracy * largest, name


@pytest.mark.parametrize(
    "job",
    [
        job_of(),
        job_of(MF(dim=17)),
        job_of(weight_decay=1e-2),
        job_of(l2_users=0.1, l2_items=0.01),
        job_of(loss=DPL(tau=0.1)),
        job_of(sampler=Full(columns=6)),
    ],
    ids=["cosine", "dot", "weight decay", "L2", "DPL", "drawn columns"],
)
def test_equals_adam_on_all_rows(job):
    ours, dense = (after_epochs(kind(job), 2) for kind in (ManyUsersTrainer, FullTrainer))
    assert_alike([ours.state(), dense.state()])
    for mine, other in zip(ours.matrices(), dense.matrices(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("decay", [0.0, 1e-3])
@pytest.mark.parametrize("missed", [1, 15, 40, 900])
def test_missed_steps_equal_steps_without_gradient(decay, missed):
    """Against torch's Adam in float64, from means of many sizes, zero and below ε among them."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(6, 16, generator=generator)
    sizes = torch.tensor([1.0, 1e-2, 1e-5, 1e-8, 1e-12, 0.0])[:, None]
    gradient = torch.randn(6, 16, generator=generator) * sizes
    table = TableAdam(
        start.clone(), decay, functions=(row_adam.catch_up, row_adam.update), precision=torch.float64
    )
    table.start_epoch(0.01, 1 + missed)
    table.rows(torch.arange(6), 0)
    table.update(torch.arange(6), gradient, 0)
    table.end_epoch()
    weights = torch.nn.Parameter(start.double())
    adam = torch.optim.Adam([weights], lr=0.01, weight_decay=decay)
    for step in range(1 + missed):
        weights.grad = gradient.double() if step == 0 else torch.zeros_like(weights)
        adam.step()
    moved = (weights.detach() - start).abs().max(dim=1).values
    assert ((table.weights - weights.detach()).abs().max(dim=1).values <= 2e-5 * moved + 1e-6).all()
    torch.testing.assert_close(table.first.double(), adam.state[weights]["exp_avg"], rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(
        table.second.double(), adam.state[weights]["exp_avg_sq"], rtol=1e-4, atol=1e-12
    )
    assert table.steps == 1 + missed


def test_each_trainer_continues_from_the_state_of_the_other():
    job = job_of()
    reference = after_epochs(FullTrainer(job), 3)
    for first, second in ((ManyUsersTrainer, FullTrainer), (FullTrainer, ManyUsersTrainer)):
        begun, resumed = after_epochs(first(job), 2), second(job)
        resumed.restore({name: value.clone() for name, value in begun.state().items()})
        assert_alike([after_epochs(resumed, 1, first=2).state(), reference.state()])


def test_continues_with_the_same_bits(tmp_path):
    class Stop(Exception):  # noqa: N818
        pass

    def killed(state):
        if state.epoch == 2:
            raise Stop

    whole = fit(job_of(), engine="full")
    with pytest.raises(Stop):
        fit(job_of(), killed, engine="full", checkpoint=tmp_path / "run")
    resumed = fit(job_of(), lambda state: None, engine="full", checkpoint=tmp_path / "run")
    assert torch.equal(resumed.users, whole.users)
    assert torch.equal(resumed.items, whole.items)


def test_chosen_where_a_step_uses_few_users():
    assert has_many_users(job_of())
    assert isinstance(FULL.start(job_of()), ManyUsersTrainer)
    assert not has_many_users(job_of(batch_size=3))
    assert not has_many_users(job_of(optimizer="sgd"))
    assert not has_many_users(job_of(LightGCN(dim=5)))
