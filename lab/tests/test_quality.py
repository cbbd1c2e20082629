"""The quality contest on small worlds: cases, searches, final runs, comparisons, the report, the command."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation import Validation, evaluate
from truepair.losses import InfoNCE
from truepair.models import closed_forms, factor_matrices
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import joined
from truepair.sampling import Full
from truepair.search.domains import domain_of
from truepair.search.spaces import check_values
from truepair.search.trials import OpenTrial as Trying
from truepair.training import EpochState, Job, StopTraining, fit, fit_many
from truepair_lab import searching
from truepair_lab.benchmarks import Options, Skipped, contest
from truepair_lab.cli.main import app
from truepair_lab.lines import Contrast, Lines, RunLine, TrialLine, append_line, digest, read_lines
from truepair_lab.paper.baselines import solved
from truepair_lab.paper.presets import METRICS, SPLIT_SEED
from truepair_lab.paper.running.runs import keep_values, per_user_file
from truepair_lab.quality import blends, cases, contestants, report, running, settled
from truepair_lab.quality.blends import BlendRunner, StopAfter, blend_parameters, trained
from truepair_lab.quality.cases import AIMS, CASES, Case, n_parts
from truepair_lab.quality.comparisons import compare_case, debiasing_pairs, difference_of, sides_of
from truepair_lab.quality.contestants import MODELS, fixed_of, space_of, title
from truepair_lab.quality.part_scores import (
    ContestLines,
    PartLine,
    ResampledValidation,
    choice_of,
    read_contest,
    scored_trials,
)
from truepair_lab.quality.running import quest_of, run_wanted, score_parts, search
from truepair_lab.quality.tables import (
    Contest,
    aims_table,
    chosen_table,
    debiasing_table,
    families_table,
    ranking_table,
    trials_table,
)
from truepair_lab.quality.user_values import keep_values_of, read_values, values_name
from truepair_lab.reporting import drawing
from truepair_lab.truth.sources import Asked
from truepair_lab.truth.true_label_metrics import judged_users, list_quality
from worlds import two_tastes

pytestmark = pytest.mark.long  # the pages of the studies and what made them

EASE, IALS, INFONCE, DPL = ("-", "ease"), ("-", "ials-scaled"), ("mf", "exact-infonce"), ("mf", "exact-dpl")
POWERS, POSTERIOR, SUM = ("-", "ease-powers"), ("mf", "exact-infonce-posterior"), ("mf+ease", "exact-infonce")
QUICK: dict[str, Any] = fixed_of("mf", "exact-infonce", False) | {
    "epochs": 6, "encoder.dim": 4, "batch_size": 16, "learning_rate": 0.05, "loss.temperature": 0.2,
    "weight_decay": 0.0,
}  # fmt: skip


def small_case() -> Case:
    pairs = two_tastes(n_users=60, n_items=30, each=8)
    return Case("ml-100k", split_random(pairs, 0.2, valid=0.2, seed=1))


@pytest.fixture(scope="module")
def case() -> Case:
    return small_case()


@pytest.fixture(scope="module")
def lab_case() -> Case:
    lab = Asked("simulation").case(0)
    return Case("kuairec", Split(lab.train, lab.valid, lab.pairs(lab.truth & lab.judged), "lab"), lab)


# --- cases ---------------------------------------------------------------------------------------------


def test_the_final_runs_learn_from_train_and_validation(case: Case) -> None:
    assert len(case.train) == len(case.holdout.train) + len(case.valid)
    assert case.whole.test is case.holdout.test
    assert case.whole.hash == split_random(two_tastes(60, 30, 8), 0.2, seed=1).hash


def test_a_split_is_judged_on_the_whole_catalogue(case: Case) -> None:
    users, items = torch.eye(60, 4), torch.ones(30, 4)
    found, plain = case.judged(users, items), evaluate((users, items), case.whole.test, exclude=case.train)
    assert found.metrics == {name: round(plain.mean(name), 6) for name in METRICS}
    np.testing.assert_array_equal(found.per_user, plain.values("ndcg@20"))


def test_a_lab_s_case_is_judged_as_the_lab_judges(lab_case: Case) -> None:
    assert lab_case.lab is not None
    made = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 4, generator=made) for n in lab_case.lab.truth.shape)
    found, peer_value = lab_case.judged(users, items), list_quality(lab_case.lab, users, items)
    assert {name: found.metrics[name] for name in peer_value} == pytest.approx(peer_value, abs=1e-6)
    assert len(found.per_user) == len(judged_users(lab_case.lab))
    assert found.per_user.mean() == pytest.approx(peer_value["ndcg@20"], abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_every_case_can_be_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = split_random(two_tastes(60, 30, 8), 0.2, seed=1)
    lab = Asked("simulation").case(0)
    monkeypatch.setattr(cases, "load_material", lambda name, data_dir: small_case())
    timed = Split(in_order(whole.train), None, whole.test, whole.recipe)
    monkeypatch.setattr(cases, "load_split", lambda name, data_dir: timed)
    monkeypatch.setattr(Asked, "case", lambda asked, seed: lab)
    found = cases.load_case(name)
    assert (found.name, found.lab is lab) == (name, name in ("kuairec", "coat"))
    assert len(found.valid) > 0
    if name.endswith(("-standard", "-tail")):
        assert found.whole.hash == whole.hash
    if name.endswith("-standard"):
        assert len(found.valid) == round(0.1 * len(whole.train))


def in_order(pairs: Interactions) -> Interactions:
    """The pairs with positions, drawn at random."""
    time = np.random.default_rng(3).permutation(len(pairs))
    return replace(pairs, time=time, time_kind="order")


def test_a_tail_case_holds_out_the_end_of_each_history(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = split_random(two_tastes(60, 60, 25), 0.2, seed=1)
    pairs = in_order(whole.train)
    timed = Split(pairs, None, whole.test, whole.recipe)
    monkeypatch.setattr(cases, "load_split", lambda name, data_dir: timed)
    case = cases.load_case("gowalla-tail")
    assert pairs.time is not None
    for user in range(60):
        own = slice(pairs.indptr[user], pairs.indptr[user + 1])
        latest = pairs.items[own][np.argsort(-pairs.time[own])][
            : math.floor(0.1 * len(pairs.items[own]) + 0.5)
        ]
        held_out = case.valid.items[case.valid.users == user]
        assert set(held_out) == set(latest)
    assert case.part(3) is case.holdout  # its further parts are draws of users
    assert [cases.is_resampled(f"gowalla-{kind}") for kind in ("tail", "standard")] == [True, False]


def test_an_unknown_case_is_told() -> None:
    with pytest.raises(InputError, match="case = 'ml-10m' is not known"):
        cases.load_case("ml-10m")


# --- contestants ---------------------------------------------------------------------------------------


TRAINED = [m for m in MODELS if m[0] in ("mf", "lightgcn")]


@pytest.mark.parametrize("model", TRAINED, ids=" ".join)
def test_every_space_of_a_small_case_can_be_searched(model: tuple[str, str]) -> None:
    space, fixed = space_of(*model, False), fixed_of(*model, False)
    assert contestants.twin_of(model, large=False) is None
    check_values(space, fixed)
    assert not set(space) & set(fixed)
    assert sum(name.endswith(".temperature") for name in space) == 1
    assert ("encoder.hops" in space) == (model[0] == "lightgcn")


def large_settings(model: tuple[str, str]) -> dict[str, Any]:
    """What a large case has for a contestant and its twins, each in the middle of its space."""
    twin = contestants.twin_of(model, large=True)
    taken = {} if twin is None else large_settings(twin)
    fixed = fixed_of(*model, True) if twin is None else contestants.taken_over(model, taken)
    space = space_of(*model, True, taken.get("encoder.temperature", 0.1))
    return fixed | {name: domain_of(domain).middle() for name, domain in space.items()}


LARGE_METHODS = {"exact-infonce", "exact-psl", "exact-bsl", *contestants.DEBIASED, contestants.CONTROL}


@pytest.mark.parametrize("model", [m for m in TRAINED if m[1] in LARGE_METHODS], ids=" ".join)
def test_every_space_of_a_large_case_can_be_searched(model: tuple[str, str]) -> None:
    twin = contestants.twin_of(model, large=True)
    assert (twin is None) == (model == INFONCE)
    taken = {} if twin is None else large_settings(twin)
    fixed = fixed_of(*model, True) if twin is None else contestants.taken_over(model, taken)
    space = space_of(*model, True, taken.get("encoder.temperature", 0.1))
    check_values(space, {name: value for name, value in fixed.items() if name not in space})
    whole = large_settings(model)
    scale = whole["encoder.temperature"] * whole.get("loss.temperature", 1.0)
    assert 0.04 < scale < 0.2  # what divides cosines
    assert whole["encoder"] == model[0]
    assert whole["loss"] == model[1].removeprefix("exact-").removesuffix("-tau0")
    assert ("loss.margin" in whole) == ("dpl" in model[1])
    assert ("encoder.hops" in space) == (model == ("lightgcn", "exact-infonce"))


def test_a_twin_keeps_how_much_popularity_counts_against_cosines() -> None:
    found = {m: large_settings(("mf", m)) for m in ("exact-infonce", "exact-psl", "exact-bsl")}
    relative = {m: p["encoder.popularity"] * p["encoder.temperature"] for m, p in found.items()}
    assert len({round(value, 9) for value in relative.values()}) == 1
    assert found["exact-psl"]["encoder.temperature"] == 1.0  # PSL is a function of cosines


def test_the_control_differs_by_the_correction_alone() -> None:
    hard, control = large_settings(("mf", contestants.HARD)), large_settings(("mf", contestants.CONTROL))
    assert (control["loss.tau"], hard["loss.tau"] > 0) == (0.0, True)
    assert {**control, "loss.tau": hard["loss.tau"]} == hard
    assert contestants.trials_of(("mf", contestants.CONTROL), {}, large=True) == 1


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("model", [m for m in MODELS if m[0].endswith("+ease")], ids=" ".join)
def test_every_weight_of_a_sum_can_be_searched(model: tuple[str, str], large: bool) -> None:
    parts = contestants.parts_of(model)
    assert parts == ((model[0].removesuffix("+ease"), model[1]), ("-", "ease-powers"))
    middles = [
        {name: domain_of(domain).middle() for name, domain in space_of(*part, large).items()}
        for part in parts
    ]
    run, ease = (
        {"parameters": {**fixed_of(*part, large), **middle}, "epoch": 4}
        for part, middle in zip(parts, middles, strict=True)
    )
    space = space_of(*model, large)
    assert list(space) == ["plus_weight"]
    check_values(space, blend_parameters(run, ease))


def test_contestants_that_need_nobody_have_no_parts_and_no_twin() -> None:
    sums = {model for model in MODELS if contestants.parts_of(model)}
    losses = ("infonce", "psl", "bsl", "dpl", "dpl-hard", "infonce-posterior")
    blended = {(f"{encoder}+ease", f"exact-{loss}") for encoder in ("mf", "lightgcn") for loss in losses}
    assert sums == {*blended, ("mf+ease", contestants.POPULARITY)}
    assert not [model for model in MODELS if contestants.twin_of(model, large=False)]
    twins = {model: contestants.twin_of(model, large=True) for model in MODELS}
    assert {model: twin for model, twin in twins.items() if twin} == {
        **{("mf", f"exact-{loss}"): INFONCE for loss in losses[1:]},
        **{("lightgcn", f"exact-{loss}"): ("mf", f"exact-{loss}") for loss in losses},
        ("mf", contestants.CONTROL): ("mf", contestants.HARD),
    }


def test_the_effort_is_equal() -> None:
    for encoder, method in MODELS:
        space = space_of(encoder, method, False)
        trials = contestants.trials_of((encoder, method), space, large=False)
        alone = len(space) == 1  # EASE, and the weights of sums
        assert alone == (method == "ease" or encoder.endswith("+ease")), method
        several = 12 if alone else 15 if encoder == "lightgcn" else 30
        assert trials == (several if space else 1), method  # popularity has nothing to search
    assert [len(contestants.seeds_of(m, None)) for m in ("ease", "ials", "exact-bpr")] == [1, 5, 5]


def test_titles_are_words() -> None:
    assert title(("lightgcn", "exact-psl")) == "LightGCN full-catalogue PSL"
    assert title(("mf", "exact-dpl-hard")) == "MF full-catalogue DPL, hard weights"
    assert len({title(model) for model in MODELS}) == len(MODELS)


# --- searching -----------------------------------------------------------------------------------------


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(contestants, "TRIALS", dict.fromkeys(contestants.TRIALS, 2))
    monkeypatch.setattr(contestants, "TRIALS_LARGE", dict.fromkeys(contestants.TRIALS_LARGE, 2))
    monkeypatch.setattr(contestants, "_WEIGHTS_LARGE", 2)
    monkeypatch.setattr(contestants, "_HOPS_LARGE", 2)
    monkeypatch.setattr(contestants, "EPOCHS", {"small": 5, "large": 5})
    monkeypatch.setattr(contestants, "SWEEPS", {"small": 4, "large": 4})
    monkeypatch.setattr(contestants, "_EVERY", 2)
    monkeypatch.setattr(settled, "packaged_settings", dict)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("model", [INFONCE, ("mf", "exact-dpl-hard"), EASE, ("-", "popularity")])
def test_a_search_leaves_its_trials_and_goes_on(case: Case, model: tuple[str, str], tmp_path: Path) -> None:
    best = search(case, model, tmp_path)
    found = read_lines(tmp_path)
    assert all(line.split == case.holdout.hash for line in found.trials)
    assert search(case, model, tmp_path) == best
    assert read_lines(tmp_path) == found
    parameters = settled.final_parameters(settled.settings_of(found)["ml-100k", *model])
    if model[0] == "-":
        assert settled.STOP not in parameters
    else:
        assert best.engine == "full"
        assert (parameters["epochs"], parameters[settled.STOP]) == (5, best.epoch)


@pytest.mark.usefixtures("hurried")
def test_a_search_reads_its_lines_as_often_however_many_trials_it_has(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Path] = []

    def counted(folder: Path) -> Lines:
        reads.append(folder)
        return read_lines(folder)

    monkeypatch.setattr(searching, "read_lines", counted)
    numbers = []
    for trials in (2, 6):
        reads.clear()
        replace(quest_of(case, EASE), trials=trials, extensions=0).run(tmp_path / str(trials))
        numbers.append(len(reads))
        assert len(read_lines(tmp_path / str(trials)).trials) == trials
    assert numbers[0] == numbers[1]


def test_the_test_part_is_not_in_a_search(case: Case) -> None:
    identity = quest_of(case, INFONCE).runner.identity
    assert case.whole.test.hash not in identity
    assert case.valid.hash in identity


def large_infonce(name: str = "gowalla-tail") -> dict[Any, dict[str, Any]]:
    """InfoNCE's settings as a search of a large case finds them, small."""
    small = {"encoder.dim": 4, "batch_size": 16, "epochs": 6, "encoder.popularity": 0.2}
    found = large_settings(INFONCE) | small
    return {(name, *INFONCE): {"parameters": found, "epoch": 4, "validation": 0.3}}


