"""The loss of one row in compiled code, and its gradient by each score, in closed form.

A row is what `losses` calls a row: s⁺, then M extra positives, then N unlabelled items, here as one array;
`losses` is the specification. Written with one exponential an item and without branches on scores in the
common case, so that the compiler turns loops over items into vector code. A score that is not a number gives
a loss that is not a number.
"""

from __future__ import annotations

import numpy as np

from truepair.losses import Pair, Row
from truepair.training.sampled.cpu.arithmetic import (
    HALF,
    MINUS_INFINITY,
    ONE,
    ZERO,
    Float,
    Index,
    compiled,
    exp32,
    inlined,
    log1p32,
    sigmoid,
    softplus,
)
from truepair.training.sampled.plan import Floats, KernelPlan

# what a loss does to a pair of scores and to a row, as compiled code knows it
_HINGE, _HARD_SIGMOID, _HARD_EXPONENTIAL = int(Pair.HINGE), int(Pair.HARD_SIGMOID), int(Pair.HARD_EXPONENTIAL)
_MEAN, _POINTWISE, _SOFTMAX = int(Row.MEAN), int(Row.POINTWISE), int(Row.SOFTMAX)
_DEBIASED_SOFTMAX, _DEBIASED_HALF = int(Row.DEBIASED_SOFTMAX), int(Row.DEBIASED_HALF)


@inlined
def loss_row(
    plan: KernelPlan, tau: Float, log_rest: Float, scores: Floats, gradient: Floats
) -> tuple[Float, bool]:
    """The loss of a row and whether it met the floor; `gradient` gets d loss / d score.

    `scores` and `gradient` are float32[1+m+n], or longer: a length that is a multiple of 16 is fastest. What
    lies beyond is read, so it must be a number, and changes nothing. τ and log(1−τ) are the row's user's.
    """
    if plan.row == _MEAN or plan.row == _POINTWISE:
        return mean_row(plan, scores, gradient), False
    if plan.row == _SOFTMAX or plan.row == _DEBIASED_SOFTMAX:
        return softmax_row(plan, tau, log_rest, scores, gradient)
    return dpl_row(plan, tau, log_rest, scores, gradient)


@inlined
def mean_row(plan: KernelPlan, scores: Floats, gradient: Floats) -> Float:
    """BCE and CCL: f(s⁺) + weight · mean_n g(s_n), each score by itself; BPR: mean_n softplus(s_n − s⁺)."""
    first, last, is_bpr = 1 + plan.m, 1 + plan.m + plan.n, plan.row == _MEAN
    share = (ONE if is_bpr else plan.loss.weight) / Float(plan.n)
    anchor, total, pull = scores[0] if is_bpr else ZERO, ZERO, ZERO
    for i in range(1, first):
        gradient[i] = ZERO
    if plan.pair == _HINGE:
        for i in range(first, last):
            above = scores[i] - plan.loss.margin
            total += ZERO if above <= ZERO else above  # not a number stays not a number
            gradient[i] = ZERO if above <= ZERO else share
        below = ONE - scores[0]
        gradient[0] = ZERO if below <= ZERO else -ONE
        return (ZERO if below <= ZERO else below) + share * total
    for i in range(first, last):
        x = scores[i] - anchor
        e = exp32(-abs(x))
        g = (ONE if x >= ZERO else e) / (ONE + e) * share
        total += (ZERO if x < ZERO else x) + log1p32(e)
        pull += g
        gradient[i] = g
    gradient[0] = -pull if is_bpr else -sigmoid(-scores[0])
    return (ZERO if is_bpr else softplus(-scores[0])) + share * total


@compiled
def softmax_row(
    plan: KernelPlan, tau: Float, log_rest: Float, scores: Floats, gradient: Floats
) -> tuple[Float, bool]:
    """InfoNCE, DCL, HCL: softplus(max(log (a − b) − log(1−τ), floor)), relative to e^{s⁺/t} and e^top.

    a = Σ_n ω_n e^{x_n − top},  b = N·τ·mean_m e^{x'_m − top}: no logarithm but the one of the difference.
    InfoNCE has τ = 0 and no floor.
    """
    m, n, inverse = plan.m, plan.n, plan.loss.inverse_temperature
    first, last, is_hard = 1 + m, 1 + m + n, plan.pair == _HARD_EXPONENTIAL
    top, total = _shifted_exponentials(plan, scores, gradient)
    base = ZERO
    if is_hard:
        base, total = _lean_to_hard(plan, top, scores, gradient)
    positives = ZERO
    for i in range(1, first):
        positives += gradient[i]
    known = Float(n) * tau / Float(max(m, 1))
    rest = total - known * positives
    log_g = MINUS_INFINITY if rest <= ZERO else top + np.log(rest) - log_rest
    floor = MINUS_INFINITY
    if plan.row == _DEBIASED_SOFTMAX:
        floor = (plan.loss.min_score - scores[0]) * inverse + np.log(Float(n))
    clamped = log_g < floor
    value = floor if clamped else log_g
    slope = inverse * sigmoid(value)
    step = ZERO if clamped else slope / rest
    _scale(gradient, 1, first, -known * step)
    if is_hard:  # d total / d x_n = (1+β) · N e^{(1+β) y_n} / B − β · total · e^{β y_n} / B
        own, common = (ONE + plan.loss.beta) * Float(n) / base * step, plan.loss.beta * total / base * step
        for i in range(first, last):
            gradient[i] = _leaning(plan, top, scores, i) * (own * gradient[i] - common)
    else:
        _scale(gradient, first, last, step)
    gradient[0] = -slope
    return softplus(value), bool(clamped)


