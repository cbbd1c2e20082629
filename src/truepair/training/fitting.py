"""fit and fit_many: jobs in, fitted matrices out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError, check_type
from truepair.losses import Loss
from truepair.sampling import Full, Sampler
from truepair.training.distributed.processes import rank_of_process
from truepair.training.engines import AUTO, ENGINES, choose_engine
from truepair.training.job import Job
from truepair.training.loop import Run, run_to_the_end
from truepair.training.many import fit_together, together
from truepair.training.result import FitResult, OnEpoch

_process = {"has trained": False}


def _after_fork() -> None:
    """PyTorch's threads do not come along, and it would wait for them for ever; alone it does not."""
    if _process["has trained"]:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def fit(
    job: Job,
    on_epoch: OnEpoch | None = None,
    *,
    engine: str = AUTO,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool = False,
    keep_start: bool = False,
) -> FitResult:
    """Train a job, and return the fitted matrices.

    `on_epoch` is called every `settings.validate_every` epochs and after the last; a number it returns is
    the validation score: the matrices of the best epoch are kept, and `settings.patience` counts from it.
    `checkpoint` names a file to save to after every `checkpoint_every` epochs; if the file exists, the run
    continues from it, and on the CPU ends with the same bits as a run that was never interrupted.
    `engine` is one of `ENGINES`, or "auto": see `choose_engine`. With "distributed" every process of
    torchrun calls this function with an equal job, `on_epoch` is called on all of them, and each gets the
    whole result; the checkpoint is a folder.
    `keep_start` keeps the vectors and Adam's moments as the result's `start`, from which another job can
    start; there is none if the matrices are not those of the last epoch.
    """
    job = _checked(job, on_epoch)
    engine = choose_engine(job, engine)
    progress = progress and (engine != "distributed" or rank_of_process() == 0)
    if progress:
        print(f"engine: {engine}", file=sys.stderr)
    _process["has trained"] = True
    trainer = ENGINES[engine].start(job)
    kind = Run if engine != "distributed" else _distributed_run()
    run = kind(job, engine, trainer, on_epoch, Path(checkpoint) if checkpoint is not None else None)
    return run_to_the_end(run, checkpoint_every, progress, keep_start)


def _distributed_run() -> type[Run]:
    """The run of several processes; loaded late, because PyTorch's checkpoints take a while to import."""
    from truepair.training.distributed.run import DistributedRun

    return DistributedRun


def fit_many(
    jobs: Sequence[Job],
    on_epoch: OnEpoch | Sequence[OnEpoch | None] | None = None,
    *,
    engine: str = AUTO,
    progress: bool = False,
) -> list[FitResult | TrainingError]:
    """Train many jobs, such as the trials of a sweep; each ends as the same job alone would.

    On the GPU, jobs that share the data and all shapes (encoder, dimension, kind of loss, M, N, sampler,
    batch size) train at once, whatever their seeds, rates, priors and other numbers; so do jobs with
    full-catalogue training, of any shapes, eight at a time. Elsewhere they train one after the other. A job
    that diverges gives its TrainingError in place of a result, and the others continue.
    `on_epoch` is one for all, or one for each.
    """
    on_epochs = list(on_epoch) if isinstance(on_epoch, Sequence) else [on_epoch] * len(jobs)
    if len(on_epochs) != len(jobs):
        raise InputError(f"on_epoch has {len(on_epochs)} values for {len(jobs)} jobs; give one, or as many.")
    ready = [_checked(job, each) for job, each in zip(jobs, on_epochs, strict=True)]
    engines = [choose_engine(job, engine) for job in ready]
    results: dict[int, FitResult | TrainingError] = {}
    for places in together(ready, engines):
        of_group = [on_epochs[place] for place in places]
        found = fit_together([ready[place] for place in places], engines[places[0]], of_group, progress)
        results |= dict(zip(places, found, strict=True))
    for place in (p for p in range(len(ready)) if p not in results):
        try:
            results[place] = fit(ready[place], on_epochs[place], engine=engines[place], progress=progress)
        except TrainingError as error:
            results[place] = error
    return [results[place] for place in range(len(ready))]


def check_sampler(loss: Loss, sampler: Sampler) -> None:
    """Raise if the loss must know which items its scores belong to, and the sampler does not say."""
    if loss.needs_items and not isinstance(sampler, Full):
        raise InputError(
            f"{type(loss).__name__} weighs every unlabelled item of a user, and the sampler "
            f"{type(sampler).__name__} draws a few; use sampler='full', or the loss 'infonce'."
        )


def _checked(job: Job, on_epoch: OnEpoch | None) -> Job:
    """The job with a loss that knows the data, after all checks."""
    check_type("job", job, Job, "give a value such as Job(MF(dim=64), DPL(), Uniform(), interactions)")
    if on_epoch is not None and not callable(on_epoch):
        raise InputError(f"on_epoch = {on_epoch!r} cannot be called; give a Validation or a function.")
    if job.settings.patience is not None and on_epoch is None:
        raise InputError(f"patience = {job.settings.patience} needs on_epoch to give a validation score.")
    check_sampler(job.loss, job.sampler)
    _check_prior(job.loss, job.interactions)
    if len(job.interactions) and not job.has_anchors():
        if job.anchors is None and job.negatives is None:
            raise InputError(
                "every user has every item, or none, so there is nothing to compare and to learn."
            )
        raise InputError("no anchor has an item to be compared with, so there is nothing to learn.")
    return job.with_density()


def _check_prior(loss: Loss, interactions: Interactions) -> None:
    tau = getattr(loss, "tau", None)
    if isinstance(tau, tuple) and len(tau) != interactions.n_users:
        raise InputError(
            f"tau has {len(tau)} values, one per user, but there are {interactions.n_users} users."
        )
    if tau in ("auto", "per-user"):
        raise InputError(
            f"tau = {tau!r} is estimated by Recommender; here, give the loss a number, "
            "such as estimate_prior(interactions).tau of truepair.prior."
        )
