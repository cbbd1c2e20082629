"""Late contestants of the contest, and searches that go on from their lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from truepair.data.split_recipes import split_random
from truepair.search.domains import Choice, Powers, Range
from truepair.search.spaces import check_values
from truepair.search.trials import OpenTrial, Trial
from truepair_lab.continued import drawn, go_on, run_named
from truepair_lab.lines import TrialLine, read_lines
from truepair_lab.quality import late, running
from truepair_lab.quality.cases import CASES, Case
from truepair_lab.quality.contestants import (
    INFONCE,
    MODELS,
    NO_ENCODER,
    POPULARITY,
    fixed_of,
    parts_of,
    space_of,
)
from truepair_lab.quality.settled import packaged_settings
from truepair_lab.searching import Quest
from worlds import two_tastes

pytestmark = pytest.mark.long  # the pages of the studies and what made them

NOW = [name for name, entry in CASES.items() if not entry.former]


class Parabola:
    """Trials whose best is at x = 3; it keeps what was asked for together."""

    def __init__(self) -> None:
        self.fixed: dict[str, Any] = {"loss": "bpr"}
        self.batches: list[list[float]] = []

    def __call__(self, batch: Any) -> None:
        self.batches.append([asked.parameters["x"] for asked in batch])
        for asked in batch:
            asked.finish(1 - (asked.parameters["x"] - 3) ** 2, 5, 0.1, "made up")


def quest_of(runner: Any, space: Any = None, first: Any = None) -> Quest:
    space = {"x": Range(0.0, 10.0)} if space is None else space
    return Quest(("ml-100k", "mf", "exact-dpl"), "s", space, runner, 4, "CPU", first=first or {})


def keeping(quest: Quest, out: Path) -> Any:
    return lambda trial: quest.keep(trial, out)


def line(number: int, x: Any, score: float | None, state: str = "complete") -> TrialLine:
    place = ("ml-100k", "mf", "exact-dpl")
    return TrialLine(*place, number, state, {"loss": "bpr", "x": x}, score, 5, [], "s", "e", "CPU", 1.0)


# --- trials that are added to lines --------------------------------------------------------------------


def test_named_trials_are_run_together_and_once(tmp_path: Path) -> None:
    runner = Parabola()
    quest = quest_of(runner)
    run_named(quest, [{"x": 1.0}, {"x": 3.0}], tmp_path, keeping(quest, tmp_path))
    assert runner.batches == [[1.0, 3.0]]
    run_named(quest, [{"x": 1.01}, {"x": 2.0}], tmp_path, keeping(quest, tmp_path))
    assert runner.batches[1:] == [[2.0]]  # 1.01 is as good as 1
    lines = read_lines(tmp_path).trials
    assert [(each.number, each.parameters["x"]) for each in lines] == [(0, 1.0), (1, 3.0), (2, 2.0)]
    assert quest.best(tmp_path).parameters["x"] == 3.0


def test_a_runner_that_leaves_a_trial_open_has_failed(tmp_path: Path) -> None:
    def idle(batch: Any) -> None:
        pass

    idle.fixed = {}  # type: ignore[attr-defined]
    quest, found = quest_of(idle), list[Trial]()
    run_named(quest, [{"x": 1.0}], tmp_path, found.append)
    assert [trial.state for trial in found] == ["failed"]


def test_a_search_goes_on_from_its_lines(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    runner = Parabola()
    quest = quest_of(runner)
    go_on(quest, tmp_path, 12, keeping(quest, tmp_path))
    assert runner.batches[0] == [5.0]  # the middle
    assert [each.number for each in read_lines(tmp_path).trials] == list(range(12))
    before = len(runner.batches)
    go_on(quest, tmp_path, 12, keeping(quest, tmp_path))
    assert len(runner.batches) == before  # as many as asked for
    go_on(quest, tmp_path, 30, keeping(quest, tmp_path), together=3)
    assert [len(batch) for batch in runner.batches[before:]] == [3] * 6
    assert abs(quest.best(tmp_path).parameters["x"] - 3) < 0.5


def test_processes_share_the_numbers(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    quest = quest_of(Parabola(), first={"x": 2.5})
    go_on(quest, tmp_path, 6, keeping(quest, tmp_path), share=(1, 2))
    assert [each.number for each in read_lines(tmp_path).trials] == [1, 3, 5]


def test_the_first_trial_is_what_is_named_and_later_ones_learn(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    space = {"x": Range(0.0, 10.0), "n": Powers(16, 64), "kind": Choice(("a", "b"))}
    assert drawn(space, [], 0, {"x": 2.0}) == {"x": 2.0, "n": 32, "kind": "a"}
    kept = [line(n, n / 2, 1 - (n / 2 - 3) ** 2) for n in range(21)]
    near = [drawn({"x": Range(0.0, 10.0)}, kept, number, {})["x"] for number in range(21, 41)]
    assert sum(abs(x - 3) < 2 for x in near) > 12
    assert near == [drawn({"x": Range(0.0, 10.0)}, kept, n, {})["x"] for n in range(21, 41)]
    # an earlier search had extended the range
    wide = [replace(each, parameters={"loss": "bpr", "x": 30.0}) for each in kept[:1]] + kept[1:]
    assert 0 <= drawn({"x": Range(0.0, 10.0)}, wide, 21, {})["x"] <= 30


# --- plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", NOW)
def test_every_plan_can_be_run(case: str) -> None:
    """With the settings that come with truepair."""
    settings = packaged_settings()
    planned = [m for m in MODELS if late.is_late(case, m)]
    assert ("lightgcn", INFONCE) in planned
    assert not [m for m in planned if m[0] == NO_ENCODER or m == ("mf", INFONCE)]
    for model in planned:
        parts = parts_of(model) or ((("mf", model[1]),) if model[0] == "lightgcn" else ())
        if any((case, *part) not in settings for part in parts):
            continue  # searched by no one so far
        plan = late.plan_of(case, model, settings)
        assert bool(plan.named) != bool(plan.drawn)
        for named in plan.named if parts_of(model) is None else ():
            check_values({}, {**plan.fixed, **named})
        if plan.space and parts_of(model) is None:
            check_values(plan.space, plan.fixed)


def test_a_small_case_s_loss_takes_over_what_it_shares_with_infonce() -> None:
    settings = packaged_settings()
    plan = late.plan_of("ml-1m", ("mf", "exact-dpl-hard"), settings)
    twin = settings["ml-1m", "mf", INFONCE]["parameters"]
    for name in ("learning_rate", "weight_decay", "encoder.dim", "batch_size"):
        assert plan.fixed[name] == twin[name]
    assert set(plan.space) == {"encoder.temperature", "loss.tau", "loss.beta", "loss.margin"}
    t = plan.space["encoder.temperature"]
    assert isinstance(t, Range)
    assert t.low < twin["loss.temperature"] < t.high
    halved = late.plan_of("kuairec", ("mf", "exact-psl"), settings).space["loss.temperature"]
    assert isinstance(halved, Range)
    assert halved.high == settings["kuairec", "mf", INFONCE]["parameters"]["loss.temperature"]


def test_settings_of_older_lines_keep_their_temperature() -> None:
    """Lines of before have no temperature of the encoder: it was 1, and the default is another one now."""
    older = {"encoder": "mf", "loss": "infonce", "loss.temperature": 0.2}
    settings = {("ml-1m", "mf", INFONCE): {"parameters": older, "epoch": 5}}
    assert late.plan_of("ml-1m", ("lightgcn", INFONCE), settings).fixed["encoder.temperature"] == 1.0


def test_weights_go_on_where_the_highest_is_the_best() -> None:
    run = {"parameters": {"encoder.temperature": 0.1}, "epoch": 5}
    plan = late._of_blend(True, ("mf+ease", "exact-dpl"), run, {"parameters": {}})
    weights = [each["plus_weight"] for each in plan.named]
    assert weights == pytest.approx([1, 2, 4, 8])
    best = replace(line(0, 0.0, 1.0), parameters={"plus_weight": weights[-1]})
    assert [each["plus_weight"] for each in late.beyond(plan, best)] == pytest.approx([16, 32])
    assert late.beyond(plan, replace(best, parameters={"plus_weight": weights[1]})) == ()
    hops = late.Plan({}, ({"encoder.hops": 1},))
    assert late.beyond(hops, replace(best, parameters={"encoder.hops": 1})) == ()


def test_settings_like_the_plain_call_s_compete_on_movielens_alone() -> None:
    asked = {(c, m): late.more_trials(c, m) for c in NOW for m in MODELS}
    found = {place: len(trials) for place, trials in asked.items() if trials}
    assert found == {(case, ("mf", POPULARITY)): 4 for case in ("ml-100k", "ml-1m")}
    fixed = fixed_of("mf", POPULARITY, False)
    for named in asked["ml-100k", ("mf", POPULARITY)]:
        check_values({}, {**fixed, **named})
        assert set(space_of("mf", POPULARITY, False)) <= set(named)


# --- searching -----------------------------------------------------------------------------------------


@pytest.fixture
def case() -> Case:
    pairs = two_tastes(n_users=60, n_items=30, each=8)
    return Case("coat", split_random(pairs, 0.2, valid=0.2, seed=1))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones, of MF with popularity and of EASE."""
    small = fixed_of("mf", POPULARITY, False) | {
        "epochs": 5, "encoder.dim": 4, "batch_size": 16, "learning_rate": 0.05, "loss.temperature": 0.2,
        "encoder.popularity": 0.1, "weight_decay": 0.0,
    }  # fmt: skip
    powers = {"encoder": "ease", "encoder.l2": 40.0, "encoder.user_power": 0.2, "encoder.item_power": 0.1}
    known = {
        ("coat", "mf", POPULARITY): {"parameters": small, "epoch": 5, "validation": 0.3},
        ("coat", "mf", INFONCE): {"parameters": small, "epoch": 5, "validation": 0.3},
        ("coat", NO_ENCODER, "ease-powers"): {"parameters": powers, "epoch": 1, "validation": 0.2},
    }
    monkeypatch.setattr(running, "settings_of", lambda lines: known)


