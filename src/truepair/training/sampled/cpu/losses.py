"""The loss of one row in compiled code, and its gradient by each score, in closed form.

A row is what `losses` calls a row: s⁺, then M extra positives, then N unlabelled items, here as one array;
`losses` is the specification. Written with one exponential an item and without branches on scores in the
common case, so that the compiler turns loops over items into vector code. A score that is not a number gives
a loss that is not a number.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from truepair.losses import Pair, Row
from truepair.training.sampled.cpu.arithmetic import (
    HALF,
    MINUS_INFINITY,
    ONE,
    ZERO,
    Index,
    compiled,
    exp32,
    inlined,
    log1p32,
    sigmoid,
    softplus,
)
from truepair.training.sampled.plan import LOSS_NUMBERS, Floats, KernelPlan

# what a loss does to a pair of scores and to a row, as compiled code knows it
_HINGE, _HARD_SIGMOID, _HARD_EXPONENTIAL = int(Pair.HINGE), int(Pair.HARD_SIGMOID), int(Pair.HARD_EXPONENTIAL)
_MEAN, _POINTWISE, _SOFTMAX = int(Row.MEAN), int(Row.POINTWISE), int(Row.SOFTMAX)
_DEBIASED_SOFTMAX, _DEBIASED_HALF = int(Row.DEBIASED_SOFTMAX), int(Row.DEBIASED_HALF)


class _JobNumbers(NamedTuple):
    pair: int
    row: int
    relative: bool
    m: int
    n: int
    pool: int
    cosine: bool
    score_scale: np.float32


if TYPE_CHECKING:

    class Numbers(_JobNumbers):
        """What a row needs to know of the job: `KernelPlan`'s numbers, without its arrays."""

        def __getattr__(self, name: str) -> np.float32: ...  # the numbers of the loss, by name

else:
    Numbers = namedtuple("Numbers", (*_JobNumbers._fields, *LOSS_NUMBERS))


def numbers_of(plan: KernelPlan) -> Numbers:
    """The numbers of a plan, in the types that kernels compute with."""
    job = _JobNumbers(
        pair=int(plan.pair),
        row=int(plan.row),
        relative=plan.relative,
        m=plan.m,
        n=plan.n,
        pool=plan.pool,
        cosine=plan.cosine,
        score_scale=np.float32(plan.score_scale),
    )
    return Numbers._make((*job, *plan.loss.values()))


@inlined
def loss_row(
    numbers: Numbers, tau: np.float32, log_rest: np.float32, scores: Floats, gradient: Floats
) -> tuple[np.float32, bool]:
    """The loss of a row and whether it met the floor; `gradient` gets d loss / d score.

    `scores` and `gradient` are float32[1+m+n], or longer: a length that is a multiple of 16 is fastest. What
    lies beyond is read, so it must be a number, and changes nothing. τ and log(1−τ) are the row's user's.
    """
    if numbers.row == _MEAN:
        return bpr_row(numbers, scores, gradient), False
    if numbers.row == _POINTWISE:
        return pointwise_row(numbers, scores, gradient), False
    if numbers.row == _SOFTMAX:
        return infonce_row(numbers, scores, gradient), False
    if numbers.row == _DEBIASED_SOFTMAX:
        return contrastive_row(numbers, tau, log_rest, scores, gradient)
    return dpl_row(numbers, tau, log_rest, scores, gradient)


@inlined
def bpr_row(numbers: Numbers, scores: Floats, gradient: Floats) -> np.float32:
    """mean_n softplus(s_n − s⁺); d / d s_n = σ(s_n − s⁺) / N."""
    first, n = 1 + numbers.m, numbers.n
    share, loss, pull = ONE / np.float32(n), ZERO, ZERO
    for i in range(first):
        gradient[i] = ZERO
    for i in range(first, first + n):
        x = scores[i] - scores[0]
        e = exp32(-abs(x))
        g = (ONE if x >= ZERO else e) / (ONE + e) * share
        loss += (ZERO if x < ZERO else x) + log1p32(e)
        pull += g
        gradient[i] = g
    gradient[0] = -pull
    return loss * share


