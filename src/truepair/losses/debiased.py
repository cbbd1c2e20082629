"""Debiased losses: they subtract the positives that are expected among the unlabelled items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.errors import InputError, check_choice, check_number
from truepair.losses.base import (
    Family,
    Loss,
    Pair,
    Parameter,
    Row,
    Rows,
    choice,
    log_mean_exp,
    number,
    temperature_field,
)

Prior = float | tuple[float, ...] | Literal["density", "auto", "per-user"]
PRIOR_WORDS = "density", "auto", "per-user"
_BETA = {"low": 0.1, "high": 4.0, "least": 0.0}  # searched by a tuner


def _checked_prior(name: str, tau: Prior | Sequence[float] | Tensor) -> Prior:
    remedy = "τ is a share: 0 means that no unlabelled pair is positive."
    if isinstance(tau, str):
        check_choice(name, tau, PRIOR_WORDS)
        return tau
    if isinstance(tau, float | int) or getattr(tau, "ndim", 1) == 0:
        return check_number(name, tau, 0, 1, open_high=True, remedy=remedy)
    try:
        per_user = torch.as_tensor(tau, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        per_user = torch.empty(0)
    if per_user.ndim != 1 or not len(per_user):
        raise InputError(
            f"{name} = {tau!r:.80} cannot be used; give a number, one number per user, or "
            f"{', '.join(map(repr, PRIOR_WORDS))}."
        )
    bad = (~((per_user >= 0) & (per_user < 1))).nonzero()
    if len(bad):
        first = int(bad[0, 0])
        check_number(f"{name} of user {first}", float(per_user[first]), 0, 1, open_high=True, remedy=remedy)
    return tuple(per_user.tolist())


_PRIOR = Parameter(_checked_prior, search={"low": 1e-3, "high": 0.4, "log": True, "most": 0.9})


@dataclass(frozen=True)
class Debiased(Loss):
    """A loss that subtracts the positives expected among the unlabelled: the prior τ, and its uses.

    τ is the share of positives among unlabelled pairs: a number in [0, 1), one number per user, or a word
    that is filled in from the data: "density" (the share of observed pairs) by training,
    "auto" and "per-user" (estimated, see `truepair.prior`) by `Recommender`.
    """

    uses_extra: ClassVar[bool] = True
    uses_prior: ClassVar[bool] = True
    has_floor: ClassVar[bool] = True
    tau: Prior = field(default="density", metadata={"parameter": _PRIOR})

    def with_prior(self, tau: float | Sequence[float]) -> Self:
        """This loss with τ = `tau` where τ was a word, else unchanged."""
        return replace(self, tau=_checked_prior("tau", tau)) if isinstance(self.tau, str) else self

    @cached_property
    def _tau_tensor(self) -> Tensor:
        return torch.tensor(self.tau, dtype=torch.float64)

    def _log_tau(self, scores: Tensor, users: Tensor | None) -> tuple[Tensor, Tensor]:
        """log τ and log(1−τ) of each row, [B] (or scalars where one number serves all)."""
        if isinstance(self.tau, str):
            raise InputError(
                f"{type(self).__name__}(tau={self.tau!r}) does not know the data; "
                "give a number or call .with_prior(interactions.density)."
            )
        tau = self._tau_tensor.to(scores.device)  # float64: 1 − τ must not round to 0
        if tau.ndim:
            if users is None:
                raise InputError("tau is one number per user; pass users=, the user code of each row.")
            if len(users) and (int(users.max()) >= len(tau) or int(users.min()) < 0):
                raise InputError(f"tau has {len(tau)} users, but a row is of user {int(users.max())}.")
            tau = tau[users]
        return tau.log().to(scores.dtype), torch.log1p(-tau).to(scores.dtype)


@dataclass(frozen=True)
class DCL(Debiased):
    """Debiased contrastive loss: −s⁺/t + log(e^{s⁺/t} + G).

    G = max( (Σ_n e^{s_n/t} − N·τ·mean_m e^{s'_m/t}) / (1−τ),  N·e^{min_score/t} )

    `min_score` is the least score an item can have: −1 for cosine scores (as published); choose it for
    inner products, where nothing bounds them. M = 0 drops the second term.
    """

    family: ClassVar[Family] = Family(Pair.EXPONENTIAL, Row.DEBIASED_SOFTMAX)
    temperature: float = temperature_field()
    min_score: float = number(  # a tuner need not search it for cosines, which are never below −1
        -1.0,
        search={"low": -10.0, "high": -1.0, "least": -50.0, "most": 0.0, "when": {"encoder.scoring": "dot"}},
    )

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        # all exponents are taken relative to the anchor, so that e^{s⁺/t} = 1
        (log_tau, log_rest), n = self._log_tau(pos, users), unlabelled.shape[1]
        log_sum = self._log_sum((unlabelled - pos[:, None]) / self.temperature)  # [B]
        if extra.shape[1]:
            log_extra = log_mean_exp((extra - pos[:, None]) / self.temperature)
            log_sum = log_difference(log_sum, log_extra + log_tau + math.log(n))
        log_g = log_sum - log_rest
        floor = (self.min_score - pos) / self.temperature + math.log(n)
        return Rows(F.softplus(torch.maximum(log_g, floor)), log_g < floor)

    def _log_sum(self, relative: Tensor) -> Tensor:
        return relative.logsumexp(dim=1)


@dataclass(frozen=True)
class HCL(DCL):
    """Hard contrastive loss: DCL with Σ_n e^{s_n/t} replaced by Σ_n ω_n e^{s_n/t}.

    ω_n = e^{β s_n/t} / mean_k e^{β s_k/t}; gradients flow through ω, as in the original. β = 0 is DCL.
    """

    family: ClassVar[Family] = Family(Pair.HARD_EXPONENTIAL, Row.DEBIASED_SOFTMAX)
    beta: float = number(1.0, 0, search=_BETA)

    def _log_sum(self, relative: Tensor) -> Tensor:
        hard = ((1 + self.beta) * relative).logsumexp(dim=1)
        return hard - log_mean_exp(self.beta * relative)


@dataclass(frozen=True)
class DPL(Debiased):
    """Debiased pairwise loss: −log max(P, bound), the paper's own.

    P = ( mean_n σ(s⁺−s_n) − τ·mean_m σ(s⁺−s'_m) ) / (1−τ);  M = 0 drops the second term.

    The difference can be negative on a small sample, so P is bounded below:
    clamp="hard":      bound = floor. A row below it has no gradient (the authors' choice).
    clamp="relative":  bound = floor · mean_n σ(s⁺−s_n). The corrected probability may not fall below
                       that share of the uncorrected one; a row there follows the uncorrected gradient.

    With a margin both terms have σ(s⁺−s−margin): P is the chance to be above a true negative by so much. The
    sum in a softmax asks an anchor to be log n above a typical item, a mean of σ asks nothing of the kind: on
    sparse data with a large catalogue 3 to 4 (scores divided by their temperature) is what DPL lacks.

    With hard samples: train on the top N of C candidates (the `dns` sampler) and raise τ, or use DPLHard.
    """

    family: ClassVar[Family] = Family(Pair.SIGMOID, Row.DEBIASED_MEAN)
    floor: float = number(0.01, 0, 1, open_low=True)
    clamp: Literal["hard", "relative"] = choice("hard", "relative")
    _: KW_ONLY
    margin: float = number(0.0, 0, full_only=True)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        log_tau, log_rest = self._log_tau(pos, users)
        pos = pos - self.margin
        log_pu = self._log_pu(F.logsigmoid(pos[:, None] - unlabelled), unlabelled)  # [B]
        log_pp = self._log_pp(pos, extra)  # [B]
        log_p = (log_pu if log_pp is None else log_difference(log_pu, log_pp + log_tau)) - log_rest
        bound = torch.full_like(log_p, math.log(self.floor))
        if self.clamp == "relative":
            bound = bound + log_pu
        return Rows(-torch.maximum(log_p, bound), log_p < bound)

    def _log_pu(self, log_sigma: Tensor, unlabelled: Tensor) -> Tensor:
        """log mean_n σ(s⁺−s_n)."""
        return log_mean_exp(log_sigma)

    def _log_pp(self, pos: Tensor, extra: Tensor) -> Tensor | None:
        """log mean_m σ(s⁺−s'_m); None where there is nothing to subtract."""
        return log_mean_exp(F.logsigmoid(pos[:, None] - extra)) if extra.shape[1] else None


@dataclass(frozen=True)
class DPLHard(DPL):
    """DPL whose unlabelled mean leans to hard items: Σ_n w_n σ(s⁺−s_n), w = softmax(β·s_n).

    No gradient flows through w. The hard draw holds more hidden positives, so τ wants to be larger
    than for DPL (the paper: 0.3 on MovieLens-100k, 0.25 on MovieLens-1M). β = 0 is DPL.
    """

    family: ClassVar[Family] = Family(Pair.HARD_SIGMOID, Row.DEBIASED_MEAN)
    beta: float = number(1.0, 0, search=_BETA)

    def _log_pu(self, log_sigma: Tensor, unlabelled: Tensor) -> Tensor:
        log_weight = torch.log_softmax(self.beta * unlabelled.detach(), dim=1)
        return (log_sigma + log_weight).logsumexp(dim=1)


@dataclass(frozen=True)
class DPLHalf(DPL):
    """DPL without extra positives: mean_m σ(s⁺−s'_m) is replaced by its expectation, ½.

    P = ( mean_n σ(s⁺−s_n) − τ/2 ) / (1−τ), with the same floor and clamp.

    σ(a) + σ(−a) = 1, so for two independent positives of a user the mean is ½, whatever the model. What
    DPL gains beyond this loss is what the extra positives tell about the anchor's own place among them.
    """

    family: ClassVar[Family] = Family(Pair.SIGMOID, Row.DEBIASED_HALF)
    uses_extra: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin:
            raise InputError(
                f"margin = {self.margin:g} of DPLHalf: ½ is the mean without one; give it to DPL."
            )

    def _log_pp(self, pos: Tensor, extra: Tensor) -> Tensor | None:
        """log ½."""
        return torch.full_like(pos, math.log(0.5))


def log_difference(log_a: Tensor, log_b: Tensor) -> Tensor:
    """log(a − b) from the logarithms; −∞ where b ≥ a. Its gradient is never NaN, unless a or b is."""
    gap = log_b - log_a
    positive = gap < -1e-20
    safe = torch.where(positive, gap, -1.0)  # keeps the branch not taken away from log(0) and its gradient
    nothing = torch.where(gap.isnan(), gap, -math.inf)  # a score that is not a number must not look clamped
    return torch.where(positive, log_a + torch.log(-torch.expm1(safe)), nothing)
