"""The losses' row functions as Triton code: scores of one row -> loss, clamped, d loss / d score.

A row is a block of K slots (a power of two): slot 0 is the anchor, slots 1 … M are the extra positives,
and `unlabelled` marks the N slots that count as unlabelled. Other slots get no gradient. The formulas are
those of `losses`; each is shifted by the largest term, so that scores of ±1e4 are safe in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from truepair.losses import Pair, Row
from truepair.training.sampled.plan import place_of

_HINGE, _HARD_SIGMOID = tl.constexpr(int(Pair.HINGE)), tl.constexpr(int(Pair.HARD_SIGMOID))
_HARD_EXPONENTIAL = tl.constexpr(int(Pair.HARD_EXPONENTIAL))
_MEAN, _POINTWISE, _SOFTMAX = (tl.constexpr(int(row)) for row in (Row.MEAN, Row.POINTWISE, Row.SOFTMAX))
_DEBIASED_MEAN, _DEBIASED_HALF = (tl.constexpr(int(row)) for row in (Row.DEBIASED_MEAN, Row.DEBIASED_HALF))

# where the numbers of a loss are in a run's row
_INVERSE_TEMPERATURE, _BETA = tl.constexpr(place_of("inverse_temperature")), tl.constexpr(place_of("beta"))
_MIN_SCORE, _FLOOR = tl.constexpr(place_of("min_score")), tl.constexpr(place_of("floor"))
_WEIGHT, _MARGIN = tl.constexpr(place_of("weight")), tl.constexpr(place_of("margin"))


@triton.jit
def loss_row(
    s, slot, unlabelled, tau, log_rest, numbers,
    PAIR: tl.constexpr, ROW: tl.constexpr, RELATIVE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """(loss, clamped, gradient [K]) of one row of scores s [K]; `numbers` is where the run's row begins."""
    pos = tl.sum(tl.where(slot == 0, s, 0.0))
    extra = (slot >= 1) & (slot <= M)
    if ROW == _MEAN:
        loss, clamped, gradient, at_pos = _bpr(s - pos, unlabelled, N)
    elif ROW == _POINTWISE:
        weight, margin = tl.load(numbers + _WEIGHT), tl.load(numbers + _MARGIN)
        loss, clamped, gradient, at_pos = _pointwise(pos, s, unlabelled, weight, margin, PAIR, N)
    elif ROW == _DEBIASED_MEAN or ROW == _DEBIASED_HALF:  # noqa: SIM109, Triton has no `in`
        beta, floor = tl.load(numbers + _BETA), tl.load(numbers + _FLOOR)
        loss, clamped, gradient, at_pos = _pairwise(
            pos - s, s, extra, unlabelled, tau, log_rest, beta, floor, PAIR, ROW, RELATIVE, M, N
        )
    else:
        inverse_temperature = tl.load(numbers + _INVERSE_TEMPERATURE)
        beta, min_score = tl.load(numbers + _BETA), tl.load(numbers + _MIN_SCORE)
        relative = (s - pos) * inverse_temperature
        log_floor = (min_score - pos) * inverse_temperature + tl.log(N * 1.0)
        loss, clamped, gradient, at_pos = _contrastive(
            relative, extra, unlabelled, tau, log_rest, beta, log_floor, PAIR, ROW, M, N
        )
        gradient, at_pos = gradient * inverse_temperature, at_pos * inverse_temperature
    return loss, clamped, tl.where(slot == 0, at_pos, gradient)


@triton.jit
def _bpr(z, unlabelled, N: tl.constexpr):
    loss = tl.sum(tl.where(unlabelled, _softplus(z), 0.0)) / N
    gradient = tl.where(unlabelled, tl.sigmoid(z) / N, 0.0)
    return loss, False, gradient, -tl.sum(gradient)


@triton.jit
def _pointwise(pos, s, unlabelled, weight, margin, PAIR: tl.constexpr, N: tl.constexpr):
    """BCE and CCL: f(s⁺) + weight · mean_n g(s_n), each score by itself."""
    if PAIR == _HINGE:  # in this order not a number stays not a number
        of_pos, at_pos = tl.where(pos >= 1.0, 0.0, 1.0 - pos), tl.where(pos < 1.0, -1.0, 0.0)
        each, slope = tl.where(s <= margin, 0.0, s - margin), tl.where(s > margin, 1.0, 0.0)
    else:
        of_pos, at_pos = _softplus(-pos), -tl.sigmoid(-pos)
        each, slope = _softplus(s), tl.sigmoid(s)
    loss = of_pos + weight * (tl.sum(tl.where(unlabelled, each, 0.0)) / N)
    return loss, False, tl.where(unlabelled, slope * (weight / N), 0.0), at_pos


