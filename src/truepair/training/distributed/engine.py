"""Engine "distributed": full-catalogue training over the processes of torchrun.

Ranks that would not train the same thing are refused before they begin, and so is what needs more memory
than is free.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from truepair.data.interactions import EXTRA, Interactions, trusted_interactions
from truepair.distributed.cost import CODE, FLOAT
from truepair.errors import InputError
from truepair.losses import LOSSES
from truepair.models.encoders import MF, LightGCN
from truepair.models.factor_matrices import free_bytes
from truepair.sampling import Full
from truepair.storage.versions import package_version
from truepair.training.checkpoints import describe_job
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.graph import hops_of
from truepair.training.distributed.processes import device_of, group_of, n_processes
from truepair.training.distributed.shards import Shard
from truepair.training.distributed.trainer import ShardTrainer
from truepair.training.full.engine import size_of
from truepair.training.full.losses import has_row_form
from truepair.training.job import READS_ORDER, Engine, Job


def _start(job: Job) -> ShardTrainer:
    device = device_of(job.settings.torch_device())
    job = replace(job, settings=replace(job.settings, device=str(device)))
    return started(job, group_of(device))


def started(job: Job, group: ProcessGroup) -> ShardTrainer:
    """The trainer of a rank, after the ranks have agreed on what they train."""
    facts = {f"version of {name}": package_version(name) for name in ("truepair", "torch", "numpy")}
    facts |= {"source of truepair": source_digest(_PACKAGE)} | describe_job(job, None)
    check_agreement(group, facts | {"ranks": group.size})
    check_pairs(group, job.interactions)
    check_memory(job, group.size, job.settings.torch_device())
    return ShardTrainer(job, group)


def _lacks(job: Job) -> str | None:
    if job.encoder.reads_order:
        return READS_ORDER
    if not isinstance(job.sampler, Full):
        return f"it has no sampler {type(job.sampler).__name__}; it has Full."
    if type(job.encoder) not in (MF, LightGCN):
        return (
            f"it has no encoder {type(job.encoder).__name__}, whose other parameters are not divided; "
            "it has MF and LightGCN."
        )
    if not has_row_form(job.loss):
        known = ", ".join(kind.__name__ for kind in LOSSES.values() if not kind.needs_items)
        return f"it has only losses with a row form of their own: {known} (PSL with surrogate='tanh')."
    if job.loss.needs_items:
        return f"it has no {type(job.loss).__name__}, whose weights of items are not divided; it has InfoNCE."
    if job.anchors is not None or job.negatives is not None:
        return "it has neither anchors nor negatives; give interactions alone."
    if job.interactions.disliked is not None:
        return "it has no dislikes; leave them out."
    smaller = min(job.interactions.n_users, job.interactions.n_items)
    if n_processes() > smaller:
        return f"it divides users and items among {n_processes()} ranks, and there are only {smaller}."
    return None


DISTRIBUTED = Engine(start=_start, lacks=_lacks)


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


_PACKAGE = Path(__file__).parents[2]


def check_agreement(group: ProcessGroup, facts: Mapping[str, object]) -> None:
    """An error on all ranks if one has other facts than rank 0; it names the rank and what differs."""
    of_ranks = [json.loads(text) for text in group.texts(json.dumps(facts, default=str))]
    for rank, found in enumerate(of_ranks):
        differing = [name for name in {**of_ranks[0], **found} if found.get(name) != of_ranks[0].get(name)]
        if differing:
            shown = "; ".join(
                f"{name} is {found.get(name)!r:.80} there and {of_ranks[0].get(name)!r:.80} on rank 0"
                for name in differing[:5]
            )
            raise InputError(
                f"rank {rank} would not train the same model as rank 0: {shown}. Start all ranks with the "
                "same command, data and installation."
            )


def check_pairs(group: ProcessGroup, data: Interactions) -> None:
    """An error if the pairs are not those of the hash that a prepared folder states: it was changed since."""
    if group.size == 1:
        return
    plain = {name: getattr(data, name) for name in (*EXTRA, "time_kind", "disliked")}
    found = trusted_interactions(data.users, data.items, data.user_ids, data.item_ids, **plain).hash
    check_agreement(group, {"pairs as read": found})
    if found != data.hash:
        raise InputError(
            f"the pairs are not those that were prepared: their hash is {found}, and the folder states "
            f"{data.hash}. It was changed since; `truepair prepare FOLDER --verify` finds where, and "
            "preparing it again mends it."
        )


@cache
def source_digest(package: Path) -> str:
    """A checksum of all Python files of a package."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()
