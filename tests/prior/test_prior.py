"""The prior: methods against worlds whose truth is known, the curve's gradient, bad input."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad

from truepair.data.simulation import simulate_world
from truepair.errors import InputError, StorageError
from truepair.losses import BPR, DPL
from truepair.models.encoders import MF
from truepair.prior import METHODS, estimate_prior, with_estimated_prior
from truepair.prior.holdout_scores import Evidence, gather
from truepair.prior.plateau import _likelihood, fit_plateau
from truepair.prior.ratios import bbe, dedpul
from truepair.prior.score_counts import Cells, count_cells
from truepair.recommender.estimator import Recommender
from truepair.sampling import Uniform
from truepair.training import Job, Settings, fit
from worlds import interactions_of, two_tastes


@pytest.fixture(scope="module")
def world():
    return simulate_world(400, 300, tau=0.1, density=0.08, seed=5)


@pytest.fixture(scope="module")
def estimate(world):
    return estimate_prior(world.observed, resamples=5, seed=5, device="cpu")


def made_up(tau=0.1, n=200_000, held_out=20_000, gap=3.0, seed=0):
    """Evidence from two normal distributions: nothing is trained."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < tau
    users = rng.integers(0, 400, size=n)
    scores = rng.normal(size=n) + gap * positive
    held_out_users = rng.integers(0, 400, size=held_out)
    counts = np.full(400, 50)
    return Evidence(held_out_users, rng.normal(size=held_out) + gap, users, scores, np.ones(n), counts)


# --- methods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.02, 0.1, 0.3])
def test_methods_find_the_share_of_a_clean_mixture(tau):
    cells = count_cells(made_up(tau))
    assert fit_plateau(cells).prior == pytest.approx(tau, rel=0.15)
    assert dedpul(cells) == pytest.approx(tau, rel=0.2)
    assert tau < bbe(cells) < tau + 0.02  # an upper bound


def test_ratio_methods_say_too_much_where_scores_overlap():
    cells = count_cells(made_up(0.1, gap=1.0))
    assert bbe(cells) > 0.12


def test_no_hidden_positive_at_all():
    cells = count_cells(made_up(0.0))
    assert fit_plateau(cells).prior < 0.002
    assert 0 <= dedpul(cells) < 0.002


def test_gradient_of_the_curve():
    cells = count_cells(made_up(n=5_000, held_out=500))
    held_out, unlabelled = cells.by_group
    rng = np.random.default_rng(1)
    features = rng.normal(size=(held_out.size, 4))

    def value(point):
        return _likelihood(point, features, held_out.ravel(), unlabelled.ravel(), 0.01, 1.0)[0]

    def slope(point):
        return _likelihood(point, features, held_out.ravel(), unlabelled.ravel(), 0.01, 1.0)[1]

    for seed in range(3):
        point = np.random.default_rng(seed).normal(size=6)
        assert check_grad(value, slope, point) < 1e-4 * (1 + np.abs(slope(point)).max())


def test_cells_hold_every_pair(world):
    evidence = gather(world.observed, 16, 2, 0, "auto", "auto", False)
    cells = count_cells(evidence)
    assert cells.held_out.sum() == len(evidence.held_out_scores)
    assert cells.unlabelled.sum() == pytest.approx(world.truth.size - len(world.observed))
    assert (np.diff(cells.score) > 0).all()
    drawn = cells.resampled(np.random.default_rng(0))
    assert isinstance(drawn, Cells)
    assert drawn.held_out.shape == cells.held_out.shape


def test_evidence_never_holds_a_known_positive(world, monkeypatch):
    import truepair.prior.holdout_scores as module

    monkeypatch.setattr(module, "_SCORED", 20_000)  # draws instead of all pairs
    evidence = gather(world.observed, 16, 2, 0, "auto", "auto", False)
    assert len(evidence.scores) < 20_000
    left = world.observed.n_items - world.observed.user_counts
    stands_for = np.bincount(evidence.users, evidence.weights, minlength=len(left))
    assert np.allclose(stands_for[stands_for > 0], left[stands_for > 0])


