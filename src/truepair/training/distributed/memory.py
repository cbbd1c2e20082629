"""Memory: what a rank needs, and how many ranks would fit, said before training."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes
from truepair.distributed.cost import CODE, FLOAT
from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.training.distributed.graph import hops_of
from truepair.training.distributed.shards import Shard
from truepair.training.full.large.memory import size_of
from truepair.training.job import Job

_COPIES = 2  # of a gathered table: gloo keeps one of its own
_LAYERS = 2  # times that own rows live for each layer: the layers, and what their mean is taken from
_REMEDY = "no number of ranks would fit; lower batch_size or dim, or set columns of the sampler"
_REMEDY_OF_GRAPH = (
    "no number of ranks would fit, since each gathers the vectors of all users and of all items; lower dim "
    "or batch_size, set columns of the sampler, or use MF"
)


class GraphSize(NamedTuple):
    """What propagation over the graph needs on a rank, beside what MF needs; nothing without hops."""

    ends: tuple[Codes, Codes]  # [n + 1] of users and of items: how many pairs come before each
    dim: int
    hops: int

    @staticmethod
    def of(job: Job) -> GraphSize:
        """That of a job."""
        counts = job.interactions.user_counts, job.interactions.item_counts
        users, items = (np.concatenate([[0], np.cumsum(each)]) for each in counts)
        return GraphSize((users, items), job.encoder.dim, hops_of(job.encoder))

    def rank_bytes(self, ranks: int) -> int:
        """Bytes on the device of the rank with the most edges: edges, one gathered table, layers."""
        if not self.hops:
            return 0
        shards = [Shard(len(ends) - 1, ranks, 0) for ends in self.ends]
        of_users, of_items = (
            np.diff(ends[each.bounds]) for ends, each in zip(self.ends, shards, strict=True)
        )
        edges, rows = int((of_users + of_items).max()), sum(each.longest for each in shards)
        gathered = ranks * max(each.longest for each in shards) if ranks > 1 else 0
        vectors = _COPIES * gathered + _LAYERS * (self.hops + 1) * rows
        return edges * (CODE + FLOAT) + rows * CODE + vectors * self.dim * FLOAT


def check_memory(job: Job, ranks: int, device: torch.device) -> None:
    """An error if a rank needs more than is free, with the number of ranks that would fit."""
    free = free_bytes(device)
    if free is None:
        return
    on_machine = max(int(os.environ.get("LOCAL_WORLD_SIZE") or ranks), 1)
    shared = device.type == "cpu" or on_machine > max(torch.cuda.device_count(), 1)
    room = free // on_machine if shared else free
    size, graph = size_of(job), GraphSize.of(job)
    of_graph = graph.rank_bytes(ranks)
    needed = size.rank_bytes(ranks) + of_graph
    if needed <= room:
        return
    fitting = size.ranks_for(room, graph.rank_bytes)
    no_number = _REMEDY_OF_GRAPH if of_graph else _REMEDY
    remedy = no_number if fitting is None else f"{fitting} ranks with as much would fit"
    part = f" ({of_graph / 1e9:,.2f} GB of them for the graph and its hops)" if of_graph else ""
    raise InputError(
        f"a rank of {ranks} needs about {needed / 1e9:,.2f} GB{part}, and {room / 1e9:,.2f} GB are free for "
        f"each on {device}; {remedy}."
    )
