"""The quality contest on small worlds: cases, searches, final runs, comparisons, the report, the command."""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from truepair.cli.main import app
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation import evaluate
from truepair.losses import InfoNCE
from truepair.models import closed_forms, factor_matrices
from truepair.recommender.estimator import Recommender
from truepair.reporting import figures
from truepair.sampling import Full
from truepair.training import EpochState, Job, StopTraining, fit
from truepair.tuning import Asked as Trying
from truepair.tuning.domains import domain_of
from truepair.tuning.spaces import check_values
from truepair_lab.benchmarks import Options, Skipped, contest
from truepair_lab.lines import Contrast, Lines, RunLine, TrialLine, append_line, digest, read_lines
from truepair_lab.paper.presets import METRICS
from truepair_lab.paper.running.runs import per_user_file
from truepair_lab.quality import blends, cases, contestants, report, running, settled
from truepair_lab.quality.blends import BlendRunner, StopAfter, blend_parameters, trained
from truepair_lab.quality.cases import AIMS, CASES, Case
from truepair_lab.quality.contestants import MODELS, fixed_of, space_of, title
from truepair_lab.quality.running import Selection, quest_of, run_wanted, search
from truepair_lab.quality.tables import Contest, aims_table, chosen_table, ranking_table
from truepair_lab.truth.sources import Asked
from truepair_lab.truth.true_label_metrics import judged_users, list_quality
from worlds import two_tastes

EASE, IALS, INFONCE, DPL = ("-", "ease"), ("-", "ials"), ("mf", "exact-infonce"), ("mf", "exact-dpl")
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
    monkeypatch.setattr(cases, "load_split", lambda name, data_dir: whole)
    monkeypatch.setattr(Asked, "case", lambda asked, seed: lab)
    found = cases.load_case(name)
    assert (found.name, found.lab is lab) == (name, name in ("kuairec", "coat"))
    assert len(found.valid) > 0
    if name.endswith("-standard"):
        assert found.whole.hash == whole.hash
        assert len(found.valid) == round(0.1 * len(whole.train))


def test_an_unknown_case_is_told() -> None:
    with pytest.raises(InputError, match="case = 'ml-10m' is not known"):
        cases.load_case("ml-10m")


# --- contestants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("model", [m for m in MODELS if m[0] in ("mf", "lightgcn")], ids=" ".join)
def test_every_space_can_be_searched(model: tuple[str, str], large: bool) -> None:
    space, fixed = space_of(*model, large), fixed_of(*model, large)
    if (twin := contestants.twin_of(model, large)) is not None:
        peer_value, shared = space_of(*twin, large), fixed_of(*twin, large)
        taken = {name: domain_of(domain).middle() for name, domain in peer_value.items()}
        fixed, space = {**shared, **taken, "loss": fixed["loss"]}, {**peer_value, **space}
        assert set(space) - set(peer_value) == {"loss.tau"}
        check_values({"loss.tau": space["loss.tau"]}, fixed)
    else:
        check_values(space, fixed)
        assert not set(space) & set(fixed)
    assert sum(name.endswith(".temperature") for name in space) == 1
    assert ("encoder.hops" in space) == (model[0] == "lightgcn")


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
    assert sums == {("mf+ease", "exact-infonce"), ("lightgcn+ease", "exact-infonce")}
    assert not [model for model in MODELS if contestants.twin_of(model, large=False)]
    twins = {model: contestants.twin_of(model, large=True) for model in MODELS}
    assert {model: twin for model, twin in twins.items() if twin} == {POSTERIOR: INFONCE}


def test_the_effort_is_equal() -> None:
    for encoder, method in MODELS:
        space = space_of(encoder, method, False)
        trials = contestants.trials_of(encoder, space, large=False)
        alone = len(space) == 1  # EASE, and the weights of sums
        assert alone == (method == "ease" or encoder.endswith("+ease")), method
        assert trials == (12 if alone else 15 if encoder == "lightgcn" else 30), method
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
    monkeypatch.setattr(contestants, "_FEW", 2)
    monkeypatch.setattr(contestants, "EPOCHS", {"small": 5, "large": 5})
    monkeypatch.setattr(contestants, "_EVERY", 2)
    monkeypatch.setattr(settled, "packaged_settings", dict)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("model", [INFONCE, ("lightgcn", "exact-dpl-hard"), EASE, ("-", "popularity")])
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


def test_the_test_part_is_not_in_a_search(case: Case) -> None:
    identity = quest_of(case, INFONCE).runner.identity
    assert case.whole.test.hash not in identity
    assert case.valid.hash in identity


def shortened(parameters: dict[str, Any]) -> dict[str, Any]:
    """As a search of a large case tells it."""
    return {**fixed_of("mf", "exact-infonce", True), **parameters, "encoder.popularity": 0.02}


