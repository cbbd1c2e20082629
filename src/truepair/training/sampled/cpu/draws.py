"""The order of an epoch and the sampled items of a row, as cheap as they can be made.

Every number is a function of (seed, epoch, place in the epoch), so a run does not depend on how an epoch is
cut into pieces. An unlabelled item is never one the user has, and no user can make a draw go on for ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.randomness import random_bits, stream_key
from truepair.sampling import Draws, Sampler
from truepair.training.sampled.cpu.arithmetic import Index, Ints, Longs, compiled, inlined, random_bits_at
from truepair.training.sampled.cpu.memory import Space, Words
from truepair.training.sampled.cpu.weighted_draws import WeightedTables, unlabelled_at, weighted_tables_of

FULL_BYTES = 8 << 20  # up to here every user's filter has a bit for every item: nothing is looked up
BITS_PER_ITEM = 16  # of a user's filter, at least: so few items that the user does not have are looked up
TRIES = 16  # before a draw is made by search after all; few users have so many items that it comes to this


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


class Order(NamedTuple):
    """A bijection of 0 … n−1, computed place by place."""

    n: np.uint64
    mask: np.uint64  # 2^b − 1 ≥ n − 1
    shift: np.uint64  # half the bits
    factors: tuple[np.uint64, np.uint64, np.uint64]  # odd
    offset: np.uint64


class Entries(NamedTuple):
    """What an epoch visits, and what its draws read."""

    tables: DrawTables
    anchors: Codes | None  # pairs that have something to be compared with; None: all
    n_saturated_users: int  # who have every item


def entries_of(data: Interactions, sampler: Sampler) -> Entries:
    """The entries of interactions; with equal weights, without the 64-bit tables of `Draws`."""
    weights = sampler.item_weights(data.item_counts)
    if not len(data) or weights.min() < weights.max():
        draws = Draws(data, sampler)
        anchors = draws.anchors.numpy()
        return Entries(
            _draw_tables(data, anchors, weighted_tables_of(draws)), anchors, draws.n_saturated_users
        )
    saturated = data.user_counts == data.n_items
    chosen = np.flatnonzero(~saturated[data.users]) if saturated.any() else None
    return Entries(_draw_tables(data, chosen, _no_weights(data)), chosen, int(saturated.sum()))


def _no_weights(data: Interactions) -> WeightedTables:
    """WeightedTables of equal weights, of which no draw reads more than that they are equal."""
    nothing = np.empty(0, dtype=np.int64)
    indptr = data.indptr.astype(np.int64)
    return WeightedTables(nothing, nothing, nothing, indptr, nothing, data.n_items + 1, True)


def _draw_tables(data: Interactions, anchors: Codes | None, exact: WeightedTables) -> DrawTables:
    """WeightedTables of the pairs, in the narrowest types."""
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


def order_of(n: int, seed: int, epoch: int) -> Order:
    """The order of an epoch's `n` anchors."""
    bits = max((n - 1).bit_length(), 2)
    words = random_bits(stream_key(seed, epoch, 0), 4)
    odd = tuple(word | np.uint64(1) for word in words[:3])
    return Order(np.uint64(n), np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2), odd, words[3])


@inlined
def anchor_at(order: Order, place: np.uint64) -> np.uint64:
    """The anchor at a place of the order: multiply and fold within 2^b, again until it is below n."""
    x = place
    while True:
        x = (x * order.factors[0] + order.offset) & order.mask
        x = (x ^ (x >> order.shift)) * order.factors[1] & order.mask
        x = (x ^ (x >> order.shift)) * order.factors[2] & order.mask
        x = x ^ (x >> order.shift)
        if x < order.n:
            return x


@inlined
def fill_words(key: np.uint64, first: np.uint64, words: Words) -> None:
    """The words at places first + 1, first + 2, … of the stream `key`."""
    for k in range(len(words)):
        words[k] = random_bits_at(key, first + np.uint64(k) + np.uint64(1))


_HALF_WORD = np.uint64(32)


@inlined
def below(half_word: np.uint32, n: Index) -> Index:
    """A whole number in [0, n) from 32 random bits: ⌊n · bits / 2³²⌋."""
    return np.int64(np.uint64(half_word) * np.uint64(n) >> _HALF_WORD)


