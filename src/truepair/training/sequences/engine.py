"""Engine "sequences": what it cannot train, and how it starts."""

from __future__ import annotations

from truepair.losses import InfoNCE
from truepair.models.encoders import ENCODERS
from truepair.sampling import Full, Popularity, Uniform
from truepair.training.job import Engine, Job, Trainer


def _start(job: Job) -> Trainer:
    from truepair.training.sequences.trainer import SequenceTrainer

    return SequenceTrainer(job)


def _lacks(job: Job) -> str | None:
    sampler, settings, n_items = type(job.sampler), job.settings, job.interactions.n_items
    if not job.encoder.reads_order:
        able = ", ".join(kind.__name__ for kind in ENCODERS.values() if kind.reads_order)
        return f"it has no encoder {type(job.encoder).__name__}; it has {able}."
    if sampler not in (Full, Uniform, Popularity):
        return f"it has no sampler {sampler.__name__}; it has Full, Uniform and Popularity."
    if job.loss.needs_items or (sampler is Full and job.loss.uses_extra):
        return (
            f"with the full catalogue it has no loss {type(job.loss).__name__}, which reads other items of a "
            "user; use the loss 'infonce', or the sampler 'uniform'."
        )
    sampled = isinstance(job.sampler, Full) and job.sampler.columns_of(n_items) is not None
    if sampled and type(job.loss) is not InfoNCE:
        return "it has sampled columns of the catalogue only for the loss 'infonce'."
    if job.anchors is not None or job.negatives is not None:
        return "it has neither anchors nor negatives; give interactions alone."
    if job.interactions.disliked is not None and (job.weighs_dislikes or sampler is not Full):
        return "it has no weights and no draws of dislikes; it has dislike_weight=1 with sampler='full'."
    if settings.l2_users or settings.l2_items:
        return "it has no l2_users and no l2_items; it has weight_decay."
    return None


SEQUENCES = Engine(start=_start, lacks=_lacks)