def test_a_large_case_s_posterior_takes_over_infonce_s_settings(case: Case) -> None:
    large = replace(case, name="gowalla-tail")
    with pytest.raises(InputError, match="gowalla-tail mf exact-infonce has no settings yet"):
        quest_of(large, POSTERIOR, {})
    settings = large_infonce()
    quest = quest_of(large, POSTERIOR, settings)
    assert (list(quest.space), quest.trials) == (["loss.tau"], 2)
    parameters = settings["gowalla-tail", *INFONCE]["parameters"]
    taken = {name: quest.runner.fixed[name] for name in parameters}
    assert taken == {**parameters, "loss": "infonce-posterior"}
    trial = quest.one_trial(0, {"loss.tau": 0.05})
    assert (trial.state, trial.engine, trial.parameters["loss.tau"]) == ("complete", "full", 0.05)
    # a small case searches all by itself
    assert len(quest_of(case, POSTERIOR, {}).space) > 4


def test_what_is_given_is_fixed_and_not_searched(case: Case) -> None:
    given = {"encoder.dim": 4, "epochs": 2}
    quest = quest_of(case, INFONCE, given=given)
    assert set(space_of(*INFONCE, False)) - set(quest.space) == {"encoder.dim"}
    assert given.items() <= quest.runner.fixed.items()
    whole = quest_of(case, EASE, given=given)  # it is not trained
    assert set(whole.space) == set(space_of(*EASE, False))
    assert not set(given) & set(whole.runner.fixed)
    twin = quest_of(replace(case, name="gowalla-tail"), POSTERIOR, large_infonce(), {"encoder.dim": 2})
    assert (twin.runner.fixed["encoder.dim"], twin.trials) == (2, 2)


