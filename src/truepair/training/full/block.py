"""A block of users with all their scores: what a loss in row form is computed from."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
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
