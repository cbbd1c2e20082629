"""Weights of unlabelled items: 1 − P for blocks of users, by a first model.

Nothing of the size users × items is stored: the weights of a block are computed from the vectors of the first
model when the block is trained.
"""

from __future__ import annotations

import torch
from torch import Tensor

from truepair_lab.posterior.positive_probability import Posterior


class PosteriorWeights:
    """A posterior bound to priors on a device: log(1 − P) for blocks of users."""

    def __init__(self, posterior: Posterior, tau: Tensor, cap: float, device: torch.device) -> None:
        """`tau` holds one number, or one for each user."""
        self.posterior, self.tau, self.cap = posterior.to(device), tau.to(device), cap
        found = self.posterior
        low, high = found.ends
        steps = (len(found.ratio) - 1) / (high - low)  # entries of the table for a unit of z
        self.users = found.users * (steps / found.spread)[:, None]
        self.shift = (-found.mean / found.spread - low) * steps + 0.5  # the nearest entry, not the one below
        self.table = _log_rest(found.ratio, self.tau, cap) if tau.ndim == 0 else found.ratio

    def __call__(self, users: Tensor, columns: Tensor | None = None) -> Tensor:
        """log(1 − P) of users [B] with the items `columns` [C], or with all. [B, C]"""
        items = self.posterior.items if columns is None else self.posterior.items[columns]
        place = torch.addmm(self.shift[users][:, None], self.users[users], items.T)
        place = place.clamp_(0, len(self.table) - 1).to(torch.int32)
        found = self.table.index_select(0, place.view(-1)).view(place.shape)
        return found if self.tau.ndim == 0 else _log_rest(found, self.tau[users][:, None], self.cap)


def _log_rest(ratio: Tensor, tau: Tensor, cap: float) -> Tensor:
    """log(1 − min(τ·r, cap)), in float32."""
    return torch.log1p(-(ratio * tau.to(ratio.dtype)).clamp(max=cap))
