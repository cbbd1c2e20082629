"""A block of users with all their scores, and sums over pairs: each anchor with all scores of its row.

    F(s⁺) = Σ_j w_j φ(s⁺ − s_j)        D(s⁺) = Σ_j w_j φ'(s⁺ − s_j)        G(s_j) = Σ_a α_a φ'(s⁺_a − s_j)

w_j ∝ ω_j e^{β s_j}, with sum 1 in a row. Here they are plain PyTorch, anchors × columns; `histogram`
has them in time that grows with anchors + columns, and `gpu_pair_sums` without storing anchors × columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor


class Totals(Protocol):
    """Numbers of each row over all columns, from those over the columns of each part of the catalogue."""

    def sum(self, part: Tensor) -> Tensor:
        """The sum over all parts."""

    def max(self, part: Tensor) -> Tensor:
        """The largest of all parts."""


class UserBlock(NamedTuple):
    """B users, their A anchors in the order of the rows, and C columns.

    The scores of a user's own items are −∞. Without `log_weights` the columns are the whole catalogue, and
    all weigh the same. Where the catalogue is divided among processes, a block has the columns and anchors of
    one part; then `totals` adds up what a row needs of all, and `row_counts` counts all anchors of a row.
    """

    users: Tensor  # [B]
    scores: Tensor  # [B, C]
    pos: Tensor  # [A], the anchors' scores
    rows: Tensor  # [A], the row of each anchor
    starts: Tensor  # [B + 1], where the anchors of each row begin
    n_unlabelled: Tensor  # [B], how many items each user has no interaction with; at least 1
    tau: Tensor  # [B], the prior of each user, in float64: 1 − τ must not round to 0
    longest: int  # no row has more anchors
    log_weights: Tensor | None = None  # [C] or [B, C], log ω
    low: float = -math.inf  # no score of the block lies below …
    high: float = math.inf  # … or above, anchors included; known where a histogram is made
    totals: Totals | None = None  # None: the block has all columns
    row_counts: Tensor | None = None  # [B], if `starts` counts only a part of the anchors
    idle: Tensor | None = None  # [B], users for whom no unlabelled item was drawn: they learn nothing here

    @property
    def counts(self) -> Tensor:
        """How many anchors each row has. [B]"""
        counts = self.starts.diff() if self.row_counts is None else self.row_counts
        return counts.to(self.pos.dtype)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of the anchors' values [A] in each row. [B]"""
        part = values.new_zeros(len(self.scores)).index_add_(0, self.rows, values)
        return part if self.totals is None else self.totals.sum(part)

    def log_sum_exp(self, x: Tensor) -> Tensor:
        """log Σ e^x over all columns of each row. [B]"""
        part = x.logsumexp(dim=1)
        if self.totals is None:
            return part
        top = self.totals.max(part)
        return top + self.totals.sum((part - top).exp()).log()

    def log_tau(self) -> tuple[Tensor, Tensor]:
        """log τ and log(1−τ) of each row. [B]"""
        return self.tau.log().to(self.pos.dtype), torch.log1p(-self.tau).to(self.pos.dtype)

    def log_total_weight(self) -> Tensor:
        """log Σ ω over each row's unlabelled columns. [B]"""
        if self.log_weights is None:
            return self.n_unlabelled.log()
        unlabelled = self.scores > -math.inf
        return self.log_sum_exp(torch.where(unlabelled, self.log_weights, -math.inf))

    def log_mean_exp_pos(self, temperature: float) -> Tensor:
        """log of the mean of e^{s/t} over the user's own items. [B]"""
        scaled = self.pos / temperature
        top = torch.full_like(self.n_unlabelled, -math.inf)
        top.scatter_reduce_(0, self.rows, scaled, "amax")
        if self.totals is not None:
            top = self.totals.max(top)
        total = self.sum((scaled - top[self.rows]).exp())
        return top + (total / self.counts).log()


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
        """The distance over which φ changes: |φ''| ≤ φ / scale², and so for φ'."""
        return 1 / max(self.power, 1.0)


class Sums(NamedTuple):
    """F and D of each anchor [A], and the way back: gradients of α · F, by anchor and by score."""

    value: Tensor
    slope: Tensor
    spread: Callable[[Tensor], Tensor]  # α [A] -> −w_j G(s_j), in the shape of the scores


# The sums over the unlabelled, and over the user's own items (None where they are not asked for).
PairTotals = tuple[Sums, Sums | None]
# A way to compute them, from a block, φ, β, and whether `own` is wanted: with weights ∝ ω e^{βs}, and no
# gradient through the weights.
PairSums = Callable[[UserBlock, Kernel, float, bool], PairTotals]


def pair_sums(block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
    """Anchors × columns, a piece at a time, in the scores' own precision."""
    own = _own(block, kernel) if with_own else None
    return _sums(block, kernel, row_weights(block, beta)), own


def row_weights(block: UserBlock, beta: float) -> Tensor:
    """w [B, C]: ω e^{βs}, with sum 1 over each row's unlabelled columns in all parts of the catalogue."""
    exponent = block.scores * beta if beta else torch.zeros_like(block.scores)
    if block.log_weights is not None:
        exponent = exponent + block.log_weights
    exponent = exponent.masked_fill(block.scores == -math.inf, -math.inf)
    if block.totals is not None:
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
