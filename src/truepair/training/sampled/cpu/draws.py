"""The order of an epoch and the sampled items of a row, as cheap as they can be made.

Every number is a function of (seed, epoch, place in the epoch), so a run does not depend on how an epoch is
cut into pieces. An unlabelled item is never one the user has, and no user can make a draw go on for ever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.randomness import random_bits, stream_key
from truepair.training.sampled.cpu.arithmetic import Index, Ints, Longs, compiled, inlined, random_bits_at
from truepair.training.sampled.cpu.draw_tables import DrawTables, WeightedTables
from truepair.training.sampled.cpu.memory import Space, Words

TRIES = 16  # before a draw is made by search after all; few users have so many items that it comes to this


class Order(NamedTuple):
    """A bijection of 0 … n−1, computed place by place."""

    n: np.uint64
    mask: np.uint64  # 2^b − 1 ≥ n − 1
    shift: np.uint64  # half the bits
    factors: tuple[np.uint64, np.uint64, np.uint64]  # odd
    offset: np.uint64


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


@compiled
def unlabelled_at(tables: WeightedTables, user: Index, place: Index) -> Index:
    """The unlabelled item of the user that lies at `place` in [0, free[user]) by weight."""
    start = tables.indptr[user]
    steps = _first_above(tables.gaps, start, tables.indptr[user + 1], user * tables.stride + place)
    place += tables.passed[steps] - tables.passed[start]
    return place if tables.uniform else _first_above(tables.ends, 0, len(tables.ends), place)


@compiled
def _first_above(rising: Longs, start: Index, stop: Index, value: Index) -> Index:
    """The first place in [start, stop) that holds more than `value`, else `stop`."""
    while start < stop:
        middle = (start + stop) >> 1
        above = rising[middle] > value
        start, stop = (start, middle) if above else (middle + 1, stop)
    return start
