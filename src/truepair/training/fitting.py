"""fit and fit_many: jobs in, fitted matrices out; the engines by name, and the choice of one for a job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from truepair.errors import InputError, TrainingError, check_choice, check_type
from truepair.losses import Loss
from truepair.sampling import Full, Sampler
from truepair.storage.versions import current_value
from truepair.training.distributed.engine import DISTRIBUTED
from truepair.training.distributed.processes import rank_of_process
from truepair.training.full.cuda_graphs import RecordedFullTrainer, train_side_by_side
from truepair.training.full.engine import FULL, is_recordable
from truepair.training.job import Engine, EpochTotals, Job, Trainer
from truepair.training.loop import Run, TrainEpoch, run_to_the_end
from truepair.training.reference.trainer import REFERENCE
from truepair.training.result import FitResult, OnEpoch
from truepair.training.sampled.cpu.engine import CPU
from truepair.training.sampled.gpu.engine import GPU
from truepair.training.sampled.plan import plan_of
from truepair.training.sequences.engine import SEQUENCES

ENGINES: dict[str, Engine] = {
    "gpu": GPU,
    "cpu": CPU,
    "full": FULL,
    "reference": REFERENCE,
    "distributed": DISTRIBUTED,
    "sequences": SEQUENCES,
}
AUTO = "auto"
_AUTO_ORDER = ("full", "gpu", "cpu", "reference")  # of those for a sampler, fastest first

_MOST_RUNS = 256  # in one group
_MOST_RECORDED = 8  # more hardly gain: a few runs fill the GPU

_process = {"has trained": False}


def _after_fork() -> None:
    """PyTorch's threads do not come along, and it would wait for them for ever; alone it does not."""
    if _process["has trained"]:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def choose_engine(job: Job, engine: str = AUTO) -> str:
    """The engine for a job: the one named, if it can train the job.

    "auto" is "sequences" for encoders that read the order of events. For others it is the fastest engine that
    can: "full" for sampler="full", else "gpu" on CUDA, "cpu" for what it supports, and "reference" for the
    rest.
    """
    engine = check_choice("engine", current_value("engine", engine), [AUTO, *ENGINES])
    state = job.settings.optimizer_state
    if state != "device" and (engine not in (AUTO, "full") or FULL.lacks(job)):
        raise InputError(f"optimizer_state = {state!r} is for engine 'full', with sampler='full'; omit it.")
    if engine == AUTO and job.encoder.reads_order:
        engine = "sequences"
    if engine == AUTO:
        return next(name for name in _AUTO_ORDER if ENGINES[name].lacks(job) is None)
    if lack := ENGINES[engine].lacks(job):
        able = [name for name, other in ENGINES.items() if other.lacks(job) is None]
        remedy = f" Use {' or '.join(able)}, or 'auto'." if able else ""
        raise InputError(f"engine = {engine!r}: {lack}{remedy}")
    return engine


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
    run = _started(job, on_epoch, choose_engine(job, engine), checkpoint, progress)
    progress = progress and (run.engine != "distributed" or rank_of_process() == 0)
    (found,) = run_to_the_end([run], None, progress, checkpoint_every, keep_start)
    if isinstance(found, TrainingError):
        raise found
    return found


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
    for places in groups_of(ready, engines):
        name, some, train_epoch = engines[places[0]], [ready[place] for place in places], None
        try:
            if name == "gpu" or (name == "full" and is_recordable(some[0])):
                trainers, train_epoch = _together(some, name)
                started = zip(places, trainers, strict=True)
                runs = [Run(ready[at], name, trainer, on_epochs[at], None) for at, trainer in started]
            else:
                runs = [_started(some[0], on_epochs[places[0]], name, None, progress)]
            found = run_to_the_end(runs, train_epoch, progress)
        except TrainingError as error:
            found = [error] * len(places)
        results |= dict(zip(places, found, strict=True))
    return [results[place] for place in range(len(ready))]


