"""Preparation of a job: τ = "auto" and "per-user" become numbers, and the loss is completed."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from truepair.data.interactions import Interactions
from truepair.losses import Loss
from truepair.prior.estimate import PriorEstimate, estimate_prior
from truepair.storage.types import Json
from truepair.training import AUTO, Job, check_sampler

ESTIMATED = "auto", "per-user"  # values of τ that are estimated from the data


class PreparedJob(NamedTuple):
    """A job whose loss is complete, and facts about the estimates for the model file."""

    job: Job
    facts: Json


def prepare(job: Job, *, engine: str = AUTO, progress: bool = False) -> PreparedJob:
    """Complete the loss of a job: estimate its prior, then do what the loss itself needs before training.

    Most losses need neither; their jobs are returned unchanged.
    """
    check_sampler(job.loss, job.sampler)
    loss, found = with_estimated_prior(job.loss, job.interactions, seed=job.settings.seed)
    job = job if loss is job.loss else replace(job, loss=loss)
    loss, facts = loss.prepared(job, engine, progress)
    job = job if loss is job.loss else replace(job, loss=loss)
    return PreparedJob(job, facts if found is None else {"prior": found, **facts})


def with_estimated_prior(
    loss: Loss, train: Interactions, *, seed: int = 0, progress: bool = False
) -> tuple[Loss, Json | None]:
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


def _prior_facts(word: str, found: PriorEstimate) -> Json:
    numbers = {"tau": found.tau, "low": found.low, "high": found.high, "separation": found.separation}
    facts = {name: _rounded(value) for name, value in (numbers | found.methods).items()}
    return {"asked": word, **facts, **({"failures": list(found.failures)} if found.failures else {})}


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
