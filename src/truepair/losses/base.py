"""What a loss is: a function of a row of scores, with a family, and parameters with their bounds."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, auto
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch
from torch import Tensor

from truepair.errors import InputError, check_choice, check_number, check_whole, settle

# (users [B], columns [C] or None for all items) -> log of the items' weights, [B, C], in memory of its own
ItemWeights = Callable[[Tensor, Tensor | None], Tensor]


class Rows(NamedTuple):
    """The loss of each row of a batch, and which rows met the loss's floor (None if it has no floor)."""

    loss: Tensor  # [B]
    clamped: Tensor | None  # [B], bool


# --- families ------------------------------------------------------------------------------------------


class Pair(IntEnum):
    """What a loss does to a pair of scores: s⁺ of the anchor and s of an unlabelled item."""

    SOFTPLUS = auto()  # softplus(s − s⁺)
    SIGMOID = auto()  # σ(s⁺ − s)
    HARD_SIGMOID = auto()  # the same, weighted by e^{β s}
    SURROGATE = auto()  # ψ((s − s⁺)/2)^{1/t}
    EXPONENTIAL = auto()  # e^{(s − s⁺)/t}
    HARD_EXPONENTIAL = auto()  # the same, weighted by e^{β s/t}
    LOGISTIC = auto()  # softplus(−s⁺) and softplus(s), each by itself
    HINGE = auto()  # max(0, 1 − s⁺) and max(0, s − margin), each by itself


class Row(IntEnum):
    """What a loss does to the pairs of a row. Each engine has one function for each of these."""

    MEAN = auto()  # mean_n
    POINTWISE = auto()  # f(s⁺) + weight · mean_n g(s_n)
    SOFTMAX = auto()  # log(1 + Σ_n)
    LOG_MEAN = auto()  # log mean_n
    BILATERAL = auto()  # log mean_n, less the same over the extra positives
    DEBIASED_SOFTMAX = auto()  # log(1 + G), G the sum over true negatives
    DEBIASED_MEAN = auto()  # −log of the mean over true negatives
    DEBIASED_HALF = auto()  # the same, with ½ for the mean over positives


class Family(NamedTuple):
    """What a loss does to a pair of scores, and to a row of pairs: engines choose their code by it."""

    pair: Pair
    row: Row


# --- parameters ----------------------------------------------------------------------------------------


Search = Mapping[str, Any]
_Word = TypeVar("_Word", bound=str)
_Default = TypeVar("_Default")


class Parameter(NamedTuple):
    """What is known about a field of a loss, or of settings, besides its type and default."""

    check: Callable[[str, Any], object]  # (name, value) -> the checked value, or an error
    search: Search | None = None  # what a tuner searches, as in a TOML file; None: nothing
    is_number: bool = False  # whether kernels get it
    inverse: bool = False  # whether kernels get 1 / value, under the name inverse_NAME
    full_only: bool = False  # whether engines that sample items have nothing but its default
    symbol: str = ""  # in formulas; errors name it after the field


def number(
    default: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    search: Search | None = None,
    inverse: bool = False,
    full_only: bool = False,
) -> float:
    """A field that is a finite number within bounds."""
    check = partial(check_number, low=low, high=high, open_low=open_low, open_high=open_high)
    return _field(default, Parameter(check, search, True, inverse, full_only))


def whole(default: int, low: int, high: int | None = None, *, symbol: str = "") -> int:
    """A field that is a whole number within bounds; errors name it with its `symbol` in formulas."""
    return _field(default, Parameter(partial(check_whole, low=low, high=high), symbol=symbol))


def choice(default: _Word, *others: _Word, search: bool = False) -> _Word:
    """A field that is one of these words."""
    words = [default, *others]
    check = partial(check_choice, options=words)
    return _field(default, Parameter(check, search={"values": words} if search else None))


def _field(default: _Default, parameter: Parameter) -> _Default:
    return dataclasses.field(default=default, metadata={"parameter": parameter})


def temperature_field() -> float:
    """The field `temperature` of the softmax losses: scores are divided by it."""
    return number(1.0, 0, open_low=True, inverse=True, search={"low": 0.05, "high": 2.0, "log": True})


@cache
def parameters_of(kind: type) -> Mapping[str, Parameter]:
    """The declared parameters of a loss, by the names of its fields."""
    fields = dataclasses.fields(kind)
    return {f.name: f.metadata["parameter"] for f in fields if "parameter" in f.metadata}