def test_few_draws_a_user_do_not_move_the_estimate(world, estimate, monkeypatch):
    import truepair.prior.holdout_scores as module

    for each in (150, 60):
        monkeypatch.setattr(module, "_SCORED", each * 400)
        again = estimate_prior(world.observed, resamples=0, seed=5)
        assert again.tau == pytest.approx(estimate.tau, rel=0.25)


def test_bins_without_unlabelled_pairs_do_not_make_the_bound_nothing():
    rows = [[0, 1], [1, 2], [0, 2]] * 34  # three items: most of what is held out has nobody beside it
    estimate = estimate_prior(interactions_of(rows, 3), resamples=0)
    assert estimate.methods["dedpul"] > 0
    assert 0 < estimate.tau < 1


# --- the estimate ----------------------------------------------------------------------------------------


def test_the_estimate_is_near_the_truth(world, estimate):
    assert estimate.tau == pytest.approx(world.tau, rel=0.3)
    assert estimate.low <= world.tau <= estimate.high
    assert estimate.low < estimate.tau < estimate.high
    assert set(estimate.methods) == set(METHODS)
    assert estimate.observed < estimate.positive < 1


def test_users_priors(world, estimate):
    assert estimate.user_tau.shape == (400,)
    left = world.observed.n_items - world.observed.user_counts
    assert estimate.user_tau @ left / left.sum() == pytest.approx(estimate.tau, rel=0.05)
    assert np.corrcoef(estimate.user_tau, world.user_tau)[0, 1] > 0.5


def test_residual_of_a_part(world, estimate):
    assert estimate.residual(estimate.observed) == pytest.approx(estimate.tau)
    assert estimate.residual(estimate.observed / 2) > estimate.tau
    assert estimate.residual(0.999999) == 0


def test_the_same_seed_gives_the_same_estimate(world, estimate):
    again = estimate_prior(world.observed, resamples=5, seed=5, device="cpu")
    assert (again.tau, again.low, again.high) == (estimate.tau, estimate.low, estimate.high)


def test_verdict_in_words(estimate):
    assert estimate.verdict.startswith(f"The estimate is τ = {estimate.tau:.2g}. ")
    assert f"between {estimate.low:.2%} and {estimate.high:.2%} of the unlabelled pairs" in estimate.verdict
    rough = dataclasses.replace(estimate, has_plateau=False)
    assert "a rough one: the scores reach no plateau" in rough.verdict
    assert "PriorEstimate" in repr(estimate)


# --- bad input -------------------------------------------------------------------------------------------


def test_too_few_positives():
    with pytest.raises(InputError, match="9 interactions are too few to estimate the prior; at least 100"):
        estimate_prior(interactions_of([[0, 1, 2]] * 3, 5))


def test_everything_is_observed():
    with pytest.raises(InputError, match="no pair is unlabelled"):
        estimate_prior(interactions_of([range(10)] * 12, 10))


def test_noise_gives_a_wide_interval_and_no_nan():
    rng = np.random.default_rng(0)
    rows = [rng.choice(40, 8, replace=False) for _ in range(60)]
    estimate = estimate_prior(interactions_of(rows, 40), resamples=3)
    assert np.isfinite([estimate.tau, estimate.low, estimate.high, *estimate.user_tau]).all()
    assert 0 <= estimate.low <= estimate.tau <= estimate.high <= 1
    assert estimate.high - estimate.low > 0.2
    assert not estimate.has_plateau
    assert "a rough one" in estimate.verdict


def test_one_user_and_users_with_one_item():
    rows = [list(range(60)), *[[k] for k in range(60)]]
    estimate = estimate_prior(interactions_of(rows, 80), resamples=2)
    assert np.isfinite([estimate.tau, *estimate.user_tau]).all()


# --- filled in -------------------------------------------------------------------------------------------


