"""The plain call on small worlds: lines, values of users, tuned baselines, the report, the command."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student
from typer.testing import CliRunner

from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.evaluation.statistics import holm
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import like_test, resolved
from truepair_lab.cli.main import app
from truepair_lab.lines import Lines, RunLine, TrialLine, digest, read_lines
from truepair_lab.markdown import short
from truepair_lab.plain import baselines, cases, report, running
from truepair_lab.plain.cases import AIMS, CASES, Entry
from truepair_lab.plain.lines import FitTime, PlainLine, keep_values, merge_values, read_plain
from truepair_lab.plain.report import ANSWER, Study
from truepair_lab.quality.cases import NDCG, RECALL, Case
from truepair_lab.quality.settled import mean_of
from truepair_lab.quality.user_values import read_values, write_values
from truepair_lab.reporting.answers import OTHER_LINES, checksum
from truepair_lab.store import append
from worlds import interactions_of, two_tastes

ROOT = Path(__file__).parents[1]
EASE, IALS = baselines.BASELINES


def toy(name: str, data_dir: Path | None = None) -> Case:
    return Case(name, split_random(two_tastes(), test=0.2, valid=0.1, seed=0))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One case with baselines of its own, and short searches."""
    monkeypatch.setattr(cases, "CASES", {**CASES, "toy": Entry("Toy", "small", toy, seeds=2)})
    for module in (baselines, running, report):
        monkeypatch.setattr(module, "CASES", cases.CASES)
    monkeypatch.setattr(baselines, "TRIALS", 2)
    monkeypatch.setattr(baselines, "SWEEPS", 2)
    monkeypatch.setattr(running, "warm_up", lambda: None)
    monkeypatch.setattr(running, "Recommender", partial(Recommender, epochs=2))


def line_of(case: str, seed: int = 0, **changes: object) -> PlainLine:
    line = PlainLine(
        case, seed, "split", "cpu", "a processor", True, "1", {"temperature": 0.1}, "random", 7, 40,
        {NDCG: 0.4, RECALL: 0.3}, 12.0, 9.0, 2.5,
    )  # fmt: skip
    return replace(line, **changes)  # type: ignore[arg-type]


