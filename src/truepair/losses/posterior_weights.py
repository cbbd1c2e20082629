"""Weights of unlabelled items: 1 − P for blocks of users, by a first model.

Nothing of the size users × items is stored: the weights of a block are computed from the vectors of the first
model when the block is trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from truepair.losses.base import Loss
from truepair.losses.positive_probability import Posterior
from truepair.losses.posterior_weighted import InfoNCEPosterior


class ItemWeights:
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

    def log_weights(self, users: Tensor, columns: Tensor | None = None) -> Tensor:
        """log(1 − P) of users [B] with the items `columns` [C], or with all. [B, C]"""
        items = self.posterior.items if columns is None else self.posterior.items[columns]
        place = torch.addmm(self.shift[users][:, None], self.users[users], items.T)
        place = place.clamp_(0, len(self.table) - 1).to(torch.int32)
        found = self.table.index_select(0, place.view(-1)).view(place.shape)
        return found if self.tau.ndim == 0 else _log_rest(found, self.tau[users][:, None], self.cap)

    def restored(self, parts: Mapping[str, Tensor]) -> ItemWeights:
        """With the posterior of a run that was interrupted; KeyError or ValueError if it does not fit."""
        expected = self.posterior.tensors()
        for name, tensor in expected.items():
            if parts[name].shape != tensor.shape:
                raise ValueError(f"posterior.{name} has another shape")
        return ItemWeights(
            Posterior(**{name: parts[name] for name in expected}), self.tau, self.cap, self.tau.device
        )


def weights_of(loss: Loss, device: torch.device) -> ItemWeights | None:
    """The weights that a loss gives to a user's items; None where all are 1."""
    if not isinstance(loss, InfoNCEPosterior) or loss.posterior is None or not loss.has_weights:
        return None
    return ItemWeights(loss.posterior, torch.tensor(loss.tau, dtype=torch.float64), loss.cap, device)


def _log_rest(ratio: Tensor, tau: Tensor, cap: float) -> Tensor:
    """log(1 − min(τ·r, cap)), in float32."""
    return torch.log1p(-(ratio * tau.to(ratio.dtype)).clamp(max=cap))