def both_parts() -> dict[Any, dict[str, Any]]:
    powers = {"encoder": "ease", "encoder.l2": 20.0, "encoder.user_power": 0.2, "encoder.item_power": 0.1}
    return {
        ("ml-100k", *INFONCE): {"parameters": QUICK, "epoch": 4, "validation": 0.3},
        ("ml-100k", *POWERS): {"parameters": powers, "epoch": None, "validation": 0.2},
    }


def summed_scores(train: Any, weight: float, seed: int = 0) -> torch.Tensor:
    """Of both parts, each by itself: a run of four epochs, and EASE."""
    vectors, of_items, result = trained({**QUICK, settled.STOP: 4}, train, seed)
    assert result.epoch == 4
    users, items = closed_forms.EASE(20.0, 0.2, 0.1).solve(train)
    assert isinstance(items, torch.Tensor)
    by_ease = torch.from_numpy(users @ items.numpy().T)
    return torch.addmm(by_ease, vectors.cpu(), of_items.cpu().T, beta=weight)


def test_a_sum_s_trials_are_judged_as_the_sum_of_both_parts(case: Case) -> None:
    with pytest.raises(
        InputError, match=r"ml-100k - ease-powers has no settings yet; `truepair-lab quality tune`"
    ):
        quest_of(case, SUM, {place: best for place, best in both_parts().items() if place[1] == "mf"})
    quest = quest_of(case, SUM, both_parts(), {"encoder.dim": 3})  # given to its parts, when they were tuned
    assert isinstance(quest.runner, BlendRunner)
    assert case.valid.hash in quest.runner.identity
    for weight in (0.1, 3.0):
        trial = quest.one_trial(0, {"plus_weight": weight})
        assert (trial.state, trial.epoch, trial.engine) == ("complete", 4, "full")
        scores = summed_scores(case.holdout.train, weight)
        by_hand = evaluate((scores, torch.eye(30)), case.valid, exclude=case.holdout.train)
        assert trial.score == pytest.approx(by_hand.mean("ndcg@20"), abs=1e-5)
        assert trial.parameters == {
            **QUICK, "plus": "ease", "plus.l2": 20.0, "plus.user_power": 0.2, "plus.item_power": 0.1,
            "plus_weight": weight,
        }  # fmt: skip


def test_both_parts_of_a_sum_are_made_once_and_a_bad_weight_fails_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, made = quest_of(case, SUM, both_parts()).runner, []

    def once(jobs: Any, stops: Any) -> Any:
        made.extend(jobs)
        return fit_many(jobs, stops)

    monkeypatch.setattr(blends, "fit_many", once)
    ended: list[Any] = []
    asked = [
        Trying(number, {**runner.fixed, "plus_weight": weight}, ended.append)
        for number, weight in enumerate((0.1, 0.2, 0.4))
    ]
    runner(asked[:2])
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 0)
    runner(asked[2:])
    assert len(made) == 1
    assert [outcome.state for outcome in ended] == ["complete", "complete", "failed"]


@pytest.mark.usefixtures("hurried")
def test_a_sum_is_searched_and_run(case: Case, tmp_path: Path) -> None:
    for (_, *model), part in both_parts().items():
        line = trial((model[0], model[1]), part["parameters"], part["validation"], part["epoch"])
        append_line(tmp_path / "trials.jsonl", line)
    best = search(case, SUM, tmp_path)
    lines = [line for line in read_lines(tmp_path).trials if line.encoder == "mf+ease"]
    assert len(lines) >= 2
    assert {line.parameters["plus.l2"] for line in lines} == {20.0}
    assert search(case, SUM, tmp_path) == best
    assert run_wanted(case, wanted_of(tmp_path, 1, SUM), tmp_path, print) == 1
    (run,) = read_lines(tmp_path).runs
    assert (run.encoder, run.epoch, run.engine) == ("mf+ease", 4, "full")
    scores = summed_scores(case.train, run.parameters["plus_weight"])
    found = case.judged(scores, torch.eye(30))
    assert run.metrics == pytest.approx(found.metrics, abs=1e-5)
    assert title(SUM) == "MF full-catalogue InfoNCE + EASE"


