"""Softmax losses: the anchor against the logarithm of a sum, or a mean, over unlabelled items."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses.base import (
    Family,
    Loss,
    Pair,
    Row,
    Rows,
    choice,
    log_mean_exp,
    number,
    temperature_field,
)

# of PSL: beyond what two cosines differ by in practice, and a gradient of 50/t at most
LEAST_SURROGATE = 0.01


@dataclass(frozen=True)
class InfoNCE(Loss):
    """Softmax of the anchor against N unlabelled items: log(e^{s⁺/t} + Σ_n e^{s_n/t}) − s⁺/t."""

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.SOFTMAX)
    temperature: float = temperature_field()

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        relative = (unlabelled - pos[:, None]) / self.temperature  # [B, N]
        return Rows(F.softplus(relative.logsumexp(dim=1)), None)


@dataclass(frozen=True)
class SL(Loss):
    """Softmax loss over the unlabelled items alone: log mean_n e^{s_n/t} − s⁺/t.

    InfoNCE without the anchor in its sum: InfoNCE = softplus(SL + log N). The mean in place of the usual sum
    takes off log N, so that the value does not depend on N. It has no lower bound: with inner products
    nothing but weight decay keeps scores from growing. It is published for cosine scores.
    """

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.LOG_MEAN)
    temperature: float = temperature_field()

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return Rows(log_mean_exp((unlabelled - pos[:, None]) / self.temperature), None)


@dataclass(frozen=True)
class BSL(SL):
    """Bilateral softmax loss: log mean_n e^{s_n/t} − (t⁺/t)·log mean_m e^{s'_m/t⁺}.

    t⁺ is `positive_temperature`. The mean over m estimates the mean over all positives of the user, which
    the extra positives are drawn from: the anchor counts as one of them where it is drawn, and alone where
    M = 0. Then the loss is SL.

    This is (t·log E e^{s/t} − t⁺·log E e^{s⁺/t⁺}) / t; the division makes its size that of SL. The positive
    side is −t⁺·log E e^{s⁺/t⁺}, as in the authors' code, not +t⁺·log E e^{−s⁺/t⁺}: both are −E s⁺ for large
    t⁺, but the first leans to positives that score high, so that a wrong one, which scores low, weighs
    little. The second would lean to the wrong ones. Like SL it has no lower bound.
    """

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.BILATERAL)
    uses_extra: ClassVar[bool] = True
    positive_temperature: float = number(
        1.0, 0, open_low=True, search={"low": 0.05, "high": 2.0, "log": True}
    )

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        if extra.shape[1]:
            pos = self.positive_temperature * log_mean_exp(extra / self.positive_temperature)  # [B]
        return super()._rows(pos, extra, unlabelled, users)


@dataclass(frozen=True)
class PSL(Loss):
    """Pairwise softmax loss: log mean_n ψ(d_n)^{1/t}, d_n = (s_n − s⁺)/2; with ψ(d) = e^d it is SL at 2t.

    surrogate="tanh":  ψ(d) = 1 + tanh(d), which is 2·σ(s_n − s⁺)
    surrogate="relu":  ψ(d) = max(1 + d, 0.01)
    surrogate="atan":  ψ(d) = max(1 + arctan(d), 0.01)

    Published for cosine scores, and halved as here, so that d is in [−1, 1], where 1[d ≥ 0] ≤ ψ(d) ≤ e^d.
    Beyond it 1 + d and 1 + arctan(d) fall to 0 (at s⁺ − s_n = 2 and 3.1), which has no logarithm: hence
    0.01. An unlabelled item there has no gradient, and a row that has all of them there counts as clamped.
    "tanh" needs no such bound, but has no lower bound either, as SL.
    """

    family: ClassVar[Family] = Family(Pair.SURROGATE, Row.LOG_MEAN)
    temperature: float = temperature_field()
    surrogate: Literal["tanh", "relu", "atan"] = choice("tanh", "relu", "atan", search=True)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        gap = unlabelled - pos[:, None]  # [B, N]
        if self.surrogate == "tanh":
            return Rows(log_mean_exp((F.logsigmoid(gap) + math.log(2)) / self.temperature), None)
        psi = 1 + (gap / 2 if self.surrogate == "relu" else torch.atan(gap / 2))
        log_psi = psi.clamp(min=LEAST_SURROGATE).log()
        return Rows(log_mean_exp(log_psi / self.temperature), (psi < LEAST_SURROGATE).all(dim=1))
