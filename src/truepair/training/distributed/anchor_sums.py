"""Pair sums where each rank has a part of the anchors and a part of the columns of every row.

The scores of all anchors are gathered. Each rank sums over its own columns for every anchor, and the sums of
an anchor are added up where the anchor is.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.exchange import Parts
from truepair.training.full.block import ONE_PART, UserBlock
from truepair.training.full.pair_sums import Kernel, PairSums, PairTotals, Sums


class ShardedSums:
    """A `PairSums` of blocks that are divided among ranks, by one of blocks that are not."""

    def __init__(self, group: ProcessGroup, inner: PairSums) -> None:
        self.group, self.inner = group, inner

    def __call__(self, block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
        """Sums with weights ∝ ω e^{βs}, no gradient through the weights."""
        if self.group.size == 1:
            return self.inner(block, kernel, beta, with_own)
        anchors = _Anchors(self.group, block)
        whole = anchors.block(block)
        share = _share_of_part(block, beta)[whole.rows]  # [all A]
        other, own = self.inner(whole, kernel, beta, with_own)
        both = torch.stack([other.value * share, other.slope * share], dim=1)  # [all A, 2]
        value, slope = anchors.reduce(both, len(block.pos)).T

        def spread(alpha: Tensor) -> Tensor:
            return other.spread(anchors.gather(alpha) * share)

        found = Sums(value.contiguous(), slope.contiguous(), spread)
        return PairTotals(found, None if own is None else anchors.own_part(own))


def _share_of_part(block: UserBlock, beta: float) -> Tensor:
    """The share of a row's weight that lies on the columns of this rank. [B]"""
    unlabelled = block.scores > -math.inf
    if not beta and block.log_weights is None:
        return unlabelled.sum(dim=1) / block.n_unlabelled
    exponents = torch.where(unlabelled, beta * block.scores, -math.inf)
    if block.log_weights is not None:
        exponents += block.log_weights
    return (exponents.logsumexp(dim=1) - block.log_sum_exp(exponents)).exp()


class _Anchors(Parts):
    """Where the anchors of all ranks stand: in the order of the rows, and in a row in that of the ranks."""

    def __init__(self, group: ProcessGroup, block: UserBlock) -> None:
        counts = group.gather(block.starts.diff()[None])  # [size, B]
        lengths = counts.sum(dim=1)
        width = int(lengths.max())
        device, rows = counts.device, torch.arange(counts.shape[1], device=counts.device)
        ranks = torch.repeat_interleave(torch.arange(group.size, device=device), lengths)
        firsts = lengths.cumsum(0) - lengths
        sent = ranks * width + torch.arange(len(ranks), device=device) - firsts[ranks]
        rows_of_all = torch.cat([torch.repeat_interleave(rows, each) for each in counts])
        order = rows_of_all.argsort(stable=True)
        super().__init__(group, width, sent[order])  # [all A]
        self.rows = rows_of_all[order]  # [all A]
        self.starts = F.pad(counts.sum(dim=0).cumsum(0), (1, 0))
        self.mine = (ranks[order] == group.rank).nonzero()[:, 0]  # [A]

    def block(self, block: UserBlock) -> UserBlock:
        """The block with all anchors, as one that is not divided."""
        pos = self.gather(block.pos)
        return block._replace(pos=pos, rows=self.rows, starts=self.starts, totals=ONE_PART, row_counts=None)

    def own_part(self, own: Sums) -> Sums:
        """The sums over the user's own items, which every rank computes for all anchors: those of its own."""

        def spread(alpha: Tensor) -> Tensor:
            return own.spread(self.gather(alpha))[self.mine]

        return Sums(own.value[self.mine], own.slope[self.mine], spread)
