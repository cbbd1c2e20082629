"""Engine "full": full-catalogue training."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from truepair.distributed.cost import MANY_NUMBERS, MANY_STEPS
from truepair.errors import InputError
from truepair.losses import LOSSES
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training.full.cuda_graphs import RecordedFullTrainer
from truepair.training.full.large.memory import check_memory
from truepair.training.full.large.streaming import is_streamed
from truepair.training.full.losses import has_row_form
from truepair.training.full.many_users import ManyUsersTrainer
from truepair.training.full.trainer import FullTrainer
from truepair.training.job import Engine, Job


def is_recordable(job: Job, device: torch.device | None = None) -> bool:
    """Whether steps can be recorded: with Adam, on CUDA with Triton, for row forms of whole catalogues."""
    device = job.settings.torch_device() if device is None else device
    whole = isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is None
    closed = has_row_form(job.loss) and job.settings.optimizer == "adam" and job.negatives is None
    closed = closed and job.interactions.disliked is None  # their number differs from block to block
    if not (whole and closed and device.type == "cuda" and find_spec("triton") is not None):
        return False
    return not is_streamed(job.interactions, device)  # recorded steps read all pairs on the device


def has_many_users(job: Job, device: torch.device | None = None) -> bool:
    """Whether a step uses few of the users: then those that it does not use are left alone.

    On CUDA a pass over all users is fast, and is avoided where their vectors are many, or where Adam's state
    of them is not kept there in float32.
    """
    settings, data = job.settings, job.interactions
    if not isinstance(job.encoder, MF) or settings.optimizer != "adam":
        return False
    device = settings.torch_device() if device is None else device
    worth = device.type == "cpu" or data.n_users * job.encoder.dim >= MANY_NUMBERS
    worth = worth or settings.optimizer_state != "device"
    return worth and data.n_users >= MANY_STEPS * settings.batch_size


def _start(job: Job) -> FullTrainer:
    check_state(job)
    many, recordable = has_many_users(job), is_recordable(job)
    check_memory(job, many)
    if many and (not recordable or job.interactions.n_users * job.encoder.dim >= MANY_NUMBERS):
        return ManyUsersTrainer(job)
    return RecordedFullTrainer(job) if recordable else FullTrainer(job)


def check_state(job: Job) -> None:
    """Raise if Adam's state is to be kept elsewhere, and the users do not have a table of their own."""
    state, settings = job.settings.optimizer_state, job.settings
    if state == "device" or has_many_users(job):
        return
    if not isinstance(job.encoder, MF) or settings.optimizer != "adam":
        raise InputError(
            f"optimizer_state = {state!r} is for the encoder MF with Adam, not for "
            f"{type(job.encoder).__name__} with {settings.optimizer!r}; leave it out."
        )
    raise InputError(
        f"optimizer_state = {state!r} needs {MANY_STEPS} steps in an epoch or more: {MANY_STEPS} x "
        f"batch_size = {MANY_STEPS * settings.batch_size:,} users, and there are "
        f"{job.interactions.n_users:,}; leave it out, or lower batch_size."
    )


def _lacks(job: Job) -> str | None:
    if not isinstance(job.sampler, Full):
        return f"it has no sampler {type(job.sampler).__name__}; it has Full."
    if job.anchors is not None:
        return "it has no anchors; give them as interactions, and the items to compare with as negatives."
    if has_row_form(job.loss):
        return None
    if job.loss.needs_items:
        return "it weighs items only in losses with a row form of their own."
    if job.weighs_dislikes:
        return (
            "it weighs disliked items only in losses with a row form of their own; it has dislike_weight=1."
        )
    if job.sampler.columns_of(job.interactions.n_items) is not None:
        known = ", ".join(kind.__name__ for kind in LOSSES.values())
        return f"it draws columns of a catalogue only for losses with a row form of their own: {known}."
    return None


FULL = Engine(start=_start, lacks=_lacks)
