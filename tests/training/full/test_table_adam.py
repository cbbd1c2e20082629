"""Adam of a table of which a step uses few rows, in PyTorch and in Triton: that of torch on all rows."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.errors import InputError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.training import Job, Settings, fit
from truepair.training.full.engine import FULL, MANY_STEPS, has_many_users
from truepair.training.full.large import table_adam
from truepair.training.full.large.table_adam import TableAdam
from truepair.training.full.trainer import FullTrainer, ManyUsersTrainer
from worlds import interactions_of

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning"),
]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def table_of(kind, weights, decay, state="device"):
    """A table whose functions are PyTorch's, or those of the kernels."""
    if kind == "plain":
        return TableAdam(weights.clone(), decay, state)
    kernels = pytest.importorskip("truepair.training.full.large.gpu_table_adam")
    return TableAdam(weights.clone().to(DEVICE), decay, state, (kernels.catch_up, kernels.update))


def epochs_of(table, gradients, rows, rate=0.01):
    """Epochs of steps, each with some rows; `gradients` [epochs, steps, rows, d]."""
    for of_epoch, rows_of_epoch in zip(gradients, rows, strict=True):
        table.start_epoch(rate, len(of_epoch))
        for step, (gradient, some) in enumerate(zip(of_epoch, rows_of_epoch, strict=True)):
            places = some.to(table.weights.device)
            table.rows(places, step)
            table.update(places, gradient.to(table.weights.device), step)
        table.end_epoch()
    return table


def torch_of(start, gradients, rows, decay, rate=0.01):
    """The same in torch's Adam of all rows, in float64."""
    weights = torch.nn.Parameter(start.double())
    adam = torch.optim.Adam([weights], lr=rate, weight_decay=decay)
    for of_epoch, rows_of_epoch in zip(gradients, rows, strict=True):
        for gradient, some in zip(of_epoch, rows_of_epoch, strict=True):
            weights.grad = torch.zeros_like(weights).index_add_(0, some, gradient.double())
            adam.step()
    return weights.detach(), adam.state[weights]["exp_avg"], adam.state[weights]["exp_avg_sq"]


