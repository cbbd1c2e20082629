"""Runs of the paper's studies, one line each; what is done is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from truepair.errors import TrainingError
from truepair.evaluation import evaluate
from truepair.evaluation.metrics import METRICS as FORMULAS
from truepair.evaluation.metrics import Floats, parse_metric
from truepair.evaluation.task import Task
from truepair.recommender.estimator import Recommender
from truepair.sampling import Matrices
from truepair.storage.atomic import atomic_write
from truepair.training import FitResult, Job, fit_many
from truepair.training.fitting import groups_of
from truepair.training.result import EpochState
from truepair_lab.lines import Key, RunLine, append_line, digest, read_lines
from truepair_lab.paper.baselines import device_name, solved
from truepair_lab.paper.presets import CHOOSE_BY, KS, METRICS, NO_ENCODER, Material
from truepair_lab.paper.running.plan import Wanted
from truepair_lab.reporting.machine import versions

OPTIMISTIC = ("paper", "paper-tuned", "sweep", "ablation", "causes")
_TOGETHER = 16  # runs of MF at once on the GPU; one LightGCN fills it alone
Say = Callable[[str], None]


@dataclass
class CurveOnTest:
    """All metrics on the test part along training. This is the paper's protocol, and optimistic.

    The matrices after epoch `keep` are kept, for a run of the clean protocol that ends there.
    """

    task: Task
    keep: int | None = None
    kept: Matrices | None = None
    found: dict[int, dict[str, float]] = field(default_factory=dict)

    def __call__(self, state: EpochState) -> None:
        """Look at the test part; give no score, so that training cannot use it."""
        matrices = state.matrices()
        if state.epoch == self.keep:
            self.kept = matrices
        _, hits = self.task.listed(self.task.ranker(*matrices), KS[-1])
        self.found[state.epoch] = {
            name: float(FORMULAS[formula](hits[:, :k], self.task.n_target).mean())
            for name in METRICS
            for formula, k in [parse_metric(name)]
        }

    def best(self) -> dict[str, float]:
        """The best value of each metric, each at its own epoch."""
        return {name: round(max(values[name] for values in self.found.values()), 6) for name in METRICS}

    def last(self) -> dict[str, float]:
        """After the last epoch."""
        return {name: round(value, 6) for name, value in self.found[max(self.found)].items()}

    def curve(self) -> list[tuple[int, float]]:
        """(epoch, NDCG@20)."""
        return [(epoch, round(values[CHOOSE_BY], 5)) for epoch, values in sorted(self.found.items())]


def run_wanted(material: Material, wanted: Sequence[Wanted], out: Path, say: Say) -> int:
    """Run what is not done yet; gives how many runs that were."""
    split = material.whole.hash
    missing = _missing(wanted, split, out)
    say(f"{material.data.name}: {len(wanted)} runs wanted, {len(wanted) - len(missing)} done before")
    shorter = _on_the_way(missing, split)
    ends = {each.key(split) for each in shorter.values()}
    count = _run_all(material, [e for e in missing if e.key(split) not in ends], shorter, out, say)
    return count + _run_all(material, _missing(missing, split, out), {}, out, say)


def _missing(wanted: Sequence[Wanted], split: str, out: Path) -> list[Wanted]:
    known = {line.key for line in read_lines(out).runs}
    return [each for each in wanted if each.key(split) not in known]


def _on_the_way(wanted: Sequence[Wanted], split: str) -> dict[Key, Wanted]:
    """Clean runs that are the beginning of an optimistic one, by the key of that one.

    The clean protocol trains to an epoch that validation chose; the optimistic one trains the same job some
    way on. Where the learning rate is constant, both are one training.
    """

    def job(each: Wanted) -> tuple[object, ...]:
        beside = ("epochs", "validate_every", "patience")
        same = {name: value for name, value in each.parameters.items() if name not in beside}
        return each.encoder, each.seed, digest(same)

    clean = {
        job(each): each
        for each in wanted
        if each.study == "clean" and each.encoder != NO_ENCODER and "schedule" not in each.parameters
    }
    found: dict[Key, Wanted] = {}
    for each in wanted:
        if each.study == "paper-tuned" and (shorter := clean.get(job(each))) is not None:
            epochs = shorter.parameters["epochs"]
            if epochs <= each.parameters["epochs"] and epochs % each.parameters["validate_every"] == 0:
                found[each.key(split)] = shorter
    return found


def _run_all(
    material: Material, wanted: Sequence[Wanted], shorter: Mapping[Key, Wanted], out: Path, say: Say
) -> int:
    path, split, count = out / f"runs-{material.data.name}.jsonl", material.whole.hash, 0
    for group in _groups(material, wanted):
        same = _by_work(read_lines(out).runs)  # anew each time: other processes add lines meanwhile
        fresh = [each for each in group if _work_of(each, split) not in same]
        made = _ran(material, _distinct(fresh, split), shorter, out, say)
        same |= _by_work(made)
        count += len(made)
        ends = [shorter[each.key(split)] for each in group if each.key(split) in shorter]
        for each in [*group, *ends]:
            if _work_of(each, split) in same:  # it is not where the run diverged
                append_line(path, _relabelled(same[_work_of(each, split)], each))
    return count


def _by_work(lines: Sequence[RunLine]) -> dict[tuple[object, ...], RunLine]:
    return {_work(line.study, line.encoder, line.parameters, line.seed, line.split): line for line in lines}


def _work(
    study: str, encoder: str, parameters: Mapping[str, Any], seed: int, split: str
) -> tuple[object, ...]:
    """What is computed, whatever it is called: studies of one protocol share their runs."""
    return study in OPTIMISTIC, encoder, digest(parameters), seed, split


def _work_of(wanted: Wanted, split: str) -> tuple[object, ...]:
    return _work(wanted.study, wanted.encoder, wanted.parameters, wanted.seed, split)


def _distinct(group: Sequence[Wanted], split: str) -> list[Wanted]:
    return list({_work_of(each, split): each for each in group}.values())


def _relabelled(line: RunLine, wanted: Wanted) -> RunLine:
    return replace(line, study=wanted.study, method=wanted.method, variant=wanted.variant)


def _groups(material: Material, wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """What is run together: on the GPU, runs of MF of one shape and protocol; else one by one."""
    shared = [each for each in wanted if each.encoder == "mf"] if torch.cuda.is_available() else []
    for optimistic in (True, False):
        some = [each for each in shared if (each.study in OPTIMISTIC) == optimistic]
        for places in groups_of([job_of(each, material) for each in some]):
            for start in range(0, len(places), _TOGETHER):
                yield [some[place] for place in places[start : start + _TOGETHER]]
    yield from ([each] for each in wanted if each not in shared)


def job_of(wanted: Wanted, material: Material) -> Job:
    """The job of a run on the whole train part."""
    job = Recommender.of(wanted.parameters).job(material.train)
    return replace(job, settings=replace(job.settings, seed=wanted.seed))


def _ran(
    material: Material, group: Sequence[Wanted], shorter: Mapping[Key, Wanted], out: Path, say: Say
) -> list[RunLine]:
    if not group:
        return []
    if group[0].encoder == NO_ENCODER:
        found = [_run_point(material, each, out) for each in group]
    elif group[0].study in OPTIMISTIC:
        found = _run_optimistic(material, group, shorter, out, say)
    else:
        found = _run_clean(material, group, out, say)
    for line in found:
        named = " ".join(filter(None, (line.study, line.dataset, line.encoder, line.method, line.variant)))
        say(f"{named}, seed {line.seed}: ndcg@20 {line.metrics[CHOOSE_BY]:.4f} ({line.seconds:.1f} s)")
    return found


def _trained(
    jobs: Sequence[Job], on_epochs: Sequence[Any], group: Sequence[Wanted], say: Say
) -> tuple[list[FitResult | TrainingError], float]:
    began = time.perf_counter()
    results = fit_many(jobs, on_epochs)
    for result, each in zip(results, group, strict=True):
        if isinstance(result, TrainingError):
            say(f"{each.study} {each.dataset} {each.encoder} {each.method}, seed {each.seed}: {result}")
    return results, (time.perf_counter() - began) / len(jobs)


def _run_optimistic(
    material: Material, group: Sequence[Wanted], shorter: Mapping[Key, Wanted], out: Path, say: Say
) -> list[RunLine]:
    task, split = Task(material.whole.test, material.train), material.whole.hash
    jobs, ends = [job_of(each, material) for each in group], [shorter.get(each.key(split)) for each in group]
    curves = [CurveOnTest(task, None if end is None else end.parameters["epochs"]) for end in ends]
    results, seconds = _trained(jobs, curves, group, say)
    found: list[RunLine] = []
    for each, end, result, curve in zip(group, ends, results, curves, strict=True):
        if isinstance(result, TrainingError):
            continue
        line = _line(material, each, result, seconds)
        found.append(replace(line, epoch=0, curve=curve.curve(), metrics=curve.best(), last=curve.last()))
        if end is not None and curve.kept is not None:
            found.append(_ended(material, end, result, curve.kept, seconds, out))
    return found


def _ended(
    material: Material, each: Wanted, result: FitResult, kept: Matrices, seconds: float, out: Path
) -> RunLine:
    """The line of a clean run that was the beginning of a longer one."""
    epochs = int(each.parameters["epochs"])
    shares = [record.clamped for record in result.history[:epochs] if record.clamped is not None]
    line = _line(material, each, result, seconds * epochs / len(result.history))
    return replace(
        line,
        epoch=epochs,
        metrics=_tested(material, each, *kept, out),
        clamped=round(sum(shares) / len(shares), 6) if shares else None,
    )


def _run_clean(material: Material, group: Sequence[Wanted], out: Path, say: Say) -> list[RunLine]:
    jobs = [job_of(each, material) for each in group]
    results, seconds = _trained(jobs, [None] * len(group), group, say)
    found: list[RunLine] = []
    for each, result in zip(group, results, strict=True):
        if isinstance(result, TrainingError):
            continue
        device = result.job.settings.torch_device()
        metrics = _tested(material, each, result.users.to(device), result.items.to(device), out)
        found.append(replace(_line(material, each, result, seconds), metrics=metrics))
    return found


def _run_point(material: Material, each: Wanted, out: Path) -> RunLine:
    began = time.perf_counter()
    model = solved(each.method, each.parameters, material.train, each.seed)
    seconds = time.perf_counter() - began
    return RunLine(
        **named(each, material.whole.hash),
        engine=model.engine,
        epoch=model.epochs,
        curve=[],
        metrics=_tested(material, each, model.users, model.items, out),
        last={},
        clamped=None,
        seconds=round(seconds, 3),
    )


def _line(material: Material, each: Wanted, result: FitResult, seconds: float) -> RunLine:
    return RunLine(
        **named(each, material.whole.hash),
        engine=result.engine,
        epoch=result.epoch,
        curve=[],
        metrics={},
        last={},
        clamped=None if result.clamped is None else round(result.clamped, 6),
        seconds=round(seconds, 3),
    )


def named(each: Wanted, split: str) -> dict[str, Any]:
    """What a line says of a run before it is run."""
    return {
        "study": each.study,
        "dataset": each.dataset,
        "encoder": each.encoder,
        "method": each.method,
        "variant": each.variant,
        "seed": each.seed,
        "parameters": dict(each.parameters),
        "split": split,
        "device": device_name(),
        "versions": {name: version for name, version in versions().items() if version is not None},
    }


def _tested(material: Material, each: Wanted, users: Any, items: Any, out: Path) -> dict[str, float]:
    """The one look at the test part; each user's NDCG@20 is kept for the paired comparisons."""
    found = evaluate((users, items), material.whole.test, exclude=material.train, ks=KS, cold="model")
    keep_values(per_user_file(out, each), found.values(CHOOSE_BY))
    return {name: round(found.mean(name), 6) for name in METRICS}


def keep_values(path: Path, values: Floats) -> None:
    """Write the values of each user, whole or not at all."""
    with atomic_write(path) as file:
        np.save(file, values.astype(np.float32))


def per_user_file(out: Path, each: Wanted | RunLine) -> Path:
    """Where the values of each user of a clean run are kept."""
    encoder = "none" if each.encoder == NO_ENCODER else each.encoder
    name = f"{each.dataset}_{encoder}_{each.method}_{each.seed}_{digest(each.parameters)}.npy"
    return out / "per-user" / name