@compiled
def pointwise_row(numbers: Numbers, scores: Floats, gradient: Floats) -> np.float32:
    """BCE and CCL: f(s⁺) + weight · mean_n g(s_n), each score by itself."""
    first, n = 1 + numbers.m, numbers.n
    share, total = np.float32(numbers.weight / np.float32(n)), ZERO
    if numbers.pair == _HINGE:
        for i in range(first, first + n):
            above = scores[i] - numbers.margin
            total += ZERO if above <= ZERO else above  # not a number stays not a number
            gradient[i] = ZERO if above <= ZERO else share
        below = ONE - scores[0]
        loss, slope = ZERO if below <= ZERO else below, ZERO if below <= ZERO else -ONE
    else:
        for i in range(first, first + n):
            e = exp32(-abs(scores[i]))
            total += (ZERO if scores[i] < ZERO else scores[i]) + log1p32(e)
            gradient[i] = (ONE if scores[i] >= ZERO else e) / (ONE + e) * share
        loss, slope = softplus(-scores[0]), -sigmoid(-scores[0])
    for i in range(1, first):
        gradient[i] = ZERO
    gradient[0] = slope
    return loss + share * total


@compiled
def infonce_row(numbers: Numbers, scores: Floats, gradient: Floats) -> np.float32:
    """softplus(log Σ_n e^{x_n}) with x_n = (s_n − s⁺)/t."""
    top, total = _shifted_exponentials(numbers, scores, gradient)
    log_sum = top + np.log(total)
    slope = numbers.inverse_temperature * sigmoid(log_sum)
    _scale(gradient, 1, 1 + numbers.m, ZERO)
    _scale(gradient, 1 + numbers.m, 1 + numbers.m + numbers.n, slope / total)
    gradient[0] = -slope
    return softplus(log_sum)


@compiled
def contrastive_row(
    numbers: Numbers, tau: np.float32, log_rest: np.float32, scores: Floats, gradient: Floats
) -> tuple[np.float32, bool]:
    """DCL and HCL: softplus(max(log (a − b) − log(1−τ), floor)), all relative to e^{s⁺/t} and a shift e^top.

    a = Σ_n ω_n e^{x_n − top},  b = N·τ·mean_m e^{x'_m − top}: no logarithm but the one of the difference.
    """
    m, n, inverse = numbers.m, numbers.n, numbers.inverse_temperature
    first = 1 + m
    top, total = _shifted_exponentials(numbers, scores, gradient)
    hard = ZERO
    if numbers.pair == _HARD_EXPONENTIAL:
        hard, total = _lean_to_hard(numbers, top, scores, gradient)
    positives = ZERO
    for i in range(1, first):
        positives += gradient[i]
    known = np.float32(n) * tau / np.float32(max(m, 1))
    rest = total - known * positives
    log_g = MINUS_INFINITY if rest <= ZERO else top + np.log(rest) - log_rest
    floor = (numbers.min_score - scores[0]) * inverse + np.log(np.float32(n))
    clamped = log_g < floor
    value = floor if clamped else log_g
    slope = inverse * sigmoid(value)
    step = ZERO if clamped else slope / rest
    _scale(gradient, 1, first, -known * step)
    if numbers.pair == _HARD_EXPONENTIAL:
        _hard_slopes(numbers, top, hard, total, step, scores, gradient)
    else:
        _scale(gradient, first, first + n, step)
    gradient[0] = -slope
    return softplus(value), clamped


