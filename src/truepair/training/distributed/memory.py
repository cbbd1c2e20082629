"""Memory: what a rank needs, and how many ranks would fit, said before training."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.sampling import Full
from truepair.training.job import Job

_FLOAT, _CODE = 4, 8
_STATES = {"adam": 2, "adagrad": 1, "sgd": 0}  # numbers that an optimizer keeps of each parameter
_SCORES = 3  # tensors of the size of a block's scores that live at one time
_MOST_RANKS = 1 << 16


class Size(NamedTuple):
    """What the memory of a rank depends on."""

    n_users: int
    n_items: int
    n_pairs: int
    dim: int
    batch_size: int
    n_columns: int  # that a block is scored against, on all ranks
    optimizer: str

    @staticmethod
    def of(job: Job) -> Size:
        """That of a job."""
        assert isinstance(job.sampler, Full)
        data, settings = job.interactions, job.settings
        columns = job.sampler.columns_of(data.n_items) or data.n_items
        size = data.n_users, data.n_items, len(data), job.encoder.dim
        return Size(*size, min(settings.batch_size, data.n_users), columns, settings.optimizer)

    def rank_bytes(self, ranks: int) -> int:
        """Bytes on the device of a rank: its shards with gradients and states, its pairs, a block."""
        rows = -(-self.n_users // ranks) + -(-self.n_items // ranks)
        tables = rows * self.dim * _FLOAT * (2 + _STATES[self.optimizer])
        pairs = -(-self.n_pairs // ranks) * _CODE + 6 * self.n_users * _CODE  # counts, starts, order
        block = self.batch_size * (-(-self.n_columns // ranks) * _SCORES + 4 * self.dim) * _FLOAT
        return tables + pairs + block

    def ranks_for(self, room: int) -> int | None:
        """The least number of ranks that need no more than `room` bytes each; None if no number does."""
        low, high = 1, min(_MOST_RANKS, self.n_users, self.n_items)
        if self.rank_bytes(high) > room:
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.rank_bytes(middle) <= room else (middle + 1, high)
        return low


def check_memory(job: Job, ranks: int, device: torch.device) -> None:
    """An error if a rank needs more than is free, with the number of ranks that would fit."""
    free = free_bytes(device)
    if free is None:
        return
    on_machine = max(int(os.environ.get("LOCAL_WORLD_SIZE") or ranks), 1)
    shared = device.type == "cpu" or on_machine > max(torch.cuda.device_count(), 1)
    room = free // on_machine if shared else free
    size = Size.of(job)
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
