"""Encoder, loss, sampler and interactions in; fitted matrices out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError, check_choice, check_type
from truepair.losses import InfoNCEPosterior, Loss
from truepair.models.encoders import Encoder
from truepair.sampling import Full, Sampler
from truepair.storage.old_names import current_value
from truepair.training.full.engine import FULL
from truepair.training.loop import Run, run_to_the_end
from truepair.training.many import fit_together, together
from truepair.training.reference.trainer import REFERENCE
from truepair.training.result import FitResult, Job, OnEpoch
from truepair.training.sampled.cpu.engine import CPU
from truepair.training.sampled.gpu.engine import GPU
from truepair.training.sampled.hogwild.engine import CPU_FAST
from truepair.training.settings import Settings
from truepair.training.trainer import Engine

ENGINES: dict[str, Engine] = {
    "gpu": GPU,
    "cpu": CPU,
    "cpu-fast": CPU_FAST,
    "full": FULL,
    "reference": REFERENCE,
}
AUTO = "auto"
_AUTO_ORDER = ("gpu", "cpu", "full", "reference")  # the exact engines, fastest first


def fit(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    interactions: Interactions,
    settings: Settings | None = None,
    on_epoch: OnEpoch | None = None,
    *,
    engine: str = AUTO,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool = False,
) -> FitResult:
    """Train, and give the fitted matrices.

    `on_epoch` is called every `settings.validate_every` epochs and after the last; a number it returns is
    the validation score: the matrices of the best epoch are kept, and `settings.patience` counts from it.
    `checkpoint` names a file to save to after every `checkpoint_every` epochs; if it is there already, the
    run goes on from it, and on the CPU ends with the same bits as a run that was never interrupted.
    `engine` is one of `ENGINES`, or "auto": see `choose_engine`.
    """
    job = _checked_job(
        encoder, loss, sampler, interactions, Settings() if settings is None else settings, on_epoch
    )
    engine = choose_engine(job, engine)
    if progress:
        print(f"engine: {engine}", file=sys.stderr)
    trainer = ENGINES[engine].start(job)
    run = Run(job, engine, trainer, on_epoch, Path(checkpoint) if checkpoint is not None else None)
    return run_to_the_end(run, checkpoint_every, progress)


def fit_many(
    jobs: Sequence[Job],
    on_epoch: OnEpoch | Sequence[OnEpoch | None] | None = None,
    *,
    engine: str = AUTO,
    progress: bool = False,
) -> list[FitResult | TrainingError]:
    """Train many runs, such as the trials of a sweep; each ends as the same run alone would.

    On the GPU, runs that share the data and all shapes (encoder, dimension, kind of loss, M, N, sampler,
    batch size) train at once, whatever their seeds, rates, priors and other numbers; so do runs with exact
    sampling, alike or not, eight at a time. Elsewhere they train one after the other. A run that diverges
    gives its TrainingError in place of a result, and the others go on.
    `on_epoch` is one for all, or one for each.
    """
    jobs = list(jobs)
    for job in jobs:
        check_type("jobs", job, Job, "give a list of Job values")
    on_epochs = list(on_epoch) if isinstance(on_epoch, Sequence) else [on_epoch] * len(jobs)
    if len(on_epochs) != len(jobs):
        raise InputError(f"on_epoch has {len(on_epochs)} values for {len(jobs)} jobs; give one, or as many.")
    ready = [_checked_job(*_parts(job), each) for job, each in zip(jobs, on_epochs, strict=True)]
    engines = [choose_engine(job, engine) for job in ready]
    results: dict[int, FitResult | TrainingError] = {}
    for places in together(ready, engines):
        watched = [on_epochs[place] for place in places]
        found = fit_together([ready[place] for place in places], engines[places[0]], watched, progress)
        results |= dict(zip(places, found, strict=True))
    for place in (p for p in range(len(ready)) if p not in results):
        try:
            results[place] = fit(
                *_parts(ready[place]), on_epochs[place], engine=engines[place], progress=progress
            )
        except TrainingError as error:
            results[place] = error
    return [results[place] for place in range(len(ready))]


def choose_engine(job: Job, engine: str = AUTO) -> str:
    """The engine for a job: the one named, if it can do it.

    "auto" is the fastest faithful engine that can: "full" for sampler="full", else "gpu" on CUDA, "cpu" for
    what it has, and "reference" for the rest.
    """
    engine = check_choice("engine", current_value("engine", engine), [AUTO, *ENGINES])
    job = replace(job, loss=job.loss.with_density(job.interactions.density))
    if engine == AUTO:
        return next(name for name in _AUTO_ORDER if ENGINES[name].lacks(job) is None)
    if lack := ENGINES[engine].lacks(job):
        able = [name for name, other in ENGINES.items() if other.lacks(job) is None]
        raise InputError(f"engine = {engine!r}: {lack} Use {' or '.join(able)}, or 'auto'.")
    return engine


def _parts(job: Job) -> tuple[Encoder, Loss, Sampler, Interactions, Settings]:
    return job.encoder, job.loss, job.sampler, job.interactions, job.settings


def _checked_job(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    interactions: Interactions,
    settings: Settings,
    on_epoch: OnEpoch | None,
) -> Job:
    _check_types(encoder, loss, sampler, interactions, settings, on_epoch)
    check_sampler(loss, sampler)
    _check_posterior(loss, interactions)
    return Job(encoder, _with_known_prior(loss, interactions), sampler, interactions, settings)


def check_sampler(loss: Loss, sampler: Sampler) -> None:
    """An error if a loss must know of which items its scores are, and the sampler cannot tell."""
    if loss.needs_items and not isinstance(sampler, Full):
        raise InputError(
            f"{type(loss).__name__} weighs every unlabelled item of a user, and the sampler "
            f"{type(sampler).__name__} draws a few; use sampler='full', or the loss 'infonce'."
        )


def _check_posterior(loss: Loss, interactions: Interactions) -> None:
    if not isinstance(loss, InfoNCEPosterior) or not loss.has_weights:
        return
    if loss.posterior is None:
        raise InputError(
            "InfoNCEPosterior weighs items by what a first model says of them, and has none; Recommender "
            "trains it. Here, take the job that truepair.prior.prepared(job) gives, or tau=0 for InfoNCE."
        )
    shape = len(loss.posterior.users), len(loss.posterior.items)
    if shape != (interactions.n_users, interactions.n_items):
        raise InputError(
            f"the posterior is of {shape[0]} users x {shape[1]} items, and the interactions have "
            f"{interactions.n_users} x {interactions.n_items}; prepare the loss for these interactions."
        )


def _with_known_prior(loss: Loss, interactions: Interactions) -> Loss:
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
    counts = interactions.user_counts
    if len(interactions) and not ((counts > 0) & (counts < interactions.n_items)).any():
        raise InputError("every user has every item, or none, so there is nothing to compare and to learn.")
    return loss.with_density(interactions.density)


def _check_types(
    encoder: object, loss: object, sampler: object, data: object, settings: Settings, on_epoch: object
) -> None:
    check_type("encoder", encoder, Encoder, "give a value such as MF(dim=64)")
    check_type("loss", loss, Loss, "give a value such as DPL(tau=0.05)")
    check_type("sampler", sampler, Sampler, "give a value such as Uniform()")
    check_type("interactions", data, Interactions, "read it with read_interactions, or take split.train")
    check_type("settings", settings, Settings, "give a value such as Settings(epochs=100)")
    if on_epoch is not None and not callable(on_epoch):
        raise InputError(f"on_epoch = {on_epoch!r} cannot be called; give a Validation or a function.")
    if settings.patience is not None and on_epoch is None:
        raise InputError(f"patience = {settings.patience} needs on_epoch to give a validation score.")