@compiled
def _shifted_exponentials(
    numbers: Numbers, scores: Floats, gradient: Floats
) -> tuple[np.float32, np.float32]:
    """top = max_n x_n and Σ_n e^{x_n − top}; `gradient` gets e^{x_i − top} of every item i."""
    first, last, inverse = 1 + numbers.m, 1 + numbers.m + numbers.n, numbers.inverse_temperature
    anchor, top, total = scores[0], (scores[first] - scores[0]) * inverse, ZERO
    for i in range(first, last):
        x = (scores[i] - anchor) * inverse
        top = x if x > top else top
    for i in range(len(scores)):
        gradient[i] = exp32((scores[i] - anchor) * inverse - top)
    for i in range(first, last):
        total += gradient[i]
    return top, total


@compiled
def _lean_to_hard(
    numbers: Numbers, top: np.float32, scores: Floats, gradient: Floats
) -> tuple[np.float32, np.float32]:
    """With y_n = x_n − top: B = Σ e^{β y_n} and Σ_n ω_n e^{y_n} = N · Σ e^{(1+β) y_n} / B."""
    first, last, inverse = 1 + numbers.m, 1 + numbers.m + numbers.n, numbers.inverse_temperature
    base, hard = ZERO, ZERO
    for i in range(first, last):
        weight = exp32(numbers.beta * ((scores[i] - scores[0]) * inverse - top))
        base += weight
        hard += weight * gradient[i]
    return base, np.float32(numbers.n) * hard / base


@compiled
def _hard_slopes(
    numbers: Numbers,
    top: np.float32,
    base: np.float32,
    total: np.float32,
    step: np.float32,
    scores: Floats,
    gradient: Floats,
) -> None:
    """d total / d x_n = (1+β) · N e^{(1+β) y_n} / B − β · total · e^{β y_n} / B, times `step`."""
    first, last, beta = 1 + numbers.m, 1 + numbers.m + numbers.n, numbers.beta
    own = (ONE + beta) * np.float32(numbers.n) / base * step
    common = beta * total / base * step
    for i in range(first, last):
        weight = exp32(beta * ((scores[i] - scores[0]) * numbers.inverse_temperature - top))
        gradient[i] = weight * (own * gradient[i] - common)


_LINEAR_IS_EXACT = np.float32(1e-20)  # above it, a σ that exp32's lower end has cut off is nothing


@compiled
def dpl_row(
    numbers: Numbers, tau: np.float32, log_rest: np.float32, scores: Floats, gradient: Floats
) -> tuple[np.float32, bool]:
    """DPL, DPLHard, DPLHalf: −log max(P, bound), P = (P_u − τ·P_p) / (1−τ), P_u = Σ_n w_n σ(s⁺ − s_n).

    With e = e^{s − s⁺}: σ = 1/(1+e) and σ' = σ(1−σ) = e·σ². If all unlabelled items score far above the
    anchor, P_u is too small for this, and everything is computed relative to its largest term.
    """
    m, first, last = numbers.m, 1 + numbers.m, 1 + numbers.m + numbers.n
    log_shift, share = ZERO, ONE / np.float32(numbers.n)
    if numbers.pair != _HARD_SIGMOID:
        positives, unlabelled = _sigmoids(numbers, scores, gradient)
    else:
        positives, unlabelled, share = _weighted_sigmoids(numbers, scores, gradient)
    unlabelled *= share
    if unlabelled < _LINEAR_IS_EXACT:
        log_shift, positives, unlabelled = _tiny_sigmoids(numbers, scores, gradient)
        share = ONE
    if numbers.row == _DEBIASED_HALF:
        positives = HALF * exp32(-log_shift)  # P_p is ½, and m = 0
    prior = tau / np.float32(max(m, 1))
    rest = unlabelled - prior * positives
    log_p = MINUS_INFINITY if rest <= ZERO else log_shift + np.log(rest) - log_rest
    bound = np.log(numbers.floor)
    if numbers.relative:
        bound += log_shift + np.log(unlabelled)
    clamped = log_p < bound
    by_unlabelled, by_extra = share / rest, -prior / rest
    if clamped:
        by_unlabelled, by_extra = share / unlabelled if numbers.relative else ZERO, ZERO
    pull = ZERO
    for i in range(len(gradient)):
        gradient[i] *= by_extra * _is(i < first) + by_unlabelled * _is(i >= first)
        pull += gradient[i] * _is((i > 0) & (i < last))
    gradient[0] = -pull
    return -(bound if clamped else log_p), clamped


