"""Exchange: the vectors of a block's users from the ranks that have them, and gradients back to these."""

from __future__ import annotations

import torch
from torch import Tensor

from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard


class Parts:
    """Rows of a whole among those that the ranks send: each sends `width`, so that all parts have one length.

    `places` are those of the whole's rows among the parts of all ranks, one after the other.
    """

    def __init__(self, group: ProcessGroup, width: int, places: Tensor) -> None:
        self.group, self.width, self.places = group, width, places

    def gather(self, part: Tensor) -> Tensor:
        """The rows of the whole, from the rank's own, in the order of the whole."""
        if self.group.size == 1:
            return part
        padded = part.new_zeros(self.width, *part.shape[1:])
        padded[: len(part)] = part
        return self.group.gather(padded)[self.places]

    def reduce(self, whole: Tensor, n_own: int) -> Tensor:
        """The sums over ranks of rows of the whole, for the rank's own `n_own`."""
        if self.group.size == 1:
            return whole
        parts = whole.new_zeros(self.group.size * self.width, *whole.shape[1:])
        parts[self.places] = whole
        return self.group.reduce_scatter(parts)[:n_own]


class Exchange(Parts):
    """Of one block of users [B]: which rank has whom."""

    def __init__(self, group: ProcessGroup, shard: Shard, users: Tensor) -> None:
        owners = shard.owners(users)
        counts = torch.bincount(owners, minlength=group.size)
        width = int(counts.max())
        order = owners.argsort(stable=True)
        within = torch.arange(len(users), device=users.device) - (counts.cumsum(0) - counts)[owners[order]]
        places = torch.empty_like(order)  # [B]
        places[order] = owners[order] * width + within
        super().__init__(group, width, places)
        self.mine = (owners == group.rank).nonzero()[:, 0]  # rows of the block
        self.rows = users[self.mine] - shard.first  # rows of the shard, in the order of the rank's part