@pytest.mark.usefixtures("settings")
def test_lightgcn_has_the_settings_of_mf_and_trials_of_its_hops(case: Case, tmp_path: Path) -> None:
    best = running.search(case, ("lightgcn", INFONCE), tmp_path)
    lines = read_lines(tmp_path).trials
    assert [each.parameters["encoder.hops"] for each in lines] == [1, 2, 3]
    assert {each.parameters["encoder.dim"] for each in lines} == {4}
    assert best.score == max(each.score or 0.0 for each in lines)
    running.search(case, ("lightgcn", INFONCE), tmp_path)
    assert read_lines(tmp_path).trials == lines


@pytest.mark.usefixtures("settings")
def test_a_blend_may_search_the_settings_of_its_ease(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(late, "_DRAWN_WITH_EASE", 3)
    running.search(case, ("mf+ease", POPULARITY), tmp_path)
    lines = read_lines(tmp_path).trials
    assert (lines[0].parameters["plus.l2"], lines[0].parameters["plus.user_power"]) == (40.0, 0.2)
    assert len({each.parameters["plus.l2"] for each in lines}) == 3
    assert {each.state for each in lines} == {"complete"}


def test_a_late_contestant_is_scored_once_on_other_parts() -> None:
    trials = [
        replace(line(n, n, s), dataset="ml-1m", encoder=e, method=m)
        for e, m in (("lightgcn", INFONCE), ("mf+ease", "exact-psl"), ("mf", POPULARITY))
        for n, s in enumerate((0.1, 0.3, 0.2, 0.15))
    ]
    found = {m: [t.number for t in running._best_trials(trials, "ml-1m", m)] for m in MODELS}
    assert found["lightgcn", INFONCE] == [1]
    assert found["mf+ease", "exact-psl"] == [1, 2]
    assert found["mf", POPULARITY] == [1, 2, 3]


def test_a_search_without_a_journal_goes_on(tmp_path: Path) -> None:
    quest = quest_of(Parabola())
    assert not quest.is_left(tmp_path)
    quest.keep(Trial(0, {"loss": "bpr", "x": 1.0}, 0.5, 5, "complete"), tmp_path)
    assert quest.is_left(tmp_path)
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "ml-100k_mf_exact-dpl.journal").touch()
    assert not quest.is_left(tmp_path)
    assert OpenTrial(0, {}, lambda outcome: None).report(1, 0.5) is False
