"""Engine "full": full-catalogue training; what it cannot train, and the memory that a run needs."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import torch

from truepair.distributed.cost import FLOAT, MANY_NUMBERS, MANY_STEPS, STATES, TrainingSize
from truepair.errors import InputError
from truepair.losses import LOSSES
from truepair.models.encoders import MF
from truepair.models.factor_matrices import free_bytes
from truepair.sampling import Full
from truepair.training.full.cuda_graphs import RecordedFullTrainer
from truepair.training.full.losses import has_row_form
from truepair.training.full.scoring import is_streamed
from truepair.training.full.trainer import FullTrainer, ManyUsersTrainer
from truepair.training.job import READS_ORDER, Engine, Job


def is_recordable(job: Job, device: torch.device | None = None) -> bool:
    """Whether steps can be recorded: with Adam, on CUDA with Triton, for row forms of whole catalogues."""
    device = job.settings.torch_device() if device is None else device
    whole = isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is None
    closed = has_row_form(job.loss) and job.settings.optimizer == "adam" and job.negatives is None
    closed = closed and job.interactions.disliked is None  # their number differs from block to block
    on_gpu = device.type == "cuda" and find_spec("triton") is not None
    # recorded steps read all pairs on the device
    return whole and closed and on_gpu and not is_streamed(job.interactions, device)


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
    if job.settings.optimizer_state != "device":
        check_state(job)
    many, recordable = has_many_users(job), is_recordable(job)
    if job.settings.torch_device().type == "cuda":
        check_memory(job, many)
    if many and (not recordable or job.interactions.n_users * job.encoder.dim >= MANY_NUMBERS):
        return ManyUsersTrainer(job)
    return RecordedFullTrainer(job) if recordable else FullTrainer(job)


def check_state(job: Job) -> None:
    """Raise if Adam's state is to be kept elsewhere, and the users do not have a table of their own."""
    state, settings = job.settings.optimizer_state, job.settings
    if has_many_users(job):
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
    if job.encoder.reads_order:
        return READS_ORDER
    if not isinstance(job.sampler, Full):
        return f"it has no sampler {type(job.sampler).__name__}; it has Full."
    if job.anchors is not None:
        return "it has no anchors; give them as interactions, and the items to compare with as negatives."
    if has_row_form(job.loss):
        return None
    if job.loss.needs_items:
        return "it weighs items only in losses with a row form of their own."
    if job.weighs_dislikes:
        return "it weighs disliked items only in losses with a row form; it has dislike_weight=1."
    if job.sampler.columns_of(job.interactions.n_items) is not None:
        known = ", ".join(kind.__name__ for kind in LOSSES.values())
        return f"it draws columns of a catalogue only for losses with a row form of their own: {known}."
    return None


FULL = Engine(start=_start, lacks=_lacks)


def size_of(job: Job) -> TrainingSize:
    """What the cost of a job depends on."""
    assert isinstance(job.sampler, Full)
    data, settings = job.interactions, job.settings
    columns = job.sampler.columns_of(data.n_items) or data.n_items
    size = data.n_users, data.n_items, len(data), job.encoder.dim
    return TrainingSize(*size, settings.batch_size, columns, settings.optimizer, settings.optimizer_state)


def needs(job: Job, many: bool, streamed: bool) -> tuple[int, int]:
    """Bytes on CUDA, and in main memory beside what is mapped.

    `many`: users that a step does not use are left alone.
    """
    size = size_of(job)
    users, items = (n * size.dim * FLOAT for n in (size.n_users, size.n_items))
    host = 2 * (users + items)  # the first vectors, then the result
    if many and size.state == "host":
        host += STATES[size.optimizer] * (1 << (users - 1).bit_length())  # PyTorch pins powers of two
    return size.alone_bytes(many, streamed), host


def check_memory(job: Job, many: bool) -> None:
    """Raise if a job on CUDA needs more than is free, with what would need less."""
    device = job.settings.torch_device()
    streamed = is_streamed(job.interactions, device)
    places = ("the device", device), ("main memory", torch.device("cpu"))
    for (where, place), needed in zip(places, needs(job, many, streamed), strict=True):
        free = free_bytes(place)
        if free is not None and needed > free:
            raise InputError(
                f"training needs about {needed / 1e9:,.1f} GB of {where}, and {free / 1e9:,.1f} GB are free; "
                f"{remedy(job, many, streamed, place, free)}."
            )


def remedy(job: Job, many: bool, streamed: bool, place: torch.device, free: int) -> str:
    """What would need less: another place of Adam's state if that is enough, else smaller settings."""
    states = ("half", "host") if place.type == "cuda" else ("half",)
    for state in states:
        if many and job.settings.optimizer_state != state:
            other = replace(job, settings=replace(job.settings, optimizer_state=state))  # type: ignore[arg-type]
            if needs(other, many, streamed)[place.type == "cpu"] <= free:
                return f"set optimizer_state={state!r}, or lower dim"
    return "lower dim or batch_size, set columns of the sampler, or use several devices (torchrun)"
