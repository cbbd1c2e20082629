"""Sums over pairs: each anchor of a row with all scores of the row, and their gradients.

    F(s⁺) = Σ_j w_j φ(s⁺ − s_j)        D(s⁺) = Σ_j w_j φ'(s⁺ − s_j)        G(s_j) = Σ_a α_a φ'(s⁺_a − s_j)

w_j ∝ ω_j e^{β s_j}, with sum 1 in a row. Here they are plain PyTorch, anchors × columns; `histogram`
has them in time that grows with anchors + columns, and `gpu_pair_sums` without storing anchors × columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.training.full.block import ONE_PART, UserBlock

SIGMOID, SOFTPLUS, POWER = range(3)
FARTHEST = 80.0  # e^{−80} is still a number in float32; beyond it, φ and φ' keep their ratio
_AT_ONCE = 1 << 24  # pairs held in memory


class Kernel(NamedTuple):
    """φ: σ(x), softplus(−x), or (2σ(−x))^power, of a distance x less the margin."""

    kind: int
    power: float = 1.0
    margin: float = 0.0

    def value(self, x: Tensor) -> Tensor:
        """φ(x)."""
        x = x - self.margin
        if self.kind == SIGMOID:
            return torch.sigmoid(x.clamp(min=-FARTHEST))
        if self.kind == SOFTPLUS:
            return F.softplus(-x)
        return (self.power * F.logsigmoid(-self._near(x)) + self.power * math.log(2)).exp()

    def slope(self, x: Tensor) -> Tensor:
        """φ'(x)."""
        x = x - self.margin
        if self.kind == SIGMOID:
            x = x.clamp(min=-FARTHEST)
            return torch.sigmoid(x) * torch.sigmoid(-x)
        if self.kind == SOFTPLUS:
            return -torch.sigmoid(-x)
        return -self.power * self.value(x + self.margin) * torch.sigmoid(self._near(x))

    def _near(self, x: Tensor) -> Tensor:
        return x.clamp(max=FARTHEST / self.power)

    @property
    def scale(self) -> float:
        """The distance over which φ changes: |φ''| ≤ φ / scale² wherever φ is convex."""
        return 1 / max(self.power, 1.0)


class Sums(NamedTuple):
    """F and D of each anchor [A], and the way back: gradients of α · F, by anchor and by score."""

    value: Tensor
    slope: Tensor
    spread: Callable[[Tensor], Tensor]  # α [A] -> −w_j G(s_j), in the shape of the scores


class PairTotals(NamedTuple):
    """The sums over the unlabelled, and over the user's own items (None where they are not asked for)."""

    unlabelled: Sums
    own: Sums | None


# A way to compute them, from a block, φ, β, and whether `own` is wanted: with weights ∝ ω e^{βs}, and no
# gradient through the weights.
PairSums = Callable[[UserBlock, Kernel, float, bool], PairTotals]


def pair_sums(block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
    """Anchors × columns, a piece at a time, in the scores' own precision."""
    own = _own(block, kernel) if with_own else None
    return PairTotals(_sums(block, kernel, row_weights(block, beta)), own)


def row_weights(block: UserBlock, beta: float) -> Tensor:
    """w [B, C]: ω e^{βs}, with sum 1 over each row's unlabelled columns in all parts of the catalogue."""
    exponent = block.scores * beta if beta else torch.zeros_like(block.scores)
    if block.log_weights is not None:
        exponent = exponent + block.log_weights
    exponent = exponent.masked_fill(block.scores == -math.inf, -math.inf)
    if block.totals is not ONE_PART:
        return (exponent - block.log_sum_exp(exponent)[:, None]).exp()
    return torch.softmax(exponent, dim=1).nan_to_num(0.0)


def _sums(block: UserBlock, kernel: Kernel, weights: Tensor) -> Sums:
    scores = block.scores.masked_fill(block.scores == -math.inf, 0.0)  # their weight is 0
    size = max(1, _AT_ONCE // max(scores.shape[1], 1))
    pieces = [slice(start, start + size) for start in range(0, len(block.pos), size)]

    def weighted_sum(function: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([
            (weights[block.rows[p]] * function(block.pos[p, None] - scores[block.rows[p]])).sum(dim=1)
            for p in pieces
        ])  # fmt: skip

    def spread(alpha: Tensor) -> Tensor:
        found = torch.zeros_like(scores)
        for p in pieces:
            slopes = kernel.slope(block.pos[p, None] - scores[block.rows[p]])
            found.index_add_(0, block.rows[p], alpha[p, None] * slopes)
        return -weights * found

    return Sums(weighted_sum(kernel.value), weighted_sum(kernel.slope), spread)


def _own(block: UserBlock, kernel: Kernel) -> Sums:
    """The same, with the anchors of a row for its columns."""
    place = torch.arange(len(block.pos), device=block.pos.device) - block.starts[block.rows]
    own = torch.full(
        (len(block.scores), block.longest), -math.inf, dtype=block.pos.dtype, device=block.pos.device
    )
    own[block.rows, place] = block.pos
    inner = block._replace(scores=own, log_weights=None)
    sums = _sums(inner, kernel, row_weights(inner, 0.0))

    return Sums(sums.value, sums.slope, lambda alpha: sums.spread(alpha)[block.rows, place])
