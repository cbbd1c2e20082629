"""Running the contest: searches on validation, final runs that are judged once; nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truepair.errors import InputError, TrainingError
from truepair.evaluation import Validation
from truepair.tuning import Runner, training_runner
from truepair_lab.lines import RunLine, TrialLine, append_line, read_lines
from truepair_lab.paper.baselines import device_name, solved
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.contrasts import Values, compare_runs
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.paper.running.runs import keep_values, named, per_user_file
from truepair_lab.paper.running.search import PointRunner
from truepair_lab.quality.blends import BlendRunner, best_of, trained
from truepair_lab.quality.cases import CASES, NDCG, Case, load_case
from truepair_lab.quality.contestants import (
    BASELINES,
    INFONCE,
    METHODS_OF,
    MODELS,
    POSTERIOR,
    Model,
    fixed_of,
    parts_of,
    space_of,
    title,
    trials_of,
    twin_of,
)
from truepair_lab.quality.settled import Settings, current_runs, settings_of, wanted_runs
from truepair_lab.searching import Quest

Say = Callable[[str], None]


@dataclass(frozen=True)
class Selection:
    """Which part of the contest to do."""

    cases: Sequence[str] = tuple(CASES)
    encoders: Sequence[str] = tuple(METHODS_OF)
    methods: Sequence[str] = tuple(method for _, method in MODELS)
    seeds: int | None = None
    data_dir: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # parameters of trained contestants, not searched

    def __post_init__(self) -> None:
        if not self.models:
            goes = "; ".join(f"{', '.join(of)} with {encoder}" for encoder, of in METHODS_OF.items())
            raise InputError(
                f"none of the methods {', '.join(self.methods)} goes with {', '.join(self.encoders)}: {goes}."
            )

    @property
    def models(self) -> list[Model]:
        """The contestants that are selected."""
        return [(e, m) for e, m in MODELS if e in self.encoders and m in self.methods]

    def words(self) -> list[str]:
        """As options of the command."""
        named = {"only": self.cases, "encoders": self.encoders, "methods": self.methods}
        words = [f"--{option}={','.join(values)}" for option, values in named.items()]
        words += [f"--set {name}={value}" for name, value in self.given.items()]
        return words + ([] if self.seeds is None else [f"--seeds={self.seeds}"])

    def loaded(self) -> Iterator[Case]:
        """The cases, one after the other."""
        for name in self.cases:
            yield load_case(name, self.data_dir)


# --- searching -----------------------------------------------------------------------------------------


def tune_all(selected: Selection, out: Path, say: Say, progress: bool = False) -> None:
    """Every search that is not finished."""
    for case in selected.loaded():
        for model in selected.models:
            best = search(case, model, out, progress, selected.given)
            say(f"{case.name}, {title(model)}: best validation {NDCG} {best.score:.4f}")


def search(
    case: Case, model: Model, out: Path, progress: bool = False, given: Mapping[str, Any] | None = None
) -> TrialLine:
    """The best trial of a contestant; every trial is a line in `out`. The test part takes no part."""
    quest = quest_of(case, model, settings_of(read_lines(out)), given)
    quest.run(out, progress)
    return quest.best(out)


def quest_of(
    case: Case, model: Model, settings: Settings | None = None, given: Mapping[str, Any] | None = None
) -> Quest:
    """What is searched, and by what it is judged.

    `settings` are those of a sum's parts, or of a twin; `given` are parameters that are not searched.
    """
    settings, given = settings or {}, given or {}
    large, train = CASES[case.name].large, case.holdout.train
    space, fixed, twin = space_of(*model, large), fixed_of(*model, large), twin_of(model, large)
    if twin is not None:
        fixed = {**best_of(settings, (case.name, *twin))["parameters"], "loss": fixed["loss"]}
    if parts_of(model) is None and model[0] != NO_ENCODER:
        space = {name: domain for name, domain in space.items() if name not in given}
        fixed = {**fixed, **given}
    judge, parts = Validation(case.valid, train, NDCG, cold="model"), parts_of(model)
    runner: Runner
    if parts is not None:
        runner = BlendRunner([best_of(settings, (case.name, *part)) for part in parts], train, judge)
    elif model[0] == NO_ENCODER:
        runner = PointRunner(model[1], fixed, train, judge)
    else:
        runner = training_runner(fixed, train, case.valid, NDCG)
    trials = trials_of(model[0], space, large)
    return Quest((case.name, *model), case.holdout.hash, space, runner, trials, device_name())


# --- final runs ----------------------------------------------------------------------------------------


def run_all(selected: Selection, out: Path, say: Say) -> None:
    """Every final run that is not done, with the best settings of the trials at hand."""
    for case in selected.loaded():
        wanted = wanted_runs(case.name, selected.models, settings_of(read_lines(out)), selected.seeds)
        untuned = [title(m) for m in selected.models if not any((w.encoder, w.method) == m for w in wanted)]
        if untuned:
            say(f"{case.name}: no settings for {', '.join(untuned)}; `truepair lab quality tune` finds them")
        run_wanted(case, wanted, out, say)


def run_wanted(case: Case, wanted: Sequence[Wanted], out: Path, say: Say) -> int:
    """Run what has no line yet; gives how many runs that were."""
    count = 0
    for each in wanted:
        if each.key(case.whole.hash) in {line.key for line in read_lines(out).runs}:
            continue
        what = f"{case.name}, {title((each.encoder, each.method))}, seed {each.seed}"
        try:
            line = _ran(case, each, out)
        except TrainingError as error:
            say(f"{what}: {error}")
            continue
        append_line(out / f"runs-{case.name}.jsonl", line)
        say(f"{what}: {NDCG} {line.metrics[NDCG]:.4f} ({line.seconds:.1f} s)")
        count += 1
    return count


def _ran(case: Case, each: Wanted, out: Path) -> RunLine:
    began = time.perf_counter()
    users, items, facts = _solved(case, each) if each.encoder == NO_ENCODER else _trained(case, each)
    seconds = round(time.perf_counter() - began, 3)
    found = case.judged(users, items)
    keep_values(per_user_file(out, each), found.per_user)
    facts = named(each, case.whole.hash) | facts
    return RunLine(**facts, curve=[], metrics=found.metrics, last={}, seconds=seconds)


Fitted = tuple[Any, Any, dict[str, Any]]  # users, items, what the line says of them


def _solved(case: Case, each: Wanted) -> Fitted:
    point = solved(each.method, each.parameters, case.train, each.seed)
    return point.users, point.items, {"engine": point.engine, "epoch": point.epochs, "clamped": None}


def _trained(case: Case, each: Wanted) -> Fitted:
    users, items, result = trained(each.parameters, case.train, each.seed)
    clamped = None if result.clamped is None else round(result.clamped, 6)
    return users, items, {"engine": result.engine, "epoch": result.epoch, "clamped": clamped}


# --- comparisons ---------------------------------------------------------------------------------------


def compare_all(selected: Selection, out: Path, say: Say) -> None:
    """The comparisons of each case, anew."""
    for name in selected.cases:
        runs = {
            (e, m): lines for (case, e, m), lines in current_runs(read_lines(out)).items() if case == name
        }
        compare_runs(name, runs, contest_pairs, out, say)


def contest_pairs(means: Mapping[Model, Values]) -> list[tuple[Model, Model]]:
    """Every contestant that is trained against EASE and iALS, these two against each other, and InfoNCE with
    weights by a first model against InfoNCE."""
    baselines = [(NO_ENCODER, method) for method in BASELINES]
    trained = [model for model in MODELS if model[0] != NO_ENCODER]
    pairs = [(model, baseline) for model in trained for baseline in baselines] + [
        (baselines[0], baselines[1])
    ]
    pairs += [(model, (model[0], INFONCE)) for model in trained if model[1] == POSTERIOR]
    return [(a, b) for a, b in pairs if a in means and b in means]
