"""Start: the vectors, and Adam's moments, that a training run goes on from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.errors import InputError, check_whole, settle
from truepair.models.factor_matrices import placed_rows


class Side(NamedTuple):
    """The rows of the users, or of the items."""

    vectors: Tensor  # [n, dim], the encoder's free parameters, not scaled for scoring
    first: Tensor | None = None  # [n, dim], Adam's running mean of the gradient
    second: Tensor | None = None  # [n, dim], and of its square

    def take(self, rows: Codes) -> Side:
        """These rows, in this order; a row of -1 is new: all zeros."""
        first, second = (None if x is None else placed_rows(x, rows) for x in (self.first, self.second))
        return Side(placed_rows(self.vectors, rows), first, second)


@dataclass(frozen=True, eq=False)
class Start:
    """Where training starts, in place of the encoder's random vectors.

    `network` has the weights of a sequence encoder; its `users` are states, from which nothing starts.
    `steps` is the number of Adam's steps so far, for its bias correction. Without moments it is 0, and Adam
    begins anew. Rows that are new have the moments 0.
    """

    users: Side
    items: Side
    steps: int = 0
    network: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settle(self, steps=check_whole("steps", self.steps, 0))
        moments = [x is not None for side in (self.users, self.items) for x in side[1:]]
        if any(moments) != all(moments) or (any(moments) != (self.steps > 0)):
            raise InputError(
                "a start has Adam's two moments of both sides and the number of steps, or none of them."
            )
        for name, side in self.sides().items():
            _check_side(name, side, self.users.vectors.shape[1])

    def sides(self) -> dict[str, Side]:
        """By name."""
        return {"users": self.users, "items": self.items}

    @property
    def has_moments(self) -> bool:
        """Whether Adam goes on with its moments."""
        return self.steps > 0

    def take(self, users: Codes, items: Codes) -> Self:
        """These rows, in this order; a row of -1 is new: all zeros."""
        return replace(self, users=self.users.take(users), items=self.items.take(items))

    def without_moments(self) -> Self:
        """The vectors alone."""
        return replace(self, users=Side(self.users.vectors), items=Side(self.items.vectors), steps=0)

    def digest(self) -> str:
        """A checksum of all numbers."""
        digest = hashlib.blake2b(str(self.steps).encode(), digest_size=8)
        parts = [x for side in self.sides().values() for x in side if x is not None]
        for tensor in (*parts, *self.network.values()):
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def _check_side(name: str, side: Side, dim: int) -> None:
    for part, tensor in zip(Side._fields, side, strict=True):
        if tensor is None:
            continue
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != (len(side.vectors), dim):
            raise InputError(
                f"{part} of {name} are {tensor.dtype} of shape {tuple(tensor.shape)}, not float32 of shape "
                f"{(len(side.vectors), dim)}."
            )
        if not tensor.numel():
            continue
        low, high = tensor.aminmax()  # `isfinite` would copy it
        if not bool(low.isfinite() & high.isfinite()):
            raise InputError(f"{part} of {name} hold NaN or infinity.")
        if part == "second" and bool(low < 0):
            raise InputError(f"second of {name}, a mean of squares, holds negative numbers.")
