"""Tuned EASE and tuned iALS of a case: the contest's, or tuned here where the contest does not have the case.

Here each search has TRIALS trials on a random validation part, plain EASE fewer as it has one parameter.
EASE is the better of plain EASE and EASE with degree exponents, on validation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from truepair.evaluation import Validation
from truepair.search.domains import Powers
from truepair.search.running import Runner
from truepair_lab.lines import Lines, RunLine, TrialLine, append_line, read_lines
from truepair_lab.paper.baselines import device_name, solved
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.paper.running.runs import named
from truepair_lab.paper.running.search import PointRunner
from truepair_lab.plain.cases import CASES
from truepair_lab.plain.lines import FitTime, keep_values, processor, read_plain
from truepair_lab.quality.cases import NDCG, Case
from truepair_lab.quality.comparisons import FAMILY, sides_of
from truepair_lab.quality.contestants import (
    EASE_FAMILY,
    FAMILIES,
    IALS_FAMILY,
    SCALED,
    fixed_of,
    space_of,
)
from truepair_lab.quality.ials_runner import IalsRunner
from truepair_lab.quality.settled import final_parameters
from truepair_lab.quality.user_values import Values, read_values, values_name
from truepair_lab.searching import Quest, best_trials, trials_for
from truepair_lab.store import append

BASELINES = (EASE_FAMILY, IALS_FAMILY)
TRIALS = 60
IALS_DIM, SWEEPS = Powers(8, 128), 16  # small cases; the range grows if the best is at its edge
STUDY = "plain"
FOLDER = "baselines"  # below the lines of the plain call
_SEEDS = {EASE_FAMILY: 1, IALS_FAMILY: 3}
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Baseline:
    """A tuned baseline: its final runs, and the values of users, the mean over seeds."""

    runs: Sequence[RunLine]
    values: Values


# --- tuning and final runs, where the contest does not have the case -----------------------------------


def tune(case: Case, folder: Path, say: Say, progress: bool = False) -> None:
    """Every search that is not finished; validation only."""
    for family in BASELINES:
        for _, method in FAMILIES[family]:
            quest = quest_of(case, method)
            quest.run(folder / FOLDER, progress)
            say(f"{case.name}, {method}: best validation {NDCG} {quest.best(folder / FOLDER).score:.4f}")


def quest_of(case: Case, method: str) -> Quest:
    """The search of a baseline."""
    space, fixed = space_of(NO_ENCODER, method, False), fixed_of(NO_ENCODER, method, False)
    if method == SCALED:
        space, fixed = space | {"dim": IALS_DIM}, fixed | {"epochs": SWEEPS}
    train, judge = case.holdout.train, Validation(case.valid, case.holdout.train, NDCG, cold="model")
    own: dict[str, Runner] = {SCALED: IalsRunner(fixed, train, judge)}
    runner = own.get(method) or PointRunner(method, fixed, train, judge)
    place, trials = (case.name, NO_ENCODER, method), trials_for(space, TRIALS)
    return Quest(place, case.holdout.hash, space, runner, trials, device_name())


def chosen_trial(lines: Lines, case: str, family: str) -> TrialLine | None:
    """The best trial of a family on validation."""
    best = best_trials(lines)
    found = [best[place] for _, method in FAMILIES[family] if (place := (case, NO_ENCODER, method)) in best]
    return max(found, key=lambda trial: trial.score or 0.0, default=None)


def run(case: Case, folder: Path, say: Say) -> None:
    """The final runs that have no line yet: each learns from train and validation, and is judged once."""
    lines = read_lines(folder / FOLDER)
    known = {line.key for line in lines.runs}
    for family in BASELINES:
        for wanted in _wanted(lines, case.name, family):
            if wanted.key(case.whole.hash) in known:
                continue
            began = time.perf_counter()
            point = solved(wanted.method, wanted.parameters, case.train, wanted.seed)
            seconds, found = time.perf_counter() - began, case.judged(point.users, point.items)
            keep_values(folder, case.name, _name(wanted), found.per_user)
            line = RunLine(
                **named(wanted, case.whole.hash), engine=point.engine, epoch=point.epochs, curve=[],
                metrics=found.metrics, last={}, clamped=None, seconds=round(seconds, 3),
            )  # fmt: skip
            append_line(folder / FOLDER / f"runs-{case.name}.jsonl", line)
            say(f"{case.name}, {wanted.method}, seed {wanted.seed}: {NDCG} {found.metrics[NDCG]:.4f}")


def _wanted(lines: Lines, case: str, family: str) -> list[Wanted]:
    trial = chosen_trial(lines, case, family)
    if trial is None:
        return []
    parameters = final_parameters({"parameters": trial.parameters, "epoch": trial.epoch})
    seeds = range(_SEEDS[family])
    return [Wanted(STUDY, case, NO_ENCODER, trial.method, "", seed, parameters) for seed in seeds]


def _name(run: Wanted | RunLine) -> str:
    return f"{run.method} {run.seed}"


# --- what there is -------------------------------------------------------------------------------------


def contest_case(case: str, contest: Lines) -> str | None:
    """The contest's case whose tuned baselines count: the first that has final runs of all of them."""
    for name in CASES[case].contest:
        sides = sides_of(contest, name)
        if all(FAMILY + family in sides for family in BASELINES):
            return name
    return None


def baseline_runs(case: str, family: str, own: Lines, contest: Lines) -> Sequence[RunLine]:
    """The final runs of a tuned baseline; none where it was not run."""
    name = contest_case(case, contest)
    if name is not None:
        return sides_of(contest, name)[FAMILY + family].runs
    wanted = {each.key("")[:-1] for each in _wanted(own, case, family)}
    return [line for line in own.runs if line.key[:-1] in wanted]


def baseline_of(
    case: str, family: str, own: Lines, contest: Lines, folder: Path, contest_folder: Path
) -> Baseline | None:
    """A tuned baseline with the values of its users; None where either is missing."""
    runs = baseline_runs(case, family, own, contest)
    if not runs:
        return None
    if case != runs[0].dataset or runs[0].study != STUDY:
        found = read_values(contest_folder, runs[0].dataset).get(values_name(runs[0]))
        return None if found is None else Baseline(runs, found)
    values = read_values(folder, case)
    each = [values[_name(line)] for line in runs if _name(line) in values]
    return Baseline(runs, np.mean(each, axis=0)) if len(each) == len(runs) else None


def ials_parameters(case: str, own: Lines, contest: Lines) -> dict[str, object] | None:
    """The settings of tuned iALS; None where it was not tuned."""
    if runs := baseline_runs(case, IALS_FAMILY, own, contest):
        return dict(runs[0].parameters)
    wanted = _wanted(own, case, IALS_FAMILY)
    return dict(wanted[0].parameters) if wanted else None


def time_ials(case: Case, parameters: dict[str, object], folder: Path, alone: bool, say: Say) -> None:
    """A line with the seconds of one fit of tuned iALS, unless there is one."""
    key = FitTime(case.name, processor(), "", alone, parameters, 0.0).key
    if any(line.key == key and line.alone >= alone for line in read_plain(folder).times):
        return
    began = time.perf_counter()
    solved(SCALED, parameters, case.train)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds = round(time.perf_counter() - began, 3)
    line = FitTime(case.name, processor(), device_name(), alone, parameters, seconds)
    append(folder / f"times-{case.name}.jsonl", line)
    say(f"{case.name}: one fit of tuned iALS takes {seconds:.1f} s")