def test_further_parts_of_a_tail_case_are_draws_of_its_users(case: Case) -> None:
    judge = ResampledValidation(case.valid, case.holdout.train, "ndcg@20", "model", 4)
    plain = Validation(case.valid, case.holdout.train, "ndcg@20", "model")
    made = torch.Generator().manual_seed(0)
    users, items = torch.randn(60, 4, generator=made), torch.randn(30, 4, generator=made)
    score, values = judge.score(users, items), plain.values(users, items)
    assert score == pytest.approx(plain.score(users, items))
    assert score == pytest.approx(values.mean())
    drawn = judge.drawn[score]
    assert len(set(drawn)) == 3
    by_hand = [
        values[np.random.default_rng([SPLIT_SEED, part]).integers(len(values), size=len(values))].mean()
        for part in (1, 2, 3)
    ]
    assert drawn == pytest.approx(by_hand, abs=1e-6)
    judge.score(users, -items)
    assert judge.drawn[score] == drawn  # of every model that was scored


@pytest.mark.usefixtures("hurried")
def test_a_search_of_a_tail_case_keeps_the_scores_of_all_parts(case: Case, tmp_path: Path) -> None:
    large = replace(case, name="gowalla-tail")
    search(large, EASE, tmp_path)
    found = read_contest(tmp_path)
    assert len(found.parts) == len(found.trials) * (n_parts("gowalla-tail") - 1) > 0
    choice = choice_of(scored_trials(found)["gowalla-tail", *EASE])
    assert choice is not None
    assert choice.by_mean.mean == max(line.score or 0.0 for line in found.trials)  # the first part chooses
    score_parts(large, [EASE], tmp_path, print)
    assert read_contest(tmp_path) == found  # nothing is left to score


# --- final runs ----------------------------------------------------------------------------------------


def trial(model: tuple[str, str], parameters: dict[str, Any], score: float, epoch: int | None) -> TrialLine:
    return TrialLine(
        "ml-100k", *model, 0, "complete", parameters, score, epoch, [], "holdout", "full", "CPU", 1.0
    )


def wanted_of(out: Path, seeds: int, *models: tuple[str, str]) -> list[Any]:
    return settled.wanted_runs("ml-100k", models, settled.settings_of(read_lines(out)), seeds)


def test_a_run_stops_at_the_chosen_epoch_of_the_whole_schedule(case: Case, tmp_path: Path) -> None:
    append_line(tmp_path / "trials.jsonl", trial(INFONCE, QUICK, 0.3, 4))
    assert run_wanted(case, wanted_of(tmp_path, 1, INFONCE), tmp_path, print) == 1
    (line,) = read_lines(tmp_path).runs
    assert (line.study, line.epoch, line.engine, line.split) == ("quality", 4, "full", case.whole.hash)
    rates: list[float] = []
    # by hand: the same schedule, stopped after four of its six epochs
    job = Recommender.of(QUICK).job(case.train)
    encoder, loss, sampler, settings = job.encoder, job.loss, job.sampler, job.settings
    assert (loss, sampler) == (InfoNCE(0.2), Full())

    def stop(state: EpochState) -> None:
        if state.epoch == 4:
            raise StopTraining

    result = fit(Job(encoder, loss, sampler, case.train, replace(settings, validate_every=2)), stop)
    rates = [record.learning_rate for record in result.history]
    assert rates == [0.05 * (1 + math.cos(math.pi * epoch / 6)) / 2 for epoch in range(4)]
    assert case.judged(result.users, result.items).metrics == line.metrics
    kept = np.load(per_user_file(tmp_path, line))
    assert float(kept.mean()) == pytest.approx(line.metrics["ndcg@20"], abs=1e-6)


def test_stopping_looks_at_nothing() -> None:
    def look() -> Any:
        pytest.fail("it looked")

    stop = StopAfter(3)
    assert stop(EpochState(2, 0.5, look)) is None  # type: ignore[func-returns-value]
    with pytest.raises(StopTraining) as stopped:
        stop(EpochState(3, 0.5, look))
    assert stopped.value.score is None


