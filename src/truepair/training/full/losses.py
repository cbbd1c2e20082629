"""Losses in row form: a user's anchors share one row of scores, so nothing needs to be drawn.

Each loss of `losses` is evaluated with all of the user's own items for extra positives (M) and all other
columns of the block for unlabelled items (N), and gives its gradient in closed form; the formulas are in
lab/docs/full-catalogue-log.md. Columns that were drawn stand for others: column j has a weight ω_j, means
over the unlabelled are weighted, and sums are such means times the number of unlabelled items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import BPR, BSL, DCL, DPL, HCL, PSL, SL, DPLHard, InfoNCE, Loss, Pointwise, Row
from truepair.losses.debiased import log_difference
from truepair.training.full.pair_sums import (
    POWER,
    SIGMOID,
    SOFTPLUS,
    Kernel,
    PairSums,
    UserBlock,
    pair_sums,
    row_weights,
)


class RowLosses(NamedTuple):
    """Of each anchor its loss and whether it met the floor; gradients of Σ share · loss."""

    loss: Tensor  # [A]
    clamped: Tensor | None  # [A], bool
    by_pos: Tensor  # [A]
    by_score: Tensor  # [B, C], 0 at the user's own items; it may lie in the memory of the scores


def row_losses(loss: Loss, block: UserBlock, share: Tensor, sums: PairSums = pair_sums) -> RowLosses:
    """The losses of a block's anchors, each with its share [A] in the gradient.

    `block.scores` may hold the gradient afterwards.
    """
    form = ROW_FORMS[loss.family.row] if has_row_form(loss) else _by_definition
    found = form(loss, block, share, sums)
    if block.idle is None:
        return found
    idle = block.idle[block.rows]
    found.by_score[block.idle] = 0.0
    clamped = None if found.clamped is None else found.clamped & ~idle
    values, by_pos = (numbers.masked_fill(idle, 0.0) for numbers in (found.loss, found.by_pos))
    return RowLosses(values, clamped, by_pos, found.by_score)


def has_row_form(loss: Loss) -> bool:
    """Whether a loss has one here: its own class states a family, and PSL has the surrogate "tanh".

    A family that a class inherits need not hold for it.
    """
    return "family" in vars(type(loss)) and getattr(loss, "surrogate", "tanh") == "tanh"


# --- softmax: the row enters by the logarithm of a mean --------------------------------------------------


class _Exponents:
    """log mean_j e^{x_j} over the unlabelled, x = factor · s, weighted by ω; and its gradient by s."""

    def __init__(self, block: UserBlock, factor: float) -> None:
        self.factor = factor
        self.x = block.scores * factor
        if block.log_weights is not None:
            self.x += block.log_weights
        self.log_sum = block.log_sum_exp(self.x)  # [B]
        self.log_mean = self.log_sum - block.log_total_weight()  # [B]

    def gradient(self, by_mean: Tensor) -> Tensor:
        """d/ds of Σ_b by_mean_b · log_mean_b. [B, C]; uses up x."""
        return self.x.sub_(self.log_sum[:, None]).exp_().mul_((by_mean * self.factor)[:, None])


def _infonce(loss: InfoNCE, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """log(e^{s⁺/t} + Σ_j e^{s_j/t}) − s⁺/t."""
    row = _Exponents(block, 1 / loss.temperature)
    relative = (row.log_mean + block.n_unlabelled.log())[block.rows] - block.pos / loss.temperature
    push = torch.sigmoid(relative) * share  # [A]
    return RowLosses(F.softplus(relative), None, -push / loss.temperature, row.gradient(block.sum(push)))


def _log_mean(loss: SL | PSL, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """log mean_j e^{s_j/t} − s⁺/t; PSL with the surrogate "tanh": log mean_j (2σ(s_j − s⁺))^{1/t}."""
    if isinstance(loss, PSL):
        found = sums(block, Kernel(POWER, 1 / loss.temperature), 0.0, False)[0]
        alpha = share / found.value
        return RowLosses(found.value.log(), None, alpha * found.slope, found.spread(alpha))
    row = _Exponents(block, 1 / loss.temperature)
    value = row.log_mean[block.rows] - block.pos / loss.temperature
    return RowLosses(value, None, -share / loss.temperature, row.gradient(block.sum(share)))


def _bsl(loss: BSL, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """log mean_j e^{s_j/t} − (t⁺/t) · log mean_m e^{s'_m/t⁺}: the same for all anchors of a row."""
    t, positive_t, weight = loss.temperature, loss.positive_temperature, block.sum(share)  # [B]
    row, log_own = _Exponents(block, 1 / t), block.log_mean_exp_pos(positive_t)
    value = (row.log_mean - positive_t / t * log_own)[block.rows]
    softmax = (block.pos / positive_t - (log_own + block.counts.log())[block.rows]).exp()
    return RowLosses(value, None, -weight[block.rows] * softmax / t, row.gradient(weight))


def _contrastive(loss: DCL, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """log(e^{s⁺/t} + G) − s⁺/t, G the corrected sum of a row: DCL, and HCL by its weighted sum."""
    t, log_n, (log_tau, log_rest) = loss.temperature, block.n_unlabelled.log(), block.log_tau()
    beta = loss.beta if isinstance(loss, HCL) else 0.0
    hard, weight = _Exponents(block, (1 + beta) / t), _Exponents(block, beta / t) if beta else None
    log_sum = hard.log_mean + log_n - (0.0 if weight is None else weight.log_mean)  # [B]
    log_own = block.log_mean_exp_pos(t)
    log_rival = log_difference(log_sum, log_own + log_tau + log_n)
    floor = loss.min_score / t + log_n
    clamped = log_rival - log_rest < floor
    relative = torch.maximum(log_rival - log_rest, floor)[block.rows] - block.pos / t
    push = torch.sigmoid(relative) * share  # [A]
    by_rival = torch.where(clamped, 0.0, block.sum(push))  # [B]
    log_rival = torch.where(clamped, 0.0, log_rival)
    by_sum = by_rival * torch.where(clamped, 0.0, log_sum - log_rival).exp()
    by_score = hard.gradient(by_sum)
    if weight is not None:
        by_score += weight.gradient(-by_sum)
    log_share = log_tau + log_n - block.counts.log() - log_rival  # d log G / d s' = −e^{s'/t + log_share} / t
    own = torch.where(clamped[block.rows], -math.inf, block.pos / t + log_share[block.rows]).exp()
    by_pos = -(push + by_rival[block.rows] * own) / t
    return RowLosses(F.softplus(relative), clamped[block.rows], by_pos, by_score)


# --- pointwise: each score by itself ---------------------------------------------------------------------


def _pointwise(loss: Pointwise, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """f(s⁺) + weight · mean_j g(s_j)."""
    weights = row_weights(block, 0.0) * loss.weight  # [B, C], 0 at the user's own items
    value, slope = loss.unlabelled(block.scores.masked_fill(block.scores == -math.inf, 0.0))
    of_pos, by_pos = loss.positive(block.pos)
    of_row = (weights * value).sum(dim=1)  # [B]
    if block.totals is not None:
        of_row = block.totals.sum(of_row)
    return RowLosses(
        of_pos + of_row[block.rows], None, share * by_pos, weights * slope * block.sum(share)[:, None]
    )


# --- pairwise: each anchor is compared with each score of the row ----------------------------------------


def _bpr(loss: BPR, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """mean_j softplus(s_j − s⁺)."""
    found, _ = sums(block, Kernel(SOFTPLUS), 0.0, False)
    return RowLosses(found.value, None, share * found.slope, found.spread(share))


def _dpl(loss: DPL, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """−log max(P, bound), P = (Σ_j w_j σ(s⁺−s_j−m) − τ · mean_m σ(s⁺−s'_m−m)) / (1−τ), m the margin."""
    beta = loss.beta if isinstance(loss, DPLHard) else 0.0
    other, own = sums(block, Kernel(SIGMOID, margin=loss.margin), beta, loss.uses_extra)
    tau = block.tau.to(block.pos.dtype)[block.rows]
    expected = 0.5 if own is None else own.value
    rest = block.log_tau()[1][block.rows]  # log(1 − τ)
    difference = other.value - tau * expected
    bound = loss.floor * (other.value if loss.clamp == "relative" else 1.0) * rest.exp()
    clamped = difference < bound
    least = torch.where(clamped, bound * torch.ones_like(difference), difference)
    at_bound = 1 / other.value if loss.clamp == "relative" else torch.zeros_like(difference)
    alpha = -share * torch.where(clamped, at_bound, 1 / least)
    by_pos, by_score = alpha * other.slope, other.spread(alpha)
    if own is not None:
        gamma = torch.where(clamped, 0.0, share * tau / least)
        by_pos = by_pos + gamma * own.slope + own.spread(gamma)
    return RowLosses(rest - least.log(), clamped, by_pos, by_score)


def _by_definition(loss: Loss, block: UserBlock, share: Tensor, sums: PairSums) -> RowLosses:
    """Any loss: a user at a time, each anchor with all the user's items and all others."""
    scores, pos = block.scores.detach().requires_grad_(), block.pos.detach().requires_grad_()
    results = []
    with torch.enable_grad():
        for row, (first, last) in enumerate(pairwise(block.starts.tolist())):
            own, others = pos[first:last], scores[row][block.scores[row] > -math.inf]
            extra = own.expand(len(own), -1) if loss.uses_extra else own.new_zeros(len(own), 0)
            results.append(
                loss.rows(own, extra, others.expand(len(own), -1), block.users[row].expand(len(own)))
            )
        losses = torch.cat([rows.loss for rows in results])
        by_score, by_pos = torch.autograd.grad((losses * share).sum(), (scores, pos))
    clamped = [rows.clamped for rows in results if rows.clamped is not None]
    return RowLosses(losses.detach(), torch.cat(clamped) if clamped else None, by_pos, by_score)


ROW_FORMS: dict[Row, Callable[[Any, UserBlock, Tensor, PairSums], RowLosses]] = {
    Row.MEAN: _bpr,
    Row.POINTWISE: _pointwise,
    Row.SOFTMAX: _infonce,
    Row.LOG_MEAN: _log_mean,
    Row.BILATERAL: _bsl,
    Row.DEBIASED_SOFTMAX: _contrastive,
    Row.DEBIASED_MEAN: _dpl,
    Row.DEBIASED_HALF: _dpl,
}
