"""Blocks of users with the scores of one rank's items."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.losses import Loss
from truepair.randomness import random_words
from truepair.sampling import Full
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard, ShardPairs
from truepair.training.full.block import ONE_PART
from truepair.training.full.scoring import Blocks

_SURELY_SOME = 64  # expected columns; e^−64 is the chance that none is drawn


class ShardBlocks(Blocks):
    """The pairs with a rank's items on a device; a row's totals are over the items of all ranks."""

    user_counts: Tensor

    def __init__(
        self,
        data: Interactions,
        shard: Shard,
        loss: Loss,
        sampler: Full,
        group: ProcessGroup,
        device: torch.device,
        weights: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """`shard` is that of the items; `weights` are those of all pairs as anchors, None: all are 1."""
        self.shard, self.group = shard, group
        super().__init__(data, loss, sampler, device, weights=weights)
        self.n_items, self.totals = len(shard), ONE_PART if group.size == 1 else group
        self.n_columns = sampler.columns_of(shard.n)
        if self.chances is not None:
            self.chances = shard.take(self.chances).clone()

    def keep_pairs(self, data: Interactions, weights: npt.NDArray[np.float32] | None) -> None:
        """Put the rank's own pairs on the device; what the counts of all are for remains in `user_counts`."""
        pairs = ShardPairs.of(data, self.shard)
        own = weights if weights is None or pairs.places is None else weights[pairs.places]
        self.user_counts, self.counts, self.indptr, self.items = (
            torch.tensor(array, device=self.device)
            for array in (pairs.user_counts, np.diff(pairs.indptr), pairs.indptr, pairs.items)
        )
        self.anchor_weights = None if own is None else torch.tensor(own, device=self.device)

    def drawn(self, key: int) -> tuple[Tensor | None, Tensor | None]:
        """The rank's own items among the columns, counted from its first, and the log of inverse chances.

        An item is in by a random number of its own, so that all ranks together draw what one would.
        """
        if self.chances is None or self.n_columns is None:
            return None, None
        words = random_words(key, (self.n_items,), self.device, first=self.shard.first)
        columns = (words * 2.0**-63 < self.chances).nonzero()[:, 0]
        if self.n_columns < _SURELY_SOME and not int(self.group.sum(torch.tensor(len(columns)))):
            lowest = int(random_words(key, (self.shard.n,), self.device).argmin()) - self.shard.first
            here = 0 <= lowest < self.n_items
            columns = torch.tensor([lowest] if here else [], dtype=torch.int64, device=self.device)
        return columns, -self.chances[columns].log().to(torch.float32)

    def range(self, scores: Tensor, pos: Tensor) -> tuple[float, float]:
        """Within which the scores of all ranks lie."""
        if not self.on_cpu:
            return -math.inf, math.inf
        bounds = [part.aminmax() for part in (scores, pos) if part.numel()]
        nothing = scores.new_tensor(-math.inf)
        high = torch.stack([nothing, *(bound.max for bound in bounds)]).max()
        low = torch.stack([nothing, *(-bound.min for bound in bounds)]).max()
        low_and_high = self.group.max(torch.stack([low, high])).tolist()
        return -low_and_high[0], low_and_high[1]
