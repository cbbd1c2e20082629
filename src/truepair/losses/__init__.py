"""Losses: functions of scores, one row at a time.

A row is the paper's data entry (u, i, i₁…i_M, j₁…j_N) after scoring:

    pos         s⁺          [B]     the anchor, an item the user has
    extra       s'₁ … s'_M  [B, M]  more items of the same user (M may be 0)
    unlabelled  s₁ … s_N    [B, N]  items the user has no interaction with (N ≥ 1)

A loss is a frozen value with its parameters; calling it gives one number a row, and the caller reduces.
It never sees an embedding. This file needs PyTorch and truepair's error texts, nothing else, so that a
loss can be used in any training loop:

>>> loss = DPL(tau=0.05)
>>> pos, extra, unlabelled = torch.zeros(4), torch.zeros(4, 3), torch.zeros(4, 5)
>>> loss(pos, extra, unlabelled).mean()
tensor(0.6931)

Everything is computed from logarithms (logsigmoid, logsumexp), so scores of ±1e4 are safe in float32.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.errors import InputError, check_choice, check_number, settle

if TYPE_CHECKING:
    from truepair.losses.posterior import Posterior

Prior = float | tuple[float, ...] | Literal["density", "auto", "per-user"]
PRIOR_WORDS = "density", "auto", "per-user"
LEAST_SURROGATE = (
    0.01  # of PSL: beyond what two cosines differ by in practice, and a gradient of 50/t at most
)


class Rows(NamedTuple):
    """What a loss says of a batch: the loss of each row, and which rows met the floor (if it has one)."""

    loss: Tensor  # [B]
    clamped: Tensor | None  # [B], bool


class Loss(ABC):
    """One number for each row of scores."""

    uses_extra: ClassVar[bool] = False  # whether it looks at extra positives
    uses_prior: ClassVar[bool] = False  # whether it has a τ
    has_floor: ClassVar[bool] = False  # whether rows can be clamped by what τ takes off
    needs_items: ClassVar[bool] = False  # whether it must know of which items scores are: exact sampling does

    def __call__(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None = None) -> Tensor:
        """The loss of each row, [B]. `users` [B] is needed only where τ is one number per user."""
        return self.rows(pos, extra, unlabelled, users).loss

    def rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None = None) -> Rows:
        """The loss of each row, and which rows were clamped."""
        _check_shapes(pos, extra, unlabelled)
        return self._rows(pos, extra, unlabelled, users)

    def with_density(self, density: float) -> Self:
        """This loss with τ = `density` where τ was "density"; any other loss is unchanged."""
        return self

    def with_prior(self, tau: float | Sequence[float]) -> Self:
        """This loss with τ = `tau` where τ was a word; any other loss is unchanged."""
        return self

    @abstractmethod
    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows: ...


@dataclass(frozen=True)
class BPR(Loss):
    """Bayesian personalised ranking: softplus(−(s⁺ − s)); with N > 1 the mean over the N."""

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return Rows(F.softplus(unlabelled - pos[:, None]).mean(dim=1), None)


@dataclass(frozen=True)
class InfoNCE(Loss):
    """Softmax of the anchor against N unlabelled items: log(e^{s⁺/t} + Σ_n e^{s_n/t}) − s⁺/t."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        settle(self, temperature=_checked_temperature(self.temperature))

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

    temperature: float = 1.0

    def __post_init__(self) -> None:
        settle(self, temperature=_checked_temperature(self.temperature))

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        return Rows(_log_mean_exp((unlabelled - pos[:, None]) / self.temperature), None)


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

    uses_extra: ClassVar[bool] = True
    positive_temperature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checked = check_number("positive_temperature", self.positive_temperature, 0, open_low=True)
        settle(self, positive_temperature=checked)

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        if extra.shape[1]:
            pos = self.positive_temperature * _log_mean_exp(extra / self.positive_temperature)  # [B]
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

    temperature: float = 1.0
    surrogate: Literal["tanh", "relu", "atan"] = "tanh"

    def __post_init__(self) -> None:
        settle(self, temperature=_checked_temperature(self.temperature))
        check_choice("surrogate", self.surrogate, ["tanh", "relu", "atan"])

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        gap = unlabelled - pos[:, None]  # [B, N]
        if self.surrogate == "tanh":
            return Rows(_log_mean_exp((F.logsigmoid(gap) + math.log(2)) / self.temperature), None)
        psi = 1 + (gap / 2 if self.surrogate == "relu" else torch.atan(gap / 2))
        log_psi = psi.clamp(min=LEAST_SURROGATE).log()
        return Rows(_log_mean_exp(log_psi / self.temperature), (psi < LEAST_SURROGATE).all(dim=1))


