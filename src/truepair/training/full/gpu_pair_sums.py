"""Sums over pairs in Triton: every pair of anchor and column is visited, none is stored.

F(s⁺) = Σ_j w_j φ(s⁺ − s_j)        D(s⁺) = Σ_j w_j φ'(s⁺ − s_j)        G(s_j) = Σ_a α_a φ'(s⁺_a − s_j)

One program sums over all columns for a tile of one user's anchors; on the way back, one sums over all of a
user's anchors for a tile of columns: nobody adds where another does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from truepair.training.full.pair_sums import (
    FARTHEST,
    POWER,
    SIGMOID,
    SOFTPLUS,
    Kernel,
    PairTotals,
    Sums,
    UserBlock,
)

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


_ANCHORS, _COLUMNS = 16, 128  # of a tile


def gpu_sums(block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
    """A `PairSums` in float32."""
    own = None
    if with_own:  # the columns of a row are its own anchors, all alike
        own = _sums(block, kernel, _Columns(block.pos, block.starts, None, 0.0, block.counts.log()))
    exponents = torch.where(block.scores > -math.inf, beta * block.scores, -math.inf)
    if block.log_weights is not None:
        exponents += block.log_weights
    width = block.scores.shape[1]
    firsts = torch.arange(len(block.scores) + 1, device=block.scores.device) * width
    columns = _Columns(block.scores, firsts, block.log_weights, beta, exponents.logsumexp(dim=1))
    return _sums(block, kernel, columns), own


class _Columns(NamedTuple):
    """What a row's anchors are compared with: w = e^{β s + log ω − log_total}."""

    scores: Tensor
    starts: Tensor
    log_weights: Tensor | None
    beta: float
    log_total: Tensor


def _sums(block: UserBlock, kernel: Kernel, columns: _Columns) -> Sums:
    tile_rows, tile_firsts = _tiles(block.starts, len(block.pos))
    value, slope = torch.empty_like(block.pos), torch.empty_like(block.pos)
    weighted = columns.log_weights is not None
    log_weights = columns.log_weights if weighted else columns.scores  # not read if there are none
    shared = log_weights, columns.log_total, columns.beta, kernel.power
    options = {"KIND": kernel.kind, "WEIGHTED": weighted, "ANCHORS": _ANCHORS, "COLUMNS": _COLUMNS}
    tables = block.pos - kernel.margin, block.starts, columns.scores, columns.starts
    anchor_sums[(len(tile_rows),)](*tables, *shared, tile_rows, tile_firsts, value, slope, **options)

    def spread(alpha: Tensor) -> Tensor:
        found = torch.empty_like(columns.scores)
        longest = columns.scores.shape[1] if columns.scores.ndim == 2 else block.longest
        grid = len(block.scores), triton.cdiv(longest, _COLUMNS)
        column_sums[grid](*tables, *shared, alpha.contiguous(), found, **options)
        return found

    return Sums(value, slope, spread)


def _tiles(starts: Tensor, n_anchors: int) -> tuple[Tensor, Tensor]:
    """The row and the first anchor of each tile; some at the end may be empty."""
    n = triton.cdiv(n_anchors, _ANCHORS) + len(starts) - 1  # as many as there can be: no need to count them
    ends = (starts.diff() + _ANCHORS - 1).div(_ANCHORS, rounding_mode="floor").cumsum(0)
    tiles = torch.arange(n, device=starts.device)
    rows = torch.searchsorted(ends, tiles, right=True).clamp_(max=len(ends) - 1)
    before = torch.where(rows > 0, ends[rows - 1], 0)
    return rows, starts[rows] + (tiles - before) * _ANCHORS