@compiled
def _is(condition: bool) -> np.float32:
    """1 or 0: a sum over some of the items as a sum over all, which the compiler can turn into vectors."""
    return np.float32(condition)


@compiled
def _sigmoids(numbers: Numbers, scores: Floats, gradient: Floats) -> tuple[np.float32, np.float32]:
    """Σ_m σ and Σ_n σ; `gradient` gets σ' of every item."""
    first, last, anchor = 1 + numbers.m, 1 + numbers.m + numbers.n, scores[0]
    positives, unlabelled = ZERO, ZERO
    for i in range(len(scores)):
        e = exp32(scores[i] - anchor)
        sigma = ONE / (ONE + e)
        positives += sigma * _is((i > 0) & (i < first))
        unlabelled += sigma * _is((i >= first) & (i < last))
        gradient[i] = e * sigma * sigma
    return positives, unlabelled


@compiled
def _weighted_sigmoids(
    numbers: Numbers, scores: Floats, gradient: Floats
) -> tuple[np.float32, np.float32, np.float32]:
    """With w_n = e^{β (s_n − max s)}: Σ_m σ, Σ_n w_n σ and 1 / Σ_n w_n.

    `gradient` gets σ' of the extra positives and w_n σ' of the unlabelled items.
    """
    first, last, anchor = 1 + numbers.m, 1 + numbers.m + numbers.n, scores[0]
    positives, unlabelled, weights, top = ZERO, ZERO, ZERO, scores[first]
    for i in range(first, last):
        top = scores[i] if scores[i] > top else top
    for i in range(len(scores)):
        e = exp32(scores[i] - anchor)
        sigma = ONE / (ONE + e)
        lean = _is((i >= first) & (i < last))
        weight = exp32(numbers.beta * (scores[i] - top) * lean)  # 1 for the others
        positives += sigma * _is((i > 0) & (i < first))
        unlabelled += sigma * weight * lean
        weights += weight * lean
        gradient[i] = e * sigma * sigma * weight
    return positives, unlabelled, ONE / weights


@compiled
def _tiny_sigmoids(
    numbers: Numbers, scores: Floats, gradient: Floats
) -> tuple[np.float32, np.float32, np.float32]:
    """log of the largest w_n σ of all (Σ w = 1), and Σ_m σ and Σ_n w_n σ divided by it; DPL is β = 0."""
    first, last = 1 + numbers.m, 1 + numbers.m + numbers.n
    beta = numbers.beta if numbers.pair == _HARD_SIGMOID else ZERO
    top, shift = scores[first], MINUS_INFINITY
    for i in range(first, last):
        top = max(top, scores[i])
    weights = ZERO
    for i in range(first, last):
        weights += exp32(beta * (scores[i] - top))
    for i in range(first, last):  # what exp32 cuts off here is nothing beside the sum, which is at least 1
        gradient[i] = beta * (scores[i] - top) - np.log(weights) - softplus(scores[i] - scores[0])
        shift = max(shift, gradient[i])
    positives, unlabelled = ZERO, ZERO
    for i in range(first, last):
        part = exp32(gradient[i] - shift)
        unlabelled += part
        gradient[i] = part * sigmoid(scores[i] - scores[0])
    for i in range(1, first):
        part = exp32(-softplus(scores[i] - scores[0]) - shift)
        positives += part
        gradient[i] = part * sigmoid(scores[i] - scores[0])
    return shift, positives, unlabelled


@compiled
def _scale(gradient: Floats, start: Index, stop: Index, factor: np.float32) -> np.float32:
    """gradient[start:stop] times `factor`, and the sum of that."""
    total = ZERO
    for i in range(start, stop):
        gradient[i] *= factor
        total += gradient[i]
    return total