@dataclass(frozen=True)
class _Debiased(Loss):
    """A loss that subtracts the positives expected among the unlabelled: the prior τ, and its uses.

    τ is the share of positives among unlabelled pairs: a number in [0, 1), one number per user, or a word
    that is filled in from the data: "density" (the share of observed pairs) by training,
    "auto" and "per-user" (estimated, see `truepair.prior`) by `Recommender`.
    """

    uses_extra: ClassVar[bool] = True
    uses_prior: ClassVar[bool] = True
    has_floor: ClassVar[bool] = True
    tau: Prior = "density"

    def __post_init__(self) -> None:
        settle(self, tau=_checked_prior(self.tau))

    def with_density(self, density: float) -> Self:
        """This loss with τ = `density` where τ was "density", else unchanged."""
        return replace(self, tau=density) if self.tau == "density" else self

    def with_prior(self, tau: float | Sequence[float]) -> Self:
        """This loss with τ = `tau` where τ was a word, else unchanged."""
        return replace(self, tau=_checked_prior(tau)) if isinstance(self.tau, str) else self

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
        if tau.ndim == 0:
            return tau.log().to(scores.dtype), torch.log1p(-tau).to(scores.dtype)
        if users is None:
            raise InputError("tau is one number per user; pass users=, the user code of each row.")
        if len(users) and (int(users.max()) >= len(tau) or int(users.min()) < 0):
            raise InputError(f"tau has {len(tau)} users, but a row is of user {int(users.max())}.")
        return tau[users].log().to(scores.dtype), torch.log1p(-tau[users]).to(scores.dtype)


@dataclass(frozen=True)
class DCL(_Debiased):
    """Debiased contrastive loss: −s⁺/t + log(e^{s⁺/t} + G).

    G = max( (Σ_n e^{s_n/t} − N·τ·mean_m e^{s'_m/t}) / (1−τ),  N·e^{min_score/t} )

    `min_score` is the least score an item can have: −1 for cosine scores (as published); choose it for
    inner products, where nothing bounds them. M = 0 drops the second term.
    """

    temperature: float = 1.0
    min_score: float = -1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, temperature=_checked_temperature(self.temperature))
        settle(self, min_score=check_number("min_score", self.min_score))

    def _rows(self, pos: Tensor, extra: Tensor, unlabelled: Tensor, users: Tensor | None) -> Rows:
        # all exponents are taken relative to the anchor, so that e^{s⁺/t} = 1
        (log_tau, log_rest), n = self._log_tau(pos, users), unlabelled.shape[1]
        log_sum = self._log_sum((unlabelled - pos[:, None]) / self.temperature)  # [B]
        if extra.shape[1]:
            log_extra = _log_mean_exp((extra - pos[:, None]) / self.temperature)
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

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, beta=check_number("beta", self.beta, 0))

    def _log_sum(self, relative: Tensor) -> Tensor:
        hard = ((1 + self.beta) * relative).logsumexp(dim=1)
        return hard - _log_mean_exp(self.beta * relative)


@dataclass(frozen=True)
class DPL(_Debiased):
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

    floor: float = 0.01
    clamp: Literal["hard", "relative"] = "hard"
    margin: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, floor=check_number("floor", self.floor, 0, 1, open_low=True))
        settle(self, margin=check_number("margin", self.margin, 0))
        check_choice("clamp", self.clamp, ["hard", "relative"])

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
        return _log_mean_exp(log_sigma)

    def _log_pp(self, pos: Tensor, extra: Tensor) -> Tensor | None:
        """log mean_m σ(s⁺−s'_m); None where there is nothing to subtract."""
        return _log_mean_exp(F.logsigmoid(pos[:, None] - extra)) if extra.shape[1] else None


