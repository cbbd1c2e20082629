"""A job as plain numbers for the fused engines, and what every one of them can do."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.losses import LOSSES, Loss, Pair, Row
from truepair.losses.base import parameters_of
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.sampling import BNS, DNS, Popularity, Sampler, Uniform
from truepair.training.job import Job

# What fused engines can do to a row. They train every loss of the registry that states one of these; a class
# derived from such a loss is another loss.
FUSED_ROWS = (
    Row.MEAN,
    Row.POINTWISE,
    Row.SOFTMAX,
    Row.DEBIASED_SOFTMAX,
    Row.DEBIASED_MEAN,
    Row.DEBIASED_HALF,
)
FUSED_LOSSES: tuple[type[Loss], ...] = tuple(
    kind
    for kind in LOSSES.values()
    if (family := vars(kind).get("family")) and family.row in FUSED_ROWS and not kind.needs_items
)
FUSED_SAMPLERS: tuple[type[Sampler], ...] = (Uniform, Popularity, DNS)
BATCH_SAMPLERS: tuple[type[Sampler], ...] = (*FUSED_SAMPLERS, BNS)  # of engines that train by batches
FUSED_ENCODERS: tuple[type[Encoder], ...] = (MF, LightGCN)

Floats = npt.NDArray[np.float32]


# --- the numbers of a loss -------------------------------------------------------------------------------


def _number_names() -> tuple[str, ...]:
    """The numbers that kernels read, of all fused losses: each name once, whatever the registry's order."""
    names = {
        parameter.kernel_name(name)
        for kind in FUSED_LOSSES
        for name, parameter in parameters_of(kind).items()
        if parameter.is_number and not parameter.full_only
    }
    return tuple(sorted(names))


LOSS_NUMBERS = _number_names()

# A run on the GPU has its numbers in one row of an array; `place_of` is the only one to know where.
RUN_NUMBERS = ("score_scale", *LOSS_NUMBERS, "l2_users", "l2_items", "weight_decay")


def place_of(name: str) -> int:
    """The place of a number in a run's row on the GPU."""
    return RUN_NUMBERS.index(name)


def loss_numbers(loss: Loss) -> dict[str, np.float32]:
    """The numbers of a loss by name, as float32 has them; 0 for those that it does not have."""
    found = dict.fromkeys(LOSS_NUMBERS, np.float32(0))
    smallest = float(np.finfo(np.float32).tiny)  # a floor that float32 cannot hold must not become 0
    for name, parameter in parameters_of(type(loss)).items():
        if parameter.is_number and (key := parameter.kernel_name(name)) in found:
            value = 1 / getattr(loss, name) if parameter.inverse else getattr(loss, name)
            found[key] = np.float32(max(value, smallest) if value > 0 else value)
    return found


# --- a job -----------------------------------------------------------------------------------------------


class KernelPlan(NamedTuple):
    """The numbers a kernel needs of a job."""

    pair: Pair  # what the loss does to a pair of scores
    row: Row  # … and to a row
    relative: bool  # clamp="relative"
    has_floor: bool  # whether rows can be clamped
    loss: dict[str, np.float32]  # LOSS_NUMBERS, by name
    tau: Floats  # [1] or [n_users]
    log_rest: Floats  # log(1 − τ), computed in float64
    m: int  # extra positives of a row
    n: int  # unlabelled items of a row
    pool: int  # unlabelled items drawn for a row; n, or more where some are chosen by score
    risk: float  # 1 + λ of BNS, which keeps the n of least risk; 0 where the hardest n are kept
    hops: int
    cosine: bool
    score_scale: float  # 1 / temperature of cosine scoring, else 1

    @property
    def width(self) -> int:
        """Items of a row: the anchor's, the extra ones and the unlabelled ones that are drawn."""
        return 1 + self.m + self.pool

    def run_numbers(self, l2_users: float, l2_items: float, weight_decay: float) -> list[float]:
        """The row of a run on the GPU: RUN_NUMBERS."""
        return [self.score_scale, *map(float, self.loss.values()), l2_users, l2_items, weight_decay]


def plan_of(job: Job) -> KernelPlan:
    """The numbers of a job that `lacking` found nothing wrong with."""
    loss, encoder, settings = job.loss, job.encoder, job.settings
    tau = np.atleast_1d(np.asarray(getattr(loss, "tau", 0.0), dtype=np.float64))
    return KernelPlan(
        pair=loss.family.pair,
        row=loss.family.row,
        relative=getattr(loss, "clamp", "hard") == "relative",
        has_floor=loss.has_floor,
        loss=loss_numbers(loss),
        tau=tau.astype(np.float32),
        log_rest=np.log1p(-tau).astype(np.float32),
        m=settings.n_extra if loss.uses_extra else 0,
        n=settings.n_unlabelled,
        pool=job.sampler.candidates(settings.n_unlabelled),
        risk=1 + job.sampler.weight if isinstance(job.sampler, BNS) else 0.0,
        hops=getattr(encoder, "hops", 0),
        cosine=encoder.scoring == "cosine",
        score_scale=1 / encoder.temperature if encoder.scoring == "cosine" else 1.0,
    )


def weights_of_anchors(job: Job, anchors: Codes | None) -> Floats:
    """The weights of these pairs, or of all of them; empty where all are 1."""
    if job.anchor_weights is None:
        return np.zeros(0, dtype=np.float32)
    return np.array(job.anchor_weights) if anchors is None else np.asarray(job.anchor_weights[anchors])


def lacking(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    encoders: tuple[type[Encoder], ...] = FUSED_ENCODERS,
    samplers: tuple[type[Sampler], ...] = BATCH_SAMPLERS,
) -> str | None:
    """Which part a fused engine with these encoders and samplers cannot train, and what it has."""
    has: list[tuple[str, object, tuple[object, ...]]] = [
        ("encoder", encoder, encoders),
        ("loss", loss, FUSED_LOSSES),
        ("sampler", sampler, samplers),
    ]
    for what, value, known in has:
        if type(value) not in known:
            names = ", ".join(kind.__name__ for kind in known)  # type: ignore[attr-defined]
            return f"it has no {what} {type(value).__name__}; it has {names}."
    for field in dataclasses.fields(loss):  # type: ignore[arg-type]
        parameter = field.metadata.get("parameter")
        if parameter is not None and parameter.full_only and getattr(loss, field.name) != field.default:
            return f"it has no {field.name}; it has {field.name}={field.default:g}."
    if encoder.popularity:
        return "it does not add popularity to scores; it has popularity=0."
    if isinstance(sampler, BNS) and not sampler.in_batch:
        return "it has no BNS that ranks among the whole catalogue; it has BNS(in_batch=True)."
    return None


def lacking_dislikes(job: Job) -> str | None:
    """Dislikes, which no fused engine has."""
    if job.interactions.disliked is None:
        return None
    return "it has no draws of dislikes; 'reference' has them, and 'full' with sampler='full'."


def next_power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