@compiled
def _shifted_exponentials(plan: KernelPlan, scores: Floats, gradient: Floats) -> tuple[Float, Float]:
    """top = max_n x_n and Σ_n e^{x_n − top}; `gradient` gets e^{x_i − top} of every item i."""
    first, last, inverse = 1 + plan.m, 1 + plan.m + plan.n, plan.loss.inverse_temperature
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
def _lean_to_hard(plan: KernelPlan, top: Float, scores: Floats, gradient: Floats) -> tuple[Float, Float]:
    """With y_n = x_n − top: B = Σ e^{β y_n} and Σ_n ω_n e^{y_n} = N · Σ e^{(1+β) y_n} / B."""
    base, hard = ZERO, ZERO
    for i in range(1 + plan.m, 1 + plan.m + plan.n):
        weight = _leaning(plan, top, scores, i)
        base += weight
        hard += weight * gradient[i]
    return base, Float(plan.n) * hard / base


@compiled
def _leaning(plan: KernelPlan, top: Float, scores: Floats, i: Index) -> Float:
    """e^{β y_i}."""
    return exp32(plan.loss.beta * ((scores[i] - scores[0]) * plan.loss.inverse_temperature - top))


@compiled
def _scale(gradient: Floats, start: Index, stop: Index, factor: Float) -> None:
    """gradient[start:stop] times `factor`."""
    for i in range(start, stop):
        gradient[i] *= factor


_LINEAR_IS_EXACT = Float(1e-20)  # above it, a σ that exp32's lower end has cut off is nothing


@compiled
def dpl_row(
    plan: KernelPlan, tau: Float, log_rest: Float, scores: Floats, gradient: Floats
) -> tuple[Float, bool]:
    """DPL, DPLHard, DPLHalf: −log max(P, bound), P = (P_u − τ·P_p) / (1−τ), P_u = Σ_n w_n σ(s⁺ − s_n).

    With e = e^{s − s⁺}: σ = 1/(1+e) and σ' = σ(1−σ) = e·σ². If all unlabelled items score far above the
    anchor, P_u is too small for this, and everything is computed relative to its largest term.
    """
    m, first, last = plan.m, 1 + plan.m, 1 + plan.m + plan.n
    log_shift = ZERO
    positives, unlabelled, share = _sigmoids(plan, scores, gradient)
    unlabelled *= share
    if unlabelled < _LINEAR_IS_EXACT:
        log_shift, positives, unlabelled = _tiny_sigmoids(plan, scores, gradient)
        share = ONE
    if plan.row == _DEBIASED_HALF:
        positives = HALF * exp32(-log_shift)  # P_p is ½, and m = 0
    prior = tau / Float(max(m, 1))
    rest = unlabelled - prior * positives
    log_p = MINUS_INFINITY if rest <= ZERO else log_shift + np.log(rest) - log_rest
    bound = np.log(plan.loss.floor)
    if plan.relative:
        bound += log_shift + np.log(unlabelled)
    clamped = log_p < bound
    by_unlabelled, by_extra = share / rest, -prior / rest
    if clamped:
        by_unlabelled, by_extra = share / unlabelled if plan.relative else ZERO, ZERO
    pull = ZERO
    for i in range(len(gradient)):
        gradient[i] *= by_extra * _is(i < first) + by_unlabelled * _is(i >= first)
        pull += gradient[i] * _is((i > 0) & (i < last))
    gradient[0] = -pull
    return -(bound if clamped else log_p), clamped


@compiled
def _is(condition: bool) -> Float:
    """1 or 0: a sum over some of the items as a sum over all, which the compiler can turn into vectors."""
    return Float(condition)


@compiled
def _sigmoids(plan: KernelPlan, scores: Floats, gradient: Floats) -> tuple[Float, Float, Float]:
    """Σ_m σ, Σ_n w_n σ and 1 / Σ_n w_n, with w_n = e^{β (s_n − max s)} for DPLHard, else 1.

    `gradient` gets σ' of the extra positives and w_n σ' of the unlabelled items.
    """
    first, last, anchor, is_hard = 1 + plan.m, 1 + plan.m + plan.n, scores[0], plan.pair == _HARD_SIGMOID
    positives, unlabelled, weights, top = ZERO, ZERO, ZERO, scores[first]
    if is_hard:
        for i in range(first, last):
            top = scores[i] if scores[i] > top else top
    for i in range(len(scores)):
        e = exp32(scores[i] - anchor)
        sigma = ONE / (ONE + e)
        lean = _is((i >= first) & (i < last))
        weight = exp32(plan.loss.beta * (scores[i] - top) * lean) if is_hard else ONE  # 1 for the others
        positives += sigma * _is((i > 0) & (i < first))
        unlabelled += sigma * weight * lean
        weights += weight * lean
        gradient[i] = e * sigma * sigma * weight
    return positives, unlabelled, ONE / weights


@compiled
def _tiny_sigmoids(plan: KernelPlan, scores: Floats, gradient: Floats) -> tuple[Float, Float, Float]:
    """log of the largest w_n σ of all (Σ w = 1), and Σ_m σ and Σ_n w_n σ divided by it; DPL is β = 0."""
    first, last = 1 + plan.m, 1 + plan.m + plan.n
    beta = plan.loss.beta if plan.pair == _HARD_SIGMOID else ZERO
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
