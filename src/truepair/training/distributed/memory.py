"""Memory: what a rank needs, and how many ranks would fit, said before training."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import torch

from truepair.distributed.cost import CODE, FLOAT
from truepair.errors import InputError
from truepair.models.factor_matrices import free_bytes
from truepair.training.distributed.graph import hops_of
from truepair.training.distributed.shards import Shard
from truepair.training.full.engine import size_of
from truepair.training.job import Job

_COPIES = 2  # of a gathered table: gloo keeps one of its own
_LAYERS = 2  # times that own rows live for each layer: the layers, and what their mean is taken from
_REMEDY = "no number of ranks would fit; lower batch_size or dim, or set columns of the sampler"
_REMEDY_OF_GRAPH = (
    "no number of ranks would fit, since each gathers the vectors of all users and of all items; lower dim "
    "or batch_size, set columns of the sampler, or use MF"
)


def graph_bytes(job: Job, ranks: int) -> int:
    """What propagation over the graph needs on a rank, beside what MF needs; nothing without hops.

    Bytes on the device of the rank with the most edges: edges, one gathered table, layers.
    """
    hops, data = hops_of(job.encoder), job.interactions
    if not hops:
        return 0
    shards = Shard(data.n_users, ranks, 0), Shard(data.n_items, ranks, 0)
    counts = data.user_counts, data.item_counts
    ends = [np.concatenate([[0], np.cumsum(each)]) for each in counts]  # how many pairs come before each row
    of_users, of_items = (np.diff(end[shard.bounds]) for end, shard in zip(ends, shards, strict=True))
    edges, rows = int((of_users + of_items).max()), sum(shard.longest for shard in shards)
    gathered = ranks * max(shard.longest for shard in shards) if ranks > 1 else 0
    vectors = _COPIES * gathered + _LAYERS * (hops + 1) * rows
    return edges * (CODE + FLOAT) + rows * CODE + vectors * job.encoder.dim * FLOAT


def check_memory(job: Job, ranks: int, device: torch.device) -> None:
    """An error if a rank needs more than is free, with the number of ranks that would fit."""
    free = free_bytes(device)
    if free is None:
        return
    on_machine = max(int(os.environ.get("LOCAL_WORLD_SIZE") or ranks), 1)
    shared = device.type == "cpu" or on_machine > max(torch.cuda.device_count(), 1)
    room = free // on_machine if shared else free
    size, of_graph = size_of(job), graph_bytes(job, ranks)
    needed = size.rank_bytes(ranks) + of_graph
    if needed <= room:
        return
    fitting = size.ranks_for(room, partial(graph_bytes, job))
    no_number = _REMEDY_OF_GRAPH if of_graph else _REMEDY
    remedy = no_number if fitting is None else f"{fitting} ranks with as much would fit"
    part = f" ({of_graph / 1e9:,.2f} GB of them for the graph and its hops)" if of_graph else ""
    raise InputError(
        f"a rank of {ranks} needs about {needed / 1e9:,.2f} GB{part}, and {room / 1e9:,.2f} GB are free for "
        f"each on {device}; {remedy}."
    )