def test_what_is_done_is_not_run_again_and_divergence_is_told(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    append_line(tmp_path / "trials.jsonl", trial(INFONCE, QUICK, 0.3, 2))
    wanted = wanted_of(tmp_path, 2, INFONCE)
    wild = replace(wanted[0], parameters=dict(wanted[0].parameters) | {"learning_rate": 1e38})
    assert run_wanted(case, [wild, *wanted[:1]], tmp_path, told.append) == 1
    assert "Lower learning_rate" in told[0]
    assert run_wanted(case, wanted, tmp_path, told.append) == 1
    monkeypatch.setattr(running, "trained_together", lambda *given: pytest.fail("ran again"))
    assert run_wanted(case, wanted, tmp_path, told.append) == 0


def test_contestants_are_compared_over_the_same_users(lab_case: Case, tmp_path: Path) -> None:
    ease = {"encoder": "ease", "encoder.l2": 100.0}
    for model, parameters in ((INFONCE, QUICK), (EASE, ease)):
        line = replace(trial(model, parameters, 0.3, 2), dataset="kuairec")
        append_line(tmp_path / "trials.jsonl", line)
    settings = settled.settings_of(read_lines(tmp_path))
    assert run_wanted(lab_case, settled.wanted_runs("kuairec", [EASE], settings, 2), tmp_path, print) == 1
    assert run_wanted(lab_case, settled.wanted_runs("kuairec", [INFONCE], settings, 1), tmp_path, print) == 1
    for _ in range(2):  # anew, not twice
        assert compare_case("kuairec", tmp_path, print) == 2
    found, families = read_lines(tmp_path).contrasts
    assert (families.a, families.b) == ("family full-catalogue", "family EASE")
    assert families.difference == found.difference
    assert (found.a, found.b) == ("mf exact-infonce", "ease")
    means = {line.method: line.metrics["ndcg@20"] for line in read_lines(tmp_path).runs}
    assert found.difference == pytest.approx(means["exact-infonce"] - means["ease"], abs=2e-6)
    contest_of = Contest(read_lines(tmp_path))
    assert contest_of.gap("kuairec", "mf exact-infonce", "ease") is not None
    assert contest_of.gap("kuairec", "mf exact-infonce", "ials-scaled") is None


# --- validation parts ----------------------------------------------------------------------------------


def test_other_validation_parts_are_made_like_the_first(case: Case) -> None:
    assert case.part(0) is case.holdout
    parts = [case.part(number) for number in range(1, 4)]
    for part in parts:
        assert part.valid is not None
        assert (len(part.valid), len(part.train)) == (len(case.valid), len(case.holdout.train))
        assert joined([part.train, part.valid]).hash == case.train.hash
    assert len({part.valid.hash for part in parts if part.valid} | {case.valid.hash}) == 4


def scored_lines(case: str = "ml-100k") -> ContestLines:
    """InfoNCE has two settings: the first part prefers x = 1, the mean over five x = 2; EASE has one."""
    first, second = (QUICK | {"x": x} for x in (1, 2))
    trials = [trial(INFONCE, first, 0.30, 4), replace(trial(INFONCE, second, 0.29, 4), number=1)]
    trials.append(trial(EASE, {"encoder": "ease", "encoder.l2": 9.0}, 0.2, 1))
    scores = {0: (0.27, 0.28, 0.27, 0.31), 1: (0.31, 0.31, 0.30, 0.30), 2: (0.21, 0.22, 0.23, 0.24)}
    parts = [
        PartLine(
            case, each.encoder, each.method, digest(each.parameters), each.epoch, part, "s", score, "CPU", 1
        )
        for at, each in enumerate(trials)
        for part, score in enumerate(scores[at], 1)
    ]
    return ContestLines(trials=trials, parts=parts)


@pytest.mark.usefixtures("nothing_packaged")
def test_settings_are_chosen_by_the_mean_over_the_parts() -> None:
    lines = scored_lines()
    choice = choice_of(scored_trials(lines)["ml-100k", *INFONCE])
    assert choice is not None
    assert choice.by_mean.trial.parameters["x"] == 2
    assert [each.trial.parameters["x"] for each in choice.by_part] == [1, 2, 2, 2, 1]
    found = settled.settings_of(lines)["ml-100k", *INFONCE]
    assert (found["parameters"]["x"], found["validation"], found["parts"]) == (2, 0.29, 0.302)
    # a part is missing: the first part alone chooses
    less = replace(lines, parts=lines.parts[1:])
    (only,) = scored_trials(less)["ml-100k", *INFONCE]
    assert only.trial.parameters["x"] == 2
    assert settled.settings_of(Lines(trials=lines.trials))["ml-100k", *INFONCE]["parameters"]["x"] == 1
    others = settled.other_runs("ml-100k", [INFONCE, EASE], lines, None)
    assert sorted({each.parameters.get("x", 0) for each in others}) == [0, 1, 2]
    assert len([each for each in others if each.parameters.get("x") == 1]) == contestants.OTHER_SEEDS


@pytest.mark.usefixtures("nothing_packaged")
def test_a_large_case_settles_what_was_not_searched() -> None:
    best = large_infonce()["gowalla-tail", *INFONCE]
    ease = {"encoder": "ease", "encoder.l2": 9.0, "encoder.user_power": 0.2, "encoder.item_power": 0.1}
    infonce = replace(trial(INFONCE, best["parameters"], 0.3, 4), dataset="gowalla-tail")
    powers = replace(trial(POWERS, ease, 0.2, 1), dataset="gowalla-tail")
    assert set(settled.settings_of(Lines(trials=[powers]))) == {("gowalla-tail", *POWERS)}
    found = settled.settings_of(Lines(trials=[infonce, powers]))
    added = {place[1:] for place in found} - {INFONCE, POWERS}
    of_graphs = {model for model in contestants.UNSEARCHED if model[0].startswith("lightgcn")}
    assert added == set(contestants.UNSEARCHED) - of_graphs
    assert {found["gowalla-tail", *m]["validation"] for m in added} == {None}
    assert {found["gowalla-tail", *m]["epoch"] for m in added} == {4}
    for model in added:
        Recommender.of(found["gowalla-tail", *model]["parameters"])
    blend = found["gowalla-tail", *SUM]["parameters"]
    assert {name: blend[name] for name in best["parameters"]} == best["parameters"]
    assert (blend["plus.l2"], blend["plus_weight"]) == (9.0, pytest.approx(math.sqrt(0.02 * 4.0) / 0.1))
    # a search of its own replaces it; the former protocol and small cases have nothing of the kind
    searched = replace(infonce, method="exact-psl", score=0.1)
    own = settled.settings_of(Lines(trials=[infonce, powers, searched]))
    assert own["gowalla-tail", "mf", "exact-psl"]["validation"] == 0.1
    # LightGCN has the settings of MF with the same loss, the hops and the epoch of its own InfoNCE
    hops = best["parameters"] | {"encoder": "lightgcn", "encoder.hops": 2}
    graph = replace(infonce, encoder="lightgcn", parameters=hops, epoch=3)
    more = settled.settings_of(Lines(trials=[infonce, powers, searched, graph]))
    assert {place[1:] for place in more} >= of_graphs
    psl = more["gowalla-tail", "lightgcn", "exact-psl"]
    assert (psl["epoch"], psl["validation"], psl["parameters"]["encoder.hops"]) == (3, None, 2)
    assert psl["parameters"]["loss"] == searched.parameters["loss"]
    assert more["gowalla-tail", "lightgcn+ease", "exact-psl"]["parameters"]["plus.l2"] == 9.0
    for case in ("gowalla-standard", "ml-100k"):
        alone = settled.settings_of(Lines(trials=[replace(infonce, dataset=case)]))
        assert set(alone) == {(case, *INFONCE)}


def judged_lines() -> ContestLines:
    """On the test part x = 1 has .40, x = 2 .44, EASE .41; a spread over seeds of .001."""
    lines, runs = scored_lines(), []
    levels = {1: 0.40, 2: 0.44, None: 0.41}
    for each in lines.trials:
        final = settled.final_parameters({"parameters": each.parameters, "epoch": 4})
        for seed in contestants.seeds_of(each.method, 3):
            metrics = dict.fromkeys(METRICS, levels[each.parameters.get("x")] + (seed - 1) / 1000)
            facts = {"parameters": final, "metrics": metrics, "split": "s", "engine": "full", "device": "CPU"}
            more: dict[str, Any] = {"versions": {}, "epoch": 4, "curve": [], "last": {}, "clamped": None}
            runs.append(
                RunLine("quality", "ml-100k", *each_model(each), "", seed, **facts, **more, seconds=1.0)
            )
    return replace(lines, runs=[r for r in runs if r.method != "ease" or r.seed == 0])


def each_model(line: TrialLine) -> tuple[str, str]:
    return line.encoder, line.method


@pytest.mark.usefixtures("nothing_packaged")
def test_the_spread_of_the_choice_is_in_the_interval() -> None:
    sides = sides_of(judged_lines(), "ml-100k")
    full, ease = sides["family full-catalogue"], sides["family EASE"]
    assert full.by_part == pytest.approx((0.40, 0.44, 0.44, 0.44, 0.40))
    assert full.spread == pytest.approx(statistics.stdev([0.40, 0.44, 0.44, 0.44, 0.40]))
    assert ease.spread == 0
    rng = np.random.default_rng(0)
    values = {values_name(side.runs[0]): rng.random(500) for side in (full, ease)}
    found = difference_of(full, ease, values)
    assert found is not None
    apart = values[values_name(full.runs[0])] - values[values_name(ease.runs[0])]
    of_users = apart.std(ddof=1) / math.sqrt(500)
    assert found[0].value == pytest.approx(apart.mean())
    assert found[0].error == pytest.approx(math.hypot(of_users, full.spread))
    assert found[0].freedom < 20  # five parts know the spread of the choice roughly
    alone = difference_of(replace(full, by_part=()), replace(ease, by_part=()), values)
    assert alone is not None
    assert (alone[0].error, alone[0].freedom) == (pytest.approx(of_users), pytest.approx(499))
    assert difference_of(full, ease, {}) is None


def test_values_of_users_are_kept_as_means_over_seeds(tmp_path: Path) -> None:
    runs = [run for run in judged_lines().runs if run.parameters.get("x") == 2]
    rng = np.random.default_rng(1)
    given = [rng.random(50).astype(np.float32) for _ in runs]
    for run, values in zip(runs, given, strict=True):
        keep_values(per_user_file(tmp_path, run), values)
    keep_values_of(tmp_path, "ml-100k", [runs])
    for run in runs:
        per_user_file(tmp_path, run).unlink()
    keep_values_of(tmp_path, "ml-100k", [runs])  # from the file, now
    found = read_values(tmp_path, "ml-100k")
    assert list(found) == [values_name(runs[0])]
    np.testing.assert_allclose(found[values_name(runs[0])], np.mean(given, axis=0), atol=1 / 65535)


@pytest.mark.usefixtures("hurried")
def test_settings_are_scored_on_every_part_once(case: Case, tmp_path: Path) -> None:
    for model in (INFONCE, IALS):
        search(case, model, tmp_path)
    score_parts(case, [INFONCE, IALS], tmp_path, print, [2])
    assert {line.part for line in read_contest(tmp_path).parts} == {2}
    score_parts(case, [INFONCE, IALS], tmp_path, print)
    found = read_contest(tmp_path)
    scored = scored_trials(found)
    assert {place[1:] for place in scored} == {INFONCE, IALS}
    assert {line.part for line in found.parts} == set(range(1, n_parts("ml-100k")))
    line = next(line for line in found.parts if line.method == "exact-infonce")
    part = case.part(line.part)
    best = next(t for t in found.trials if digest(t.parameters) == line.trial)
    users, items, _ = trained(settled.final_parameters(asdict(best)), part.train, 0)
    assert part.valid is not None
    by_hand = evaluate((users, items), part.valid, exclude=part.train).mean("ndcg@20")
    assert line.score == pytest.approx(by_hand, abs=1e-6)
    score_parts(case, [INFONCE, IALS], tmp_path, print)
    assert read_contest(tmp_path) == found


def test_the_best_settings_of_a_search_are_scored_again() -> None:
    scores = [0.1, 0.3, None, 0.2, 0.3, 0.25]
    trials = [replace(trial(INFONCE, QUICK, 0.0, 4), number=n, score=s) for n, s in enumerate(scores)]
    trials.append(replace(trials[1], number=6, method="exact-dpl", score=0.9))
    found = running._best_trials(trials, "ml-100k", INFONCE)
    assert [line.number for line in found] == [1, 4]


@pytest.mark.usefixtures("hurried")
def test_a_trial_of_ials_is_its_best_sweep(case: Case, tmp_path: Path) -> None:
    best = search(case, IALS, tmp_path)
    assert best.score == pytest.approx(max(score for _, score in best.curve), abs=1e-5)
    assert [sweep for sweep, _ in best.curve] == [2, 4]
    final = settled.final_parameters(asdict(best))
    assert final[settled.STOP] == best.epoch
    point = solved("ials-scaled", final, case.holdout.train)
    scored = evaluate((point.users, point.items), case.valid, exclude=case.holdout.train).mean("ndcg@20")
    assert scored == pytest.approx(best.score, abs=1e-5)


def test_families_have_equally_many_trials() -> None:
    counts = {INFONCE: 40, SUM: 12, EASE: 12, ("-", "ease-powers"): 5}
    assert contestants.equal_trials(IALS, 30, counts) == 40  # weights of sums train nothing
    assert contestants.equal_trials(POWERS, 20, counts) == 28
    assert contestants.equal_trials(POWERS, 30, {}) == 30
    assert contestants.equal_trials(INFONCE, 30, counts) == 30
    assert contestants.equal_trials(EASE, 12, counts) == 12


@pytest.mark.usefixtures("hurried")
def test_a_reference_point_is_searched_as_often_as_its_rival_family(case: Case, tmp_path: Path) -> None:
    for number in range(3):
        line = replace(trial(INFONCE, QUICK, 0.3, 4), number=number)
        append_line(tmp_path / "trials.jsonl", line)
    search(case, IALS, tmp_path)
    assert trials_table(Contest(read_contest(tmp_path))).endswith("| MovieLens-100k | 3 | 0 | 3 | 0 | 0 |")


# --- the report ----------------------------------------------------------------------------------------

LEVELS = {INFONCE: 0.46, DPL: 0.465, EASE: 0.45, IALS: 0.44}


def made_up(case: str = "ml-100k") -> Lines:
    """DPL is best on the test part, InfoNCE on validation: InfoNCE is chosen."""
    trials, runs = [], []
    for model, level in LEVELS.items():
        trained = QUICK | {"x": level, "encoder.popularity": 0.0}
        parameters = {"encoder": "ease", "x": level} if model[0] == "-" else trained
        score = {INFONCE: 0.24, DPL: 0.235}.get(model, 0.23)
        line = replace(trial(model, parameters, score, 4), dataset=case)
        trials += [line, replace(line, number=1, score=0.1, parameters=parameters | {"x": 0.0})]
        final = settled.final_parameters({"parameters": parameters, "epoch": 4})
        for seed in contestants.seeds_of(model[1], None):
            told: dict[str, Any] = {
                "parameters": final, "metrics": dict.fromkeys(METRICS, level + seed / 1000), "split": "s",
                "engine": "full", "device": "CPU", "versions": {}, "epoch": 4, "curve": [], "last": {},
                "clamped": None, "seconds": 1.0,
            }  # fmt: skip
            runs.append(RunLine("quality", case, *model, "", seed, **told))
    contrasts = [contrast(case, runs, INFONCE, EASE, 0.001), contrast(case, runs, INFONCE, IALS, 0.2)]
    named = [("family full-catalogue", f"family {name}") for name in ("EASE", "iALS")]
    contrasts += [replace(line, a=a, b=b) for line, (a, b) in zip(contrasts, named, strict=True)]
    return Lines(runs, trials, contrasts)


def contrast(case: str, runs: list[RunLine], a: Any, b: Any, p: float) -> Contrast:
    marks = {(run.encoder, run.method): digest(run.parameters) for run in runs}
    names = [" ".join(model).removeprefix("- ") for model in (a, b)]
    return Contrast(case, *names, "ndcg@20", 1, 900, 0.01, 0.005, 0.015, p, p, "s", marks[a], marks[b])


@pytest.fixture
def nothing_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "packaged_settings", dict)


