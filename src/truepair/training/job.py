"""A job: all that the numbers of a training run depend on, passed whole; and what an engine makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.data.log import Mask
from truepair.errors import InputError, check_type, settle
from truepair.losses import Loss
from truepair.models.encoders import Encoder
from truepair.models.start import Start
from truepair.sampling import Full, Matrices, Sampler
from truepair.training.settings import Settings


@dataclass(frozen=True, eq=False)
class Job:
    """What to train, on what, and how.

    `start` is where training starts: the vectors, and Adam's moments, of an earlier run. The default None
    draws the encoder's vectors by the seed.

    Two fields are for research, where more is known than which interactions were observed; the default of
    both is None. An engine that does not support one says so.

    anchors    [n_interactions], bool, in the order of `interactions`: which pairs are anchors. The others are
               only known: they are never drawn, neither as extra positives nor as unlabelled items. The
               encoder's graph and popularity are those of all interactions. Default: all are anchors.
    negatives  [n_users, n_items], bool: labelled negatives. With the sampler `Full` they are the only items
               that anchors are compared with. Default: all items without an interaction.
    """

    encoder: Encoder
    loss: Loss
    sampler: Sampler
    interactions: Interactions
    settings: Settings = field(default_factory=Settings)
    anchors: Mask | None = None
    negatives: Mask | None = None
    start: Start | None = None

    def __post_init__(self) -> None:
        check_type("encoder", self.encoder, Encoder, "give a value such as MF(dim=64)")
        check_type("loss", self.loss, Loss, "give a value such as DPL(tau=0.05)")
        check_type("sampler", self.sampler, Sampler, "give a value such as Uniform()")
        remedy = "read it with read_interactions, or take split.train"
        check_type("interactions", self.interactions, Interactions, remedy)
        check_type("settings", self.settings, Settings, "give a value such as Settings(epochs=100)")
        if self.anchors is not None:
            settle(self, anchors=_checked_mask("anchors", self.anchors, (len(self.interactions),)))
        if self.negatives is not None:
            self._check_negatives()
        if self.start is not None:
            self._check_start(self.start)

    def _check_start(self, start: Start) -> None:
        check_type("start", start, Start, "take the `start` of a FitResult")
        data, dim = self.interactions, self.encoder.dim
        found = tuple(tuple(side.vectors.shape) for side in (start.users, start.items))
        if found != ((data.n_users, dim), (data.n_items, dim)):
            raise InputError(
                f"start has vectors of users and items of the shapes {found}; this job "
                f"has {data.n_users} users and {data.n_items} items, with dim = {dim}."
            )
        if start.has_moments and self.settings.optimizer != "adam":
            raise InputError(
                f"start has moments of Adam, and optimizer = {self.settings.optimizer!r} has no use for "
                "them; give start.without_moments()."
            )

    def _check_negatives(self) -> None:
        data = self.interactions
        negatives = _checked_mask("negatives", self.negatives, (data.n_users, data.n_items))
        if not isinstance(self.sampler, Full):
            raise InputError(
                f"negatives needs the sampler Full, not {type(self.sampler).__name__}. To restrict draws, "
                "give all pairs that must not be drawn as interactions, and mark the anchors with `anchors`."
            )
        both = np.flatnonzero(negatives[data.users, data.items])
        if len(both):
            user, item = data.users[both[0]], data.items[both[0]]
            raise InputError(
                f"{len(both)} pairs are both interactions and negatives, the first is user {user} with item "
                f"{item} (by code); a pair can be only one of the two."
            )
        if data.disliked is not None:
            raise InputError("it has negatives, the interactions dislikes; give the dislikes as negatives.")
        settle(self, negatives=negatives)

    @property
    def n_comparable(self) -> npt.NDArray[np.int64]:
        """How many items the anchors of each user can be compared with. [n_users]"""
        if self.negatives is not None:
            return np.asarray(self.negatives.sum(axis=1), dtype=np.int64)
        return np.asarray(self.interactions.n_items - self.interactions.user_counts)

    @cached_property
    def anchor_weights(self) -> npt.NDArray[np.float32] | None:
        """The factor of each interaction's loss, 1 in the mean of all anchors. [n_interactions]

        None if all anchors weigh the same. The mean is of the data: a batch of heavy pairs counts for more.
        """
        data = self.interactions
        if data.weight is None:
            return None
        anchors = self.n_comparable[data.users] > 0
        of_anchors = data.weight[anchors if self.anchors is None else anchors & self.anchors]
        if not len(of_anchors) or of_anchors.min() == of_anchors.max():
            return None
        highest = float(of_anchors.max())  # sums of weights near the largest number would overflow
        return np.asarray(data.weight / highest / (of_anchors / highest).mean(), dtype=np.float32)

    @property
    def weighs_dislikes(self) -> bool:
        """Whether users have disliked items that weigh more or less than others."""
        return self.interactions.disliked is not None and self.settings.dislike_weight != 1

    def has_anchors(self) -> bool:
        """Whether any anchor has an item to be compared with."""
        comparable = self.n_comparable > 0
        if self.anchors is None:  # by user: pairs may be a thousand million
            return bool((comparable & (self.interactions.user_counts > 0)).any())
        return bool((comparable[self.interactions.users] & self.anchors).any())

    def __eq__(self, other: object) -> bool:
        return self._parts() == other._parts() if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        masks = (None if mask is None else mask.tobytes() for mask in (self.anchors, self.negatives))
        start = None if self.start is None else self.start.digest()
        return self.encoder, self.loss, self.sampler, self.interactions, self.settings, *masks, start


def _checked_mask(name: str, value: object, shape: tuple[int, ...]) -> Mask:
    mask = np.array(value)
    if mask.dtype != np.bool_ or mask.shape != shape:
        raise InputError(
            f"{name} is an array of {mask.dtype} of the shape {mask.shape}; it must be bool, of the shape "
            f"{shape}: one value for each {'interaction' if len(shape) == 1 else 'user and item'}."
        )
    return mask


# --- engines -------------------------------------------------------------------------------------------


class EpochTotals(NamedTuple):
    """The totals of an epoch of training."""

    losses: Tensor  # [steps], the sum of the rows' losses in each step
    clamped: int | None  # how many rows met the loss's floor; None where it has none


class Trainer(Protocol):
    """The parameters of one run, and one epoch of training."""

    n_anchors: int  # rows in an epoch
    n_saturated_users: int  # users with interactions and nothing to compare them with: they have no anchors

    @property
    def steps(self) -> int:
        """Batches in an epoch."""

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """Train epoch `epoch` (from 0) at learning rate `rate`; `advance` gets the number of steps done."""

    def matrices(self) -> Matrices:
        """Copies of (users, items), whose dot products are the scores."""

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""

    def state(self) -> dict[str, Tensor]:
        """All that the coming epochs depend on, apart from the job: parameters and optimizer state."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned; KeyError or ValueError if it does not fit."""

    def begin(self, start: Start) -> None:
        """Start from these vectors and moments, before the first epoch."""

    def reached(self) -> Start:
        """The vectors and moments now, from which another job can start; on the CPU."""


READS_ORDER = "it does not read the order of events; 'sequences' does."


class Engine(NamedTuple):
    """A way to train: how it starts, and what it cannot do."""

    start: Callable[[Job], Trainer]
    lacks: Callable[[Job], str | None]  # why it cannot train this job, and what it has; None if it can
