"""Blocks of users with the scores of one rank's items."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.losses import Loss
from truepair.randomness import random_words
from truepair.sampling import Full
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard, ShardPairs
from truepair.training.full.scoring import Blocks, column_chances

_SURELY_SOME = 64  # expected columns; e^−64 is the chance that none is drawn


class ShardBlocks(Blocks):
    """The pairs with a rank's items on a device; a row's totals are over the items of all ranks."""

    user_counts: Tensor

    def __init__(
        self,
        pairs: ShardPairs,
        shard: Shard,
        loss: Loss,
        sampler: Full,
        group: ProcessGroup,
        device: torch.device,
        weights: npt.NDArray[np.float32] | None = None,
    ) -> None:
        """`shard` is that of the items; `weights` are those of `pairs` as anchors, None: all are 1."""

        def on_device(array: npt.NDArray[np.generic]) -> Tensor:
            return torch.tensor(array, device=device)

        self.device, self.on_cpu = device, device.type == "cpu"
        self.shard, self.n_items = shard, len(shard)
        self.group, self.totals = group, None if group.size == 1 else group
        self.negatives = self.dislikes = self.weights = None
        self.dislike_weight = 1.0
        free = shard.n - pairs.user_counts
        self.n_unlabelled = on_device(free)  # [n_users]
        self.users = on_device(((pairs.user_counts > 0) & (free > 0)).nonzero()[0])
        self.longest = int(pairs.user_counts.max())
        self.n_saturated_users = int(((pairs.user_counts > 0) & (free == 0)).sum())
        self.n_anchors = int(pairs.user_counts[free > 0].sum())
        self.user_counts = on_device(pairs.user_counts)
        self.counts, self.indptr = on_device(np.diff(pairs.indptr)), on_device(pairs.indptr)
        self.items = on_device(pairs.items)
        tau = torch.tensor(getattr(loss, "tau", 0.0), dtype=torch.float64, device=device)
        self.tau = tau.expand(len(pairs.user_counts)) if tau.ndim == 0 else tau
        self.n_columns = sampler.columns_of(shard.n)
        self.chances = None
        if self.n_columns is not None:  # the chance of an item depends on the popularity of all
            of_items = torch.as_tensor(sampler.item_weights(pairs.item_counts), device=device)  # float64
            self.chances = shard.take(column_chances(of_items, self.n_columns)).clone()
        self.anchor_weights = None if weights is None else on_device(weights)

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
