"""Engine "full": full-catalogue training."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from truepair.losses import LOSSES
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training.dislikes import weighs_dislikes
from truepair.training.full.cuda_graphs import RecordedFullTrainer
from truepair.training.full.losses import has_row_form
from truepair.training.full.trainer import FullTrainer
from truepair.training.job import Job
from truepair.training.trainer import Engine

MANY_STEPS = 64  # in an epoch; below, a pass over all users is cheap beside the products of a step


def is_recordable(job: Job, device: torch.device | None = None) -> bool:
    """Whether steps can be recorded: with Adam, on CUDA with Triton, for row forms of whole catalogues."""
    device = job.settings.torch_device() if device is None else device
    whole = isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is None
    closed = has_row_form(job.loss) and job.settings.optimizer == "adam" and job.negatives is None
    closed = closed and job.interactions.disliked is None  # their number differs from block to block
    return whole and closed and device.type == "cuda" and find_spec("triton") is not None


def has_many_users(job: Job) -> bool:
    """Whether a step uses few of the users: then those that it does not use are left alone, on the CPU."""
    settings = job.settings
    free = isinstance(job.encoder, MF) and settings.optimizer == "adam"
    on_cpu = settings.torch_device().type == "cpu"
    return free and on_cpu and job.interactions.n_users >= MANY_STEPS * settings.batch_size


def _start(job: Job) -> FullTrainer:
    if is_recordable(job):
        return RecordedFullTrainer(job)
    if has_many_users(job):
        from truepair.training.full.many_users import ManyUsersTrainer  # imports Numba

        return ManyUsersTrainer(job)
    return FullTrainer(job)


def _lacks(job: Job) -> str | None:
    if not isinstance(job.sampler, Full):
        return f"it has no sampler {type(job.sampler).__name__}; it has Full."
    if job.anchors is not None:
        return "it has no anchors; give them as interactions, and the items to compare with as negatives."
    if not has_row_form(job.loss) and weighs_dislikes(job):
        return (
            "it weighs disliked items only in losses with a row form of their own; it has dislike_weight=1."
        )
    if not has_row_form(job.loss) and job.sampler.columns_of(job.interactions.n_items) is not None:
        known = ", ".join(kind.__name__ for kind in LOSSES.values())
        return f"it draws columns of a catalogue only for losses with a row form of their own: {known}."
    return None


FULL = Engine(start=_start, lacks=_lacks)
