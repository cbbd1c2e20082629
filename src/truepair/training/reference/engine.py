"""Engine "reference": the readable PyTorch loops, for every job."""

from __future__ import annotations

from truepair.sampling import Full
from truepair.training.job import Job
from truepair.training.reference.full_trainer import FullReferenceTrainer
from truepair.training.reference.trainer import ReferenceTrainer
from truepair.training.trainer import Engine


def _start(job: Job) -> FullReferenceTrainer | ReferenceTrainer:
    return FullReferenceTrainer(job) if isinstance(job.sampler, Full) else ReferenceTrainer(job)


def _lacks(job: Job) -> str | None:
    if isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is not None:
        return "it compares with the whole catalogue, and cannot draw columns of it."
    whole = job.settings.dislike_weight == int(job.settings.dislike_weight)
    if isinstance(job.sampler, Full) and job.interactions.disliked is not None and not whole:
        return "it counts a disliked item a whole number of times; it has dislike_weight=1, 2, …."
    return None


REFERENCE = Engine(start=_start, lacks=_lacks)