@pytest.mark.usefixtures("nothing_packaged")
def test_validation_chooses_and_bold_is_significant() -> None:
    found = Contest(made_up())
    assert found.chosen("ml-100k") == INFONCE
    assert [model for model, _ in found.models("ml-100k")] == [DPL, INFONCE, EASE, IALS]
    *_, row, _, _ = chosen_table(found).splitlines()
    assert row == "| MovieLens-100k | full-catalogue | MF full-catalogue InfoNCE | .4620 ± .0016 | – |"
    ease, ials = "**+.0100 [+.0050, +.0150], p = .001**", "+.0100 [+.0050, +.0150], p = .200"
    assert families_table(found).endswith(f"| MovieLens-100k | {ease} | {ials} |{' not compared |' * 4}")
    table = ranking_table(found, "ml-100k")
    assert "| 2 | MF full-catalogue InfoNCE ✓ | 5 | .2400 | – | .4620 ± .0016 |" in table
    assert f"| {ease} | – | {ials} |" in table  # EASE with degree exponents was not run
    assert "LightGCN full-catalogue PSL" in table.rpartition("Not run")[2]


@pytest.mark.usefixtures("nothing_packaged")
def test_comparisons_of_older_settings_do_not_count() -> None:
    lines = made_up()
    old = replace(lines, contrasts=[replace(line, a_digest="older") for line in lines.contrasts])
    assert Contest(lines).gap("ml-100k", "mf exact-infonce", "ease") is not None
    assert Contest(old).gap("ml-100k", "mf exact-infonce", "ease") is None
    assert families_table(Contest(old)).endswith(f"| MovieLens-100k |{' not compared |' * 6}")
    runs = [replace(run, parameters={"x": 1}) if run.method == "exact-dpl" else run for run in lines.runs]
    assert Contest(replace(lines, runs=runs)).mean("ml-100k", DPL) is None


