"""Preparation of a job: τ = "auto" and "per-user" become numbers, and a first model gives the weights."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from truepair.data.interactions import Interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError, TrainingError, TruepairError
from truepair.losses import InfoNCE, InfoNCEPosterior, Loss
from truepair.prior.calibration import calibrate, posterior_facts
from truepair.prior.estimate import PriorEstimate, estimate_prior
from truepair.prior.holdout_scores import LEAST_PAIRS
from truepair.training import AUTO, FitResult, Job, check_sampler, fit_many

ESTIMATED = "auto", "per-user"  # values of τ that are estimated from the data
HELD_OUT = 0.1  # the share of positives that is held out from a first model


class PreparedJob(NamedTuple):
    """A job whose loss is complete, and facts about the estimates for the model file."""

    job: Job
    facts: dict[str, Any]


class FirstJob(NamedTuple):
    """The job of a first model, and the pairs that are held out from it."""

    job: Job
    held_out: Interactions


Result = TypeVar("Result")


def prepare(job: Job, *, engine: str = AUTO, progress: bool = False) -> PreparedJob:
    """Complete the loss of a job: estimate its prior, and train a first model for its weights.

    Most losses need neither; their jobs are returned unchanged.
    """
    found = prepare_many([job], engine=engine, progress=progress)[0]
    if isinstance(found, TruepairError):
        raise found
    return found


def prepare_many(
    jobs: Sequence[Job], *, engine: str = AUTO, progress: bool = False
) -> list[PreparedJob | TruepairError]:
    """`prepare` for many jobs; their first models train together if the engine supports it.

    A job that fails, or whose first model diverges, has its error in place of a result.
    """
    results = [_result_or_error(_with_prior, job) for job in jobs]
    parts: dict[int, FirstJob] = {}
    for place, ready in enumerate(results):
        if isinstance(ready, PreparedJob) and _needs_posterior(ready.job.loss):
            part = _result_or_error(_first_job, ready.job)
            if isinstance(part, FirstJob):
                parts[place] = part
            else:
                results[place] = part
    if parts and progress:
        print("training the first model, which gives the weights", file=sys.stderr)
    fitted = fit_many([part.job for part in parts.values()], engine=engine, progress=progress)
    for (place, part), first in zip(parts.items(), fitted, strict=True):
        ready = results[place]
        assert isinstance(ready, PreparedJob)
        if isinstance(first, TrainingError):
            results[place] = first
        else:
            results[place] = with_posterior(ready, first, part.held_out)
    return results


def _result_or_error(function: Callable[[Job], Result], job: Job) -> Result | TruepairError:
    try:
        return function(job)
    except TruepairError as error:
        return error


def with_posterior(ready: PreparedJob, first: FitResult, held_out: Interactions) -> PreparedJob:
    """The job with weights from a first model, calibrated on pairs that were held out from it."""
    job, facts = ready
    loss = job.loss
    assert isinstance(loss, InfoNCEPosterior)
    train = first.job.interactions
    users, items = (vectors.to(job.settings.torch_device()) for vectors in (first.users, first.items))
    found, evidence = calibrate(users, items, job.interactions, train, held_out, job.settings.seed)
    facts = facts | {"posterior": posterior_facts(found, evidence, loss.tau, loss.cap)}
    return PreparedJob(replace(job, loss=replace(loss, posterior=found)), facts)


def _with_prior(job: Job) -> PreparedJob:
    check_sampler(job.loss, job.sampler)
    loss, found = with_estimated_prior(job.loss, job.interactions, seed=job.settings.seed)
    if isinstance(loss, InfoNCEPosterior):
        loss = loss.with_density(job.interactions.density)
    if loss is not job.loss:
        job = replace(job, loss=loss)
    return PreparedJob(job, {} if found is None else {"prior": found})


def _needs_posterior(loss: Loss) -> bool:
    return isinstance(loss, InfoNCEPosterior) and loss.has_weights and loss.posterior is None


def _first_job(job: Job) -> FirstJob:
    """InfoNCE on all pairs but a random tenth, and that tenth."""
    assert isinstance(job.loss, InfoNCEPosterior)
    if job.anchors is not None or job.negatives is not None:
        raise InputError("a job with anchors or negatives has labels of its own; use the loss 'infonce'.")
    if len(job.interactions) < LEAST_PAIRS:
        raise InputError(
            f"{len(job.interactions):,} interactions are too few to hold some out for a first model; "
            f"at least {LEAST_PAIRS} are needed. Use the loss 'infonce'."
        )
    split = split_random(job.interactions, test=HELD_OUT, seed=job.settings.seed)
    settings = replace(job.settings, patience=None)
    first = Job(job.encoder, InfoNCE(job.loss.temperature), job.sampler, split.train, settings)
    return FirstJob(first, split.test)


def with_estimated_prior(
    loss: Loss, train: Interactions, *, seed: int = 0, progress: bool = False
) -> tuple[Loss, dict[str, Any] | None]:
    """The loss with an estimated prior, and facts about the estimate; None if the loss needs no estimate.

    A resumed run must get the same prior, also on another machine. The short training therefore runs on the
    CPU, where it is reproducible, and the numbers are rounded to three digits.
    """
    word = getattr(loss, "tau", None)
    if word not in ESTIMATED:
        return loss, None
    found = estimate_prior(train, resamples=0, seed=seed, device="cpu", progress=progress)
    tau = _rounded(found.tau) if word == "auto" else [_rounded(own) for own in found.user_tau]
    return loss.with_prior(tau), _prior_facts(str(word), found)


def _prior_facts(word: str, found: PriorEstimate) -> dict[str, Any]:
    numbers = {"tau": found.tau, "low": found.low, "high": found.high, "separation": found.separation}
    facts = {name: _rounded(value) for name, value in (numbers | found.methods).items()}
    return {"asked": word, **facts, **({"failures": list(found.failures)} if found.failures else {})}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