def lines_in(folder: Path) -> list[str]:
    """The text of every line; reading the lines would leave out those that another one replaces."""
    return [line for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def test_a_study_from_search_to_page(small: None, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    said: list[str] = []
    running.tune_all(["toy"], tmp_path, None, said.append, progress=False)
    own = tmp_path / baselines.FOLDER
    trials = read_lines(own).trials
    assert {t.method for t in trials} == {"ease", "ease-powers", "ials-scaled"}
    assert {t.split for t in trials} == {toy("toy").holdout.hash}
    assert not read_lines(own).runs  # a search looks at validation alone
    assert "No call has a line yet" in report.report_text(Study(tmp_path, tmp_path / "none"))

    made = running.run_all(["toy"], None, tmp_path, tmp_path / "none", None, True, said.append)
    assert made == 2
    lines = read_plain(tmp_path)
    assert [(line.seed, line.trials, line.alone) for line in lines.runs] == [(0, 0, True), (1, 0, True)]
    assert "too few" in lines.runs[0].hold_out  # 40 users: nothing is chosen, and the line says why
    assert len(lines.times) == 1
    runs = read_lines(own).runs
    assert {run.split for run in runs} == {toy("toy").whole.hash}
    assert sorted(run.seed for run in runs if run.method == "ials-scaled") == [0, 1, 2]
    values = read_values(tmp_path, "toy")
    assert {"plain cpu 0", "plain cpu 1", "ials-scaled 2"} <= set(values)
    assert not np.array_equal(values["plain cpu 0"], values["plain cpu 1"])  # each seed is a run of its own
    assert not list((tmp_path / "per-user").iterdir())

    kept = lines_in(tmp_path)
    again = running.run_all(["toy"], None, tmp_path, tmp_path / "none", None, True, said.append)
    assert again == 0
    assert lines_in(tmp_path) == kept

    page = report.rebuild_report(tmp_path, tmp_path / "none", tmp_path / "page.md").read_bytes()
    assert report.rebuild_report(tmp_path, tmp_path / "none", tmp_path / "page.md").read_bytes() == page
    assert "not compared" not in page.decode()
    assert OTHER_LINES in page.decode()


def test_the_line_has_what_was_chosen_and_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Recommender", partial(Recommender, epochs=3))
    world = simulate_world(250, 60, density=0.2)
    case = Case("toy", split_random(world.observed, test=0.2, valid=0.1, seed=0))
    line = running.plain_run(case, 1, tmp_path, alone=False)
    assert line.trials > 4
    assert {"temperature", "popularity", "dim"} <= set(line.chosen)
    assert line.hold_out.startswith("hold_out(how='random'")
    assert 0 < line.training < line.seconds - line.automatic < line.seconds
    merge_values(tmp_path, "toy")
    (found,) = read_values(tmp_path, "toy").values()
    assert found.mean() == pytest.approx(line.metrics[NDCG], abs=1e-5)
    json.dumps(dict(line.chosen))


def test_the_test_part_is_not_learnt_from() -> None:
    for name, density in (("world-sparse", 0.005), ("world-medium", 0.02), ("world-dense", 0.08)):
        case = cases.load_case(name)
        n_pairs = len(case.whole.train) + len(case.whole.test)
        assert n_pairs / (3000 * 1500) == pytest.approx(density, rel=0.05)
        assert not case.whole.train.has(case.whole.test.users, case.whole.test.items).any()
        assert like_test(case.whole) == "random"
        assert len(case.whole.train) / n_pairs == pytest.approx(0.8, abs=0.01)


def test_given_splits_keep_the_order_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    data = interactions_of([list(range(u % 5, u % 5 + 20)) for u in range(60)], 25)
    order = (data.items * 7 + data.users) % 25
    timed = replace(data, time=order, time_kind="order")
    nothing = timed.take(np.arange(len(timed)) < 60)
    given = Split(timed.take(np.arange(len(timed)) >= 60), None, nothing, "given()")
    monkeypatch.setattr(cases, "load_split", lambda name, data_dir: given)
    case = cases.load_case("gowalla")
    assert case.whole.hash == given.hash
    assert np.array_equal(case.whole.train.time, given.train.time)
    assert resolved(case.whole.train, like_test(case.whole), 0.1) == "last"


def test_values_of_runs_are_put_beside_those_of_earlier_ones(tmp_path: Path) -> None:
    for seed in (0, 1):
        keep_values(tmp_path, "toy", f"plain cpu {seed}", np.full(3, 0.2 * (seed + 1)))
        merge_values(tmp_path, "toy")
    found = read_values(tmp_path, "toy")
    assert {name: each.mean().round(4) for name, each in found.items()} == {
        "plain cpu 0": 0.2,
        "plain cpu 1": 0.4,
    }


def test_a_time_beside_other_work_is_replaced_by_one_alone_and_not_the_reverse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "solved", lambda *_: None)

    def timed(parameters: dict[str, object], alone: bool) -> list[tuple[object, bool]]:
        baselines.time_ials(toy("toy"), parameters, tmp_path, alone, lambda text: None)
        return [(line.parameters["dim"], line.alone) for line in read_plain(tmp_path).times]

    first: dict[str, object] = {"dim": 4}
    assert timed(first, alone=False) == [(4, False)]
    assert timed(first, alone=True) == [(4, True)]
    assert timed(first, alone=False) == [(4, True)]
    assert timed({"dim": 2}, alone=True) == [(4, True), (2, True)]


def test_cases_of_the_contest_are_not_tuned_again(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []
    monkeypatch.setattr(running, "load_case", toy)
    monkeypatch.setattr(baselines, "tune", lambda case, *_: tuned.append(case.name))
    running.tune_all(["ml-100k", "toy", "coat"], Path(), None, tuned.append, progress=False)
    assert tuned == ["toy"]


def test_the_baseline_is_the_best_on_validation_and_the_mean_of_its_seeds(tmp_path: Path) -> None:
    trials = [
        TrialLine("jester", "-", method, number, "complete", {"x": score}, score, 1, [], "s", "e", "d", 1.0)
        for method, scores in {
            "ease": (0.2, 0.3),
            "ease-powers": (0.4, 0.1),
            "ials-scaled": (0.5, 0.6),
        }.items()
        for number, score in enumerate(scores)
    ]
    chosen = [baselines.chosen_trial(Lines(trials=trials), "jester", family) for family in (EASE, IALS)]
    assert [(t.method, t.score) for t in chosen if t] == [("ease-powers", 0.4), ("ials-scaled", 0.6)]
    assert baselines.chosen_trial(Lines(trials=trials), "toy", EASE) is None

    parameters = baselines.ials_parameters("jester", Lines(trials=trials), Lines())
    assert parameters is not None
    runs = [
        RunLine("plain", "jester", "-", "ials-scaled", "", seed, parameters, "split", "e", "d", {}, 1, [],
                {NDCG: 0.5}, {}, None, 1.0)
        for seed in range(3)
    ]  # fmt: skip
    own = Lines(trials=trials, runs=runs)
    for seed in range(3):
        found = baselines.baseline_of("jester", IALS, own, Lines(), tmp_path, tmp_path)
        assert found is None  # values of a seed are missing
        keep_values(tmp_path, "jester", f"ials-scaled {seed}", np.array([0.1, 0.3, 0.5]) * (seed + 1) / 3)
        merge_values(tmp_path, "jester")
    found = baselines.baseline_of("jester", IALS, own, Lines(), tmp_path, tmp_path)
    assert found is not None
    assert found.values == pytest.approx(np.array([0.1, 0.3, 0.5]) * 2 / 3, abs=1e-4)


# --- differences ---------------------------------------------------------------------------------------


def contest_lines(case: str, score: float) -> Lines:
    trials, runs = [], []
    for method in ("ease", "ials-scaled"):
        parameters = {"x": score}
        trials.append(TrialLine(case, "-", method, 0, "complete", parameters, 0.3, 1, [], "s", "e", "d", 1.0))
        runs.append(
            RunLine("quality", case, "-", method, "", 0, parameters, "split", "e", "d", {}, 1, [],
                    {NDCG: score, RECALL: score}, {}, None, 1.0)
        )  # fmt: skip
    return Lines(runs=runs, trials=trials)


def both(*parts: Lines) -> Lines:
    return Lines(runs=[r for p in parts for r in p.runs], trials=[t for p in parts for t in p.trials])


def test_baselines_of_the_hold_out_like_test_are_preferred() -> None:
    former, tail = contest_lines("gowalla-standard", 0.1), contest_lines("gowalla-tail", 0.2)
    assert baselines.contest_case("gowalla", Lines()) is None
    assert baselines.contest_case("gowalla", former) == "gowalla-standard"
    assert baselines.contest_case("gowalla", both(former, tail)) == "gowalla-tail"
    half = Lines(runs=tail.runs[:1], trials=tail.trials[:1])
    assert baselines.contest_case("gowalla", both(former, half)) == "gowalla-standard"
    assert baselines.ials_parameters("gowalla", Lines(), both(former, tail)) == {"x": 0.2}


@pytest.fixture
def compared(tmp_path: Path) -> tuple[Study, dict[str, np.ndarray]]:
    """ML-100k with two seeds on each processor, against made-up values of the contest."""
    folder, contest = tmp_path / "plain", tmp_path / "quality"
    draws = np.random.default_rng(0)
    values = {name: draws.integers(0, 65536, 50) / 65535 for name in ("0", "1", "gpu", "ease", "ials")}
    values["gpu"] = np.minimum(values["ials"] + 0.2, 1.0)
    lines = contest_lines("ml-100k", 0.5)
    for trial, run in zip(lines.trials, lines.runs, strict=True):
        append(contest / "lines.jsonl", trial, run)
    named = {
        f"- {r.method} {digest(r.parameters)}": values[k]
        for r, k in zip(lines.runs, ("ease", "ials"), strict=True)
    }
    write_values(contest / "values-ml-100k.npz", named)
    for seed in (0, 1):
        append(folder / "runs.jsonl", line_of("ml-100k", seed, metrics={NDCG: 0.4 + 0.1 * seed, RECALL: 0.3}))
        keep_values(folder, "ml-100k", f"plain cpu {seed}", values[str(seed)])
    append(folder / "runs.jsonl", line_of("ml-100k", processor="cuda", alone=False))
    keep_values(folder, "ml-100k", "plain cuda 0", values["gpu"])
    append(folder / "times.jsonl", FitTime("ml-100k", "cpu", "a processor", True, {"x": 0.5}, 3.0))
    merge_values(folder, "ml-100k")
    return Study(folder, contest), values


def test_differences_are_over_users_and_corrected_together(
    compared: tuple[Study, dict[str, np.ndarray]],
) -> None:
    study, values = compared
    cpu = (values["0"] + values["1"]) / 2
    pairs = {
        (("ml-100k", p), family): own - values[other]
        for p, own in (("cpu", cpu), ("cuda", values["gpu"]))
        for family, other in ((EASE, "ease"), (IALS, "ials"))
    }
    errors = {key: each.std(ddof=1) / math.sqrt(50) for key, each in pairs.items()}
    p_values = holm([2 * student.sf(abs(each.mean()) / errors[key], 49) for key, each in pairs.items()])
    assert list(study.gaps) == list(pairs)
    for (key, each), p in zip(pairs.items(), p_values, strict=True):
        gap = study.gaps[key]
        assert gap.value == pytest.approx(each.mean(), abs=2e-5)
        assert gap.high - gap.value == pytest.approx(student.ppf(0.975, 49) * errors[key], abs=2e-5)
        assert gap.p == pytest.approx(p, rel=0.01, abs=1e-9)
    assert study.gaps[("ml-100k", "cuda"), IALS].sign == 1
    assert "**+" in report.differences_table(study)


def test_other_splits_and_missing_values_are_not_compared(
    compared: tuple[Study, dict[str, np.ndarray]],
) -> None:
    study, _ = compared
    append(study.folder / "runs.jsonl", line_of("ml-100k", 2))  # no values
    assert {row for row, _ in Study(study.folder, study.contest_folder).gaps} == {("ml-100k", "cuda")}
    for line in study.lines.runs:
        append(study.folder / "runs.jsonl", replace(line, split="other"))
    (study.folder / "runs.jsonl").write_text(
        (study.folder / "runs.jsonl").read_text().replace('"split": "split"', '"split": "another"')
    )
    assert not Study(study.folder, study.contest_folder).gaps


def test_aims_and_times(compared: tuple[Study, dict[str, np.ndarray]]) -> None:
    study, _ = compared
    aims = report.aims_table(study).splitlines()
    assert "| MovieLens-100k, CPU | NDCG@20 | .4500 | .4500 ± .0707 | 2 | met |" in aims
    assert "| MovieLens-100k, GPU | NDCG@20 | .4500 | .4000 | 1 | **missed by** .0500 |" in aims
    assert sum("not run" in row for row in aims) == 5
    busy = line_of("ml-100k", 2, alone=False, seconds=100.0)
    append(study.folder / "runs.jsonl", busy)  # its time does not count
    cpu, gpu = report.time_table(Study(study.folder, study.contest_folder)).splitlines()[2:]
    assert "| 2 | 12.0 s | 3.0 s | 4.0 x | 3.0 s | 4.0 x | 75% |" in cpu
    assert "beside other work" not in cpu
    assert "beside other work | 1 | 12.0 s | 3.0 s | 4.0 x | – | – | 75% |" in gpu


def test_the_page_in_the_docs_is_that_of_the_lines() -> None:
    """docs/plain.md is what the lines in the repository give, to the byte."""
    study = Study(ROOT / "results" / "plain", ROOT / "results" / "quality")
    assert not study.lines.broken
    assert (ROOT / "docs" / "plain.md").read_text(encoding="utf-8") == report.report_text(study)


# --- the command ---------------------------------------------------------------------------------------


def test_the_command(small: None, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    lines, contest = ["--lines", str(tmp_path), "--quiet"], ["--contest", str(tmp_path / "none")]
    runner = CliRunner()
    for words in (
        ["tune", "--only", "toy", *lines],
        ["run", "--only", "toy", "--seeds", "1", "--alone", *contest, *lines],
        ["report", "--out", str(tmp_path / "page.md"), *contest, *lines],
    ):
        result = runner.invoke(app, ["plain", *words])
        assert result.exit_code == 0, result.output
    assert [(line.seed, line.alone) for line in read_plain(tmp_path).runs] == [(0, True)]
    assert "# The plain call" in (tmp_path / "page.md").read_text(encoding="utf-8")


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no runs and no trials"):
        report.rebuild_report(tmp_path, tmp_path, tmp_path / "page.md")
    result = CliRunner().invoke(app, ["plain", "run", "--only", "ml-200k"])
    assert result.exit_code != 0
    assert set(CASES) >= {"ml-100k", "jester"}


# --- the answer, and the table of the README --------------------------------------------------------------


@cache
def study():
    return Study(ROOT / "results" / "plain", ROOT / "results" / "quality")


def test_the_answer_is_that_of_the_lines():
    lines, text = study().lines, " ".join(ANSWER.text.split())
    assert checksum(lines.runs, lines.times, study().gaps.items()) == ANSWER.checksum
    signs = Counter(gap.sign for gap in study().gaps.values())
    assert (sum(signs.values()), signs[1], signs[-1]) == (28, 14, 1)
    assert "Of 28 differences from tuned EASE and tuned iALS, 14 are significantly in favour" in text
    lost = {
        (case, family): short(gap.value) for ((case, _), family), gap in study().gaps.items() if gap.sign < 0
    }
    assert lost == {("world-dense", "iALS"): "-.0034"}
    assert "One is against it: iALS on the dense world (-.0034)" in text
    for (case, processor), runs in study().runs.items():
        for metric, aim in AIMS.get(case, {}).items():
            assert mean_of(runs, metric).value >= aim, (case, processor, metric)
    alone = {(r.case, r.processor): r for r in lines.runs if r.alone}
    calls = [f"{alone[case, 'cpu'].seconds:.1f} s" for case in ("ml-100k", "ml-1m")]
    assert f"takes {calls[0]} on MovieLens-100k and {calls[1]} on MovieLens-1M" in text


def test_the_table_of_the_readme():
    text = (ROOT.parent / "README.md").read_text(encoding="utf-8")

    # the row of each case that has the most seeds
    places = sorted(study().runs, key=lambda place: len(study().runs[place]))
    most = {place[0]: place for place in places}

    def row(name, runs):
        cells = [short(mean_of(runs(most[case]), NDCG).value) for case in CASES]
        return f"| {name} | {' | '.join(cells[:-3])} | {', '.join(cells[-3:])} |"

    assert row("`Recommender()`, untouched", lambda place: study().runs[place]) in text
    signs = {
        (case, family): gap.sign
        for (place, family), gap in study().gaps.items()
        if most[case := place[0]] == place
    }
    assert (len(signs), list(signs.values()).count(1)) == (20, 10)
    assert "Ten of these 20 differences are significantly in favour of the default" in " ".join(text.split())
    assert [of for of, sign in signs.items() if sign < 0] == [("world-dense", IALS)]
    won = {of for of, sign in signs.items() if sign > 0}
    both = {(case, family) for case in ("ml-1m", "gowalla", "yelp2018") for family in (EASE, IALS)}
    alone = {("kuairec", IALS), ("jester", IALS), ("world-sparse", EASE), ("world-medium", EASE)}
    assert won == both | alone
    chosen = {study().baselines[case, EASE].runs[0].method for case in CASES}
    assert chosen == {"ease-powers"}  # "which validation prefers in all ten cases"
    assert len(CASES) == 10
    for family, name in ((EASE, "EASE with degree exponents"), (IALS, IALS)):
        assert row(f"{name}, tuned", partial(baseline_runs, family)) in text


def baseline_runs(family, place):
    return study().baselines[place[0], family].runs
