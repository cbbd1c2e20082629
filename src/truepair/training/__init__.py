"""Encoder, loss, sampler and interactions in; fitted matrices out."""

from __future__ import annotations

import sys
from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.encoders import Encoder
from truepair.errors import InputError, check_choice, check_type
from truepair.losses import Loss
from truepair.sampling import Sampler
from truepair.training.folding import fold_in
from truepair.training.reference import REFERENCE
from truepair.training.result import EpochRecord, EpochState, FitResult, Job, OnEpoch
from truepair.training.running import Run, run_to_the_end
from truepair.training.settings import Settings
from truepair.training.trainer import Engine

ENGINES: dict[str, Engine] = {"reference": REFERENCE}
AUTO = "auto"

__all__ = [
    "AUTO",
    "ENGINES",
    "EpochRecord",
    "EpochState",
    "FitResult",
    "Job",
    "OnEpoch",
    "Settings",
    "choose_engine",
    "fit",
    "fold_in",
]


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


def choose_engine(job: Job, engine: str = AUTO) -> str:
    """The engine for a job: the one named, if it can do it; for "auto" the first of `ENGINES` that can."""
    check_choice("engine", engine, [AUTO, *ENGINES])
    if engine == AUTO:
        return next(name for name, candidate in ENGINES.items() if candidate.lacks(job) is None)
    if lack := ENGINES[engine].lacks(job):
        able = [name for name, other in ENGINES.items() if other.lacks(job) is None]
        raise InputError(f"engine = {engine!r}: {lack} Use {' or '.join(able)}, or 'auto'.")
    return engine


def _checked_job(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    interactions: Interactions,
    settings: Settings,
    on_epoch: OnEpoch | None,
) -> Job:
    _check_types(encoder, loss, sampler, interactions, settings, on_epoch)
    return Job(encoder, _with_known_prior(loss, interactions), sampler, interactions, settings)


def _with_known_prior(loss: Loss, interactions: Interactions) -> Loss:
    tau = getattr(loss, "tau", None)
    if isinstance(tau, tuple) and len(tau) != interactions.n_users:
        raise InputError(
            f"tau has {len(tau)} values, one per user, but there are {interactions.n_users} users."
        )
    if interactions.density == 1:
        raise InputError("every user has every item, so nothing is unlabelled; there is nothing to learn.")
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
