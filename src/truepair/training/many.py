"""Many runs at once: what a sweep needs. On the GPU, runs of one shape train in the same kernels."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Hashable, Sequence

from truepair.errors import TrainingError
from truepair.training.plan import plan_of
from truepair.training.progress import Progress, show_progress
from truepair.training.result import FitResult, Job, OnEpoch
from truepair.training.running import Run

_MOST_RUNS = 256  # in one group


def groups_of(jobs: Sequence[Job]) -> list[list[int]]:
    """The places of the jobs that can train together: those that share the data and every shape."""
    found: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        found.setdefault(_shape(job), []).append(place)
    return [g[i : i + _MOST_RUNS] for g in found.values() for i in range(0, len(g), _MOST_RUNS)]


def _shape(job: Job) -> Hashable:
    plan, encoder = plan_of(job), job.encoder
    return (
        job.interactions.hash, type(encoder), encoder.dim, plan.hops, plan.cosine, plan.kind, plan.relative,
        plan.m, plan.n, job.sampler, job.settings.batch_size, job.settings.device,
    )  # fmt: skip


def fit_together(
    jobs: Sequence[Job], on_epochs: Sequence[OnEpoch | None], progress: bool
) -> list[FitResult | TrainingError]:
    """Train one group on the GPU; a run that diverges gives its error, and the others go on."""
    from truepair.training.gpu_runs import GpuRuns

    group = GpuRuns(jobs)
    trainers = group.trainers
    runs = [
        Run(job, "gpu", trainer, on_epoch, None)
        for job, trainer, on_epoch in zip(jobs, trainers, on_epochs, strict=True)
    ]
    results: dict[int, FitResult | TrainingError] = {}
    epochs = max(job.settings.epochs for job in jobs)
    with show_progress(progress, epochs, 0, 1, f"{len(jobs)} runs, best validation") as bar:
        while len(results) < len(runs):
            began = time.perf_counter()
            rates = [0.0 if place in results else run.rate for place, run in enumerate(runs)]
            summary = group.train([run.epoch for run in runs], rates)
            for place, (run, trainer) in enumerate(zip(runs, trainers, strict=True)):
                if place in results:
                    continue
                try:
                    run.finish_epoch(trainer.totals(summary), began)
                except TrainingError as error:
                    results[place] = error
                else:
                    results |= {place: run.result()} if run.is_over() else {}
            bar.step(1)
            _tell(bar, runs)
    return [results[place] for place in range(len(runs))]


def _tell(bar: Progress, runs: Sequence[Run]) -> None:
    """One line about the whole group: the furthest run, with the best score of all."""
    furthest = max(runs, key=lambda run: run.epoch)
    if furthest.history:
        best = max((run.best[1] for run in runs if run.best is not None), default=None)
        bar.epoch(dataclasses.replace(furthest.history[-1], score=best))
