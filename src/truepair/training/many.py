"""Many runs at once: what a sweep needs. On the GPU, runs of one shape train in the same kernels."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Hashable, Sequence
from typing import Protocol

from truepair.errors import TrainingError
from truepair.training.full.cuda_graphs import RecordedRuns
from truepair.training.full.engine import is_recordable
from truepair.training.job import Job
from truepair.training.loop import Run
from truepair.training.progress import Progress, show_progress
from truepair.training.result import FitResult, OnEpoch
from truepair.training.sampled.plan import plan_of
from truepair.training.trainer import EpochTotals, Trainer

_MOST_RUNS = 256  # in one group
_MOST_RECORDED = 8  # more hardly gain: a few runs fill the GPU


class RunGroup(Protocol):
    """Runs that train at once."""

    @property
    def trainers(self) -> Sequence[Trainer]:
        """Each run by itself."""

    def train_all(self, epochs: Sequence[int], rates: Sequence[float | None]) -> list[EpochTotals]:
        """One epoch of every run that has a rate."""


def groups_of(jobs: Sequence[Job]) -> list[list[int]]:
    """The places of the jobs that can train together on engine "gpu": they share the data and every shape."""
    found: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        found.setdefault(_shape(job), []).append(place)
    return [part for group in found.values() for part in _parts(group, _MOST_RUNS)]


def together(jobs: Sequence[Job], engines: Sequence[str]) -> list[list[int]]:
    """The places of the jobs that train at once; a job that does not is in none."""
    gpu = [place for place, name in enumerate(engines) if name == "gpu"]
    alike = [[gpu[k] for k in group] for group in groups_of([jobs[place] for place in gpu])]
    recorded = [p for p, name in enumerate(engines) if name == "full" and is_recordable(jobs[p])]
    return alike + _parts(recorded, _MOST_RECORDED)


def _parts(places: list[int], most: int) -> list[list[int]]:
    return [places[i : i + most] for i in range(0, len(places), most)]


def _shape(job: Job) -> Hashable:
    plan, encoder = plan_of(job), job.encoder
    return (
        job.interactions.hash, type(encoder), encoder.dim, plan.hops, plan.cosine, plan.pair, plan.row,
        plan.relative, plan.m, plan.n, job.sampler, job.settings.batch_size, job.settings.device,
    )  # fmt: skip


def fit_together(
    jobs: Sequence[Job], engine: str, on_epochs: Sequence[OnEpoch | None], progress: bool
) -> list[FitResult | TrainingError]:
    """Train one group on the GPU; a run that diverges gives its error, and the others continue."""
    group: RunGroup = RecordedRuns(jobs) if engine == "full" else AlikeRuns(jobs)
    runs = [
        Run(job, engine, trainer, on_epoch, None)
        for job, trainer, on_epoch in zip(jobs, group.trainers, on_epochs, strict=True)
    ]
    results: dict[int, FitResult | TrainingError] = {}
    epochs = max(job.settings.epochs for job in jobs)
    with show_progress(progress, epochs, 0, 1, f"{len(jobs)} runs, best validation") as bar:
        while len(results) < len(runs):
            began = time.perf_counter()
            rates = [None if place in results else run.rate for place, run in enumerate(runs)]
            totals_of_runs = group.train_all([run.epoch for run in runs], rates)
            for place, (run, totals) in enumerate(zip(runs, totals_of_runs, strict=True)):
                if place in results:
                    continue
                try:
                    run.finish_epoch(totals, began)
                except TrainingError as error:
                    results[place] = error
                else:
                    results |= {place: run.result()} if run.is_over() else {}
            bar.step(1)
            _report(bar, runs)
    return [results[place] for place in range(len(runs))]


class AlikeRuns:
    """Runs of engine "gpu" in the same kernels; one that has ended stays in them with learning rate 0."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        from truepair.training.sampled.gpu.runs import GpuRuns  # it needs Triton

        self.runs = GpuRuns(jobs)
        self.trainers = self.runs.trainers

    def train_all(self, epochs: Sequence[int], rates: Sequence[float | None]) -> list[EpochTotals]:
        """One epoch of all."""
        summary = self.runs.train(epochs, [rate or 0.0 for rate in rates])
        return [trainer.totals(summary) for trainer in self.trainers]


def _report(bar: Progress, runs: Sequence[Run]) -> None:
    """One line about the whole group: the furthest run, with the best score of all."""
    furthest = max(runs, key=lambda run: run.epoch)
    if furthest.history:
        best = max((run.best[1] for run in runs if run.best is not None), default=None)
        bar.epoch(dataclasses.replace(furthest.history[-1], score=best))
