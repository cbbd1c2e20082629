"""Shards: which rows of a table a rank has, their first vectors, its pairs, and how ranks exchange rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.training.distributed.collectives import ProcessGroup

_ROWS = 1 << 14  # drawn at a time; a multiple of 16, by which PyTorch draws normal numbers


class Shard(NamedTuple):
    """The rows first … last − 1 of a table of n rows, one of `size` shards of nearly equal length."""

    n: int
    size: int
    rank: int

    @property
    def first(self) -> int:
        """The first row."""
        return self.bounds[self.rank]

    @property
    def last(self) -> int:
        """The row after the last."""
        return self.bounds[self.rank + 1]

    @property
    def bounds(self) -> list[int]:
        """Where the shards of all ranks begin and end. [size + 1]"""
        return [self.n * rank // self.size for rank in range(self.size + 1)]

    @property
    def longest(self) -> int:
        """The length of the longest shard."""
        return -(-self.n // self.size)

    def __len__(self) -> int:
        return self.last - self.first

    def owners(self, rows: Tensor) -> Tensor:
        """The ranks that have these rows."""
        bounds = torch.tensor(self.bounds[1:], device=rows.device)
        return torch.searchsorted(bounds, rows, right=True)

    def take(self, table: Tensor) -> Tensor:
        """The rank's own rows of a whole table."""
        return table[self.first : self.last]


def first_vectors(users: Shard, items: Shard, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of two shards of the vectors that `Encoder.start` draws for the whole tables."""
    generator = torch.Generator().manual_seed(seed)
    return _normal_rows(users, dim, generator), _normal_rows(items, dim, generator)


def _normal_rows(shard: Shard, dim: int, generator: torch.Generator) -> Tensor:
    """All rows are drawn, a piece at a time, and those of the shard are kept."""
    found = torch.empty(len(shard), dim)
    starts = list(range(0, max(shard.n - 15, 1), _ROWS))  # the last piece has 16 rows, as far as there are
    for start, end in zip(starts, [*starts[1:], shard.n], strict=True):
        piece = torch.randn(end - start, dim, generator=generator)
        first, last = max(start, shard.first), min(end, shard.last)
        if first < last:
            found[first - shard.first : last - shard.first] = piece[first - start : last - start]
    return found * math.sqrt(2 / (shard.n + dim))


class ShardedMatrices(NamedTuple):
    """A rank's rows of the matrices of users and items, and which rows they are."""

    group: ProcessGroup
    users: Tensor
    items: Tensor
    user_shard: Shard
    item_shard: Shard


class ShardPairs(NamedTuple):
    """What a rank knows of the interactions: of all users how many they have, and the pairs with its items.

    Everything else in this folder reads the data from here.
    """

    user_counts: Codes  # [n_users], of all items
    item_counts: Codes  # [n_items]
    indptr: Codes  # [n_users + 1], where each user's pairs with items of this rank begin
    items: Codes  # [pairs], counted from the first item of this rank
    places: Codes  # [pairs], of the same pairs among all

    @staticmethod
    def of(data: Interactions, items: Shard) -> ShardPairs:
        """Those of interactions in memory."""
        places = np.flatnonzero((data.items >= items.first) & (data.items < items.last))
        counts = np.bincount(data.users[places], minlength=data.n_users)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        return ShardPairs(
            data.user_counts, data.item_counts, indptr, data.items[places] - items.first, places
        )


class Parts:
    """Rows of a whole among those that the ranks send: each sends `width`, so that all parts have one length.

    `places` are those of the whole's rows among the parts of all ranks, one after the other.
    """

    def __init__(self, group: ProcessGroup, width: int, places: Tensor) -> None:
        self.group, self.width, self.places = group, width, places

    def gather(self, part: Tensor) -> Tensor:
        """The rows of the whole, from the rank's own, in the order of the whole."""
        return self.group.gather(part, self.width)[self.places]

    def reduce(self, whole: Tensor, n_own: int) -> Tensor:
        """The sums over ranks of rows of the whole, for the rank's own `n_own`."""
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
