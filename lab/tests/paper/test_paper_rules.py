"""Rules of the paper's study by hand: what counts as yes, what is run, searched and timed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import paper_lines as made
import pytest
import test_paper_running as small
import torch
from typer.testing import CliRunner

from truepair.evaluation import evaluate
from truepair.evaluation.task import Task
from truepair.search.trials import OpenTrial
from truepair.training.job import Engine
from truepair.training.result import EpochState
from truepair_lab.cli.main import app
from truepair_lab.lines import Lines, read_lines
from truepair_lab.paper.presets import DATA, METHODS_OF, METRICS, sweeps
from truepair_lab.paper.report import figures
from truepair_lab.paper.report.names import in_order
from truepair_lab.paper.report.questions import Answer, _all_of, _first_over, more_on_sparse, signs
from truepair_lab.paper.running import runs as running
from truepair_lab.paper.running import search as searching
from truepair_lab.paper.running import steps, timing
from truepair_lab.paper.running.runs import CurveOnTest, run_wanted
from truepair_lab.statistics import Mean

two_trials = small.two_trials  # a fixture


@pytest.fixture(scope="module")
def material() -> Any:
    return small.small_material()


# --- questions -------------------------------------------------------------------------------------------


def test_all_sides_must_be_sure() -> None:
    assert _all_of([(1, 0.001), (1, 0.3)]) == (1, 0.3)
    assert _all_of([(1, 0.001), (-1, 0.002), (-1, 0.4)]) == (-1, 0.002)
    assert _all_of([(1, 0.001), (1, None)]) == (0, None)


def test_what_is_corrected_already_costs_the_others_nothing() -> None:
    over_users = [Answer(1, 0.01, "", ("a",), corrected=True) for _ in range(5)]
    assert signs([Answer(1, 0.03, "", ("a",)), *over_users]) == [1] * 6
    assert signs([Answer(1, 0.03, "", ("a",)), Answer(1, 0.03, "", ("b",))]) == [0, 0]


def test_a_point_that_two_steps_share_counts_twice() -> None:
    means = [Mean(value, 0.1, 3) for value in (0.0, 3.0, 4.0, 4.5)]
    assert _first_over(means, 1).value == pytest.approx(3 - 1)
    assert _first_over(means, 2).value == pytest.approx(3 - 0.5)
    one = 0.1**2 / 3  # the variance of a mean
    assert _first_over(means, 1).error == pytest.approx((6 * one) ** 0.5)
    assert _first_over(means, 2).error == pytest.approx((4 * one) ** 0.5)


def test_gains_are_means_over_the_datasets_of_a_kind() -> None:
    """10% on one dense dataset, 6% on each of two sparse ones."""
    gains = {"ml-1m": 0.33, "gowalla": 0.318, "yelp2018": 0.318}
    runs = [
        made.runs("paper", name, "mf", method, value, noise=1e-5)
        for name, infonce in gains.items()
        for method, value in (("infonce", infonce), ("bpr", 0.3))
    ]
    (answer,) = more_on_sparse(Lines([run for few in runs for run in few]))
    assert answer.towards == -1
    assert answer.text.startswith("MF: sparse +5.8% ")  # every metric is .008 above its value
    assert "dense +9.7% " in answer.text


def test_known_names_come_first_in_their_order() -> None:
    assert sorted(["z", "b", "new", "a"], key=in_order(["b", "a"])) == ["b", "a", "new", "z"]


def test_bands_reach_one_standard_deviation_to_each_side() -> None:
    low, high = figures._reach([Mean(0.3, 0.01, 3), Mean(0.4, None, 1), Mean(0.5, 0.2, 1)])
    assert low == pytest.approx([0.29, 0.4, 0.5])
    assert high == pytest.approx([0.31, 0.4, 0.5])


# --- presets and searches --------------------------------------------------------------------------------


def test_a_sweep_of_tau_moves_its_floor() -> None:
    found = sweeps(DATA["ml-1m"], "mf")
    for name, tau in (("tau=0", 0.0), ("tau=0.2", 0.2), ("tau=0.5", 0.5)):
        assert found[name]["loss.floor"] == pytest.approx(0.01 / (1 - tau), abs=1e-6)
    assert found["M=3"]["loss.floor"] == pytest.approx(0.01 / 0.95, abs=1e-6)


def test_the_pool_of_bns_takes_the_place_of_n() -> None:
    spaces = {method: searching.space_of("mf", method) for method in METHODS_OF["mf"]}
    assert [method for method, space in spaces.items() if "n_unlabelled" not in space] == ["bns"]
    assert "sampler.pool" in spaces["bns"]


@pytest.mark.usefixtures("two_trials")
def test_a_trial_that_rises_to_its_end_is_trained_longer_twice(
    material: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rising:
        """The score is the number of epochs, so that the last epoch is always the best."""

        fixed, identity = {"epochs": 4, "encoder": "mf", "loss": "bpr"}, "rising"

        def __call__(self, batch: list[OpenTrial]) -> None:
            for asked in batch:
                epochs = asked.parameters["epochs"]
                asked.finish(epochs / 1000, epochs, 0.0, "none")

    monkeypatch.setattr(searching, "_runner", lambda *given: Rising())
    best = searching.search(material, "mf", "bpr", tmp_path)
    assert best.epoch == 64
    epochs = [line.parameters["epochs"] for line in read_lines(tmp_path).trials]
    assert sorted(epochs) == [4, 4, 16, 64]


def test_a_reference_point_that_fails_fails_alone(material: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    solved = searching.solved

    def singular(method: str, parameters: dict[str, Any], *rest: Any) -> Any:
        if parameters["encoder.l2"] == 1.0:
            raise RuntimeError("the matrix is singular")
        return solved(method, parameters, *rest)

    monkeypatch.setattr(searching, "solved", singular)
    ended: list[Any] = []
    runner = searching._runner(material, "-", "ease")
    runner(
        [OpenTrial(at, runner.fixed | {"encoder.l2": l2}, ended.append) for at, l2 in enumerate((1.0, 10.0))]
    )
    assert [outcome.state for outcome in ended] == ["failed", "complete"]


# --- runs ------------------------------------------------------------------------------------------------


def test_each_metric_has_its_own_best_epoch(material: Any) -> None:
    curve = CurveOnTest(Task(material.whole.test, material.train))
    curve.found = {
        1: dict.fromkeys(METRICS, 0.1) | {"recall@5": 0.9},
        2: dict.fromkeys(METRICS, 0.2),
    }
    assert curve.best() == dict.fromkeys(METRICS, 0.2) | {"recall@5": 0.9}
    assert curve.last() == dict.fromkeys(METRICS, 0.2)


def test_looking_at_the_test_part_gives_training_no_score(material: Any) -> None:
    users, items = (torch.ones(n, 2) for n in (material.train.n_users, material.train.n_items))
    curve = CurveOnTest(Task(material.whole.test, material.train), keep=2)
    for epoch in (1, 2, 3):
        assert curve(EpochState(epoch, 0.0, lambda: (users, items))) is None
    assert curve.kept is not None
    assert sorted(curve.found) == [1, 2, 3]


def test_a_clean_run_is_tested_without_the_train_part(material: Any, tmp_path: Any) -> None:
    point = small.wanted("clean", encoder="-", method="ease", parameters={"encoder": "ease"})
    run_wanted(material, [point], tmp_path, print)
    (line,) = read_lines(tmp_path).runs
    model = searching.solved("ease", point.parameters, material.train)
    found = evaluate((model.users, model.items), material.whole.test, exclude=material.train, cold="model")
    assert line.metrics == pytest.approx({name: found.mean(name) for name in METRICS}, abs=1e-6)
    values = np.load(next((tmp_path / "per-user").iterdir()))
    assert values == pytest.approx(found.values("ndcg@20"), abs=1e-6)


def test_the_beginning_of_a_run_has_its_own_epochs(material: Any, tmp_path: Any) -> None:
    """Of four epochs, two of which were clean, with clamped shares of .1, .3, .5 and .7."""
    history = [SimpleNamespace(clamped=share) for share in (0.1, 0.3, 0.5, 0.7)]
    result = SimpleNamespace(history=history, engine="cpu", epoch=4, clamped=0.4)
    kept = torch.ones(material.train.n_users, 2), torch.ones(material.train.n_items, 2)
    clean = small.wanted("clean", parameters=small.CLEAN)
    line = running._ended(material, clean, result, kept, 8.0, tmp_path)  # type: ignore[arg-type]
    assert (line.epoch, line.clamped, line.seconds) == (2, pytest.approx(0.2), 4.0)


def test_a_ratio_of_times_is_to_bpr(material: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of 1, 3 and 6 seconds, on a clock that only they move; the first two epochs take longer."""
    now = 0.0

    def train(seconds: float, epoch: int) -> None:
        nonlocal now
        now += seconds if epoch > 1 else 100

    def start(job: Any) -> Any:
        seconds = 6.0 if "BNS" in type(job.sampler).__name__ else 1.0 if job.settings.n_extra == 0 else 3.0
        return SimpleNamespace(train=lambda epoch, *rest: train(seconds, epoch))

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(timing, "choose_engine", lambda job: "cpu")
    monkeypatch.setattr(timing, "ENGINES", {"cpu": Engine(start, lambda job: None)})
    timing.time_epochs(material, tmp_path, print, rounds=3)
    assert {t.method: t.ratio for t in read_lines(tmp_path).timings} == {"bpr": 1, "dpl": 3, "bns": 6}


# --- processes -------------------------------------------------------------------------------------------


def test_one_part_that_fails_among_others_is_an_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_call", lambda step, part, *_: "disk full" if "dpl" in part.methods else None)
    words = ["run", "--only=ml-100k", "--methods=bpr,dpl", "--encoders=mf", "--studies=paper"]
    done = CliRunner().invoke(app, ["paper", *words, "--processes=2", f"--lines={tmp_path}"])
    assert done.exit_code == 1
    assert "1 of 2 parts failed; run it again to go on. disk full" in done.output


def test_processes_share_the_processors(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def called(command: list[str], env: dict[str, str], **rest: Any) -> Any:
        seen.append(env)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(steps.subprocess, "run", called)
    monkeypatch.setattr(steps.os, "cpu_count", lambda: 8)
    for processes in (1, 3, 16):
        part = replace(steps.Selection(datasets=("ml-100k",)), processes=processes)
        assert steps._call("run", part, tmp_path, print) is None
    assert [env["NUMBA_NUM_THREADS"] for env in seen] == ["8", "2", "1"]
    assert all(env["OMP_NUM_THREADS"] == env["NUMBA_NUM_THREADS"] for env in seen)
