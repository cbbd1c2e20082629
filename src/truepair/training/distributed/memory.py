"""Memory: what a rank needs, and how many ranks would fit, said before training."""

from __future__ import annotations

import os

import torch

from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.training.full.large.memory import size_of
from truepair.training.job import Job


def check_memory(job: Job, ranks: int, device: torch.device) -> None:
    """An error if a rank needs more than is free, with the number of ranks that would fit."""
    free = free_bytes(device)
    if free is None:
        return
    on_machine = max(int(os.environ.get("LOCAL_WORLD_SIZE") or ranks), 1)
    shared = device.type == "cpu" or on_machine > max(torch.cuda.device_count(), 1)
    room = free // on_machine if shared else free
    size = size_of(job)
    needed = size.rank_bytes(ranks)
    if needed <= room:
        return
    fitting = size.ranks_for(room)
    remedy = (
        f"{fitting} ranks with as much would fit"
        if fitting is not None
        else "no number of ranks would fit; lower batch_size or dim, or set columns of the sampler"
    )
    raise InputError(
        f"a rank of {ranks} needs about {needed / 1e9:,.2f} GB, and {room / 1e9:,.2f} GB are free for each "
        f"on {device}; {remedy}."
    )
