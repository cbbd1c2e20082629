"""Engine "distributed": full-catalogue training over the processes of torchrun."""

from __future__ import annotations

from dataclasses import replace

from truepair.losses import LOSSES
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import Full
from truepair.training.checkpoints import describe_job
from truepair.training.distributed.agreement import check_agreement, check_pairs, facts_of_code
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.memory import check_memory
from truepair.training.distributed.processes import device_of, group_of, n_processes
from truepair.training.distributed.trainer import ShardTrainer
from truepair.training.full.losses import has_row_form
from truepair.training.job import Engine, Job


def _start(job: Job) -> ShardTrainer:
    device = device_of(job.settings.torch_device())
    job = replace(job, settings=replace(job.settings, device=str(device)))
    return started(job, group_of(device))


def started(job: Job, group: ProcessGroup) -> ShardTrainer:
    """The trainer of a rank, after the ranks have agreed on what they train."""
    check_agreement(group, facts_of_code() | describe_job(job, None) | {"ranks": group.size})
    check_pairs(group, job.interactions)
    check_memory(job, group.size, job.settings.torch_device())
    return ShardTrainer(job, group)


def _lacks(job: Job) -> str | None:
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
