"""Sums over pairs in Triton: tiles of a user's anchors against tiles of columns, none of them stored.

F(s⁺) = Σ_j w_j φ(s⁺ − s_j)        D(s⁺) = Σ_j w_j φ'(s⁺ − s_j)        G(s_j) = Σ_a α_a φ'(s⁺_a − s_j)
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from truepair.training.full.pair_sums import FARTHEST, POWER, SIGMOID, SOFTPLUS

_SIGMOID, _SOFTPLUS, _POWER = (tl.constexpr(kind) for kind in (SIGMOID, SOFTPLUS, POWER))
_FARTHEST, _LOG_2 = tl.constexpr(FARTHEST), tl.constexpr(math.log(2))


@triton.jit
def _weights(s, log_weights, column, there, log_total, beta, WEIGHTED: tl.constexpr):
    exponent = beta * tl.where(there, s, 0.0) - log_total
    if WEIGHTED:
        exponent += tl.load(log_weights + column, mask=there, other=0.0)
    return tl.where(there, tl.exp(exponent), 0.0)


@triton.jit
def _phi(x, power, KIND: tl.constexpr):
    """φ(x) and φ'(x)."""
    if KIND == _SIGMOID:
        x = tl.maximum(x, -_FARTHEST)
        e = tl.exp(-tl.abs(x))
        r = 1.0 / (1.0 + e)
        value = tl.where(x >= 0, r, e * r)
        slope = e * r * r
    elif KIND == _SOFTPLUS:
        e = tl.exp(-tl.abs(x))
        r = 1.0 / (1.0 + e)
        value = tl.maximum(-x, 0.0) + tl.log(1.0 + e)
        slope = -tl.where(x >= 0, e * r, r)
    else:
        x = tl.minimum(x, _FARTHEST / power)
        e = tl.exp(-tl.abs(x))
        value = tl.exp((tl.minimum(-x, 0.0) - tl.log(1.0 + e) + _LOG_2) * power)
        r = 1.0 / (1.0 + e)
        slope = -value * power * tl.where(x >= 0, r, e * r)
    return value, slope


@triton.jit
def anchor_sums(
    pos, starts, scores, column_starts, log_weights, log_total, beta, power,
    tile_rows, tile_firsts, value, slope,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, ANCHORS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """F and D of a tile of anchors of one row."""
    tile = tl.program_id(0)
    row = tl.load(tile_rows + tile)
    anchor = tl.load(tile_firsts + tile) + tl.arange(0, ANCHORS)
    mine = anchor < tl.load(starts + row + 1)
    s_pos = tl.load(pos + anchor, mask=mine, other=0.0)
    first, last = tl.load(column_starts + row), tl.load(column_starts + row + 1)
    total = tl.load(log_total + row)
    values = tl.zeros([ANCHORS, COLUMNS], tl.float32)
    slopes = tl.zeros([ANCHORS, COLUMNS], tl.float32)
    for start in range(0, last - first, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        s = tl.load(scores + first + column, mask=column < last - first, other=float("-inf"))
        there = s > float("-inf")
        w = _weights(s, log_weights, column, there, total, beta, WEIGHTED)
        f, d = _phi(s_pos[:, None] - tl.where(there, s, 0.0)[None, :], power, KIND)
        values += w[None, :] * f
        slopes += w[None, :] * d
    tl.store(value + anchor, tl.sum(values, axis=1), mask=mine)
    tl.store(slope + anchor, tl.sum(slopes, axis=1), mask=mine)


@triton.jit
def column_sums(
    pos, starts, scores, column_starts, log_weights, log_total, beta, power, alpha, found,
    KIND: tl.constexpr, WEIGHTED: tl.constexpr, ANCHORS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """−w G of a tile of columns of one row."""
    row = tl.program_id(0)
    first, last = tl.load(column_starts + row), tl.load(column_starts + row + 1)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mine = column < last - first
    s = tl.load(scores + first + column, mask=mine, other=float("-inf"))
    there = s > float("-inf")
    w = _weights(s, log_weights, column, there, tl.load(log_total + row), beta, WEIGHTED)
    totals = tl.zeros([ANCHORS, COLUMNS], tl.float32)
    begin, end = tl.load(starts + row), tl.load(starts + row + 1)
    for start in range(begin, end, ANCHORS):
        anchor = start + tl.arange(0, ANCHORS)
        s_pos = tl.load(pos + anchor, mask=anchor < end, other=0.0)
        a = tl.load(alpha + anchor, mask=anchor < end, other=0.0)
        _, d = _phi(s_pos[:, None] - tl.where(there, s, 0.0)[None, :], power, KIND)
        totals += a[:, None] * d
    tl.store(found + first + column, -w * tl.sum(totals, axis=0), mask=mine)