def test_auto_and_per_user_are_filled_in(world):
    loss, facts = with_estimated_prior(DPL(tau="auto"), world.observed, seed=5)
    assert loss.tau == pytest.approx(world.tau, rel=0.3)
    assert facts["asked"] == "auto"
    loss, facts = with_estimated_prior(DPL(tau="per-user"), world.observed, seed=5)
    assert len(loss.tau) == 400
    assert facts["asked"] == "per-user"
    assert with_estimated_prior(DPL(tau=0.2), world.observed) == (DPL(tau=0.2), None)
    assert with_estimated_prior(BPR(), world.observed) == (BPR(), None)


def test_training_alone_says_who_estimates():
    with pytest.raises(InputError, match="tau = 'auto' is estimated by Recommender"):
        fit(Job(MF(dim=4), DPL(tau="auto"), Uniform(), two_tastes(), Settings(epochs=1, patience=None)))


QUICK = {"loss": "dpl", "sampler": "uniform", "dim": 8, "validation": 0, "seed": 3, "device": "cpu"}


@pytest.mark.parametrize("word", ["auto", "per-user"])
def test_a_resumed_training_estimates_the_same_prior(tmp_path, world, word):
    """τ is estimated again on resuming: to the bit, for it depends on data and seed alone."""
    constant = {"schedule": "constant", "optimizer": "adam", **QUICK}  # a run that may be made longer
    whole = Recommender(tau=word, epochs=3, **constant).fit(world.observed)
    Recommender(tau=word, epochs=1, **constant).fit(world.observed, checkpoint=tmp_path / "c")
    resumed = Recommender(tau=word, epochs=3, **constant).fit(world.observed, checkpoint=tmp_path / "c")
    assert resumed.model_.tau == whole.model_.tau
    assert resumed.facts_["prior"] == whole.facts_["prior"]
    assert all(torch.equal(*two) for two in zip(resumed.matrices(), whole.matrices(), strict=True))


def test_threads_do_not_change_the_estimate(world):
    numba = pytest.importorskip("numba", reason="threads are those of the compiled engine")
    before, found = numba.get_num_threads(), []
    for threads in {1, before}:
        numba.set_num_threads(threads)
        found.append(estimate_prior(world.observed, resamples=0, seed=3, device="cpu"))
    numba.set_num_threads(before)
    assert found[0].tau == found[-1].tau
    np.testing.assert_array_equal(found[0].user_tau, found[-1].user_tau)


def test_another_prior_than_the_checkpoints_is_refused(tmp_path, world, monkeypatch):
    """Were the estimate ever another, as it may be on another machine, training would stop and say so."""
    Recommender(tau="auto", epochs=1, **QUICK).fit(world.observed, checkpoint=tmp_path / "c")
    monkeypatch.setattr(
        "truepair.prior.estimate.with_estimated_prior",
        lambda *_, **__: (DPL(tau=0.0987), {"asked": "auto"}),
    )
    with pytest.raises(StorageError, match=r"loss\.tau was .*, is 0\.0987"):
        Recommender(tau="auto", epochs=3, **QUICK).fit(world.observed, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("word", ["auto", "per-user"])
def test_recommender_records_what_it_used(tmp_path, world, word):
    model = Recommender(loss="dpl", tau=word, dim=8, epochs=2).fit(world.observed)
    used = np.mean(model.model_.tau)
    assert used == pytest.approx(model.facts_["prior"]["tau"], rel=0.1)
    assert 0.03 < used < 0.3
    model.save(tmp_path / "model.tp")
    again = Recommender.load(tmp_path / "model.tp")
    assert again.facts_["prior"] == model.facts_["prior"]
    assert again.model_.tau == model.model_.tau
    assert again.tau == word
    guest = again.fold_in({"user": ["new"] * 3, "item": world.observed.item_ids.ids[:3].to_pylist()})
    assert len(guest.recommend(k=3)) == 3
