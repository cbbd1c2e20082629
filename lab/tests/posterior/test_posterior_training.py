"""InfoNCE with weights 1 − P: the row form, the engines, and what happens where P is not known."""

import dataclasses
import math

import pytest
import torch

from blocks import block_of, shares_of, told, world
from posteriors import posterior_of
from truepair.errors import InputError, StorageError
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.recommender.estimator import Recommender
from truepair.sampling import DNS, Full, Popularity, Uniform
from truepair.training import Job, Settings, StopTraining, choose_engine, fit, fit_many, fold_in
from truepair.training.full.scoring import Blocks
from truepair_lab.posterior import InfoNCEPosterior
from truepair_lab.posterior.item_weights import PosteriorWeights
from truepair_lab.truth.fitting import one_thread
from worlds import two_tastes


@pytest.fixture(autouse=True, scope="module")
def alone():
    """One thread, so that bits can be compared."""
    with one_thread():
        yield


DATA = two_tastes(n_users=30, n_items=24, each=5)
POSTERIOR = posterior_of(DATA)
OWN = tuple(torch.linspace(0, 0.5, DATA.n_users).tolist())
LOSS = InfoNCEPosterior(tau=0.12, temperature=0.6, posterior=POSTERIOR)
SETTINGS = Settings(epochs=3, batch_size=7, learning_rate=0.05, seed=2, patience=None, device="cpu")
CPU = torch.device("cpu")


def trained(loss, sampler=None, **options):
    return fit(Job(MF(dim=4), loss, sampler or Full(), DATA, SETTINGS), **options)


def same_bits(ours, theirs):
    return torch.equal(ours.users, theirs.users) and torch.equal(ours.items, theirs.items)


# --- the weights -----------------------------------------------------------------------------------------


def explicit(users, tau, cap):
    """1 − P, pair by pair in float64."""
    z = (POSTERIOR.users.double() @ POSTERIOR.items.double().T - POSTERIOR.mean[:, None]) / POSTERIOR.spread[
        :, None
    ]
    low, high = POSTERIOR.ends.tolist()
    place = ((z - low) / (high - low) * 63 + 0.5).floor().clamp(0, 63).long()
    p = (POSTERIOR.ratio.double()[place] * torch.tensor(tau, dtype=torch.float64).view(-1, 1)).clamp(max=cap)
    return (1 - p)[users]


@pytest.mark.parametrize("tau", [0.12, 0.6, OWN], ids=["some", "many", "each their own"])
@pytest.mark.parametrize("cap", [0.99, 0.3])
def test_weights_are_1_less_the_posterior(tau, cap):
    users = torch.tensor([3, 0, 29, 7])
    found = PosteriorWeights(POSTERIOR, torch.tensor(tau, dtype=torch.float64), cap, CPU)
    wanted = explicit(users, tau, cap).log()
    # a pair on the edge between two entries may fall to either in float32
    assert ((found(users).double() - wanted).abs() < 1e-4).float().mean() > 0.98
    some = torch.tensor([5, 11, 2])
    torch.testing.assert_close(found(users, some), found(users)[:, some])
    assert found(users).isfinite().all()
    assert found(users).min() >= math.log1p(-cap) - 1e-4


def test_a_prior_of_0_has_no_weights_at_all():
    shape = DATA.n_users, DATA.n_items
    for tau in (0.0, (0.0,) * DATA.n_users):
        assert dataclasses.replace(LOSS, tau=tau).item_weights(shape, CPU) is None
    assert LOSS.item_weights(shape, CPU) is not None


