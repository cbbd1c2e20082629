"""Rules of the truth lab by hand: keys, seeds, settings, priors, chances."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_truth import QUICK as EFFORT
from test_truth import coat_like, tiny
from test_truth_posterior import POINTS, line_of
from test_truth_posterior import QUICK as WEIGHTED
from test_truth_report import line_of as truth_line
from typer.testing import CliRunner

from posteriors import posterior_of
from truepair.losses import InfoNCE
from truepair.training import EpochState
from truepair_lab import store
from truepair_lab.cli.main import app
from truepair_lab.posterior import InfoNCEPosterior
from truepair_lab.truth import lines, running, weighted_infonce
from truepair_lab.truth.cases import mask_of
from truepair_lab.truth.lines import TruthLine
from truepair_lab.truth.report.page import rebuild
from truepair_lab.truth.running import run_case
from truepair_lab.truth.sources import WORLD_POSITIVE, Asked
from truepair_lab.truth.treatments import EVERY
from truepair_lab.truth.weighted_infonce import KIND, Bench, _chance, _chosen

pytestmark = pytest.mark.long  # the pages of the studies and what made them


@pytest.mark.parametrize(
    "change",
    [{"case": "coat"}, {"exposure": "popularity"}, {"hide": 0.2}, {"treatment": "supervised"}, {"seed": 1}],
)
def test_another_case_has_another_key(change):
    line = line_of("infonce", 0, 0.5)
    assert replace(line, **change).key != line.key
    assert replace(line, score=0.9).key == line.key


@pytest.mark.parametrize("hide", [0.5, 0.2])
def test_the_simulated_world_has_its_share_of_positives(hide):
    case = Asked("simulation", hide=hide).case(0)
    assert case.truth.mean() == pytest.approx(WORLD_POSITIVE, abs=1e-4)
    assert case.observed.mean() == pytest.approx((1 - hide) * WORLD_POSITIVE, abs=1e-4)


def test_each_seed_has_its_own_training_and_the_settings_of_seed_0(tmp_path, monkeypatch):
    monkeypatch.setattr(Asked, "case", lambda self, seed: tiny(seed))
    fit_treatment, search, seeds, searches = running.fit_treatment, running.search, [], []

    def fitted(case, treatment, settings, *rest):
        seeds.append(settings.seed)
        return fit_treatment(case, treatment, settings, *rest)

    def searched(case, *rest):
        searches.append(case.seed)
        return search(case, *rest)

    monkeypatch.setattr(running, "fit_treatment", fitted)
    monkeypatch.setattr(running, "search", searched)
    effort, some = replace(EFFORT, decays=(1e-5, 1e-3)), {"bpr": EVERY["bpr"]}
    for count in (2, 3):
        run_case(Asked("simulation"), count, tmp_path, lambda _: None, effort, some)
    assert seeds == [0, 1, 2]
    assert searches == [0]
    assert len({json.dumps(dict(line.settings)) for line in store.read(tmp_path, TruthLine)[0]}) == 1


def test_the_last_probe_is_at_the_best_epoch():
    case = tiny()
    settings = EFFORT.grid(case)[0]
    watch = running._Watch(case, EVERY["bpr"], settings)
    chance = torch.Generator().manual_seed(0)
    matrices = [torch.randn(n, 4, generator=chance) for n in (case.train.n_users, case.train.n_items)]
    for epoch in (1, 2, 3):
        watch(EpochState(epoch, 0.0, lambda: tuple(matrices)))
    fitted = SimpleNamespace(epoch=2, users=matrices[0], items=matrices[1])
    assert [epoch for epoch, _ in watch.ended(fitted)] == [1, 3, 2]
    assert [epoch for epoch, _ in watch.curve] == [1, 2, 3]


# --- weights by a first model ----------------------------------------------------------------------------


def test_a_job_has_the_seed_and_the_train_part_of_its_case():
    case = tiny(3)
    job = Bench(case, WEIGHTED).job(POINTS[2], InfoNCE(1.0))
    assert (job.settings.seed, job.interactions) == (3, case.train)
    assert (job.encoder.scoring, job.settings.weight_decay) == ("dot", 1e-4)


def first_model(bench):
    """A bench whose first model has vectors by chance: nothing is trained."""
    chance = torch.Generator().manual_seed(0)
    train = bench.case.train
    users, items = (torch.randn(n, 4, generator=chance) for n in (train.n_users, train.n_items))
    bench.firsts[POINTS[0]] = type("Fitted", (), {"users": users, "items": items})
    bench.__dict__["estimated"] = 0.123  # a cached property
    return bench


def test_a_treatment_has_its_own_prior_with_either_kind_of_scores():
    bench = first_model(Bench(tiny(), WEIGHTED))
    for suffix in ("", KIND):
        assert bench.loss(f"posterior{suffix}", POINTS[0]).tau == pytest.approx(bench.case.tau)
        assert bench.loss(f"posterior-auto{suffix}", POINTS[0]).tau == pytest.approx(0.123)


def test_scores_are_calibrated_by_pairs_that_the_first_model_was_not_shown(monkeypatch):
    seen, calibrate = [], weighted_infonce.calibrate

    def noted(users, items, known, train, held_out, seed):
        seen.append((known, train, held_out, seed))
        return calibrate(users, items, known, train, held_out, seed)

    monkeypatch.setattr(weighted_infonce, "calibrate", noted)
    bench = first_model(Bench(tiny(2), WEIGHTED))
    bench.loss("posterior", POINTS[0])
    ((known, train, held_out, seed),) = seen
    assert (train, held_out, seed) == (bench.case.train, bench.case.valid, 2)
    np.testing.assert_array_equal(mask_of(known), bench.case.observed)


def test_the_best_point_is_chosen_and_of_equals_the_first(tmp_path, monkeypatch):
    scores = dict(zip(POINTS, (None, 0.4, 0.4), strict=True))
    monkeypatch.setattr(weighted_infonce, "_score", lambda bench, name, point: scores[point])
    made = []

    def line(bench, name, point, tried):
        made.append((point, [score for *_, score in tried]))
        return replace(line_of(name, 0, 0.5), temperature=point.temperature, weight_decay=point.weight_decay)

    monkeypatch.setattr(weighted_infonce, "_line", line)
    found = _chosen(Bench(tiny(), WEIGHTED), "infonce", {}, tmp_path, lambda _: None)
    assert made == [(POINTS[1], [None, 0.4, 0.4])]
    assert found == POINTS[1]


@pytest.mark.parametrize("case", [tiny(), coat_like()], ids=["all labels", "some labels"])
def test_chances_are_means_over_pairs_that_nothing_was_calibrated_by(case):
    loss = InfoNCEPosterior(tau=0.1, temperature=0.5, posterior=posterior_of(case.train))
    weights = loss.item_weights((case.train.n_users, case.train.n_items), torch.device("cpu"))
    p = 1 - np.exp(weights(torch.arange(case.train.n_users)).double().numpy())
    train, valid = mask_of(case.train), mask_of(case.valid)
    sums = {True: [], False: []}
    for user, item in np.ndindex(case.truth.shape):
        if case.known[user, item] and not train[user, item] and not valid[user, item]:
            sums[bool(case.truth[user, item])].append(p[user, item])
    found = _chance(case, loss)
    assert found == pytest.approx({"positive": np.mean(sums[True]), "negative": np.mean(sums[False])})


# --- the page and the command ----------------------------------------------------------------------------


def test_lines_that_cannot_be_read_are_named_in_both_folders(tmp_path):
    lines.append(tmp_path / "coat.jsonl", truth_line("bpr", 0, 0.5, case="coat", exposure="self"))
    for folder in (tmp_path, tmp_path / lines.POSTERIOR):
        folder.mkdir(exist_ok=True)
        (folder / f"torn-{folder.name[:4]}.jsonl").write_text("{\n")
    text = rebuild(tmp_path, tmp_path / "page" / "truth.md").read_text()
    assert f"torn-{tmp_path.name[:4]}.jsonl, line 1" in text
    assert "torn-post.jsonl, line 1" in text


def test_the_command_keeps_the_lines_of_weights_apart(tmp_path, monkeypatch):
    folders = []

    def noted(asked, seeds, folder, say):
        folders.append((asked.data, seeds, folder))
        return 0

    monkeypatch.setattr(weighted_infonce, "run_posterior", noted)
    monkeypatch.setattr(running, "run_case", noted)
    words = ["truth", "simulation", "--seeds", "2", "--out", str(tmp_path)]
    for more in ([], ["--posterior"]):
        assert CliRunner().invoke(app, [*words, *more]).exit_code == 0
    assert folders == [("simulation", 2, tmp_path), ("simulation", 2, tmp_path / lines.POSTERIOR)]
