"""What a first model says of unlabelled pairs: P(positive | score), as vectors and a table."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """P_uj = min(τ_u · r(z_uj), cap), z_uj = (s_uj − mean_u) / spread_u, s_uj the score of a first model.

    r(z) = f(z | held-out positive) / f(z | unlabelled) is a table over equally spaced z; beyond its ends it
    is constant. τ and the cap are the loss's own. `truepair_lab.posterior.calibration` computes r.
    """

    users: Tensor  # [n_users, d], vectors of the first model
    items: Tensor  # [n_items, d]
    mean: Tensor  # [n_users], of each user's unlabelled scores
    spread: Tensor  # [n_users], their standard deviation, above 0
    ratio: Tensor  # [K], r, never falling
    ends: Tensor  # [2], the z of the first and of the last entry

    def __repr__(self) -> str:
        return f"<Posterior of {len(self.users)} users x {len(self.items)} items>"

    def tensors(self) -> dict[str, Tensor]:
        """All parts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def digest(self) -> str:
        """Identifies it in a checkpoint: a run continues only with the same bits."""
        found = hashlib.blake2b(digest_size=8)
        for value in self.tensors().values():
            found.update(value.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    def to(self, device: torch.device) -> Self:
        """The same on a device."""
        return type(self)(**{name: value.to(device) for name, value in self.tensors().items()})