def _started(
    job: Job, on_epoch: OnEpoch | None, engine: str, checkpoint: str | Path | None, progress: bool
) -> Run:
    """The run of a job that was checked, by the engine of this name."""
    if progress and (engine != "distributed" or rank_of_process() == 0):
        print(f"engine: {engine}", file=sys.stderr)
    _process["has trained"] = True
    trainer, kind = ENGINES[engine].start(job), Run
    if engine == "distributed":  # loaded late, because PyTorch's checkpoints take a while to import
        from truepair.training.distributed.run import DistributedRun

        kind = DistributedRun
    return kind(job, engine, trainer, on_epoch, Path(checkpoint) if checkpoint is not None else None)


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
    tau, n_users = getattr(job.loss, "tau", None), job.interactions.n_users
    if isinstance(tau, tuple) and len(tau) != n_users:
        raise InputError(f"tau has {len(tau)} values, one per user, but there are {n_users} users.")
    if tau in ("auto", "per-user"):
        raise InputError(
            f"tau = {tau!r} is estimated by Recommender; here, give the loss a number, "
            "such as estimate_prior(interactions).tau of truepair.prior."
        )
    if len(job.interactions) and not job.has_anchors():
        if job.anchors is None and job.negatives is None:
            raise InputError("every user has every item, or none, so there is nothing to compare.")
        raise InputError("no anchor has an item to be compared with, so there is nothing to learn.")
    if tau == "density":
        return replace(job, loss=job.loss.with_density(job.interactions.density))
    return job


# --- jobs that train at once ---------------------------------------------------------------------------


def groups_of(jobs: Sequence[Job], engines: Sequence[str] | None = None) -> list[list[int]]:
    """The places of jobs that train at once; a job that does not is in a group of its own.

    Without `engines` they are all "gpu", where jobs train together that share the data and every shape.
    """
    groups: list[list[int]] = []
    growing: dict[Hashable, list[int]] = {}  # of each key, the group that was begun last
    for place, job in enumerate(jobs):
        engine, most = "gpu" if engines is None else engines[place], 1
        key: Hashable = place
        if engine == "gpu":
            key, most = _shape(job), _MOST_RUNS
        elif engine == "full" and is_recordable(job):
            key, most = "recorded", _MOST_RECORDED
        if len(growing.get(key, ())) in (0, most):
            growing[key] = []
            groups.append(growing[key])
        growing[key].append(place)
    return groups


def _shape(job: Job) -> Hashable:
    plan, encoder = plan_of(job), job.encoder
    return (
        job.interactions.hash, type(encoder), encoder.dim, plan.hops, plan.cosine, plan.pair, plan.row,
        plan.relative, plan.m, plan.n, job.sampler, job.settings.batch_size, job.settings.device,
    )  # fmt: skip


def _together(jobs: Sequence[Job], engine: str) -> tuple[Sequence[Trainer], TrainEpoch]:
    """The trainers of one group on the GPU, and how they train.

    Those of engine "gpu" share kernels, where one that has ended stays with learning rate 0. Those of "full"
    have any shapes, and each a stream of its own.
    """
    if engine == "full":
        recorded = [RecordedFullTrainer(job) for job in jobs]

        def train_recorded(runs: Sequence[Run], advance: Callable[[int], None]) -> list[EpochTotals]:
            going = {run.trainer: (run.epoch, run.rate) for run in runs}
            totals = train_side_by_side([(each, *going[each]) for each in recorded if each in going])
            advance(recorded[0].steps)
            return totals

        return recorded, train_recorded
    from truepair.training.sampled.gpu.runs import GpuRuns  # it needs Triton

    group = GpuRuns(jobs)
    trainers = group.trainers

    def train_alike(runs: Sequence[Run], advance: Callable[[int], None]) -> list[EpochTotals]:
        going = {run.trainer: (run.epoch, run.rate) for run in runs}
        epochs, rates = zip(*(going.get(trainer, (0, 0.0)) for trainer in trainers), strict=True)
        summary = group.train(epochs, rates)
        advance(group.steps)
        return [trainer.totals(summary) for trainer in trainers if trainer in going]

    return trainers, train_alike
