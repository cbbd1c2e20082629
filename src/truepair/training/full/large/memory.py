"""Memory: what a run on one device needs there and in main memory, said before it starts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from truepair.distributed.cost import FLOAT, STATES, TrainingSize
from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.sampling import Full
from truepair.training.full.large.streaming import is_streamed
from truepair.training.job import Job


class Needs(NamedTuple):
    """Bytes on the device, and in main memory beside what is mapped."""

    device: int
    host: int


def size_of(job: Job) -> TrainingSize:
    """What the cost of a job depends on."""
    assert isinstance(job.sampler, Full)
    data, settings = job.interactions, job.settings
    columns = job.sampler.columns_of(data.n_items) or data.n_items
    size = data.n_users, data.n_items, len(data), job.encoder.dim
    return TrainingSize(*size, settings.batch_size, columns, settings.optimizer, settings.optimizer_state)


def needs(job: Job, many: bool, streamed: bool) -> Needs:
    """What a job needs on CUDA. `many`: users that a step does not use are left alone."""
    size = size_of(job)
    users, items = (n * size.dim * FLOAT for n in (size.n_users, size.n_items))
    host = 2 * (users + items)  # the first vectors, then the result
    if many and size.state == "host":
        host += STATES[size.optimizer] * (1 << (users - 1).bit_length())  # PyTorch pins powers of two
    return Needs(size.alone_bytes(many, streamed), host)


def check_memory(job: Job, many: bool) -> None:
    """Raise if a job on CUDA needs more than is free, with what would need less."""
    device = job.settings.torch_device()
    if device.type != "cuda":
        return
    streamed = is_streamed(job.interactions, device)
    found = needs(job, many, streamed)
    places = ("the device", device, found.device), ("main memory", torch.device("cpu"), found.host)
    for where, place, needed in places:
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
