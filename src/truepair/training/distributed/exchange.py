"""Exchange: the vectors of a block's users from the ranks that have them, and gradients back to these."""

from __future__ import annotations

import torch
from torch import Tensor

from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard


class Exchange:
    """Of one block of users [B]: which rank has whom.

    Every rank sends as many rows as the rank with the most users of the block has, so that all parts have
    one length.
    """

    def __init__(self, group: ProcessGroup, shard: Shard, users: Tensor) -> None:
        self.group = group
        owners = shard.owners(users)
        counts = torch.bincount(owners, minlength=group.size)
        self.width = int(counts.max())
        order = owners.argsort(stable=True)
        within = torch.arange(len(users), device=users.device) - (counts.cumsum(0) - counts)[owners[order]]
        self.places = torch.empty_like(order)  # [B], where each user stands among the parts of all ranks
        self.places[order] = owners[order] * self.width + within
        self.mine = (owners == group.rank).nonzero()[:, 0]  # rows of the block
        self.rows = users[self.mine] - shard.first  # rows of the shard

    def gather(self, vectors: Tensor) -> Tensor:
        """The vectors [B, d] of all users of the block, from those of the rank's own, in the order `rows`."""
        if self.group.size == 1:
            return vectors
        part = vectors.new_zeros(self.width, *vectors.shape[1:])
        part[: len(vectors)] = vectors
        return self.group.gather(part)[self.places]

    def reduce(self, gradients: Tensor) -> Tensor:
        """The sums over ranks of gradients [B, d], for the rank's own users, in the order `rows`."""
        if self.group.size == 1:
            return gradients
        parts = gradients.new_zeros(self.group.size * self.width, *gradients.shape[1:])
        parts[self.places] = gradients
        return self.group.reduce_scatter(parts)[: len(self.rows)]