def course(n_rows, dim, steps, epochs=2, each=3):
    """Rows and gradients of many sizes, zero among them; row 0 is never used."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(n_rows, dim, generator=generator)
    rows = [
        (1 + torch.randperm(n_rows - 1, generator=generator)[: steps * each]).view(steps, each)
        for _ in range(epochs)
    ]
    sizes = torch.tensor([1.0, 1e-3, 0.0])[:each, None]
    return start, torch.randn(epochs, steps, each, dim, generator=generator) * sizes, rows


@pytest.mark.parametrize("kind", ["plain", "triton"])
@pytest.mark.parametrize("decay", [0.0, 1e-2])
@pytest.mark.parametrize(("dim", "steps"), [pytest.param(5, 40, marks=pytest.mark.long), (64, 7)])
def test_equals_adam_of_all_rows(kind, decay, dim, steps):
    start, gradients, rows = course(3 * steps + 2, dim, steps)
    table = epochs_of(table_of(kind, start, decay), gradients, rows)
    weights, first, second = torch_of(start, gradients, rows, decay)
    torch.testing.assert_close(table.weights.cpu().double(), weights, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(table.first.cpu().double(), first, rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(table.second.cpu().double(), second, rtol=1e-4, atol=1e-12)
    assert table.steps == 2 * steps


@pytest.mark.parametrize("kind", ["plain", "triton"])
@pytest.mark.parametrize("missed", [1, 15, 17, 300])
def test_missed_steps_stop_when_nothing_changes(kind, missed):
    start, gradients, rows = course(4, 16, 1, epochs=1)
    table = table_of(kind, start, 0.0)
    table.start_epoch(0.01, 1 + missed)
    table.update(rows[0][0].to(table.weights.device), gradients[0, 0].to(table.weights.device), 0)
    table.end_epoch()
    nothing = torch.zeros(1, missed, 3, 16)
    gradients = torch.cat([gradients, nothing], dim=1)
    weights, _, second = torch_of(start, gradients, [rows[0].expand(1 + missed, 3)], 0.0)
    torch.testing.assert_close(table.weights.cpu().double(), weights, rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(table.second.cpu().double(), second, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("kind", ["plain", pytest.param("triton", marks=pytest.mark.long)])
def test_half_the_precision_is_near_and_takes_half_the_memory(kind):
    start, gradients, rows = course(62, 8, 20, epochs=6)
    gradients = gradients.abs() + 0.1  # a direction, so that rounding could add up
    table = epochs_of(table_of(kind, start, 0.0, "half"), gradients, rows)
    assert table.means.first.dtype == table.means.second.dtype == torch.bfloat16
    weights, _, second = torch_of(start, gradients, rows, 0.0)
    moved = (weights - start).abs().max()
    assert (table.weights.cpu() - weights).abs().max() <= 0.02 * moved
    truncates = kind == "triton" and DEVICE == "cpu"  # Triton's interpreter does not round to the nearest
    torch.testing.assert_close(
        table.second.cpu().double(), second, rtol=0.1 if truncates else 0.03, atol=1e-9
    )


def test_states_on_the_host_are_those_on_the_device():
    start, gradients, rows = course(23, 6, 7)
    tables = [table_of("triton", start, 0.0, state) for state in ("device", "host")]
    device, host = (epochs_of(table, gradients, rows).means for table in tables)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(device, host, strict=True))
    assert host.first.device.type == "cpu"
    assert host.first.is_pinned() == torch.cuda.is_available()


def test_many_rows_catch_up_in_pieces(monkeypatch):
    start, gradients, rows = course(62, 8, 20)
    whole = epochs_of(TableAdam(start.clone(), 0.0), gradients, rows)
    monkeypatch.setattr(table_adam, "_ROWS", 5)
    assert torch.equal(epochs_of(TableAdam(start.clone(), 0.0), gradients, rows).weights, whole.weights)


# --- as a setting ------------------------------------------------------------------------------------------


def groups(n_groups=6, users_each=60, items_each=15, taken=6):
    """Users of a group have items of their group."""
    rng = np.random.default_rng(0)
    return interactions_of(
        [
            np.sort(rng.choice(items_each, taken, replace=False)) + group * items_each
            for group in range(n_groups)
            for _ in range(users_each)
        ],
        n_groups * items_each,
    )


GROUPS = groups()


def job_of(encoder=None, data=GROUPS, **changes):
    settings = Settings(epochs=6, batch_size=5, learning_rate=0.02, device="cpu", seed=5)
    encoder = encoder or MF(dim=8, scoring="cosine", temperature=0.3)
    return Job(encoder, InfoNCE(), Full(), data, dataclasses.replace(settings, **changes))


def in_group(result):
    """The share of each user's best items, without those that are known, that are of the user's group."""
    scores = result.users @ result.items.T
    scores[torch.tensor(GROUPS.users), torch.tensor(GROUPS.items)] = -torch.inf
    best = scores.topk(5).indices // 15
    return float((best == (torch.arange(len(scores)) // 60)[:, None]).float().mean())


def test_half_the_precision_learns_as_much():
    whole, half = (fit(job_of(optimizer_state=state)) for state in ("device", "half"))
    assert not torch.equal(whole.users, half.users)
    assert in_group(whole) > 0.9
    assert abs(in_group(half) - in_group(whole)) < 0.02


def test_on_the_cpu_the_host_is_the_device():
    whole, host = (fit(job_of(optimizer_state=state)) for state in ("device", "host"))
    assert torch.equal(whole.users, host.users)


def test_a_checkpoint_of_half_the_precision_goes_on(tmp_path):
    def stop(state):
        if state.epoch == 2:
            raise KeyboardInterrupt

    whole = fit(job_of(optimizer_state="half"))
    with pytest.raises(KeyboardInterrupt):
        fit(job_of(optimizer_state="half"), stop, checkpoint=tmp_path / "run")
    resumed = fit(job_of(optimizer_state="half"), lambda state: None, checkpoint=tmp_path / "run")
    assert torch.equal(resumed.users, whole.users)
    with pytest.raises(Exception, match="optimizer_state"):
        fit(job_of(), lambda state: None, checkpoint=tmp_path / "run")


def test_each_trainer_continues_from_the_state_of_the_other():
    job = job_of(optimizer_state="half")
    table = ManyUsersTrainer(job)
    assert isinstance(table.table, TableAdam)
    assert table.table.means.first.dtype == torch.bfloat16
    table.train(0, 0.02, lambda steps: None)
    dense = FullTrainer(job_of())
    dense.restore({name: value.clone() for name, value in table.state().items()})
    again = ManyUsersTrainer(job)
    again.restore(dense.state())
    assert all(torch.equal(a, b) for a, b in zip(again.table.means[:3], table.table.means[:3], strict=True))
    assert again.table.steps == table.table.steps == 72


def test_a_state_elsewhere_needs_users_that_are_left_alone():
    for job, words in (
        (job_of(optimizer_state="half", batch_size=6), "64 steps in an epoch or more.*lower batch_size"),
        (job_of(LightGCN(dim=4), optimizer_state="host"), "the encoder MF with Adam, not for LightGCN"),
        (job_of(optimizer_state="host", optimizer="sgd"), "MF with 'sgd'"),
    ):
        with pytest.raises(InputError, match=words):
            FULL.start(job)
    with pytest.raises(InputError, match="optimizer_state"):
        Settings(optimizer_state="disk")


def test_other_engines_refuse_it():
    for engine in ("reference", "distributed"):
        with pytest.raises(InputError, match=r"optimizer_state.*engine 'full'"):
            fit(job_of(optimizer_state="half"), engine=engine)


def test_on_cuda_only_many_numbers_are_worth_it():
    cuda, small = torch.device("cuda"), job_of()
    assert len(GROUPS.user_ids) >= MANY_STEPS * 5
    assert has_many_users(small)
    assert not has_many_users(small, cuda)
    assert has_many_users(job_of(optimizer_state="host"), cuda)
    assert has_many_users(job_of(MF(dim=1 << 18)), cuda)
