"""What the draws of a run read: its pairs, a filter of each user's items, and tables of unequal weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.sampling import Draws, Sampler
from truepair.training.sampled.cpu.arithmetic import Index, Ints, Longs, compiled
from truepair.training.sampled.cpu.memory import Words

FULL_BYTES = 8 << 20  # up to here every user's filter has a bit for every item: nothing is looked up
BITS_PER_ITEM = 16  # of a user's filter, at least: so few items that the user does not have are looked up


class WeightedTables(NamedTuple):
    """The tables of `Draws`, as arrays."""

    gaps: Longs  # [interactions]
    passed: Longs  # [interactions + 1]
    ends: Longs  # [n_items]
    indptr: Longs  # [n_users + 1]
    free: Longs  # [n_users]
    stride: int
    uniform: bool  # every weight is 1, so ends[i] = i + 1


def weighted_tables_of(draws: Draws) -> WeightedTables:
    """The tables of `draws`; they share its memory."""
    tensors = draws.gaps, draws.passed, draws.ends, draws.indptr, draws.free
    gaps, passed, ends, indptr, free = (tensor.numpy() for tensor in tensors)
    uniform = draws.stride == draws.n_items + 1
    return WeightedTables(gaps, passed, ends, indptr, free, draws.stride, uniform)


class DrawTables(NamedTuple):
    """What the draws read.

    A user's filter is a set of 2^b bits, in which bit (item mod 2^b) is set for every item the user has:
    where it is not set, the user does not have the item, and nothing else need be read. It fits in the
    cache for catalogues whose full bitmap does not.
    """

    pairs: Ints  # [anchors, 2]: user and item
    items: Ints  # [interactions], by user, rising
    indptr: Longs  # [n_users + 1]
    n_items: Index
    filters: Words
    filter_start: Longs  # [n_users + 1], the user's first word
    full: bool  # every item has a bit of its own
    exact: WeightedTables  # for weights that are not uniform


def entries_of(data: Interactions, sampler: Sampler) -> tuple[DrawTables, Codes | None, int]:
    """What an epoch visits and its draws read; with equal weights, without the 64-bit tables of `Draws`.

    Beside the tables, the pairs that have something to be compared with (None: all), and how many users have
    every item.
    """
    weights = sampler.item_weights(data.item_counts)
    if not len(data) or weights.min() < weights.max():
        draws = Draws(data, sampler)
        tables = _draw_tables(data, draws.anchors.numpy(), weighted_tables_of(draws))
        return tables, draws.anchors.numpy(), draws.n_saturated_users
    saturated = data.user_counts == data.n_items
    chosen = np.flatnonzero(~saturated[data.users]) if saturated.any() else None
    nothing, indptr = np.empty(0, dtype=np.int64), data.indptr.astype(np.int64)
    equal = WeightedTables(nothing, nothing, nothing, indptr, nothing, data.n_items + 1, True)
    return _draw_tables(data, chosen, equal), chosen, int(saturated.sum())


def _draw_tables(data: Interactions, anchors: Codes | None, exact: WeightedTables) -> DrawTables:
    """Tables of the pairs, in the narrowest types."""
    items = data.items.astype(np.int32)
    pairs = np.empty((len(data) if anchors is None else len(anchors), 2), dtype=np.int32)
    pairs[:, 0] = data.users if anchors is None else data.users[anchors]
    pairs[:, 1] = items if anchors is None else items[anchors]
    full = data.n_users * data.n_items // 8 <= FULL_BYTES
    bits = np.full(data.n_users, data.n_items) if full else np.maximum(data.user_counts * BITS_PER_ITEM, 64)
    words = np.maximum(2 ** np.ceil(np.log2(bits)).astype(np.int64) // 64, 1)
    start = np.concatenate([[0], np.cumsum(words)])
    filters = np.zeros(start[-1], dtype=np.uint64)
    fill_filters(items, exact.indptr, start, filters)
    return DrawTables(pairs, items, exact.indptr, data.n_items, filters, start, full, exact)


@compiled
def fill_filters(items: Ints, indptr: Longs, start: Longs, filters: Words) -> None:
    """Set the bits of each user's items; the number of a user's bits is a power of two."""
    for user in range(len(indptr) - 1):
        mask = 64 * (start[user + 1] - start[user]) - 1
        for k in range(indptr[user], indptr[user + 1]):
            bit = items[k] & mask
            filters[start[user] + (bit >> 6)] |= np.uint64(1) << np.uint64(bit & 63)
