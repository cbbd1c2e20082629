"""A job as plain numbers for the fused engines, and what every one of them can do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.losses import LOSSES, Loss, Row
from truepair.losses.base import parameters_of
from truepair.models.encoders import MF, Encoder, LightGCN
from truepair.sampling import BNS, DNS, Popularity, Sampler, Uniform
from truepair.training.job import Job

# What fused engines can do to a row. They train every loss of the registry that states one of these; a class
# derived from such a loss is another loss.
FUSED_ROWS = Row.MEAN, Row.POINTWISE, Row.SOFTMAX, Row.DEBIASED_SOFTMAX, Row.DEBIASED_MEAN, Row.DEBIASED_HALF
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


class LossNumbers(NamedTuple):
    """The numbers of a loss that kernels read; 0 for those that it does not have."""

    beta: np.float32 = np.float32(0)
    floor: np.float32 = np.float32(0)
    inverse_temperature: np.float32 = np.float32(0)
    margin: np.float32 = np.float32(0)
    min_score: np.float32 = np.float32(0)
    weight: np.float32 = np.float32(0)


# A run on the GPU has its numbers in one row of an array; `place_of` is the only one to know where.
RUN_NUMBERS = ("score_scale", *LossNumbers._fields, "l2_users", "l2_items", "weight_decay")


def place_of(name: str) -> int:
    """The place of a number in a run's row on the GPU."""
    return RUN_NUMBERS.index(name)


def loss_numbers(loss: Loss) -> LossNumbers:
    """The numbers of a loss as float32 has them."""
    found = {}
    smallest = float(np.finfo(np.float32).tiny)  # a floor that float32 cannot hold must not become 0
    for name, parameter in parameters_of(type(loss)).items():
        if parameter.is_number and not parameter.full_only:
            value = 1 / getattr(loss, name) if parameter.inverse else getattr(loss, name)
            kernel_name = f"inverse_{name}" if parameter.inverse else name
            found[kernel_name] = np.float32(max(value, smallest) if value > 0 else value)
    return LossNumbers(**found)


def prior_of(loss: Loss) -> tuple[Floats, Floats]:
    """τ and log(1 − τ), computed in float64: [1] or [n_users] each."""
    tau = np.atleast_1d(np.asarray(getattr(loss, "tau", 0.0), dtype=np.float64))
    return tau.astype(np.float32), np.log1p(-tau).astype(np.float32)


# --- a job -----------------------------------------------------------------------------------------------


class KernelPlan(NamedTuple):
    """The numbers a kernel needs of a job; compiled code takes them as they are."""

    pair: int  # what the loss does to a pair of scores: a `Pair`
    row: int  # … and to a row: a `Row`
    relative: bool  # clamp="relative"
    has_floor: bool  # whether rows can be clamped
    loss: LossNumbers
    m: int  # extra positives of a row
    n: int  # unlabelled items of a row
    pool: int  # unlabelled items sampled for a row; n, or more where some are chosen by score
    risk: float  # 1 + λ of BNS, which keeps the n of least risk; 0 where the hardest n are kept
    hops: int
    cosine: bool
    score_scale: np.float32  # 1 / temperature of cosine scoring, else 1

    @property
    def width(self) -> int:
        """Items of a row: the anchor's, the extra ones and the unlabelled ones that are sampled."""
        return 1 + self.m + self.pool

    def run_numbers(self, l2_users: float, l2_items: float, weight_decay: float) -> list[float]:
        """The row of a run on the GPU: RUN_NUMBERS."""
        return [float(self.score_scale), *map(float, self.loss), l2_users, l2_items, weight_decay]


def plan_of(job: Job) -> KernelPlan:
    """The numbers of a job that `lacking` found nothing wrong with."""
    loss, encoder, settings = job.loss, job.encoder, job.settings
    return KernelPlan(
        pair=int(loss.family.pair),
        row=int(loss.family.row),
        relative=getattr(loss, "clamp", "hard") == "relative",
        has_floor=loss.has_floor,
        loss=loss_numbers(loss),
        m=settings.n_extra if loss.uses_extra else 0,
        n=settings.n_unlabelled,
        pool=job.sampler.candidates(settings.n_unlabelled),
        risk=1 + job.sampler.weight if isinstance(job.sampler, BNS) else 0.0,
        hops=getattr(encoder, "hops", 0),
        cosine=encoder.scoring == "cosine",
        score_scale=np.float32(1 / encoder.temperature if encoder.scoring == "cosine" else 1.0),
    )


def lacking(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    encoders: tuple[type[Encoder], ...] = FUSED_ENCODERS,
    samplers: tuple[type[Sampler], ...] = BATCH_SAMPLERS,
) -> str | None:
    """Which part a fused engine with these encoders and samplers cannot train, and what it has."""
    has: list[tuple[str, object, tuple[type, ...]]] = [
        ("encoder", encoder, encoders),
        ("loss", loss, FUSED_LOSSES),
        ("sampler", sampler, samplers),
    ]
    for what, value, known in has:
        if type(value) not in known:
            names = ", ".join(kind.__name__ for kind in known)
            return f"it has no {what} {type(value).__name__}; it has {names}."
    for name, parameter in parameters_of(type(loss)).items():
        default = getattr(type(loss), name)
        if parameter.full_only and getattr(loss, name) != default:
            return f"it has no {name}; it has {name}={default:g}."
    if encoder.popularity:
        return "it does not add popularity to scores; it has popularity=0."
    if isinstance(sampler, BNS) and not sampler.in_batch:
        return "it has no BNS that ranks among the whole catalogue; it has BNS(in_batch=True)."
    return None


def lacking_data(job: Job) -> str | None:
    """What a job says of its interactions that no fused engine has."""
    if job.anchors is not None:
        return "it has no anchors: every interaction is one."
    if job.interactions.disliked is not None:
        return "it has no draws of dislikes; 'reference' has them, and 'full' with sampler='full'."
    return None


def next_power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length()