@dataclass(frozen=True)
class DPLHard(DPL):
    """DPL whose unlabelled mean leans to hard items: Σ_n w_n σ(s⁺−s_n), w = softmax(β·s_n).

    No gradient flows through w. The hard draw holds more hidden positives, so τ wants to be larger
    than for DPL (the paper: 0.3 on MovieLens-100k, 0.25 on MovieLens-1M). β = 0 is DPL.
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, beta=check_number("beta", self.beta, 0))

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

    uses_extra: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin:
            raise InputError(
                f"margin = {self.margin:g} of DPLHalf: ½ is the mean without a margin; give it to DPL."
            )

    def _log_pp(self, pos: Tensor, extra: Tensor) -> Tensor | None:
        """log ½."""
        return torch.full_like(pos, math.log(0.5))


@dataclass(frozen=True)
class InfoNCEPosterior(_Debiased):
    """InfoNCE whose unlabelled items weigh 1 − P, P the chance that they are positive after all.

    −log e^{s⁺/t} / ( e^{s⁺/t} + n · Σ_j w_j e^{s_j/t} / Σ_j w_j )

    over the user's n unlabelled items j, w_j = 1 − P_j, P_j = min(τ·r(z_j), cap). z is the score of a first
    model, standardised within the user, and r(z) = f(z | held-out positive) / f(z | unlabelled). With τ = 0
    it is InfoNCE. `cap` keeps weights above 0.

    P depends on the user and the item, so it takes exact sampling, and a first model: `posterior` is what it
    tells, filled in by `Recommender` or `truepair.prior.prepare`. Scores alone do not say of which items
    they are: called on them, this is InfoNCE, all weights 1.
    """

    uses_extra: ClassVar[bool] = False
    has_floor: ClassVar[bool] = False
    needs_items: ClassVar[bool] = True
    temperature: float = 1.0
    cap: float = 0.99
    posterior: Posterior | None = field(default=None, repr=False)  # fields without a repr are never saved

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, temperature=_checked_temperature(self.temperature))
        settle(self, cap=check_number("cap", self.cap, 0, 1, open_low=True, open_high=True))

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


LOSSES: dict[str, type[Loss]] = {
    "bpr": BPR,
    "infonce": InfoNCE,
    "infonce-posterior": InfoNCEPosterior,
    "sl": SL,
    "bsl": BSL,
    "psl": PSL,
    "dcl": DCL,
    "hcl": HCL,
    "dpl": DPL,
    "dpl-hard": DPLHard,
    "dpl-half": DPLHalf,
}


def _log_mean_exp(x: Tensor) -> Tensor:
    return x.logsumexp(dim=1) - math.log(x.shape[1])


def log_difference(log_a: Tensor, log_b: Tensor) -> Tensor:
    """log(a − b) from the logarithms; −∞ where b ≥ a. Its gradient is never NaN, unless a or b is."""
    gap = log_b - log_a
    positive = gap < -1e-20
    safe = torch.where(positive, gap, -1.0)  # keeps the branch not taken away from log(0) and its gradient
    nothing = torch.where(gap.isnan(), gap, -math.inf)  # a score that is not a number must not look clamped
    return torch.where(positive, log_a + torch.log(-torch.expm1(safe)), nothing)


def _check_shapes(pos: Tensor, extra: Tensor, unlabelled: Tensor) -> None:
    rows = len(pos) if pos.ndim == 1 else -1
    if rows < 0 or extra.ndim != 2 or unlabelled.ndim != 2 or {len(extra), len(unlabelled)} != {rows}:
        raise InputError(
            "scores must be pos [B], extra [B, M] and unlabelled [B, N]; "
            f"got {list(pos.shape)}, {list(extra.shape)} and {list(unlabelled.shape)}."
        )
    if unlabelled.shape[1] == 0:
        raise InputError("N = 0: a row needs at least one unlabelled score.")


def _checked_temperature(temperature: float) -> float:
    return check_number("temperature", temperature, 0, open_low=True)


def _checked_prior(tau: Prior | Sequence[float] | Tensor) -> Prior:
    remedy = "τ is a share: 0 means that no unlabelled pair is positive."
    if isinstance(tau, str):
        check_choice("tau", tau, PRIOR_WORDS)
        return tau
    if isinstance(tau, float | int) or getattr(tau, "ndim", 1) == 0:
        return check_number("tau", tau, 0, 1, open_high=True, remedy=remedy)
    try:
        per_user = torch.as_tensor(tau, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        per_user = torch.empty(0)
    if per_user.ndim != 1 or not len(per_user):
        raise InputError(
            f"tau = {tau!r:.80} cannot be used; give a number, one number per user, or "
            f"{', '.join(map(repr, PRIOR_WORDS))}."
        )
    bad = (~((per_user >= 0) & (per_user < 1))).nonzero()
    if len(bad):
        first = int(bad[0, 0])
        check_number(f"tau of user {first}", float(per_user[first]), 0, 1, open_high=True, remedy=remedy)
    return tuple(per_user.tolist())