@pytest.mark.usefixtures("nothing_packaged")
def test_aims_are_met_or_missed_or_not_run() -> None:
    rows = aims_table(Contest(made_up())).splitlines()
    assert rows[2].endswith("| .4550 | MF full-catalogue InfoNCE | .4620 ± .0016 | met |")
    assert all(row.endswith("| not run | not run | not run |") for row in rows[3:8])
    assert sum(map(len, AIMS.values())) == 6
    missed = aims_table(Contest(made_up("gowalla-tail")))
    assert "met |" in missed
    assert "met |" not in aims_table(Contest(made_up("gowalla-standard")))  # of the former protocol
    low = replace(made_up(), runs=[replace(r, metrics=dict.fromkeys(METRICS, 0.4)) for r in made_up().runs])
    assert "**missed by** .0550" in aims_table(Contest(low))


@pytest.mark.usefixtures("nothing_packaged")
def test_debiasing_is_compared_with_plain_softmax() -> None:
    lines = made_up()
    assert debiasing_table(Contest(lines)) == ""
    found = [replace(contrast("ml-100k", list(lines.runs), DPL, INFONCE, p), difference=value)
             for p, value in ((0.001, 0.01), (0.001, -0.01), (0.3, 0.01))]  # fmt: skip
    verdicts = [
        debiasing_table(Contest(replace(lines, contrasts=[line]))).rpartition("\n")[2] for line in found
    ]
    begins = "| MovieLens-100k | MF full-catalogue DPL | MF full-catalogue InfoNCE | 5 / 5 | "
    assert all(row.startswith(begins) for row in verdicts)
    assert [row.split(" | ")[-1] for row in verdicts] == ["better |", "worse |", "not significant |"]
    pairs = debiasing_pairs()
    assert (("mf", contestants.HARD), ("mf", contestants.CONTROL)) in pairs
    assert (("lightgcn", "exact-dpl"), ("lightgcn", "exact-infonce")) in pairs


@pytest.mark.usefixtures("nothing_packaged")
def test_cases_of_the_former_protocol_are_shown_apart() -> None:
    former, now = made_up("gowalla-standard"), made_up()
    lines = replace(now, runs=[*now.runs, *former.runs], trials=[*now.trials, *former.trials])
    found = Contest(lines)
    assert (found.cases, found.former) == (["ml-100k"], ["gowalla-standard"])
    assert "random validation" not in families_table(found) + chosen_table(found) + aims_table(found)
    text = report.report_text(lines)
    folded = text.partition("### Former protocol")[2].partition("</details>")[0]
    assert "#### Gowalla, random validation" in folded.partition("<details>")[2]
    assert "random validation" not in report.figure_of(found)


@pytest.mark.usefixtures("nothing_packaged")
def test_the_page_is_made_of_lines_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines, out = made_up(), tmp_path / "docs" / "quality.md"
    for line in (*lines.runs, *lines.trials, *lines.contrasts):
        append_line(tmp_path / "lines" / "all.jsonl", line)
    words = ["quality", "report", f"--lines={tmp_path / 'lines'}", f"--out={out}"]
    settings = tmp_path / "settled.json"
    done = CliRunner().invoke(app, [*words, f"--settings={settings}"])
    assert done.exit_code == 0, done.output
    page, figure = out.read_bytes(), (tmp_path / "docs" / "figures" / "quality.svg").read_bytes()
    assert page.decode() == report.report_text(lines)
    CliRunner().invoke(app, words)
    assert (out.read_bytes(), (out.parent / "figures" / "quality.svg").read_bytes()) == (page, figure)
    kept = json.loads(settings.read_text())["ml-100k mf exact-infonce"]
    assert kept["test"]["ndcg@20"] == [0.462, 0.001581, 5]
    assert (kept["epoch"], kept["validation"]) == (4, 0.24)


@pytest.mark.usefixtures("nothing_packaged")
def test_the_numbers_beside_one_dot_are_few() -> None:
    lines = made_up()
    assert report._panel(Contest(lines), "ml-100k").steps == 4
    alone = replace(lines, runs=[run for run in lines.runs if (run.encoder, run.method) == INFONCE])
    panel = report._panel(Contest(alone), "ml-100k")
    assert panel.steps == 3
    if importlib.util.find_spec("matplotlib"):
        assert drawing.draw_dots([panel], 1, 3.0).count("<svg") == 1


@pytest.mark.usefixtures("nothing_packaged")
def test_trials_alone_make_a_page_without_results() -> None:
    text = report.report_text(Lines(trials=made_up().trials))
    assert "No final run has a line yet" in text
    assert "## Results" not in text
    assert "x 0.46" in text


def test_the_page_in_the_docs_is_that_of_the_lines() -> None:
    """docs/quality.md is what the lines in the repository give, to the byte."""
    root = Path(__file__).parents[1]
    lines = read_contest(root / "results" / "quality")
    assert not lines.broken
    assert (root / "docs" / "quality.md").read_text(encoding="utf-8") == report.report_text(lines)
    figure = (root / "docs" / "figures" / "quality.svg").read_text(encoding="utf-8")
    assert figure == report.figure_of(Contest(lines))