@triton.jit
def _pairwise(
    x, s, extra, unlabelled, tau, log_rest, beta, floor,
    PAIR: tl.constexpr, ROW: tl.constexpr, RELATIVE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """DPL, DPL hard and DPL half, of the differences x = s⁺ − s. All σ are scaled by e^{−shift}."""
    shift = tl.minimum(tl.max(tl.where(unlabelled, x, float("-inf"))), 0.0)
    small = tl.exp(-tl.abs(x))
    sigma = tl.exp(tl.minimum(x, 0.0) - shift) / (1.0 + small)
    slope = sigma * tl.where(x >= 0, small, 1.0) / (1.0 + small)  # σ(1 − σ)
    weight = unlabelled.to(tl.float32) / N
    if PAIR == _HARD_SIGMOID:
        hard = tl.where(unlabelled, beta * s, float("-inf"))
        hard = tl.exp(hard - tl.max(hard))
        weight = hard / tl.sum(hard)
    p_unlabelled = tl.sum(tl.where(unlabelled, weight * sigma, 0.0))
    p = p_unlabelled
    if M > 0:
        p_extra = tl.sum(tl.where(extra, sigma, 0.0)) / M
        # τ = 0 takes nothing, not even 0·∞; but not a number stays not a number
        p -= tl.where((tau > 0) | (p_extra != p_extra), tau * p_extra, 0.0)
    if ROW == _DEBIASED_HALF:
        p -= tl.where(tau > 0, tau * 0.5 * tl.exp(-shift), 0.0)
    log_p = tl.where(p <= 0, float("-inf"), tl.log(tl.where(p <= 0, 1.0, p)) + shift - log_rest)
    bound = tl.log(floor)
    if RELATIVE:
        bound += tl.log(p_unlabelled) + shift
    clamped = log_p < bound
    loss = -tl.where(clamped, bound, log_p)
    downhill = tl.where(unlabelled, weight * slope, 0.0)  # −d loss / dx, times p
    corrected = downhill
    if M > 0:
        taken = tl.where(tau > 0, tau / M * slope, 0.0)
        corrected = tl.where(extra, -taken, downhill)
    gradient = tl.where(clamped, downhill / p_unlabelled if RELATIVE else 0.0, corrected / p)
    return loss, clamped, gradient, -tl.sum(gradient)


@triton.jit
def _contrastive(
    relative, extra, unlabelled, tau, log_rest, beta, log_floor,
    PAIR: tl.constexpr, ROW: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """InfoNCE, DCL and HCL, of relative = (s − s⁺) / t: softplus(log G). Gradients are times t."""
    far = tl.where(unlabelled, relative, float("-inf"))
    top = tl.max(far)
    if PAIR == _HARD_EXPONENTIAL:
        steep, flat = tl.exp((1 + beta) * (far - top)), tl.exp(beta * (far - top))
        steep, flat = tl.where(unlabelled, steep, 0.0), tl.where(unlabelled, flat, 0.0)
        log_sum = top + tl.log(tl.sum(steep)) - tl.log(tl.sum(flat) / N)
        share = (1 + beta) * steep / tl.sum(steep) - beta * flat / tl.sum(flat)
    else:
        grown = tl.where(unlabelled, tl.exp(far - top), 0.0)
        log_sum = top + tl.log(tl.sum(grown))
        share = grown / tl.sum(grown)
    clamped = False
    if ROW == _SOFTMAX:
        loss, slope = _softplus(log_sum), tl.sigmoid(log_sum)
        return loss, clamped, slope * share, -slope
    if M > 0:
        near = tl.where(extra, relative, float("-inf"))
        top_extra = tl.max(near)
        grown_extra = tl.where(extra, tl.exp(near - top_extra), 0.0)
        gap = top_extra + tl.log(tl.sum(grown_extra) / M) + tl.log(tau) + tl.log(N * 1.0) - log_sum
        ratio = tl.exp(tl.minimum(gap, 0.0))
        rest = tl.where(gap < 0, 1.0 - ratio, gap - gap)  # not a number stays not a number
        share = (share - ratio * grown_extra / tl.sum(grown_extra)) / rest
        log_sum = tl.where(rest == 0, float("-inf"), log_sum + tl.log(rest))
    log_g = log_sum - log_rest
    clamped = log_g < log_floor
    log_g = tl.where(clamped, log_floor, log_g)
    slope = tl.sigmoid(log_g)
    return _softplus(log_g), clamped, tl.where(clamped, 0.0, slope * share), -slope


@triton.jit
def _softplus(z):
    return tl.maximum(z, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(z)))
