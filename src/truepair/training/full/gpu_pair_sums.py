"""Sums over pairs on the GPU: every pair of anchor and column is visited, none is stored.

One program sums over all columns for a tile of one user's anchors; on the way back, one sums over all of a
user's anchors for a tile of columns: nobody adds where another does.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from truepair.training.full.block import UserBlock
from truepair.training.full.gpu_kernels import anchor_sums, column_sums
from truepair.training.full.pair_sums import Kernel, PairTotals, Sums

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
    return PairTotals(_sums(block, kernel, columns), own)


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
