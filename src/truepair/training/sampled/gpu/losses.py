"""The losses' row functions as Triton code: scores of one row -> loss, clamped, d loss / d score.

A row is a block of K slots (a power of two): slot 0 is the anchor, slots 1 … M are the extra positives,
and `unlabelled` marks the N slots that count as unlabelled. Other slots get no gradient. The formulas are
those of `losses`; each is shifted by the largest term, so that scores of ±1e4 are safe in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from truepair.losses import BPR, DCL, DPL, HCL, DPLHalf, DPLHard, InfoNCE
from truepair.training.sampled.plan import LOSS_KINDS

_BPR, _INFONCE, _DCL = (tl.constexpr(LOSS_KINDS[kind]) for kind in (BPR, InfoNCE, DCL))
_HCL, _DPL, _DPL_HARD = (tl.constexpr(LOSS_KINDS[kind]) for kind in (HCL, DPL, DPLHard))
_DPL_HALF = tl.constexpr(LOSS_KINDS[DPLHalf])


@triton.jit
def loss_row(
    s, slot, unlabelled, tau, log_rest, inverse_temperature, beta, min_score, floor,
    KIND: tl.constexpr, RELATIVE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """(loss, clamped, gradient [K]) of one row of scores s [K]."""
    pos = tl.sum(tl.where(slot == 0, s, 0.0))
    extra = (slot >= 1) & (slot <= M)
    if KIND == _BPR:
        loss, clamped, gradient, at_pos = _bpr(s - pos, unlabelled, N)
    elif KIND == _DPL or KIND == _DPL_HARD or KIND == _DPL_HALF:  # noqa: SIM109, Triton has no `in`
        loss, clamped, gradient, at_pos = _pairwise(
            pos - s, s, extra, unlabelled, tau, log_rest, beta, floor, KIND, RELATIVE, M, N
        )
    else:
        relative = (s - pos) * inverse_temperature
        log_floor = (min_score - pos) * inverse_temperature + tl.log(N * 1.0)
        loss, clamped, gradient, at_pos = _contrastive(
            relative, extra, unlabelled, tau, log_rest, beta, log_floor, KIND, M, N
        )
        gradient, at_pos = gradient * inverse_temperature, at_pos * inverse_temperature
    return loss, clamped, tl.where(slot == 0, at_pos, gradient)


@triton.jit
def _bpr(z, unlabelled, N: tl.constexpr):
    loss = tl.sum(tl.where(unlabelled, _softplus(z), 0.0)) / N
    gradient = tl.where(unlabelled, tl.sigmoid(z) / N, 0.0)
    return loss, False, gradient, -tl.sum(gradient)


@triton.jit
def _pairwise(
    x, s, extra, unlabelled, tau, log_rest, beta, floor,
    KIND: tl.constexpr, RELATIVE: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """DPL, DPL hard and DPL half, of the differences x = s⁺ − s. All σ are scaled by e^{−shift}."""
    shift = tl.minimum(tl.max(tl.where(unlabelled, x, float("-inf"))), 0.0)
    small = tl.exp(-tl.abs(x))
    sigma = tl.exp(tl.minimum(x, 0.0) - shift) / (1.0 + small)
    slope = sigma * tl.where(x >= 0, small, 1.0) / (1.0 + small)  # σ(1 − σ)
    weight = unlabelled.to(tl.float32) / N
    if KIND == _DPL_HARD:
        hard = tl.where(unlabelled, beta * s, float("-inf"))
        hard = tl.exp(hard - tl.max(hard))
        weight = hard / tl.sum(hard)
    p_unlabelled = tl.sum(tl.where(unlabelled, weight * sigma, 0.0))
    p = p_unlabelled
    if M > 0:
        p_extra = tl.sum(tl.where(extra, sigma, 0.0)) / M
        # τ = 0 takes nothing, not even 0·∞; but not a number stays not a number
        p -= tl.where((tau > 0) | (p_extra != p_extra), tau * p_extra, 0.0)
    if KIND == _DPL_HALF:
        p -= tl.where(tau > 0, tau * 0.5 * tl.exp(-shift), 0.0)
    log_p = tl.where(p <= 0, float("-inf"), tl.log(tl.where(p <= 0, 1.0, p)) + shift - log_rest)
    bound = tl.log(floor)
    if RELATIVE:
        bound += tl.log(p_unlabelled) + shift
    clamped = log_p < bound
    loss = -tl.where(clamped, bound, log_p)
    downhill = tl.where(unlabelled, weight * slope, 0.0)  # −d loss / dx, times p
    if M > 0:
        taken = tl.where(tau > 0, tau / M * slope, 0.0)
        corrected = tl.where(extra, -taken, downhill)
    else:
        corrected = downhill
    if RELATIVE:
        gradient = tl.where(clamped, downhill / p_unlabelled, corrected / p)
    else:
        gradient = tl.where(clamped, 0.0, corrected / p)
    return loss, clamped, gradient, -tl.sum(gradient)


@triton.jit
def _contrastive(
    relative, extra, unlabelled, tau, log_rest, beta, log_floor,
    KIND: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """InfoNCE, DCL and HCL, of relative = (s − s⁺) / t: softplus(log G). Gradients are times t."""
    far = tl.where(unlabelled, relative, float("-inf"))
    top = tl.max(far)
    if KIND == _HCL:
        steep, flat = tl.exp((1 + beta) * (far - top)), tl.exp(beta * (far - top))
        steep, flat = tl.where(unlabelled, steep, 0.0), tl.where(unlabelled, flat, 0.0)
        log_sum = top + tl.log(tl.sum(steep)) - tl.log(tl.sum(flat) / N)
        share = (1 + beta) * steep / tl.sum(steep) - beta * flat / tl.sum(flat)
    else:
        grown = tl.where(unlabelled, tl.exp(far - top), 0.0)
        log_sum = top + tl.log(tl.sum(grown))
        share = grown / tl.sum(grown)
    clamped = False
    if KIND == _INFONCE:
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
