"""Losses whose unlabelled items have weights of their own, by what a first model says of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses.base import Family, Pair, Row, Rows, number, temperature_field
from truepair.losses.debiased import Debiased
from truepair.losses.softmax import InfoNCE

if TYPE_CHECKING:
    from truepair.losses.positive_probability import Posterior


@dataclass(frozen=True)
class InfoNCEPosterior(Debiased):
    """InfoNCE whose unlabelled items weigh 1 − P, P the chance that they are positive after all.

    −log e^{s⁺/t} / ( e^{s⁺/t} + n · Σ_j w_j e^{s_j/t} / Σ_j w_j )

    over the user's n unlabelled items j, w_j = 1 − P_j, P_j = min(τ·r(z_j), cap). z is the score of a first
    model, standardised within the user, and r(z) = f(z | held-out positive) / f(z | unlabelled). With τ = 0
    it is InfoNCE. `cap` keeps weights above 0.

    P depends on the user and the item, so the loss needs sampler="full" and a model that is trained first:
    `Recommender` and `truepair.prior.prepare` train it and fill in `posterior`. Called on scores alone, which
    do not say whose items they are, the loss is InfoNCE: all weights are 1.
    """

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.SOFTMAX)
    uses_extra: ClassVar[bool] = False
    has_floor: ClassVar[bool] = False
    needs_items: ClassVar[bool] = True
    temperature: float = temperature_field()
    cap: float = number(0.99, 0, 1, open_low=True, open_high=True)
    posterior: Posterior | None = dataclasses.field(default=None, repr=False)  # without a repr: never saved

    @property
    def has_weights(self) -> bool:
        """Whether its weights are not all 1: τ, or somebody's, is above 0."""
        return any(self.tau) if isinstance(self.tau, tuple) else self.tau != 0

    def weighted(self, pos: Tensor, unlabelled: Tensor, log_weights: Tensor) -> Tensor:
        """The loss of each row, [B], with the logarithms of the weights of its items, [B, N]."""
        relative = unlabelled / self.temperature + log_weights
        log_mean = relative.logsumexp(dim=1) - log_weights.logsumexp(dim=1)
        return F.softplus(log_mean + math.log(unlabelled.shape[1]) - pos / self.temperature)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return InfoNCE(self.temperature).rows(pos, extra, unlabelled, users)
