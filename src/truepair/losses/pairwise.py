"""Losses that compare the anchor with each unlabelled item, and losses that judge each score by itself."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses.base import Family, Loss, Pair, Row, Rows, number


@dataclass(frozen=True)
class BPR(Loss):
    """Bayesian personalised ranking: softplus(−(s⁺ − s)); with N > 1 the mean over the N."""

    family: ClassVar[Family] = Family(Pair.SOFTPLUS, Row.MEAN)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return Rows(F.softplus(unlabelled - pos[:, None]).mean(dim=1), None)


@dataclass(frozen=True)
class Pointwise(Loss):
    """Each score by itself: f(s⁺) + weight · mean_n g(s_n).

    A subclass gives f and g, each with its derivative. If it states `family = Family(pair, Row.POINTWISE)`,
    full-catalogue training has its closed form.
    """

    weight: float = number(1.0, 0, open_low=True)

    @abstractmethod
    def positive(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """f and f' of the scores of positives."""

    @abstractmethod
    def unlabelled(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """g and g' of the scores of unlabelled items."""

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return Rows(self.positive(pos)[0] + self.weight * self.unlabelled(unlabelled)[0].mean(dim=1), None)


@dataclass(frozen=True)
class BCE(Pointwise):
    """Pointwise logistic loss (binary cross-entropy): softplus(−s⁺) + weight · mean_n softplus(s_n).

    A score is the logit of an interaction. The mean over n keeps the balance of the two parts whatever N is.
    Libraries that sum the N sampled items, or average over all 1 + N, have it at weight = N.
    """

    family: ClassVar[Family] = Family(Pair.LOGISTIC, Row.POINTWISE)
    weight: float = number(1.0, 0, open_low=True, search={"low": 0.1, "high": 10.0, "log": True})

    def positive(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """softplus(−s) and −σ(−s)."""
        return F.softplus(-s), -torch.sigmoid(-s)

    def unlabelled(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """softplus(s) and σ(s)."""
        return F.softplus(s), torch.sigmoid(s)


@dataclass(frozen=True)
class CCL(Pointwise):
    """Cosine contrastive loss of SimpleX: max(0, 1 − s⁺) + weight · mean_n max(0, s_n − margin).

    Made for cosine scores, where the first part is 1 − s⁺. An unlabelled item that scores below the margin
    has no gradient: it is far enough from the user. With inner products the loss is defined too, and never
    below 0.
    """

    family: ClassVar[Family] = Family(Pair.HINGE, Row.POINTWISE)
    needs_cosines: ClassVar[bool] = True
    weight: float = number(10.0, 0, open_low=True, search={"low": 1.0, "high": 1000.0, "log": True})
    margin: float = number(0.5, -1, 1, open_high=True, search={"low": 0.0, "high": 0.95, "most": 0.99})

    def positive(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """max(0, 1 − s), and −1 where s is below 1."""
        return F.relu(1 - s), -(s < 1).to(s.dtype)

    def unlabelled(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """max(0, s − margin), and 1 where s is above the margin."""
        return F.relu(s - self.margin), (s > self.margin).to(s.dtype)
