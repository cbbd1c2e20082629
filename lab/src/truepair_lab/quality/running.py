"""Running the contest: searches on validation, final runs that are judged once; nothing is done twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TruepairError
from truepair.evaluation import Validation
from truepair.search.runner import TrainingRunner
from truepair.search.running import Runner
from truepair.search.trials import Trial
from truepair_lab.continued import go_on, run_named
from truepair_lab.lines import RunLine, TrialLine, append_line, digest, read_lines
from truepair_lab.paper.baselines import Point, device_name, solved
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.paper.running.runs import keep_values, named, per_user_file
from truepair_lab.paper.running.search import PointRunner
from truepair_lab.quality.blends import BlendRunner, Fitted, best_of, run_key, trained_together
from truepair_lab.quality.cases import CASES, NDCG, Case, is_resampled, load_case, n_parts
from truepair_lab.quality.contestants import (
    FIRST,
    INFONCE,
    METHODS_OF,
    MODELS,
    SCALED,
    Model,
    equal_trials,
    fixed_of,
    parts_of,
    scored_again,
    space_of,
    taken_over,
    title,
    trials_of,
    twin_of,
)
from truepair_lab.quality.ials_runner import IalsRunner
from truepair_lab.quality.late import beyond, is_late, more_trials, plan_of
from truepair_lab.quality.part_scores import PartLine, ResampledValidation, part_file, read_contest
from truepair_lab.quality.settled import (
    Settings,
    final_parameters,
    other_runs,
    settings_of,
    wanted_runs,
)
from truepair_lab.quality.user_values import has_values
from truepair_lab.searching import Place, Quest, lasting
from truepair_lab.store import append

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
        score_parts(case, selected.models, out, say)


def search(
    case: Case, model: Model, out: Path, progress: bool = False, given: Mapping[str, Any] | None = None
) -> TrialLine:
    """The best trial of a contestant; every trial is a line in `out`. The test part takes no part."""
    lines = read_contest(out)
    if is_late(case.name, model) and not given:
        return late_search(case, model, out)
    counts = Counter((line.encoder, line.method) for line in lines.trials if line.dataset == case.name)
    quest = quest_of(case, model, settings_of(lines), given)
    trials = equal_trials(model, quest.trials, counts, CASES[case.name].large)
    # a number that is promised to be equal does not grow with the ranges
    quest = replace(quest, trials=trials, extensions=0 if trials > quest.trials else quest.extensions)
    if model[0] == NO_ENCODER and quest.space and quest.is_left(out):
        go_on(quest, out, trials, partial(_keep, case, quest, out))
        return quest.best(out)
    trained = model[0] in ("mf", "lightgcn")
    together = 2 if trained and CASES[case.name].large and torch.cuda.is_available() else 1
    quest.run(out, progress, together, partial(_keep_draws, case, quest, out))
    if more := more_trials(case.name, model):
        run_named(quest, more, out, partial(_keep, case, quest, out))
    return quest.best(out)


def late_search(case: Case, model: Model, out: Path) -> TrialLine:
    """The best trial of a contestant that came after the others: see `quality.late`."""
    settings = settings_of(read_contest(out))
    plan = plan_of(case.name, model, settings)
    runner: Runner
    if (parts := parts_of(model)) is not None:
        own = [best_of(settings, (case.name, *part)) for part in parts]
        runner = BlendRunner(own, case.holdout.train, _judge(case), plan.space)
    else:
        runner = _training(case, plan.fixed)
    trials = plan.drawn or len(plan.named)
    quest = Quest(
        (case.name, *model), case.holdout.hash, plan.space, runner, trials, device_name(), first=plan.first
    )
    ended = partial(_keep, case, quest, out)
    if plan.named:
        run_named(quest, plan.named, out, ended)
        run_named(quest, beyond(plan, quest.best(out)), out, ended)
    else:
        together = 4 if torch.cuda.is_available() and parts is None else 1
        go_on(quest, out, plan.drawn, ended, together=together)
    return quest.best(out)


def _keep(case: Case, quest: Quest, out: Path, trial: Trial) -> None:
    _keep_draws(case, quest, out, trial)
    quest.keep(trial, out)


def _keep_draws(case: Case, quest: Quest, out: Path, trial: Trial) -> None:
    """The scores of a trial on the parts that are draws of users."""
    judge = getattr(quest.runner, "validation", None) or getattr(quest.runner, "judge", None)
    if not isinstance(judge, ResampledValidation) or trial.state != "complete" or trial.score is None:
        return
    marks = digest(lasting(trial.parameters)), trial.epoch
    for part, score in enumerate(judge.drawn.get(trial.score, ()), 1):
        line = PartLine(*quest.place, *marks, part, quest.split, score, quest.device, 0.0)
        append(part_file(out, case.name), line)


def quest_of(
    case: Case, model: Model, settings: Settings | None = None, given: Mapping[str, Any] | None = None
) -> Quest:
    """What is searched, and by what it is judged.

    `settings` are those of a sum's parts, or of a twin; `given` are parameters that are not searched.
    """
    settings, given = settings or {}, given or {}
    large, train = CASES[case.name].large, case.holdout.train
    fixed, space, parts = fixed_of(*model, large), space_of(*model, large), parts_of(model)
    own = [best_of(settings, (case.name, *part)) for part in parts or ()]
    if (twin := twin_of(model, large)) is not None:
        taken = best_of(settings, (case.name, *twin))["parameters"]
        fixed, space = taken_over(model, taken), space_of(*model, large, taken["encoder.temperature"])
        if not space and model[0] == "lightgcn":  # the hops are those of InfoNCE
            hops = best_of(settings, (case.name, model[0], INFONCE))["parameters"]["encoder.hops"]
            fixed = fixed | {"encoder.hops": hops}
    elif own and large:
        space = space_of(*model, large, own[0]["parameters"]["encoder.temperature"])
    fixed = {name: value for name, value in fixed.items() if name not in space}
    if parts is None and model[0] != NO_ENCODER:
        space = {name: domain for name, domain in space.items() if name not in given}
        fixed = {**fixed, **given}
    runner: Runner
    judge = _judge(case)
    if model[1] == SCALED:
        runner = IalsRunner(fixed, train, judge)
    elif parts is not None:
        runner = BlendRunner(own, train, judge)
    elif model[0] == NO_ENCODER:
        runner = PointRunner(model[1], fixed, train, judge)
    else:
        runner = _training(case, fixed)
    first = {name: value for name, value in FIRST.get(model[1], {}).items() if large and name in space}
    trials = trials_of(model, space, large)
    return Quest((case.name, *model), case.holdout.hash, space, runner, trials, device_name(), first=first)


def _training(case: Case, fixed: Mapping[str, Any]) -> Runner:
    runner = TrainingRunner(fixed, case.holdout.train, case.valid, NDCG)
    runner.validation = _judge(case) if is_resampled(case.name) else runner.validation
    return runner


def _judge(case: Case) -> Validation:
    """What scores trials; with draws of users where these are the further validation parts."""
    train = case.holdout.train
    if is_resampled(case.name):
        return ResampledValidation(case.valid, train, NDCG, "model", n_parts(case.name))
    return Validation(case.valid, train, NDCG, "model")


def score_parts(
    case: Case, models: Sequence[Model], out: Path, say: Say, numbers: Sequence[int] | None = None
) -> None:
    """The best settings of every search, scored on the other validation parts; `numbers` names some of them,
    for processes that share the work."""
    if is_resampled(case.name):
        return
    for number in range(1, n_parts(case.name)) if numbers is None else numbers:
        part, lines = case.part(number), read_contest(out)
        known = {line.key for line in lines.parts}
        asked = [
            trial
            for model in models
            for trial in _best_trials(lines.trials, case.name, model)
            if (*_place(trial), trial.digest, trial.epoch, number) not in known
        ]
        assert part.valid is not None
        judge, began = Validation(part.valid, part.train, NDCG, cold="model"), time.perf_counter()
        fitted = _fitted([(trial, final_parameters(asdict(trial)), 0) for trial in asked], part.train)
        for trial, _, found in fitted:
            if isinstance(found, TruepairError):
                say(f"{case.name}, {title((trial.encoder, trial.method))}, part {number}: {found}")
                continue
            score = round(judge.score(found[0], found[1]), 6)
            seconds, began = round(time.perf_counter() - began, 3), time.perf_counter()
            line = PartLine(
                *_place(trial), trial.digest, trial.epoch, number, part.hash, score,
                device_name(), seconds,
            )  # fmt: skip
            append(part_file(out, case.name), line)
        say(f"{case.name}: {len(asked)} settings scored on validation part {number}")


def _place(trial: TrialLine) -> Place:
    return trial.dataset, trial.encoder, trial.method


def _best_trials(trials: Sequence[TrialLine], case: str, model: Model) -> list[TrialLine]:
    """The trials of a contestant with the highest scores, as many as are scored again."""
    own = [t for t in trials if _place(t) == (case, *model) and t.state == "complete" and t.score is not None]
    own.sort(key=lambda trial: (-(trial.score or 0.0), trial.number))
    few = is_late(case, model) and parts_of(model) is None  # one of many that a late family has
    most = 1 if few else scored_again(model, CASES[case].large) + bool(more_trials(case, model))
    return own[:most]


# --- final runs ----------------------------------------------------------------------------------------


def run_all(selected: Selection, out: Path, say: Say) -> None:
    """Every final run that is not done, with the settings chosen among the trials at hand."""
    for case in selected.loaded():
        lines = read_contest(out)
        wanted = wanted_runs(case.name, selected.models, settings_of(lines), selected.seeds)
        untuned = [title(m) for m in selected.models if not any((w.encoder, w.method) == m for w in wanted)]
        if untuned:
            say(f"{case.name}: no settings for {', '.join(untuned)}; `truepair-lab quality tune` finds them")
        others = other_runs(case.name, selected.models, lines, selected.seeds)
        run_wanted(case, wanted, out, say)
        run_wanted(case, [each for each in others if each not in wanted], out, say, values=False)


def run_wanted(case: Case, wanted: Sequence[Wanted], out: Path, say: Say, values: bool = True) -> int:
    """Run what has no line, or where `values` of users are needed none of these, yet; gives how many runs."""
    known = {line.key for line in read_lines(out).runs if not values or has_values(out, line)}
    missing = [each for each in wanted if each.key(case.whole.hash) not in known]
    asked, count, began = [(each, each.parameters, each.seed) for each in missing], 0, time.perf_counter()
    for each, _, found in _fitted(asked, case.train):
        what = f"{case.name}, {title((each.encoder, each.method))}, seed {each.seed}"
        if isinstance(found, TruepairError):
            say(f"{what}: {found}")
            continue
        seconds = round(time.perf_counter() - began, 3)
        line = _judged(case, each, found, seconds, out)
        append_line(out / f"runs-{case.name}.jsonl", line)
        say(f"{what}: {NDCG} {line.metrics[NDCG]:.4f} ({line.seconds:.1f} s)")
        count, began = count + 1, time.perf_counter()
    return count


def _judged(case: Case, each: Wanted, fitted: Solved | Fitted, seconds: float, out: Path) -> RunLine:
    users, items, made = fitted
    found = case.judged(users, items)
    keep_values(per_user_file(out, each), found.per_user)
    epoch, clamped = (made.epochs, None) if isinstance(made, Point) else (made.epoch, made.clamped)
    return RunLine(
        **named(each, case.whole.hash), engine=made.engine, epoch=epoch, curve=[], metrics=found.metrics,
        last={}, clamped=None if clamped is None else round(clamped, 6), seconds=seconds,
    )  # fmt: skip


# --- fitting -------------------------------------------------------------------------------------------

Solved = tuple[Any, Any, Point]
Named = TypeVar("Named", Wanted, TrialLine)
_TOGETHER = 4  # runs at once on a GPU: these fill it, and a run that is interrupted loses less


def _fitted(
    asked: Sequence[tuple[Named, Mapping[str, Any], int]], train: Interactions
) -> Iterator[tuple[Named, Mapping[str, Any], Solved | Fitted | TruepairError]]:
    """Each with its matrices: (what, parameters, seed); reference points first, then training."""
    for each, parameters, seed in asked:
        if each.encoder == NO_ENCODER:
            yield each, parameters, _solved(each.method, parameters, train, seed)
    order: dict[str, int] = {}
    trained = [each for each in asked if each[0].encoder != NO_ENCODER]
    for _, parameters, seed in trained:
        order.setdefault(run_key(parameters, seed), len(order))
    trained.sort(key=lambda each: order[run_key(each[1], each[2])])  # a blend beside its trained part
    for group in _groups(trained):
        found = trained_together([(parameters, seed) for _, parameters, seed in group], train)
        for (each, parameters, _), result in zip(group, found, strict=True):
            yield each, parameters, result


def _solved(
    method: str, parameters: Mapping[str, Any], train: Interactions, seed: int
) -> Solved | TruepairError:
    try:
        point = solved(method, parameters, train, seed)
    except TruepairError as error:
        return error
    return point.users, point.items, point


def _groups(asked: Sequence[tuple[Named, Mapping[str, Any], int]]) -> Iterator[list[Any]]:
    """Runs that are trained at once; on the CPU one after the other, so that each has its line at once."""
    most, group, keys = _TOGETHER if torch.cuda.is_available() else 1, list[Any](), set[str]()
    for each in asked:
        key = run_key(each[1], each[2])
        if group and key not in keys and len(keys) == most:
            yield group
            group, keys = [], set()
        group.append(each)
        keys.add(key)
    if group:
        yield group
