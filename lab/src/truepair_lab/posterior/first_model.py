"""The model that is trained first: InfoNCE on all interactions but a random tenth."""

from __future__ import annotations

import sys
from dataclasses import replace

from truepair.data.interactions import Interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError
from truepair.losses import InfoNCE
from truepair.prior.holdout_scores import LEAST_PAIRS
from truepair.training import FitResult, Job, fit

HELD_OUT = 0.1  # the share of positives that is held out from the first model


def first_model(job: Job, temperature: float, engine: str, progress: bool) -> tuple[FitResult, Interactions]:
    """The first model of a job, and the interactions that were held out from it."""
    first, held_out = first_job(job, temperature)
    if progress:
        print("training the first model, which gives the weights", file=sys.stderr)
    return fit(first, engine=engine, progress=progress), held_out


def first_job(job: Job, temperature: float) -> tuple[Job, Interactions]:
    """InfoNCE on all interactions but a random tenth, and that tenth."""
    if job.anchors is not None or job.negatives is not None:
        raise InputError("a job with anchors or negatives has labels of its own; use the loss 'infonce'.")
    if len(job.interactions) < LEAST_PAIRS:
        raise InputError(
            f"{len(job.interactions):,} interactions are too few to hold some out for a first model; "
            f"at least {LEAST_PAIRS} are needed. Use the loss 'infonce'."
        )
    split = split_random(job.interactions, test=HELD_OUT, seed=job.settings.seed)
    settings = replace(job.settings, patience=None)
    return Job(job.encoder, InfoNCE(temperature), job.sampler, split.train, settings), split.test
