"""Blocks of users with the scores of one rank's items, and their pair sums.

For these the scores of all anchors are gathered. Each rank sums over its own columns for every anchor, and
the sums of an anchor are added up where the anchor is.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.randomness import random_words
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Parts, Shard, ShardPairs
from truepair.training.full.pair_sums import Kernel, PairSums, PairTotals, Sums, UserBlock
from truepair.training.full.scoring import Blocks
from truepair.training.job import Job
from truepair.training.sampled.plan import Floats

_SURELY_SOME = 64  # expected columns; e^−64 is the chance that none is drawn


class ShardBlocks(Blocks):
    """The pairs with a rank's items on a device; a row's totals are over the items of all ranks."""

    user_counts: Tensor

    def __init__(
        self, job: Job, shard: Shard, group: ProcessGroup, device: torch.device, weights: Floats | None
    ) -> None:
        """`shard` is that of the items; `weights` are those of all pairs as anchors, None: all are 1."""
        self.shard, self.group = shard, group
        super().__init__(job, device, weights=weights)
        self.n_items, self.totals = len(shard), None if group.size == 1 else group
        if self.chances is not None:
            self.chances = shard.take(self.chances).clone()

    def keep_pairs(self, data: Interactions, weights: Floats | None) -> None:
        """Put the rank's own pairs on the device; what the counts of all are for remains in `user_counts`."""
        pairs = ShardPairs.of(data, self.shard)
        self.user_counts, self.counts, self.indptr, self.items = (
            torch.tensor(array, device=self.device)
            for array in (pairs.user_counts, np.diff(pairs.indptr), pairs.indptr, pairs.items)
        )
        if weights is not None:
            self.anchor_weights = torch.tensor(weights[pairs.places], device=self.device)

    def drawn(self, key: int, chances: Tensor) -> Tensor:
        """The rank's own items among the columns, counted from its first.

        An item is in by a random number of its own, so that all ranks together draw what one would.
        """
        assert self.n_columns is not None
        words = random_words(key, (self.n_items,), self.device, first=self.shard.first)
        columns = (words * 2.0**-63 < chances).nonzero()[:, 0]
        if self.n_columns < _SURELY_SOME and not int(self.group.sum(torch.tensor(len(columns)))):
            lowest = int(random_words(key, (self.shard.n,), self.device).argmin()) - self.shard.first
            here = 0 <= lowest < self.n_items
            columns = torch.tensor([lowest] if here else [], dtype=torch.int64, device=self.device)
        return columns


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
        return found, None if own is None else anchors.own_part(own)


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
        return block._replace(pos=pos, rows=self.rows, starts=self.starts, totals=None, row_counts=None)

    def own_part(self, own: Sums) -> Sums:
        """The sums over the user's own items, which every rank computes for all anchors: those of its own."""

        def spread(alpha: Tensor) -> Tensor:
            return own.spread(self.gather(alpha))[self.mine]

        return Sums(own.value[self.mine], own.slope[self.mine], spread)
