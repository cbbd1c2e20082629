"""A job as plain numbers for the fused engines, and what every one of them can do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.losses import BPR, DCL, DPL, HCL, DPLHalf, DPLHard, InfoNCE, Loss
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.sampling import BNS, DNS, Popularity, Sampler, Uniform
from truepair.training.job import Job

# A fused engine knows these losses by number. A class derived from one of them is another loss.
LOSS_KINDS: dict[type[Loss], int] = {BPR: 0, InfoNCE: 1, DCL: 2, HCL: 3, DPL: 4, DPLHard: 5, DPLHalf: 6}
FUSED_SAMPLERS: tuple[type[Sampler], ...] = (Uniform, Popularity, DNS)
BATCH_SAMPLERS: tuple[type[Sampler], ...] = (*FUSED_SAMPLERS, BNS)  # of engines that train by batches
FUSED_ENCODERS: tuple[type[Encoder], ...] = (MF, LightGCN)

Floats = npt.NDArray[np.float32]


class Plan(NamedTuple):
    """The numbers a kernel needs of a job. What a loss does not have is neutral."""

    kind: int  # LOSS_KINDS
    m: int  # extra positives of a row
    n: int  # unlabelled items of a row
    pool: int  # unlabelled items drawn for a row; n, or more where some are chosen by score
    risk: float  # 1 + λ of BNS, which keeps the n of least risk; 0 where the hardest n are kept
    hops: int
    cosine: bool
    score_scale: float  # 1 / temperature of cosine scoring, else 1
    inverse_temperature: float  # 1 / t of InfoNCE, DCL, HCL
    beta: float  # HCL, DPLHard
    min_score: float  # DCL, HCL
    floor: float  # DPL, DPLHard, DPLHalf
    relative: bool  # clamp="relative"
    has_floor: bool  # whether rows can be clamped
    tau: Floats  # [1] or [n_users]
    log_rest: Floats  # log(1 − τ), computed in float64

    @property
    def width(self) -> int:
        """Items of a row: the anchor's, the extra ones and the unlabelled ones that are drawn."""
        return 1 + self.m + self.pool


def plan_of(job: Job) -> Plan:
    """The numbers of a job that `lacking` found nothing wrong with."""
    loss, encoder, settings = job.loss, job.encoder, job.settings
    tau = np.atleast_1d(np.asarray(getattr(loss, "tau", 0.0), dtype=np.float64))
    return Plan(
        kind=LOSS_KINDS[type(loss)],
        m=settings.n_extra if loss.uses_extra else 0,
        n=settings.n_unlabelled,
        pool=job.sampler.candidates(settings.n_unlabelled),
        risk=1 + job.sampler.weight if isinstance(job.sampler, BNS) else 0.0,
        hops=getattr(encoder, "hops", 0),
        cosine=encoder.scoring == "cosine",
        score_scale=1 / encoder.temperature if encoder.scoring == "cosine" else 1.0,
        inverse_temperature=1 / getattr(loss, "temperature", 1.0),
        beta=getattr(loss, "beta", 0.0),
        min_score=getattr(loss, "min_score", 0.0),
        floor=getattr(loss, "floor", 0.0),
        relative=getattr(loss, "clamp", "hard") == "relative",
        has_floor=loss.has_floor,
        tau=tau.astype(np.float32),
        log_rest=np.log1p(-tau).astype(np.float32),
    )


def lacking(
    job: Job,
    optimizers: tuple[str, ...],
    encoders: tuple[type[Encoder], ...] = FUSED_ENCODERS,
    samplers: tuple[type[Sampler], ...] = BATCH_SAMPLERS,
) -> str | None:
    """What of a job a fused engine with these parts cannot do, and what it has."""
    has: list[tuple[str, object, tuple[object, ...]]] = [
        ("encoder", type(job.encoder), encoders),
        ("loss", type(job.loss), tuple(LOSS_KINDS)),
        ("sampler", type(job.sampler), samplers),
        ("optimizer", job.settings.optimizer, optimizers),
    ]
    for what, value, known in has:
        if value not in known:
            return f"it has no {what} {_name(value)}; it has {', '.join(map(_name, known))}."
    if getattr(job.loss, "margin", 0.0):
        return "it has no margin; it has margin=0."
    if job.encoder.popularity:
        return "it does not add popularity to scores; it has popularity=0."
    if isinstance(job.sampler, BNS) and not job.sampler.in_batch:
        return "it has no BNS that ranks among the whole catalogue; it has BNS(in_batch=True)."
    return None


def _name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def next_power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
