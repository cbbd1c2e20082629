"""The reference's order and draws, bit for bit, in compiled code and from narrow tables.

Draws cost what their tables cost to read: most of what a row reads is not in the processor's nearest cache.
Where all items weigh the same, a table of 32-bit numbers says what `Draws` has in two of 64-bit ones.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.randomness import random_bits, stream_key
from truepair.training.cpu_rows import Ints, Longs, Numbers, Tables, compiled, draw_row, random_bits_at

Words = npt.NDArray[np.uint64]
_BIT = np.uint64(1)
_WORD_BITS = 63


# For functions that only compiled code calls: the way in from Python takes longer to compile than they do.
inner = partial(compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True)


class NarrowTables(NamedTuple):
    """For uniform draws; empty where items have weights."""

    gaps: Ints  # [interactions], how many items before this one the user does not have
    items: Ints  # [interactions]


def narrow_tables_of(tables: Tables) -> tuple[Tables, NarrowTables]:
    """`Draws`' tables without what the narrow ones say, and the narrow ones."""
    if not tables.uniform:
        return tables, NarrowTables(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32))
    gaps, items = (tables.gaps % tables.stride).astype(np.int32), tables.items.astype(np.int32)
    nothing = np.zeros(0, dtype=np.int64)
    return tables._replace(gaps=nothing, passed=nothing, items=nothing), NarrowTables(gaps, items)


@inner
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
        items[1 + m + k] = place + count_up_to(narrow.gaps, start, count, place)


@inner
def count_up_to(rising: Ints, start: int, count: int, value: int) -> int:
    """How many of rising[start : start + count] are ≤ value; halves without a branch to be guessed wrong."""
    first = start
    while count > 1:
        half = count >> 1
        first += half * int(rising[first + half - 1] <= value)
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
