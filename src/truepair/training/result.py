"""Reports of a run: after every epoch, and the result at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from truepair.models.closed_forms import ClosedForm
from truepair.models.factor_matrices import Rows
from truepair.models.start import Start
from truepair.sampling import Matrices


@dataclass(frozen=True)
class EpochRecord:
    """One epoch: mean loss, share of clamped rows (None where the loss has no floor), validation score."""

    epoch: int
    loss: float
    clamped: float | None
    score: float | None
    learning_rate: float
    seconds: float


@dataclass(eq=False)
class EpochState:
    """What `on_epoch` sees after an epoch: its number (from 1), its loss, and the matrices as they are.

    `matrices()` gives (users, items), detached, on the training device.
    """

    epoch: int
    loss: float
    matrices: Callable[[], Matrices]


class StopTraining(Exception):  # noqa: N818, a signal like StopIteration, not an error
    """Raised by an `on_epoch`, it ends its run after this epoch, with the best so far; others go on.

    `score` is the validation score of this epoch, where there is one.
    """

    def __init__(self, score: float | None = None) -> None:
        super().__init__(score)
        self.score = score


class OnEpoch(Protocol):
    """Called after an epoch; a number it returns is a validation score, higher is better."""

    def __call__(self, state: EpochState, /) -> float | None:
        """A validation score, or None; raises `StopTraining` to end the run."""


@dataclass(frozen=True, eq=False, repr=False)
class FitResult:
    """Fitted matrices (on the CPU), and how they were computed: by training, or as a closed form.

    With a validation score, trained matrices are those of the best epoch, else of the last. A closed form has
    no job, no epochs and an empty history; its `users`, and for some its `items`, are sparse.
    """

    users: Any  # [n_users, d], a Tensor; of a closed form sparse rows
    items: Any  # [n_items, d], a Tensor; of some closed forms sparse rows
    engine: str  # the engine that trained, or "closed form"
    job: Any = None  # the Job that was trained; None for a closed form
    history: tuple[EpochRecord, ...] = ()
    epoch: Any = None  # the epoch that the matrices are from, counted from 1; None for a closed form
    stopped_early: bool = False
    n_saturated_users: int = 0  # users with every item: nothing can be compared with it, so they are left out
    closed_form: ClosedForm | None = None
    score: float | None = None  # the validation score of the matrices
    network: Mapping[str, Tensor] = field(default_factory=dict)  # weights of a sequence encoder, beside items
    start: Start | None = None  # where the training of an update starts; None if it was not asked for

    def matrices(self) -> tuple[Rows, Rows]:
        """(users, items)."""
        return self.users, self.items

    @property
    def clamped(self) -> float | None:
        """The share of rows that met the loss's floor, over all epochs."""
        shares = [record.clamped for record in self.history if record.clamped is not None]
        return sum(shares) / len(shares) if shares else None

    def __repr__(self) -> str:
        facts = [str(self.closed_form)] if self.closed_form is not None else []
        if self.history:
            facts += [f"epoch {self.epoch} of {len(self.history)}", f"loss {self.history[-1].loss:.4f}"]
        facts += [f"validation {self.score:.4f}"] if self.score is not None else []
        facts += [f"{self.clamped:.1%} of rows clamped"] if self.clamped is not None else []
        facts += ["stopped early"] if self.stopped_early else []
        left_out = self.n_saturated_users
        facts += [f"users with every item, left out: {left_out}"] if left_out else []
        return f"<FitResult: {tuple(self.users.shape)} x {tuple(self.items.shape)}, {', '.join(facts)}>"