# --- the row form ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.3, 2.0, 6.0])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 6.4])
def test_the_row_form_is_the_formula(scale, temperature):
    """−log e^{s⁺/t} / (e^{s⁺/t} + n·Σ w e^{s/t} / Σ w), differentiated by autograd in float64."""
    scores, known = world(scale)
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.01
    block = block_of(scores, known, tau=0.0, log_weights=weights.log())
    value, clamped, gradient = told(InfoNCEPosterior(tau=0.1, temperature=temperature), block, known)
    leaf, losses = scores.clone().requires_grad_(), []
    for row, w, mask in zip(leaf, weights, known, strict=True):
        pos, others, n = (row[mask] / temperature).exp(), (row[~mask] / temperature).exp(), (~mask).sum()
        rest = n * (w[~mask] * others).sum() / w[~mask].sum()
        losses.append(-(pos / (pos + rest)).log())
    losses = torch.cat(losses)
    (wanted,) = torch.autograd.grad((losses * shares_of(known)).sum(), leaf)
    torch.testing.assert_close(value, losses.detach(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradient, wanted, rtol=5e-9, atol=1e-11)
    assert clamped is None


def test_weighted_rows_of_equal_weights_are_infonce():
    pos, others = torch.randn(4, dtype=torch.float64), torch.randn(4, 9, dtype=torch.float64)
    none = torch.zeros(4, 0, dtype=torch.float64)
    for log_weight in (0.0, -2.0):
        found = LOSS.weighted(pos, others, torch.full((4, 9), log_weight, dtype=torch.float64))
        torch.testing.assert_close(found, InfoNCE(0.6)(pos, none, others))
    torch.testing.assert_close(LOSS(pos, none, others), InfoNCE(0.6)(pos, none, others))


# --- the engines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.12, OWN], ids=["one", "each their own"])
def test_the_rows_engine_is_the_reference(tau):
    loss = dataclasses.replace(LOSS, tau=tau)
    ours, theirs = (trained(loss, engine=engine) for engine in ("full", "reference"))
    scores = theirs.users @ theirs.items.T
    assert (ours.users @ ours.items.T - scores).abs().max() < 2e-5 * scores.abs().max()
    assert ours.clamped is None
    plain = trained(InfoNCE(0.6), engine="full")
    assert (plain.users @ plain.items.T - scores).abs().max() > 1e-2 * scores.abs().max()


@pytest.mark.parametrize("engine", ["full", "reference"])
def test_a_prior_of_0_is_infonce_to_the_bit(engine):
    for loss in (dataclasses.replace(LOSS, tau=0.0), InfoNCEPosterior(tau=0, temperature=0.6)):
        assert same_bits(trained(loss, engine=engine), trained(InfoNCE(0.6), engine=engine))


def test_drawn_columns_weigh_both_ways():
    sampler = Full(columns=10)
    blocks, plain = (Blocks(Job(MF(dim=4), loss, sampler, DATA), CPU) for loss in (LOSS, InfoNCE(0.6)))
    ours, theirs = torch.randn(DATA.n_users, 4), torch.randn(DATA.n_items, 4)
    for key in range(5):
        users = blocks.users[key : key + 6]
        chosen = blocks.select(users, key)
        found = blocks.scored(chosen, ours[users], theirs[chosen.needed]).block
        bare = plain.scored(plain.select(users, key), ours[users], theirs[chosen.needed]).block
        own = PosteriorWeights(POSTERIOR, torch.tensor(0.12), 0.99, CPU)(users, chosen.columns)
        torch.testing.assert_close(found.log_weights, bare.log_weights + own)
        assert found.log_total_weight().isfinite().all()
    assert trained(LOSS, sampler).users.isfinite().all()
    assert same_bits(trained(LOSS, Full(columns=1000)), trained(LOSS))


def test_runs_side_by_side_are_those_alone():
    jobs = [Job(MF(dim=4), loss, Full(), DATA, SETTINGS) for loss in (LOSS, InfoNCE(0.6))]
    for found, loss in zip(fit_many(jobs), (LOSS, InfoNCE(0.6)), strict=True):
        assert same_bits(found, trained(loss))


def stop_after(epoch):
    def on_epoch(state):
        if state.epoch >= epoch:
            raise StopTraining

    return on_epoch


def test_a_run_continues_only_with_the_posterior_it_began_with(tmp_path):
    path, nothing = tmp_path / "run.ckpt", stop_after(9)
    fit(Job(MF(dim=4), LOSS, Full(), DATA, SETTINGS), stop_after(1), checkpoint=path)
    other = dataclasses.replace(POSTERIOR, users=POSTERIOR.users * (1 + 1e-3))
    for changes, message in (
        ({"tau": 0.2}, r"loss\.tau was 0\.12, is 0\.2"),
        ({"posterior": other}, "loss.posterior was"),
    ):
        changed = dataclasses.replace(LOSS, **changes)
        with pytest.raises(StorageError, match=message):
            fit(Job(MF(dim=4), changed, Full(), DATA, SETTINGS), nothing, checkpoint=path)
    whole = fit(Job(MF(dim=4), LOSS, Full(), DATA, SETTINGS), nothing)
    again = dataclasses.replace(LOSS, posterior=posterior_of(DATA))
    assert same_bits(fit(Job(MF(dim=4), again, Full(), DATA, SETTINGS), nothing, checkpoint=path), whole)


def test_new_users_are_folded_in_by_infonce():
    items, popularity = torch.randn(DATA.n_items, 4), DATA.item_counts
    args = MF(dim=4), Full(), DATA, SETTINGS, popularity
    found = [
        fold_in(items, args[0], loss, *args[1:])
        for loss in (LOSS, dataclasses.replace(LOSS, posterior=None), InfoNCE(0.6))
    ]
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[2])


# --- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Uniform(), Popularity(), DNS(pool=8)], ids=str)
def test_a_sampler_that_draws_is_refused(sampler):
    message = f"the sampler {type(sampler).__name__} draws a few; use sampler='full', or the loss 'infonce'"
    with pytest.raises(InputError, match=message):
        trained(LOSS, sampler)


def test_without_a_first_model_it_cannot_be_trained():
    with pytest.raises(InputError, match=r"Recommender trains it\. Here, use the job that truepair\.prior"):
        trained(InfoNCEPosterior(tau=0.1))


def test_a_posterior_of_other_data_is_refused():
    other = dataclasses.replace(LOSS, posterior=posterior_of(two_tastes(n_users=10, n_items=12)))
    with pytest.raises(InputError, match="is of 10 users x 12 items, and the interactions have 30 x 24"):
        trained(other)


def test_it_is_shown_without_its_posterior():
    assert repr(LOSS) == "InfoNCEPosterior(tau=0.12, temperature=0.6, cap=0.99)"
    assert repr(POSTERIOR) == "<Posterior of 30 users x 24 items>"


def test_the_cap_is_a_share():
    with pytest.raises(InputError, match=r"cap = 1.0 .* > 0 and < 1"):
        InfoNCEPosterior(tau=0.1, cap=1.0)


def test_a_distributed_run_and_an_update_are_refused():
    with pytest.raises(InputError, match="no InfoNCEPosterior, whose weights of items are not divided"):
        choose_engine(Job(MF(dim=4), LOSS, Full(), DATA, SETTINGS), "distributed")
    model = Recommender(loss=LOSS, dim=4, epochs=1, device="cpu").fit(DATA)
    with pytest.raises(InputError, match="loss = InfoNCEPosterior cannot be updated"):
        model.update(DATA)