def test_no_lines_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs and no trials"):
        report.rebuild_report(tmp_path, tmp_path / "page.md")


def test_packaged_settings_are_those_of_the_lines() -> None:
    folder = Path(__file__).parents[1] / "results" / "quality"
    if not list(folder.glob("trials-*.jsonl")):
        pytest.skip(f"{folder} has no trials yet")
    packaged = Path(settled.__file__).with_name("settled.json")
    assert packaged.read_text(encoding="utf-8") == settled.settled_text(read_contest(folder))


@pytest.mark.parametrize("name", ["coat", "ml-100k", "kuairec", "gowalla-tail"])
def test_the_comparisons_are_those_of_the_kept_values(name: str, tmp_path: Path) -> None:
    """Every difference in the repository is computed again from the values of users that are kept there."""
    folder = Path(__file__).parents[1] / "results" / "quality"
    if not (folder / f"values-{name}.npz").exists():
        pytest.skip(f"{folder} has no values of {name}")
    shutil.copytree(folder, tmp_path / "quality", ignore=shutil.ignore_patterns("storage", "per-user"))
    compare_case(name, tmp_path / "quality", print)
    again, kept = (
        [line for line in read_lines(where).contrasts if line.dataset == name]
        for where in (tmp_path / "quality", folder)
    )
    assert again == kept


def test_the_final_runs_are_those_that_were_settled_before() -> None:
    folder = Path(__file__).parents[1] / "results" / "quality"
    written = {
        place: best
        for name in ("settled-late.json", "settled-late-coat.json", "settled-late-ml-1m.json")
        for place, best in json.loads((folder / name).read_text(encoding="utf-8")).items()
    }
    lines = read_contest(folder)
    now = {place for place, entry in CASES.items() if not entry.former}
    chosen = {" ".join(p): best for p, best in settled.chosen_settings(lines).items() if p[0] in now}
    for place, best in chosen.items():  # some were scored on further parts later: that changed nothing
        assert (best["parameters"], best["epoch"]) == (written[place]["parameters"], written[place]["epoch"])
    runs = {" ".join(place) for place in settled.current_runs(lines) if place[0] in now}
    assert runs <= set(written)


# --- the commands --------------------------------------------------------------------------------------


def called(*words: str) -> Any:
    return CliRunner().invoke(app, ["quality", *words])


@pytest.mark.usefixtures("hurried")
def test_the_commands_tune_run_and_keep_sessions(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load_case", lambda name, data_dir: case)
    words = ["--only=ml-100k", "--encoders=mf,-", "--methods=exact-infonce,ease", f"--lines={tmp_path}"]
    early = called("run", *words)
    assert (
        "no settings for MF full-catalogue InfoNCE, EASE; `truepair-lab quality tune` finds them"
        in early.output
    )
    for step in (["tune"], ["run", "--seeds=2"]):
        done = called(*step, *words)
        assert done.exit_code == 0, done.output
    found = read_lines(tmp_path)
    chosen = settled.current_runs(read_contest(tmp_path))
    assert {place[1:]: len(runs) for place, runs in chosen.items()} == {INFONCE: 2, EASE: 1}
    assert [(line.a, line.b) for line in found.contrasts] == [
        ("mf exact-infonce", "ease"),
        ("family full-catalogue", "family EASE"),
    ]
    assert "quality run" in found.sessions[-1].asked
    assert "--seeds=2" in found.sessions[-1].asked
    assert [line.runs for line in found.sessions] == [0, len(found.trials), len(found.runs)]
    again = called("run", "--seeds=2", *words, "--part")
    assert again.exit_code == 0
    assert read_lines(tmp_path) == found


@pytest.mark.usefixtures("hurried")
def test_a_study_at_another_size(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "load_case", lambda name, data_dir: case)
    words = ["--only=ml-100k", "--encoders=mf,-", "--methods=exact-infonce,ease", f"--lines={tmp_path}"]
    done = called("tune", *words, "--set", "encoder.dim=3", "--set", "batch_size=32")
    assert done.exit_code == 0, done.output
    lines = read_lines(tmp_path)
    trained = [line.parameters for line in lines.trials if line.encoder == "mf"]
    assert {(line["encoder.dim"], line["batch_size"]) for line in trained} == {(3, 32)}
    assert not [line for line in lines.trials if line.encoder == "-" and "encoder.dim" in line.parameters]
    assert "--set encoder.dim=3" in lines.sessions[-1].asked
    assert "--set batch_size=32" in lines.sessions[-1].asked
    wrong = called("tune", *words, f"--lines={tmp_path / 'other'}", "--set", "encoder.dimm=3")
    assert wrong.exit_code == 1
    assert "'dimm' is not known" in wrong.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "--only", "netflix"], "case = 'netflix' is not known"),
        (["tune", "--methods", "exact-dcl"], "method = 'exact-dcl' is not known"),
        (["run", "--seeds", "0"], "seeds"),
        (
            ["run", "--encoders", "mf", "--methods", "ease"],
            "ease, ease-powers, ials-scaled, ials, chebycf, itemknn, popularity with -",
        ),
        (["run", "--encoders", "mf+ease", "--methods", "ease"], "exact-infonce-popularity with mf+ease"),
        (["tune", "--set", "dim"], "--set 'dim' is not of the form key=value"),
    ],
)
def test_wrong_words_are_told(words: list[str], message: str) -> None:
    done = called(*words)
    assert done.exit_code == 1
    assert message in done.output


def test_the_benchmark_shows_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = made_up()
    monkeypatch.setattr(settled, "packaged_settings", dict)
    kept = {tuple(place.split()): best for place, best in json.loads(settled.settled_text(lines)).items()}
    monkeypatch.setattr(contest, "packaged_settings", lambda: kept)
    outcome = contest.contest_quality(Options())
    assert [(row.peer, row.peer_value, row.passed) for row in outcome.rows] == [
        ("EASE", 0.45, None),
        ("iALS", pytest.approx(0.442), None),
        (None, None, True),
    ]
    assert outcome.rows[0].what == "MovieLens-100k, MF full-catalogue InfoNCE: NDCG@20"
    assert len(outcome.skipped) == len(CASES) - 1
    unsearched = {"parameters": {}, "epoch": 4, "validation": None, "test": {"ndcg@20": [0.5, 0.0, 1]}}
    alone = {place: {n: v for n, v in best.items() if n != "parts"} for place, best in kept.items()}
    monkeypatch.setattr(contest, "packaged_settings", lambda: {**alone, ("ml-100k", *POSTERIOR): unsearched})
    assert contest.contest_quality(Options()).rows[0].what == outcome.rows[0].what
    monkeypatch.setattr(contest, "packaged_settings", dict)
    with pytest.raises(Skipped, match="no run of the contest is recorded"):
        contest.contest_quality(Options())