def test_a_large_case_s_posterior_takes_over_infonce_s_settings(case: Case, tmp_path: Path) -> None:
    large = replace(case, name="gowalla-standard")
    with pytest.raises(InputError, match="gowalla-standard mf exact-infonce has no settings yet"):
        quest_of(large, POSTERIOR, {})
    peer_value: dict[str, Any] = {"parameters": shortened(QUICK), "epoch": 4, "validation": 0.3}
    settings = {("gowalla-standard", *INFONCE): peer_value}
    quest = quest_of(large, POSTERIOR, settings)
    assert (list(quest.space), quest.trials) == (["loss.tau"], 6)
    taken = {name: quest.runner.fixed[name] for name in peer_value["parameters"]}
    assert taken == {**peer_value["parameters"], "loss": "infonce-posterior"}
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
    peer_value = {("gowalla-standard", *INFONCE): {"parameters": QUICK, "epoch": 4, "validation": 0.3}}
    twin = quest_of(replace(case, name="gowalla-standard"), POSTERIOR, peer_value, {"encoder.dim": 2})
    assert (twin.runner.fixed["encoder.dim"], twin.trials) == (2, 6)


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
        InputError, match=r"ml-100k - ease-powers has no settings yet; `truepair lab quality tune`"
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

    def once(*given: Any) -> Any:
        made.append(given)
        return fit(*given)

    monkeypatch.setattr(blends, "fit", once)
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
    monkeypatch.setattr(blends, "fit", lambda *given: pytest.fail("ran again"))
    assert run_wanted(case, wanted, tmp_path, told.append) == 0


def test_contestants_are_compared_over_the_same_users(lab_case: Case, tmp_path: Path) -> None:
    ease = {"encoder": "ease", "encoder.l2": 100.0}
    for model, parameters in ((INFONCE, QUICK), (EASE, ease)):
        line = replace(trial(model, parameters, 0.3, 2), dataset="kuairec")
        append_line(tmp_path / "trials.jsonl", line)
    settings = settled.settings_of(read_lines(tmp_path))
    assert run_wanted(lab_case, settled.wanted_runs("kuairec", [EASE], settings, 2), tmp_path, print) == 1
    assert run_wanted(lab_case, settled.wanted_runs("kuairec", [INFONCE], settings, 1), tmp_path, print) == 1
    selected = Selection(cases=["kuairec"])
    for _ in range(2):  # anew, not twice
        running.compare_all(selected, tmp_path, print)
    (found,) = read_lines(tmp_path).contrasts
    assert (found.a, found.b) == ("mf exact-infonce", "ease")
    means = {line.method: line.metrics["ndcg@20"] for line in read_lines(tmp_path).runs}
    assert found.difference == pytest.approx(means["exact-infonce"] - means["ease"], abs=2e-6)
    contest_of = Contest(read_lines(tmp_path))
    assert contest_of.gap("kuairec", INFONCE, EASE) is not None
    assert contest_of.gap("kuairec", INFONCE, IALS) is None


# --- the report ----------------------------------------------------------------------------------------

LEVELS = {INFONCE: 0.46, DPL: 0.465, EASE: 0.45, IALS: 0.44}


def made_up(case: str = "ml-100k") -> Lines:
    """DPL is best on the test part, InfoNCE on validation: InfoNCE is chosen."""
    trials, runs = [], []
    for model, level in LEVELS.items():
        parameters = {"encoder": "ease", "x": level} if model[0] == "-" else QUICK | {"x": level}
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
    return Lines(
        runs, trials, [contrast(case, runs, INFONCE, EASE, 0.001), contrast(case, runs, INFONCE, IALS, 0.2)]
    )


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
    *_, row = chosen_table(found).splitlines()
    ease, ials = "**+.0100 [+.0050, +.0150], p = .001**", "+.0100 [+.0050, +.0150], p = .200"
    assert row == f"| MovieLens-100k | MF full-catalogue InfoNCE | .4620 ± .0016 | {ease} | {ials} |"
    table = ranking_table(found, "ml-100k")
    assert "| 2 | MF full-catalogue InfoNCE ✓ | 5 | .2400 | .4620 ± .0016 |" in table
    assert "LightGCN full-catalogue PSL" in table.rpartition("Not run")[2]


@pytest.mark.usefixtures("nothing_packaged")
def test_comparisons_of_older_settings_do_not_count() -> None:
    lines = made_up()
    old = replace(lines, contrasts=[replace(line, a_digest="older") for line in lines.contrasts])
    assert Contest(old).gap("ml-100k", INFONCE, EASE) is None
    assert chosen_table(Contest(old)).splitlines()[-1].endswith("| not compared | not compared |")
    runs = [replace(run, parameters={"x": 1}) if run.method == "exact-dpl" else run for run in lines.runs]
    assert Contest(replace(lines, runs=runs)).mean("ml-100k", DPL) is None