@inlined
def draw_extra(tables: DrawTables, space: Space, user: Index, bits: Index, start: Index, m: Index) -> None:
    """space.items[start : start + m] from the user's own items, with replacement."""
    begin = tables.indptr[user]
    count = tables.indptr[user + 1] - begin
    for k in range(m):
        space.items[start + k] = tables.items[begin + below(space.bits[bits + k], count)]


@inlined
def try_unlabelled(
    tables: DrawTables, space: Space, user: Index, bits: Index, start: Index, n: Index, found: Index
) -> Index:
    """space.items[start : start + n] from all items, uniformly; those the user may have are doubtful.

    Nothing here is decided by a branch that could be guessed wrong, so the rows of a block are read from
    memory all at once. Gives how many places `space.doubtful` holds, `found` of which were there before.
    """
    first_word = tables.filter_start[user]
    mask = 64 * (tables.filter_start[user + 1] - first_word) - 1
    for k in range(n):
        item = below(space.bits[bits + k], tables.n_items)
        space.items[start + k] = item
        space.doubtful[found] = start + k
        found += np.int64(may_have(tables, first_word, mask, item))
    return found


@inlined
def settle_doubtful(
    tables: DrawTables, space: Space, key: np.uint64, first: np.uint64, width: Index, found: Index
) -> None:
    """Sample again what the user really has. Row b of the block is place `first` + b of the epoch."""
    for k in range(found):
        place = np.int64(space.doubtful[k])
        user = np.int64(space.users[np.uint32(place) // np.uint32(width)])
        if tables.full or has(tables, user, space.items[place]):
            words = (first * np.uint64(width) + np.uint64(place)) * np.uint64(TRIES)
            space.items[place] = draw_again(tables, user, key, words)


@inlined
def draw_by_weight(
    tables: WeightedTables, user: Index, key: np.uint64, place: np.uint64, items: Ints, start: Index, n: Index
) -> None:
    """items[start : start + n] from what the user does not have, by weight."""
    free = np.uint64(tables.free[user])
    for k in range(n):
        word = random_bits_at(key, place + np.uint64(k)) >> np.uint64(1)
        items[start + k] = unlabelled_at(tables, user, np.int64(word % free))


@inlined
def may_have(tables: DrawTables, first_word: Index, mask: Index, item: Index) -> np.uint64:
    """1 if the item's bit is set in the filter of mask + 1 bits that begins at `first_word`, else 0."""
    bit = item & mask
    word: np.uint64 = tables.filters[first_word + (bit >> 6)]
    return (word >> np.uint64(bit & 63)) & np.uint64(1)


@inlined
def has(tables: DrawTables, user: Index, item: Index) -> bool:
    """Whether the user, who has some item, has this one."""
    low, length = tables.indptr[user], tables.indptr[user + 1] - tables.indptr[user]
    while length > 1:  # the same steps for every item: nothing is guessed wrong
        half = length >> 1
        low = low + half if tables.items[low + half] <= item else low
        length -= half
    return bool(tables.items[low] == item)


@inlined
def draw_again(tables: DrawTables, user: Index, key: np.uint64, place: np.uint64) -> Index:
    """Try some more, then search."""
    first_word = tables.filter_start[user]
    mask = 64 * (tables.filter_start[user + 1] - first_word) - 1
    for k in range(1, TRIES):
        item = below(np.uint32(random_bits_at(key, place + np.uint64(k)) >> _HALF_WORD), tables.n_items)
        if may_have(tables, first_word, mask, item) == 0 or not (tables.full or has(tables, user, item)):
            return item
    begin, end = tables.indptr[user], tables.indptr[user + 1]
    bits = np.uint32(random_bits_at(key, place) >> _HALF_WORD)
    return free_item(tables, begin, end, below(bits, tables.n_items - (end - begin)))


@inlined
def free_item(tables: DrawTables, begin: Index, end: Index, place: Index) -> Index:
    """The unlabelled item number `place` of the user whose items are at begin … end.

    Before the k-th of them (from 0) lie items[k] − k unlabelled ones: as many are stepped over as have at
    most `place` before them. The halving takes the same steps for every place, so nothing is guessed wrong.
    """
    low, length = begin, end - begin
    while length > 1:
        half = length >> 1
        last = low + half - 1
        low = low + half if tables.items[last] - (last - begin) <= place else low
        length -= half
    steps = low - begin
    return place + (steps + 1 if tables.items[low] - steps <= place else steps)
