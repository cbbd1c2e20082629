"""Calibration: the ratio against one that is known, bad input, and a loss that is filled in from the data."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from posteriors import posterior_of
from truepair.data.simulation import simulate_world
from truepair.errors import InputError, StorageError, TrainingError
from truepair.losses import BPR, LOSSES, InfoNCE
from truepair.models.encoders import MF
from truepair.prior import prepare
from truepair.prior.holdout_scores import Evidence
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import split_for_fitting
from truepair.sampling import Full, Uniform
from truepair.search.runner import TrainingRunner
from truepair.search.spaces import default_space
from truepair.search.trials import OpenTrial
from truepair.training import Job, Settings, fit
from truepair_lab.posterior import InfoNCEPosterior
from truepair_lab.posterior.calibration import calibrate, density_ratio, posterior_facts
from truepair_lab.posterior.first_model import first_job
from worlds import interactions_of, two_tastes

FILES = Path(__file__).parent / "files"
SETTINGS = Settings(epochs=4, batch_size=16, learning_rate=0.02, patience=None, seed=3, device="cpu")


def evidence_of(held_out, scores, weights=None):
    users = np.zeros(len(scores), dtype=np.int64)
    weights = np.ones(len(scores)) if weights is None else weights
    return Evidence(np.zeros(len(held_out), dtype=np.int64), held_out, users, scores, weights, np.array([50]))


def made_up(tau=0.1, gap=1.5, n=400_000, held_out=40_000, seed=0):
    """Scores from two normal distributions: held-out positives are as the hidden ones."""
    rng = np.random.default_rng(seed)
    return evidence_of(rng.normal(size=held_out) + gap, rng.normal(size=n) + gap * (rng.random(n) < tau))


def looked_up(ends, ratio, z):
    return np.interp(z, np.linspace(*ends, len(ratio)), ratio)


# --- the ratio -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.02, 0.1, 0.4])
def test_a_known_ratio_is_found(tau):
    gap = 1.5
    ends, ratio = density_ratio(made_up(tau, gap))
    z = np.linspace(-2, 4, 40)
    positive, negative = np.exp(-((z - gap) ** 2) / 2), np.exp(-(z**2) / 2)
    truth = tau * positive / (tau * positive + (1 - tau) * negative)  # P(positive | z)
    assert np.abs(np.minimum(tau * looked_up(ends, ratio, z), 1) - truth).max() < 0.08
    assert (np.diff(ratio) >= 0).all()
    assert ends[0] < ends[1]


@pytest.mark.parametrize("tau", [0.02, 0.1, 0.4])
def test_the_mean_of_p_is_the_prior(tau):
    evidence = made_up(tau)
    ends, ratio = density_ratio(evidence)
    p = np.minimum(tau * looked_up(ends, ratio, evidence.scores), 0.99)
    assert p.mean() == pytest.approx(tau, rel=0.03)


def test_a_draw_that_stands_for_several_counts_as_several():
    whole = made_up(n=50_000)
    twice = evidence_of(
        np.concatenate([whole.held_out_scores] * 2), whole.scores, np.full(len(whole.scores), 2.0)
    )
    for ours, theirs in zip(density_ratio(twice), density_ratio(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_held_out_pairs_beyond_all_others_join_the_highest_bin():
    ends, ratio = density_ratio(evidence_of(np.linspace(5, 9, 300), np.linspace(-1, 1, 3000)))
    assert np.isfinite(ratio).all()
    assert (np.diff(ratio) >= 0).all()
    assert ends[1] <= 1
    below = density_ratio(evidence_of(np.linspace(-9, -5, 300), np.linspace(-1, 1, 3000)))[1]
    np.testing.assert_allclose(below, 1, rtol=0.01)  # a model that is wrong throughout tells nothing


def test_scores_that_are_all_equal_tell_nothing():
    ends, ratio = density_ratio(evidence_of(np.zeros(20), np.zeros(500)))
    np.testing.assert_allclose(ratio, 1)
    assert ends[0] < ends[1]


def test_one_held_out_pair_is_enough_for_a_number():
    _, ratio = density_ratio(evidence_of(np.array([0.3]), np.linspace(-1, 1, 500)))
    assert np.isfinite(ratio).all()


# --- a first model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen():
    return simulate_world(120, 80, tau=0.1, density=0.1, seed=5).observed


def job_of(data, loss, **changes):
    return Job(
        MF(dim=6, scoring="cosine", temperature=0.2),
        loss,
        Full(),
        data,
        dataclasses.replace(SETTINGS, **changes),
    )


def test_a_first_model_is_the_job_itself_without_a_tenth(seen):
    first, held_out = first_job(job_of(seen, InfoNCEPosterior(tau=0.1), patience=2), temperature=0.7)
    assert first.loss == InfoNCE(0.7)
    assert len(held_out) == round(len(seen) / 10)
    assert len(first.interactions) + len(held_out) == len(seen)
    assert first.settings.patience is None


def test_preparing_fills_prior_and_posterior(seen):
    job, facts = prepare(job_of(seen, InfoNCEPosterior(tau="density")))
    assert job.loss.tau == seen.density
    assert facts["posterior"]["tau"] == pytest.approx(seen.density, rel=1e-2)
    assert facts["posterior"]["mean"] == pytest.approx(seen.density, rel=0.1)
    assert 0.5 < facts["posterior"]["separation"] <= 1
    assert facts["posterior"]["held out"] == round(len(seen) / 10)
    quantiles = list(facts["posterior"]["quantiles"].values())
    assert 0 <= quantiles[0] <= quantiles[-1] <= facts["posterior"]["highest"] <= 0.99
    assert fit(Job(job.encoder, job.loss, job.sampler, seen, SETTINGS)).users.isfinite().all()
    again, _ = prepare(job_of(seen, InfoNCEPosterior(tau="density")))
    for name, tensor in job.loss.posterior.tensors().items():
        assert torch.equal(tensor, again.loss.posterior.tensors()[name])


@pytest.mark.parametrize("word", ["auto", "per-user"])
def test_an_estimated_prior_is_estimated_as_elsewhere(seen, word):
    job, facts = prepare(job_of(seen, InfoNCEPosterior(tau=word)))
    assert facts["prior"]["asked"] == word
    mean = np.mean(job.loss.tau)
    assert facts["posterior"]["tau"] == pytest.approx(mean, rel=1e-2)
    assert (mean == facts["prior"]["tau"]) or word == "per-user"


def test_what_needs_nothing_is_left_as_it_is(seen):
    filled = InfoNCEPosterior(tau=0.1, posterior=posterior_of(seen))
    for loss in (InfoNCE(), BPR(), InfoNCEPosterior(tau=0), filled):
        job = job_of(seen, loss)
        assert prepare(job) == (job, {})


def test_a_training_that_diverges_is_an_error(seen):
    job = job_of(seen, InfoNCEPosterior(tau=0.1), optimizer="sgd", learning_rate=1e30)
    with pytest.raises(TrainingError):
        prepare(dataclasses.replace(job, encoder=MF(dim=4)))


def test_who_was_hidden_entirely_weighs_all_items_the_same():
    data = two_tastes(n_users=40, n_items=30, each=4)
    alone = interactions_of([*(data.items[data.users == u] for u in range(40)), [3]], 30)
    train = interactions_of([*(data.items[data.users == u][1:] for u in range(40)), []], 30)
    held_out = interactions_of([*(data.items[data.users == u][:1] for u in range(40)), [3]], 30)
    users, items = torch.randn(41, 4), torch.randn(30, 4)
    found, evidence = calibrate(users, items, alone, train, held_out, seed=0)
    assert (found.users[40] == 0).all()
    assert len(evidence.held_out_scores) == 40
    assert posterior_facts(found, evidence, 0.1, 0.99)["held out"] == 40
    for tensor in found.tensors().values():
        assert tensor.isfinite().all()


def test_too_few_pairs_are_an_error_that_names_the_remedy():
    with pytest.raises(InputError, match=r"20 interactions are too few to hold some out.*loss 'infonce'"):
        prepare(job_of(two_tastes(n_users=10, n_items=10, each=2), InfoNCEPosterior(tau=0.1)))


def test_a_sampler_that_draws_is_refused_before_any_work(seen):
    with pytest.raises(InputError, match="use sampler='full'"):
        prepare(dataclasses.replace(job_of(seen, InfoNCEPosterior(tau=0.1)), sampler=Uniform()))
    with pytest.raises(InputError, match="use sampler='full'"):
        _ = Recommender(loss="infonce-posterior", sampler="uniform").spec


# --- a recommender ---------------------------------------------------------------------------------------


def test_a_recommender_trains_saves_and_folds_in(seen, tmp_path):
    model = Recommender(loss="infonce-posterior", tau=0.08, dim=6, epochs=3, device="cpu").fit(seen)
    assert model.model_.tau == 0.08
    assert model.facts_["posterior"]["tau"] == 0.08
    assert model.result_.job.loss.posterior is not None
    model.save(tmp_path / "model.truepair")
    loaded = Recommender.load(tmp_path / "model.truepair")
    assert loaded.facts_["posterior"] == model.facts_["posterior"]
    assert loaded.recommend(k=3).equals(model.recommend(k=3))
    guest = {"user": ["new", "new"], "item": model.seen_.item_ids.outside(np.array([1, 5]))}
    assert loaded.fold_in(guest).recommend(k=3).equals(model.fold_in(guest).recommend(k=3))


def test_a_loss_that_is_filled_already_is_saved_without_its_posterior(seen, tmp_path):
    loss = prepare(job_of(seen, InfoNCEPosterior(tau=0.1))).job.loss
    model = Recommender(loss=loss, dim=6, epochs=2, device="cpu").fit(seen)
    model.save(tmp_path / "model.truepair")
    assert Recommender.load(tmp_path / "model.truepair").spec.loss == InfoNCEPosterior(tau=0.1)


def test_a_recommender_goes_on_from_a_checkpoint_with_the_same_bits(seen, tmp_path):
    options = {"loss": "infonce-posterior", "tau": 0.1, "dim": 6, "device": "cpu", "schedule": "constant"}
    Recommender(**options, epochs=2).fit(seen, checkpoint=tmp_path / "run.ckpt")
    whole, gone_on = (
        Recommender(**options, epochs=2).fit(seen, checkpoint=path) for path in (None, tmp_path / "run.ckpt")
    )
    assert all(torch.equal(*two) for two in zip(whole.matrices(), gone_on.matrices(), strict=True))


def test_a_prior_of_0_is_infonce_without_an_extra_training(seen):
    plain, zero = (
        Recommender(**loss, dim=6, epochs=2, device="cpu").fit(seen)
        for loss in ({"loss": "infonce"}, {"loss": "infonce-posterior", "tau": 0.0})
    )
    assert torch.equal(plain.matrices()[0], zero.matrices()[0])
    assert "posterior" not in zero.facts_


# --- model files and searches ----------------------------------------------------------------------------


def test_a_model_file_of_version_0_1_gives_the_same_lists():
    expected = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
    model = Recommender.load(FILES / "exact-posterior.truepair")
    lists = model.recommend(list(expected["recommend"]), k=5).to_pylist()
    assert [row["item"] for row in lists] == [
        item for own in expected["recommend"].values() for item, _ in own
    ]
    scores = [score for own in expected["recommend"].values() for _, score in own]
    assert [row["score"] for row in lists] == pytest.approx(scores, rel=1e-6)
    new = model.fold_in(expected["fold_in"]["history"]).recommend(k=5).to_pylist()
    assert [row["item"] for row in new] == [
        item for own in expected["fold_in"]["recommend"].values() for item, _ in own
    ]


def test_without_the_lab_such_a_file_names_the_remedy(monkeypatch):
    monkeypatch.delitem(LOSSES, "infonce-posterior")
    with pytest.raises(StorageError, match=r"loss = 'infonce-posterior' is not known here.*register it"):
        Recommender.load(FILES / "exact-posterior.truepair")


def test_the_default_space_searches_the_prior_and_the_temperature():
    with pytest.raises(InputError, match="use sampler='full'"):
        default_space("infonce-posterior", sampler="uniform")
    own = {name for name in default_space("infonce-posterior") if name.startswith("loss.")}
    assert own == {"loss.tau", "loss.temperature"}


def test_a_trial_whose_first_model_diverges_fails_alone():
    split, ended = split_for_fitting(two_tastes(), None, 0.2, 0), {}
    fixed = {"encoder": "mf", "sampler": "full", "epochs": 6, "batch_size": 16, "device": "cpu"}
    runner = TrainingRunner(
        {**fixed, "encoder.dim": 4, "learning_rate": 0.05}, split.train, split.valid, "ndcg@5", "full"
    )
    weighted = {"loss": "infonce-posterior", "loss.tau": 0.5}
    diverges = {"learning_rate": 1e30, "optimizer": "sgd", "encoder.scoring": "dot"}
    chosen = [weighted, weighted | diverges, {"loss": "infonce"}, {**weighted, "sampler": "uniform"}]
    runner(
        [
            OpenTrial(n, {**runner.fixed, **each}, lambda outcome, n=n: ended.update({n: outcome}), ())
            for n, each in enumerate(chosen)
        ]
    )
    assert [ended[n].state for n in range(4)] == ["complete", "failed", "complete", "failed"]
    assert ended[0].score != ended[2].score
    model = Recommender.of({**runner.fixed, **weighted}).fit(split)
    assert (ended[0].score, ended[0].epoch) == (model.result_.score, model.result_.epoch)