@pytest.mark.usefixtures("nothing_packaged")
def test_aims_are_met_or_missed_or_not_run() -> None:
    rows = aims_table(Contest(made_up())).splitlines()
    assert rows[2].endswith("| .4550 | MF full-catalogue InfoNCE | .4620 ± .0016 | met |")
    assert all(row.endswith("| not run | not run | not run |") for row in rows[3:8])
    assert sum(map(len, AIMS.values())) == 6
    missed = aims_table(Contest(made_up("gowalla-standard")))
    assert "met |" in missed
    low = replace(made_up(), runs=[replace(r, metrics=dict.fromkeys(METRICS, 0.4)) for r in made_up().runs])
    assert "**missed by** .0550" in aims_table(Contest(low))


@pytest.mark.usefixtures("nothing_packaged")
def test_the_page_is_made_of_lines_alone(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines, out = made_up(), tmp_path / "docs" / "lab" / "quality.md"
    for line in (*lines.runs, *lines.trials, *lines.contrasts):
        append_line(tmp_path / "lines" / "all.jsonl", line)
    words = ["lab", "quality", "report", f"--lines={tmp_path / 'lines'}", f"--out={out}"]
    settings = tmp_path / "settled.json"
    done = CliRunner().invoke(app, [*words, f"--settings={settings}"])
    assert done.exit_code == 0, done.output
    page, figure = out.read_bytes(), (tmp_path / "docs" / "lab" / "figures" / "quality.svg").read_bytes()
    assert page.decode() == report.report_text(lines)
    CliRunner().invoke(app, words)
    assert (out.read_bytes(), (out.parent / "figures" / "quality.svg").read_bytes()) == (page, figure)
    kept = json.loads(settings.read_text())["ml-100k mf exact-infonce"]
    assert kept["test"]["ndcg@20"] == [0.462, 0.001581, 5]
    assert (kept["epoch"], kept["validation"]) == (4, 0.24)


@pytest.mark.usefixtures("nothing_packaged")
def test_the_numbers_beside_one_dot_are_few() -> None:
    lines = made_up()
    assert report._panel(Contest(lines), "ml-100k").steps is None
    alone = replace(lines, runs=[run for run in lines.runs if (run.encoder, run.method) == INFONCE])
    panel = report._panel(Contest(alone), "ml-100k")
    assert panel.steps == 3
    if importlib.util.find_spec("matplotlib"):
        assert figures.draw_dots([panel], 1, 3.0).count("<svg") == 1


@pytest.mark.usefixtures("nothing_packaged")
def test_trials_alone_make_a_page_without_results() -> None:
    text = report.report_text(Lines(trials=made_up().trials))
    assert "No final run has a line yet" in text
    assert "## Results" not in text
    assert "x 0.46" in text


def test_the_page_in_the_docs_is_that_of_the_lines() -> None:
    """docs/lab/quality.md is what the lines in the repository give, to the byte."""
    root = Path(__file__).parents[2]
    lines = read_lines(root / "results" / "quality")
    assert not lines.broken
    assert (root / "docs" / "lab" / "quality.md").read_text(encoding="utf-8") == report.report_text(lines)
    figure = (root / "docs" / "lab" / "figures" / "quality.svg").read_text(encoding="utf-8")
    assert figure == report.figure_of(Contest(lines))


def test_no_lines_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs and no trials"):
        report.rebuild_report(tmp_path, tmp_path / "page.md")


def test_packaged_settings_are_those_of_the_lines() -> None:
    folder = Path(__file__).parents[2] / "results" / "quality"
    if not list(folder.glob("trials-*.jsonl")):
        pytest.skip(f"{folder} has no trials yet")
    packaged = Path(settled.__file__).with_name("settled.json")
    assert packaged.read_text(encoding="utf-8") == settled.settled_text(read_lines(folder))


# --- the commands --------------------------------------------------------------------------------------


def called(*words: str) -> Any:
    return CliRunner().invoke(app, ["lab", "quality", *words])


@pytest.mark.usefixtures("hurried")
def test_the_commands_tune_run_and_keep_sessions(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "load_case", lambda name, data_dir: case)
    words = ["--only=ml-100k", "--encoders=mf,-", "--methods=exact-infonce,ease", f"--lines={tmp_path}"]
    early = called("run", *words)
    assert (
        "no settings for MF full-catalogue InfoNCE, EASE; `truepair lab quality tune` finds them"
        in early.output
    )
    for step in (["tune"], ["run", "--seeds=2"]):
        done = called(*step, *words)
        assert done.exit_code == 0, done.output
    found = read_lines(tmp_path)
    assert sorted(line.method for line in found.runs) == ["ease", "exact-infonce", "exact-infonce"]
    assert len(found.contrasts) == 1
    assert "quality run" in found.sessions[-1].asked
    assert "--seeds=2" in found.sessions[-1].asked
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
            "ease, ease-powers, ials, itemknn, popularity with -",
        ),
        (["run", "--encoders", "mf+ease", "--methods", "ease"], "exact-infonce with mf+ease"),
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
    monkeypatch.setattr(contest, "packaged_settings", dict)
    with pytest.raises(Skipped, match="no run of the contest is recorded"):
        contest.contest_quality(Options())
