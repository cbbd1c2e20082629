"""Runs of the paper's studies on a small world: lines, resuming, protocols, comparisons, the command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from truepair.data.split_recipes import split_random
from truepair.evaluation import evaluate
from truepair.evaluation.statistics import holm
from truepair.search.trials import Trial
from truepair.training import fit
from truepair_lab.cli.main import app
from truepair_lab.lines import Lines, RunLine, append_line, read_lines
from truepair_lab.paper import presets
from truepair_lab.paper.presets import DATA, METRICS, Material
from truepair_lab.paper.running import plan, steps
from truepair_lab.paper.running import runs as running
from truepair_lab.paper.running import search as searching
from truepair_lab.paper.running.contrasts import flips_for, make_contrasts
from truepair_lab.paper.running.plan import Wanted, settings_text, tuned_settings, wanted_runs
from truepair_lab.paper.running.runs import job_of, per_user_file, run_wanted
from truepair_lab.paper.running.search import best_trials, search
from truepair_lab.paper.running.timing import time_epochs
from worlds import two_tastes

pytestmark = pytest.mark.long  # the pages of the studies and what made them

QUICK = {
    "epochs": 4, "batch_size": 64, "validate_every": 2, "patience": None, "learning_rate": 0.05,
    "encoder": "mf", "encoder.dim": 4, "loss": "dpl", "loss.tau": 0.1, "sampler": "uniform",
    "n_extra": 2, "n_unlabelled": 2, "optimizer": "adam",
}  # fmt: skip


def small_material() -> Material:
    pairs = two_tastes(n_users=60, n_items=30, each=8)
    whole, holdout = split_random(pairs, 0.2, seed=1), split_random(pairs, 0.2, valid=0.2, seed=1)
    return Material(replace(DATA["ml-100k"], split_hash=None), whole, holdout)


@pytest.fixture(scope="module")
def material() -> Material:
    return small_material()


def wanted(study: str = "paper", **change: Any) -> Wanted:
    given = {"encoder": "mf", "method": "dpl", "variant": "", "seed": 0, "parameters": QUICK}
    return Wanted(study, "ml-100k", **(given | change))


def lines_of(out: Path) -> list[RunLine]:
    return list(read_lines(out).runs)


def test_the_paper_protocol_takes_the_best_of_what_it_looked_at(material: Material, tmp_path: Path) -> None:
    assert run_wanted(material, [wanted()], tmp_path, print) == 1
    (line,) = lines_of(tmp_path)
    assert [epoch for epoch, _ in line.curve] == [2, 4]
    assert line.metrics["ndcg@20"] == pytest.approx(max(score for _, score in line.curve), abs=1e-5)
    assert line.last["ndcg@20"] == pytest.approx(line.curve[-1][1], abs=1e-5)
    assert set(line.metrics) == set(line.last) == set(METRICS)
    assert (line.epoch, line.split, line.engine) == (
        0,
        material.whole.hash,
        "gpu" if torch.cuda.is_available() else "reference",
    )
    assert line.versions["truepair"]


def test_its_last_epoch_is_that_of_a_plain_run(material: Material, tmp_path: Path) -> None:
    run_wanted(material, [wanted()], tmp_path, print)
    job = job_of(wanted(), material)
    result = fit(job)
    found = evaluate(result, material.whole.test, exclude=material.train)
    assert lines_of(tmp_path)[0].last == {name: round(found.mean(name), 6) for name in METRICS}


CLEAN = {name: value for name, value in QUICK.items() if name != "validate_every"} | {"epochs": 2}


def test_a_clean_run_may_be_the_beginning_of_an_optimistic_one(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, tuned = wanted("clean", parameters=CLEAN), wanted("paper-tuned")
    run_wanted(material, [clean], tmp_path / "alone", print)
    run_wanted(material, [tuned], tmp_path / "alone", print)
    trained: list[int] = []
    fit_many = running.fit_many
    monkeypatch.setattr(running, "fit_many", lambda jobs, *rest: trained.append(1) or fit_many(jobs, *rest))
    assert run_wanted(material, [clean, tuned], tmp_path / "both", print) == 2
    assert len(trained) == 1
    alone, both = ({line.study: line for line in lines_of(tmp_path / name)} for name in ("alone", "both"))
    for study in ("clean", "paper-tuned"):
        assert replace(both[study], seconds=0) == replace(alone[study], seconds=0)
    values = (np.load(per_user_file(tmp_path / name, clean)) for name in ("alone", "both"))
    assert np.array_equal(*values)
    assert run_wanted(material, [clean, tuned], tmp_path / "both", print) == 0


@pytest.mark.parametrize(
    "clean",
    [{"epochs": 3}, {"epochs": 6}, {"schedule": "linear"}, {"learning_rate": 0.04}],
    ids=["an epoch not looked at", "longer", "a schedule", "another rate"],
)
def test_other_clean_runs_are_runs_of_their_own(clean: dict[str, Any]) -> None:
    schedule = {name: value for name, value in clean.items() if name == "schedule"}
    some = [wanted("clean", parameters=CLEAN | clean), wanted("paper-tuned", parameters=QUICK | schedule)]
    assert running._on_the_way(some, "split") == {}


def test_what_is_done_is_not_run_again(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [wanted(), wanted(seed=1)]
    assert run_wanted(material, both[:1], tmp_path, print) == 1
    assert run_wanted(material, both, tmp_path, print) == 1
    monkeypatch.setattr(running, "fit_many", lambda *given: pytest.fail("ran again"))
    assert run_wanted(material, both, tmp_path, print) == 0
    assert [line.seed for line in lines_of(tmp_path)] == [0, 1]


def test_studies_of_one_protocol_share_their_runs(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = [wanted(), wanted("ablation", variant="dpl"), wanted("sweep", variant="M=2")]
    assert run_wanted(material, same, tmp_path, print) == 1
    assert sorted((line.study, line.variant) for line in lines_of(tmp_path)) == [
        ("ablation", "dpl"),
        ("paper", ""),
        ("sweep", "M=2"),
    ]
    # but nothing that was chosen on the test part becomes a clean result
    assert run_wanted(material, [wanted("clean")], tmp_path, print) == 1


def test_a_line_of_another_study_is_taken_over_with_all_it_says(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_wanted(material, [wanted(method="dpl-hard")], tmp_path, print)
    monkeypatch.setattr(running, "fit_many", lambda *given: pytest.fail("ran again"))
    assert run_wanted(material, [wanted("ablation", variant="hard")], tmp_path, print) == 0
    first, second = lines_of(tmp_path)
    assert (second.study, second.method, second.variant) == ("ablation", "dpl", "hard")
    assert second == replace(first, study="ablation", method="dpl", variant="hard")


def test_what_another_process_did_meanwhile_is_not_done_again(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # a GPU trains both seeds at once
    run_wanted(material, [wanted(seed=1)], tmp_path, print)
    (theirs,) = lines_of(tmp_path)
    (tmp_path / "runs-ml-100k.jsonl").unlink()
    train = running.fit_many

    def slowly(*given: Any) -> Any:
        append_line(tmp_path / "other.jsonl", theirs)
        return train(*given)

    monkeypatch.setattr(running, "fit_many", slowly)
    ours = [wanted("ablation", variant="dpl", seed=seed) for seed in (0, 1)]
    assert run_wanted(material, ours, tmp_path, print) == 1
    assert sorted((line.study, line.seed) for line in lines_of(tmp_path)) == [
        ("ablation", 0),
        ("ablation", 1),
        ("paper", 1),
    ]


def test_on_a_gpu_runs_of_one_shape_and_protocol_share_it(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    graph = QUICK | {"encoder": "lightgcn", "encoder.hops": 1}
    some = [wanted(seed=seed) for seed in range(20)] + [wanted("clean"), wanted("sweep", variant="N=1")]
    some += [wanted(parameters=QUICK | {"n_unlabelled": 3}), wanted(encoder="lightgcn", parameters=graph)]
    groups = list(running._groups(material, some))
    assert [len(group) for group in groups] == [16, 5, 1, 1, 1]
    assert {each.study for each in groups[1]} == {"paper", "sweep"}
    assert [group[0].study for group in groups[2:]] == ["paper", "clean", "paper"]


def test_the_clean_protocol_looks_once(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def counted(*given: Any, **named: Any) -> Any:
        looks.append(1)
        return evaluate(*given, **named)

    monkeypatch.setattr(running, "evaluate", counted)
    run_wanted(material, [wanted("clean")], tmp_path, print)
    (line,) = lines_of(tmp_path)
    assert (len(looks), line.epoch, line.curve, line.last) == (1, 4, [], {})
    values = np.load(per_user_file(tmp_path, line))
    assert float(values.mean()) == pytest.approx(line.metrics["ndcg@20"], abs=1e-6)


def test_a_run_that_diverges_is_told_and_the_others_go_on(material: Material, tmp_path: Path) -> None:
    told: list[str] = []
    bad = wanted(parameters=QUICK | {"learning_rate": 1e30})
    assert run_wanted(material, [bad, wanted()], tmp_path, told.append) == 1
    assert any("Lower learning_rate" in text for text in told)
    assert len(lines_of(tmp_path)) == 1


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("popularity", {"encoder": "popular"}),
        ("itemknn", {"encoder": "itemknn", "encoder.neighbours": 8}),
        ("ease", {"encoder": "ease", "encoder.l2": 10.0}),
        ("ials", {"factors": 8, "regularization": 0.1, "alpha": 2.0}),
    ],
)
def test_reference_points(
    material: Material, tmp_path: Path, method: str, parameters: dict[str, Any]
) -> None:
    if method == "ials":
        pytest.importorskip("implicit")
    point = wanted("clean", encoder="-", method=method, parameters=parameters)
    assert run_wanted(material, [point], tmp_path, print) == 1
    (line,) = lines_of(tmp_path)
    assert line.metrics["ndcg@20"] > (0.5 if method in ("ease", "itemknn") else 0)
    assert line.engine == ("implicit" if method == "ials" else "closed form")


def test_comparisons_pair_the_users(material: Material, tmp_path: Path) -> None:
    plain = {key: value for key, value in QUICK.items() if not key.startswith("loss")} | {"loss": "bpr"}
    parameters = {"ease": {"encoder": "ease", "encoder.l2": 10.0}, "bpr": plain}
    for method, given in parameters.items():
        trial = Trial(0, given, 0.5, given.get("epochs"), "complete")
        encoder = "-" if method == "ease" else "mf"
        append_line(tmp_path / "trials.jsonl", searching._line(material, encoder, method, trial))
    clean = wanted_runs(material.data, ["clean"], tuned_settings(read_lines(tmp_path)), 2)
    clean = [each for each in clean if each.method in parameters and each.encoder != "lightgcn"]
    # runs of older settings are not compared, nor mixed with the others
    old = replace(clean[0], parameters=dict(clean[0].parameters) | {"learning_rate": 0.001})
    run_wanted(material, [*clean, old], tmp_path, print)
    assert make_contrasts("ml-100k", tmp_path, print) == 1
    assert make_contrasts("ml-100k", tmp_path, print) == 1  # anew, not twice
    (found,) = read_lines(tmp_path).contrasts
    lines = [line for line in lines_of(tmp_path) if line.parameters != old.parameters]
    means = {
        name: np.mean([line.metrics["ndcg@20"] for line in lines if line.method == name.split()[-1]])
        for name in ("mf bpr", "ease")
    }
    assert {found.a, found.b} == set(means)
    assert found.seeds == 1
    assert found.difference == pytest.approx(means[found.a] - means[found.b], abs=1e-5)
    assert found.low <= found.difference <= found.high
    assert 0 < found.p == found.p_corrected <= 1


@pytest.mark.parametrize("contrasts", [1, 72, 101, 5000])
def test_the_least_p_is_significant_after_the_correction(contrasts: int) -> None:
    """One that is as clear as can be among many that are as clear: all count."""
    least = 1 / (1 + flips_for(contrasts))
    assert holm([least] * contrasts)[0] <= 0.01


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    assert make_contrasts("ml-1m", tmp_path, told.append) == 0
    assert "nothing to compare" in told[0]


def test_timings_are_ratios_to_bpr(material: Material, tmp_path: Path) -> None:
    assert time_epochs(material, tmp_path, print, rounds=2) == 3
    found = {line.method: line for line in read_lines(tmp_path).timings}
    assert found["bpr"].ratio == 1
    assert all(len(line.seconds) == 2 and line.ratio > 0 for line in found.values())
    assert time_epochs(material, tmp_path, print, rounds=2) == 0


# --- searching -----------------------------------------------------------------------------------------


@pytest.fixture
def two_trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("optuna")
    monkeypatch.setattr(searching, "TRIALS", {"mf": 2, "lightgcn": 2, "-": 2})
    small = searching.fixed_of
    quick = {"epochs": 4, "validate_every": 2, "batch_size": 64}
    monkeypatch.setattr(
        searching, "fixed_of", lambda *place: small(*place) | (quick if place[1] != "-" else {})
    )
    return


@pytest.mark.usefixtures("two_trials")
@pytest.mark.parametrize(
    ("encoder", "method"), [("mf", "hcl"), ("mf", "bns"), ("-", "ease"), ("-", "popularity")]
)
def test_a_search_leaves_its_trials_and_goes_on(
    material: Material, tmp_path: Path, encoder: str, method: str
) -> None:
    best = search(material, encoder, method, tmp_path)
    found = read_lines(tmp_path)
    assert best_trials(found)["ml-100k", encoder, method].score == pytest.approx(best.score, abs=1e-6)
    assert all(line.split == material.holdout.hash for line in found.trials)
    for journal in (tmp_path / "storage").glob("*"):
        journal.unlink()  # the lines are enough
    assert search(material, encoder, method, tmp_path).number == best.number  # nothing is left to do
    assert len(read_lines(tmp_path).trials) == len(found.trials)
    told = json.loads(settings_text(found))[f"ml-100k {encoder} {method}"]
    assert told == tuned_settings(found)["ml-100k", encoder, method]


@pytest.mark.usefixtures("two_trials")
def test_a_best_trial_that_was_still_rising_is_given_more_epochs(material: Material, tmp_path: Path) -> None:
    best = search(material, "mf", "bpr", tmp_path)
    epochs = [line.parameters["epochs"] for line in read_lines(tmp_path).trials]
    assert sorted(set(epochs)) in ([4], [4, 16], [4, 16, 64])
    assert epochs.count(16) <= 1
    assert epochs.count(64) <= 1
    rising = best.epoch == best.parameters["epochs"]
    assert not rising or max(epochs) > best.parameters["epochs"] or max(epochs) == 64


def test_the_test_part_is_not_in_a_search(material: Material) -> None:
    runner = searching._runner(material, "mf", "dpl")
    assert material.whole.test.hash not in runner.identity  # type: ignore[attr-defined]
    assert material.holdout.valid is not None
    assert material.holdout.valid.hash in runner.identity  # type: ignore[attr-defined]


# --- the command ---------------------------------------------------------------------------------------


@pytest.fixture
def world(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "load_material", lambda name, data_dir: material)
    monkeypatch.setattr(
        presets, "_AUTHORS", presets._AUTHORS | {"epochs": 2, "validate_every": 1, "encoder.dim": 4}
    )


def called(*words: str) -> Any:
    return CliRunner().invoke(app, ["paper", *words])


@pytest.mark.usefixtures("world")
def test_the_command_runs_and_keeps_a_session(tmp_path: Path) -> None:
    words = [
        "run",
        "--only=ml-100k",
        "--studies=paper",
        "--methods=bpr,dpl",
        "--encoders=mf",
        "--seeds=1",
        "--processes=1",
    ]
    done = called(*words, f"--lines={tmp_path}", "--json")
    assert done.exit_code == 0, done.output
    found = read_lines(tmp_path)
    assert [line.method for line in found.runs] == ["bpr", "dpl"]
    assert found.sessions[0].runs == 2
    assert "--methods=bpr,dpl --studies=paper --seeds=1" in found.sessions[0].asked


@pytest.mark.usefixtures("world")
def test_another_split_is_run_on_that_split(
    material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [wanted("causes", variant=variant) for variant in ("split=5", "decay=0", "split=per-user")]
    monkeypatch.setattr(steps, "wanted_runs", lambda *given: some)
    words = ["--only=ml-100k", "--studies=causes", "--encoders=mf", "--methods=dpl", "--processes=1"]
    for _ in range(2):  # the second time nothing is left to do
        assert called("run", *words, f"--lines={tmp_path}").exit_code == 0
    splits = {line.variant: line.split for line in lines_of(tmp_path)}
    assert splits == {
        "split=5": presets.other_split(material, "5").whole.hash,
        "decay=0": material.whole.hash,
        "split=per-user": presets.other_split(material, "per-user").whole.hash,
    }
    assert len(set(splits.values())) == 3
    assert len((tmp_path / "runs-ml-100k.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--only", "netflix"], "dataset = 'netflix' is not known; choose one of 'ml-100k'"),
        (["run", "--studies", "papr"], "Did you mean 'paper'?"),
        (["run", "--seeds", "0"], "seeds"),
        (["tune", "--methods", "svd"], "method = 'svd' is not known"),
        (
            ["run", "--encoders", "mf", "--methods", "ease"],
            "ease, ials go with the encoder `-`",
        ),
    ],
)
def test_wrong_words_are_told(words: list[str], message: str) -> None:
    done = called(*words)
    assert done.exit_code == 1
    assert message in done.output


def test_yahoo_is_skipped_where_it_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    told: list[str] = []
    asked = steps.Selection(datasets=("yahoo-r3", "ml-100k"), data_dir=tmp_path)
    monkeypatch.setattr(
        steps, "load_material",
        lambda name, folder: small_material() if name == "ml-100k" else presets.load_material(name, folder),
    )  # fmt: skip
    assert [material.data.name for material in steps.materials(asked, told.append)] == ["ml-100k"]
    assert "Yahoo! R3 is skipped" in told[0]
    alone = called("run", "--only=yahoo-r3", "--processes=1", f"--data-dir={tmp_path}", f"--lines={tmp_path}")
    assert alone.exit_code == 0
    assert "ydata-ymusic" in alone.output


@pytest.mark.usefixtures("world")
def test_timing_alone_starts_no_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_call", lambda *given: pytest.fail("started a part"))
    done = called("run", "--only=ml-100k", "--studies=timing", "--processes=2", f"--lines={tmp_path}")
    assert done.exit_code == 0, done.output
    assert len(read_lines(tmp_path).timings) == 3


@pytest.mark.usefixtures("two_trials")
def test_half_of_a_search_is_not_a_search(material: Material, tmp_path: Path) -> None:
    search(material, "-", "ease", tmp_path)
    path = tmp_path / "trials-ml-100k.jsonl"
    whole = path.read_text()
    path.write_text(whole.splitlines()[0] + "\n")  # killed while the lines were written
    search(material, "-", "ease", tmp_path)
    assert sorted(path.read_text().splitlines()) == sorted(whole.splitlines())


def test_a_failing_part_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_call", lambda *given: "disk full")
    done = called("run", "--only=ml-100k", "--processes=2", f"--lines={tmp_path}")
    assert done.exit_code == 1
    assert "run it again to go on. disk full" in done.output


def test_packaged_settings_are_the_best_of_the_trials() -> None:
    folder = Path(__file__).parents[2] / "results" / "paper"
    if not list(folder.glob("trials-*.jsonl")):
        pytest.skip(f"{folder} has no trials: this is not the whole repository")
    packaged = Path(plan.__file__).with_name("tuned.json")
    assert packaged.read_text(encoding="utf-8") == settings_text(read_lines(folder))


def test_a_folder_without_lines_is_empty(tmp_path: Path) -> None:
    assert read_lines(tmp_path) == Lines()
    append_line(tmp_path / "x.jsonl", steps.Session("", "", "", 0, 0.0))
    assert len(read_lines(tmp_path).sessions) == 1
