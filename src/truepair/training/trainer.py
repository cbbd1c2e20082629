"""What an engine provides: a trainer that trains one epoch. `loop` does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from truepair.models.start import Start
from truepair.sampling import Matrices
from truepair.training.job import Job


class EpochTotals(NamedTuple):
    """The totals of an epoch of training."""

    losses: Tensor  # [steps], the sum of the rows' losses in each step
    clamped: int | None  # how many rows met the loss's floor; None where it has none


class Trainer(Protocol):
    """The parameters of one run, and one epoch of training."""

    steps: int  # batches in an epoch
    n_anchors: int  # rows in an epoch
    n_saturated_users: int  # users with interactions and nothing to compare them with: they have no anchors

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


class Engine(NamedTuple):
    """A way to train: how it starts, and what it cannot do."""

    start: Callable[[Job], Trainer]
    lacks: Callable[[Job], str | None]  # why it cannot train this job, and what it has; None if it can