def check_parameters(value: object) -> None:
    """Check the declared parameters of a frozen dataclass; for use in its `__post_init__` only."""
    kind: type = type(value)
    for name, parameter in parameters_of(kind).items():
        settle(value, **{name: parameter.check(name + parameter.symbol, getattr(value, name))})


# --- the base class ------------------------------------------------------------------------------------


class Loss(ABC):
    """One number for each row of scores.

    A loss whose unlabelled items have weights of their own sets `needs_items` and defines `item_weights` and
    `weighted`. If the weights depend on the data, `prepared` computes them, and keeps them in a field with
    repr=False, which files do not store; its `digest` identifies it in checkpoints.
    """

    family: ClassVar[Family]  # of the losses that engines have code for
    uses_extra: ClassVar[bool] = False  # whether it looks at extra positives
    uses_prior: ClassVar[bool] = False  # whether it has a τ
    has_floor: ClassVar[bool] = False  # whether rows can be clamped by what τ takes off
    needs_items: ClassVar[bool] = False  # whether it must know of which items scores are: full catalogue only
    needs_cosines: ClassVar[bool] = False  # whether it is made for cosines that no temperature divides

    def __post_init__(self) -> None:
        """Check the declared parameters."""
        check_parameters(self)

    def __call__(
        self, pos: Tensor, extra: Tensor | None, unlabelled: Tensor, users: Tensor | None = None
    ) -> Tensor:
        """The loss of each row, [B]. `users` [B] is needed only if τ is one number per user.

        `extra` = None is M = 0: no extra positives. Without `uses_extra`, a loss ignores them.
        """
        return self.rows(pos, extra, unlabelled, users).loss

    def rows(
        self, pos: Tensor, extra: Tensor | None, unlabelled: Tensor, users: Tensor | None = None
    ) -> Rows:
        """The loss of each row, and which rows were clamped."""
        extra = pos.new_empty((*pos.shape, 0)) if extra is None else extra
        _check_shapes(pos, extra, unlabelled)
        return self._rows(pos, extra, unlabelled, users)

    def with_density(self, density: float) -> Self:
        """This loss with τ = `density` if τ was "density"; any other loss is unchanged."""
        return self.with_prior(density) if getattr(self, "tau", None) == "density" else self

    def with_prior(self, tau: float | Sequence[float]) -> Self:
        """This loss with τ = `tau` if τ was a word; any other loss is unchanged."""
        return self

    def prepared(self, job: Any, engine: str, progress: bool) -> tuple[Self, dict[str, Any]]:
        """This loss, completed for the data of a `truepair.training.Job`, and facts for the model file.

        Called before training, on the job's own loss; a τ that is to be estimated is a number by then.
        """
        return self, {}

    def item_weights(self, shape: tuple[int, int], device: torch.device) -> ItemWeights | None:
        """The weights of unlabelled items for `shape` users and items; None if all are 1."""
        return None

    def weighted(self, pos: Tensor, unlabelled: Tensor, log_weights: Tensor) -> Tensor:
        """The loss of each row, [B], with the logarithms of the weights of its unlabelled items, [B, N]."""
        raise NotImplementedError

    def for_new_users(self) -> Loss:
        """The loss for users who were not in training: in place of one prior per user, they have the mean."""
        tau = getattr(self, "tau", None)
        return dataclasses.replace(self, tau=sum(tau) / len(tau)) if isinstance(tau, tuple) else self  # type: ignore[type-var]

    @abstractmethod
    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows: ...


def log_mean_exp(x: Tensor) -> Tensor:
    """log mean e^x over the columns. [B]"""
    return x.logsumexp(dim=1) - math.log(x.shape[1])


def _check_shapes(pos: Tensor, extra: Tensor, unlabelled: Tensor) -> None:
    rows = len(pos) if pos.ndim == 1 else -1
    if rows < 0 or extra.ndim != 2 or unlabelled.ndim != 2 or {len(extra), len(unlabelled)} != {rows}:
        raise InputError(
            "scores must be pos [B], extra [B, M] and unlabelled [B, N]; "
            f"got {list(pos.shape)}, {list(extra.shape)} and {list(unlabelled.shape)}."
        )
    if unlabelled.shape[1] == 0:
        raise InputError("N = 0: a row needs at least one unlabelled score.")
