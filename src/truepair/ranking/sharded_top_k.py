"""Top-k where users and items are divided among ranks: the best of each rank, gathered and merged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems, TopK, tie_order
from truepair.training.distributed.shards import Exchange, ShardedMatrices

_USERS = 8192  # whose vectors are gathered at a time


def sharded_top_k(shards: ShardedMatrices, k: int, hidden: Hidden, codes: Codes) -> TopK:
    """The best k items of these users, of matrices that are divided among ranks; all of them call it, and all
    get all lists. Row r of `hidden` belongs to the r-th list.

    Ties are broken as `top_k` does it, so that on the CPU the lists are those of one process.
    """
    items, order = shards.item_shard, tie_order(shards.item_shard.n)
    column = np.empty(items.n + 1, np.int64)
    column[order], column[-1] = np.arange(items.n), items.n  # item -> column; an empty place comes last
    own_order = order[(order >= items.first) & (order < items.last)] - items.first
    best, found = PreparedItems(shards.items, own_order, np.arange(items.first, items.last), items.n), []
    for start in range(0, len(codes), _USERS):
        block = slice(start, start + _USERS)
        own = Hidden(hidden.starts[block], hidden.ends[block], hidden.items)
        found.append(_of_block(shards, k, codes[block], best, own, torch.from_numpy(column)))
    empty = [np.empty((0, k), np.int64)], [np.empty((0, k), np.float32)]
    listed, scores = zip(*found, strict=True) if found else empty
    return TopK(np.concatenate(listed), np.concatenate(scores))


def _of_block(
    shards: ShardedMatrices, k: int, codes: Codes, own_items: PreparedItems, hidden: Hidden, column: Tensor
) -> tuple[Codes, npt.NDArray[np.float32]]:
    """The lists of some users."""
    group, items, n = shards.group, shards.item_shard, len(codes)
    device = shards.items.device
    exchange = Exchange(group, shards.user_shard, torch.from_numpy(codes).to(device))
    vectors = exchange.gather(shards.users[exchange.rows])  # [n, d]
    best = own_items.top_k(vectors, min(k, len(items)), hidden)
    listed = torch.full((n, k), -1, dtype=torch.int64)
    scores = torch.full((n, k), -torch.inf)
    width = best.items.shape[1]
    listed[:, :width] = torch.from_numpy(best.items)
    scores[:, :width] = torch.from_numpy(best.scores)
    listed, scores = (_side_by_side(group.gather(part), group.size) for part in (listed, scores + 0.0))
    places = column[listed].sort(dim=1).indices  # -1 is the last of `column`
    listed, scores = listed.gather(1, places), scores.gather(1, places)
    scores, places = scores.sort(dim=1, descending=True, stable=True)
    return listed.gather(1, places)[:, :k].numpy(), scores[:, :k].numpy()


def _side_by_side(gathered: Tensor, size: int) -> Tensor:
    """The lists of all ranks [size · n, k] in one row for each user. [n, size · k]"""
    lists = gathered.view(size, -1, gathered.shape[1])
    return lists.transpose(0, 1).reshape(lists.shape[1], -1)
