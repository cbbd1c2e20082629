"""The reference's order and draws, bit for bit, in compiled code and from narrow tables.

Draws cost what their tables cost to read: most of what a row reads is not in the processor's nearest cache.
Where all items weigh the same, a table of 32-bit numbers says what `Draws` has in two of 64-bit ones; and
where there are few users and items, every user's unlabelled items are listed, so that nothing is searched.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.randomness import random_bits, stream_key
from truepair.training.sampled.cpu.draws import (
    Ints,
    Longs,
    Numbers,
    Tables,
    compiled,
    draw_row,
    random_bits_at,
)

Words = npt.NDArray[np.uint64]
_BIT = np.uint64(1)
_WORD_BITS = 63
LISTED = (
    1 << 22
)  # pairs: with as many users × items, 16 MB hold what they do not have; more are not in a cache


# For functions that only compiled code calls: the way in from Python takes longer to compile than they do.
inner = partial(compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# And for those called for every row: handing over tuples of arrays would take longer than some of them do.
within = partial(inner, forceinline=True)


class NarrowTables(NamedTuple):
    """For uniform draws; empty where items have weights."""

    gaps: Ints  # [interactions], how many items before this one the user does not have
    items: Ints  # [interactions]
    listed: Ints  # the items that a user does not have, users after each other; empty where that is too much
    first_listed: Longs  # [n_users], where a user's begin


def narrow_tables_of(tables: Tables) -> tuple[Tables, NarrowTables]:
    """`Draws`' tables without what the narrow ones say, and the narrow ones."""
    nothing, none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
    if not tables.uniform:
        return tables, NarrowTables(none, none, none, nothing)
    gaps, items = (tables.gaps % tables.stride).astype(np.int32), tables.items.astype(np.int32)
    small = len(tables.free) * len(tables.ends) <= LISTED
    listed, first = _unlabelled(tables) if small else (none, nothing)
    return tables._replace(gaps=nothing, passed=nothing, items=nothing), NarrowTables(
        gaps, items, listed, first
    )


def _unlabelled(tables: Tables) -> tuple[Ints, Longs]:
    """Every user's unlabelled items, rising, one user after the other; where each user's begin."""
    missing = np.ones((len(tables.free), len(tables.ends)), dtype=bool)
    missing[np.repeat(np.arange(len(tables.free)), np.diff(tables.indptr)), tables.items] = False
    return np.nonzero(missing)[1].astype(np.int32), np.cumsum(tables.free) - tables.free


@within
def draw_exactly(
    tables: Tables, narrow: NarrowTables, user: int, anchor_item: int, extra_key: np.uint64,
    unlabelled_key: np.uint64, row: int, numbers: Numbers, items: Ints,
) -> None:  # fmt: skip
    """`cpu_rows.draw_row`, from the narrow tables where there are any."""
    if not tables.uniform:
        draw_row(tables, user, anchor_item, extra_key, unlabelled_key, row, numbers, items)
        return
    m, pool = numbers.m, numbers.pool
    start, count = tables.indptr[user], tables.indptr[user + 1] - tables.indptr[user]
    items[0] = anchor_item
    for k in range(m):
        word = random_bits_at(extra_key, np.uint64(row * m + k + 1)) >> _BIT
        items[1 + k] = narrow.items[start + np.int64(word % np.uint64(count))]
    free = np.uint64(tables.free[user])
    for k in range(pool):
        word = random_bits_at(unlabelled_key, np.uint64(row * pool + k + 1)) >> _BIT
        place = int(word % free)
        if len(narrow.listed):
            items[1 + m + k] = narrow.listed[narrow.first_listed[user] + place]
        else:
            items[1 + m + k] = place + count_up_to(narrow.gaps, start, count, place)


@inner
def count_up_to(rising: Ints, start: int, count: int, value: int) -> int:
    """How many of rising[start : start + count] are ≤ value; halves without a branch to be guessed wrong.

    A comparison would be compiled to one. Of a difference of two 32-bit numbers, the upper bits are its sign.
    """
    first = start
    while count > 1:
        half = count >> 1
        first += half & int((np.int64(rising[first + half - 1]) - value - 1) >> 40)
        count -= half
    return first - start + int(rising[first] <= value)


def anchor_order(seed: int, epoch: int, n: int) -> Longs:
    """The order of `Draws.epoch`: places by their random words of 63 bits; of equal words the first place."""
    words = random_bits(stream_key(seed, epoch), n) >> _BIT
    bits = max(n.bit_length() - 1, 1)
    bins, places = np.zeros((1 << bits) + 1, dtype=np.int64), np.empty(n, dtype=np.int64)
    sort_places(words, bits, bins, places, np.empty_like(words))
    return places


@compiled
def sort_places(words: Words, bits: int, bins: Longs, places: Longs, ordered: Words) -> None:
    """places = np.argsort(words, kind="stable"): random words into 2^bits bins, then straight insertion."""
    shift = np.uint64(_WORD_BITS - bits)
    for k in range(len(words)):
        bins[np.int64(words[k] >> shift) + 1] += 1
    for k in range(1 << bits):
        bins[k + 1] += bins[k]  # now where the bin begins
    for k in range(len(words)):
        where = np.int64(words[k] >> shift)
        places[bins[where]], ordered[bins[where]] = k, words[k]
        bins[where] += 1
    for k in range(1, len(words)):  # a word moves within its bin only, which holds one or two
        place, word, to = places[k], ordered[k], k
        while to > 0 and ordered[to - 1] > word:
            places[to], ordered[to] = places[to - 1], ordered[to - 1]
            to -= 1
        places[to], ordered[to] = place, word


def draw_keys(seed: int, epoch: int, steps: int) -> Words:
    """[steps, 2]: the keys of each step's extra positives and of its unlabelled items."""
    keys = [stream_key(seed, epoch, step) for step in range(steps)]
    return np.array([[stream_key(key, 1), stream_key(key, 2)] for key in keys], dtype=np.uint64)
