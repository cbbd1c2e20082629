"""The user-item graph divided among ranks: each has the edges of its own users and of its own items.

A hop gathers the vectors of all ranks, one side at a time, and multiplies them by the rank's own rows of the
normalised adjacency matrix Â. Nothing is summed over ranks, so that a row of the product is that of one
process. Â is symmetric: the gradient of a hop is the hop of the gradient, and needs no other matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.models.encoders import Encoder, LightGCN
from truepair.models.sparse_products import Graph, edge_weights, torch_csr
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.shards import Shard, ShardPairs


def hops_of(encoder: Encoder) -> int:
    """How many hops an encoder makes over the graph; 0: it needs none."""
    return encoder.hops if isinstance(encoder, LightGCN) else 0


class ShardGraph(Graph):
    """A `Graph` whose vectors are divided by rows: it takes and gives those of one rank."""

    def __init__(
        self, data: Interactions, users: Shard, items: Shard, group: ProcessGroup, device: torch.device
    ) -> None:
        self.group, self.users, self.items = group, users, items
        self.to_users = torch_csr(_rows_of_users(data, users, items), device)  # [own users, all items]
        self.to_items = torch_csr(_rows_of_items(data, users, items), device)  # [own items, all users]

    def spread(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """One hop: each vector of the rank becomes the weighted sum of its neighbours, on any rank."""
        spread: tuple[Tensor, Tensor] = _Hop.apply(self, users, items)  # type: ignore[no-untyped-call]
        return spread

    def product(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Â times the vectors of all ranks: the rows of this one. All ranks must ask."""
        of_users = self.to_users @ self.group.gather(items, self.items.longest)
        return of_users, self.to_items @ self.group.gather(users, self.users.longest)


class _Hop(torch.autograd.Function):
    """One hop, on all ranks; its gradient is a hop, too."""

    @staticmethod
    def forward(ctx: Any, graph: ShardGraph, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        ctx.graph = graph
        return graph.product(users, items)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, Tensor, Tensor]:
        return None, *ctx.graph.product(*gradients)


def places(shard: Shard, rows: Codes) -> Codes:
    """Where rows of a table stand among the gathered ones: every rank sends as many as the longest shard has.

    The order of the rows is kept, and so is the order in which a product adds up its terms.
    """
    bounds = np.array(shard.bounds, dtype=np.int64)
    owners = np.searchsorted(bounds[1:], rows, side="right").astype(np.int64)
    found: Codes = rows + owners * shard.longest - bounds[owners]
    return found


def _rows_of_users(data: Interactions, users: Shard, items: Shard) -> sp.csr_array:
    """The rank's own users' rows of Â, over the gathered items."""
    indptr = data.indptr[users.first : users.last + 1]
    neighbours = data.items[indptr[0] : indptr[-1]]
    own = np.repeat(np.arange(users.first, users.last), np.diff(indptr))
    values = edge_weights(data.user_counts, data.item_counts, own, neighbours)
    shape = len(users), items.size * items.longest
    return sp.csr_array((values, places(items, neighbours), indptr - indptr[0]), shape=shape)


def _rows_of_items(data: Interactions, users: Shard, items: Shard) -> sp.csr_array:
    """The rank's own items' rows of Â, over the gathered users."""
    pairs = ShardPairs.of(data, items)
    neighbours = np.repeat(np.arange(users.n), np.diff(pairs.indptr))
    own_counts = pairs.item_counts[items.first : items.last]
    values = edge_weights(pairs.user_counts, own_counts, neighbours, pairs.items)
    by_user = sp.csr_array((values, pairs.items, pairs.indptr), shape=(users.n, len(items)))
    by_item = sp.csr_array(by_user.T)  # [own items, users]
    shape = len(items), users.size * users.longest
    return sp.csr_array(
        (by_item.data, places(users, by_item.indices.astype(np.int64)), by_item.indptr), shape=shape
    )
