"""What a loss leaves to the data: τ = "auto" and "per-user" become numbers, a first model tells weights."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from truepair.data.interactions import Interactions
from truepair.data.splitting import split_random
from truepair.errors import InputError, TrainingError, TruepairError
from truepair.losses import InfoNCE, InfoNCEPosterior, Loss
from truepair.prior.calibration import calibrate, told
from truepair.prior.estimate import PriorEstimate, estimate_prior
from truepair.prior.evidence import LEAST_PAIRS
from truepair.training import AUTO, FitResult, Job, check_sampler, fit_many

ESTIMATED = "auto", "per-user"  # what τ may be besides numbers and "density"
HELD_OUT = 0.1  # the share of positives that a first model does not see


class Prepared(NamedTuple):
    """A job whose loss has all that it needs, and what is worth remembering of how it was found."""

    job: Job
    facts: dict[str, Any]


class FirstJob(NamedTuple):
    """The job of a first model, and the pairs that it is not shown."""

    job: Job
    held_out: Interactions


Result = TypeVar("Result")


def prepare(job: Job, *, engine: str = AUTO, progress: bool = False) -> Prepared:
    """The job with its loss filled in: an estimated prior, and the weights by a first model.

    Most losses need neither, and come back as they are.
    """
    found = prepare_many([job], engine=engine, progress=progress)[0]
    if isinstance(found, TruepairError):
        raise found
    return found


def prepare_many(
    jobs: Sequence[Job], *, engine: str = AUTO, progress: bool = False
) -> list[Prepared | TruepairError]:
    """The same for many jobs; their first models train together where the engine can.

    A job that cannot be prepared, or whose first model diverges, gives its error in place of a result.
    """
    results = [_tried(_with_prior, job) for job in jobs]
    parts: dict[int, FirstJob] = {}
    for place, ready in enumerate(results):
        if isinstance(ready, Prepared) and _lacks_posterior(ready.job.loss):
            part = _tried(_held_out, ready.job)
            if isinstance(part, FirstJob):
                parts[place] = part
            else:
                results[place] = part
    if parts and progress:
        print("first, the model that tells the weights", file=sys.stderr)
    fitted = fit_many([part.job for part in parts.values()], engine=engine, progress=progress)
    for (place, part), first in zip(parts.items(), fitted, strict=True):
        ready = results[place]
        assert isinstance(ready, Prepared)
        told_by = first if isinstance(first, TrainingError) else with_posterior(ready, first, part.held_out)
        results[place] = told_by
    return results


def _tried(function: Callable[[Job], Result], job: Job) -> Result | TruepairError:
    try:
        return function(job)
    except TruepairError as error:
        return error


def with_posterior(ready: Prepared, first: FitResult, held_out: Interactions) -> Prepared:
    """The job with the weights that a first model gives, calibrated by pairs that it was not shown."""
    job, facts = ready
    loss = job.loss
    assert isinstance(loss, InfoNCEPosterior)
    train = first.job.interactions
    users, items = (vectors.to(job.settings.torch_device()) for vectors in (first.users, first.items))
    found, evidence = calibrate(users, items, job.interactions, train, held_out, job.settings.seed)
    facts = facts | {"posterior": told(found, evidence, loss.tau, loss.cap)}
    return Prepared(replace(job, loss=replace(loss, posterior=found)), facts)


def _with_prior(job: Job) -> Prepared:
    check_sampler(job.loss, job.sampler)
    loss, found = with_estimated_prior(job.loss, job.interactions, seed=job.settings.seed)
    if isinstance(loss, InfoNCEPosterior):
        loss = loss.with_density(job.interactions.density)
    return Prepared(replace(job, loss=loss), {} if found is None else {"prior": found})


def _lacks_posterior(loss: Loss) -> bool:
    return isinstance(loss, InfoNCEPosterior) and loss.has_weights and loss.posterior is None


def _held_out(job: Job) -> FirstJob:
    """InfoNCE on all but a tenth of the pairs, and that tenth."""
    assert isinstance(job.loss, InfoNCEPosterior)
    if len(job.interactions) < LEAST_PAIRS:
        raise InputError(
            f"{len(job.interactions):,} interactions are too few to hold some out for a first model; "
            f"it takes {LEAST_PAIRS} at least. Use the loss 'infonce'."
        )
    split = split_random(job.interactions, test=HELD_OUT, seed=job.settings.seed)
    settings = replace(job.settings, patience=None)
    first = Job(job.encoder, InfoNCE(job.loss.temperature), job.sampler, split.train, settings)
    return FirstJob(first, split.test)


def with_estimated_prior(
    loss: Loss, train: Interactions, *, seed: int = 0, progress: bool = False
) -> tuple[Loss, dict[str, Any] | None]:
    """The loss with its prior, and what is worth remembering of the estimate; None if none was asked for.

    A training that is resumed must find the prior it began with, also on another machine: the quick training
    is on the CPU, where it repeats, and numbers are rounded to three digits.
    """
    word = getattr(loss, "tau", None)
    if word not in ESTIMATED:
        return loss, None
    found = estimate_prior(train, resamples=0, seed=seed, device="cpu", progress=progress)
    tau = _rounded(found.tau) if word == "auto" else [_rounded(own) for own in found.user_tau]
    return loss.with_prior(tau), _told(str(word), found)


def _told(word: str, found: PriorEstimate) -> dict[str, Any]:
    numbers = {"tau": found.tau, "low": found.low, "high": found.high, "separation": found.separation}
    told = {name: _rounded(value) for name, value in (numbers | found.methods).items()}
    return {"asked": word, **told}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
