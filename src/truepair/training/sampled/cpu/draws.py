"""One row (a data entry) in compiled code: the reference's draws, norms, and the hardest of a pool."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.randomness import _GAMMA, _LAST_SHIFT, _MIX
from truepair.sampling import Draws
from truepair.training.sampled.cpu.arithmetic import (
    ONE,
    ZERO,
    Index,
    Ints,
    Longs,
    compiled,
    exactly,
    exp32,
    inlined,
    log1p32,
)
from truepair.training.sampled.cpu.losses import Numbers, loss_row, numbers_of
from truepair.training.sampled.plan import Floats

__all__ = [
    "ONE",
    "SHORTEST",
    "ZERO",
    "Floats",
    "Index",
    "Ints",
    "Longs",
    "Numbers",
    "Tables",
    "choose_hardest",
    "compiled",
    "draw_row",
    "exactly",
    "exp32",
    "inlined",
    "inverse_norm",
    "log1p32",
    "loss_row",
    "numbers_of",
    "random_bits_at",
    "tables_of",
    "unlabelled_at",
]


class Tables(NamedTuple):
    """The tables of `Draws`, as arrays."""

    gaps: Longs  # [interactions]
    passed: Longs  # [interactions + 1]
    ends: Longs  # [n_items]
    indptr: Longs  # [n_users + 1]
    items: Longs  # [interactions]
    free: Longs  # [n_users]
    stride: int
    uniform: bool  # every weight is 1, so ends[i] = i + 1


def tables_of(draws: Draws) -> Tables:
    """The tables of `draws`; they share its memory."""
    return Tables(
        gaps=draws.gaps.numpy(),
        passed=draws.passed.numpy(),
        ends=draws.ends.numpy(),
        indptr=draws.indptr.numpy(),
        items=draws.items.numpy(),
        free=draws.free.numpy(),
        stride=draws.stride,
        uniform=draws.stride == draws.n_items + 1,
    )


SHORTEST = np.float32(1e-12)  # the ε of torch.nn.functional.normalize
_STEP = np.uint64(_GAMMA)
(_SHIFT_1, _FACTOR_1), (_SHIFT_2, _FACTOR_2) = ((np.uint64(s), np.uint64(f)) for s, f in _MIX)
_SHIFT_3, _BIT = np.uint64(_LAST_SHIFT), np.uint64(1)


@inlined
def random_bits_at(key: np.uint64, place: np.uint64) -> np.uint64:
    """The word at `place` (from 1) of the stream `key`: `randomness.random_bits(key, place)[-1]`."""
    x = key + place * _STEP
    x = (x ^ (x >> _SHIFT_1)) * _FACTOR_1
    x = (x ^ (x >> _SHIFT_2)) * _FACTOR_2
    return x ^ (x >> _SHIFT_3)


@compiled
def draw_row(
    tables: Tables,
    user: Index,
    anchor_item: Index,
    extra_key: np.uint64,
    unlabelled_key: np.uint64,
    row: Index,
    numbers: Numbers,
    items: Ints,
) -> None:
    """Fill items[1+m+pool] with the draws of `Draws.batch` for row `row` of a batch, bit for bit.

    The keys are stream_key(key, 1) and stream_key(key, 2) of the batch's key.
    """
    m, pool = numbers.m, numbers.pool
    start, stop = tables.indptr[user], tables.indptr[user + 1]
    items[0] = anchor_item
    for k in range(m):
        word = random_bits_at(extra_key, np.uint64(row * m + k + 1)) >> _BIT
        items[1 + k] = tables.items[start + np.int64(word % np.uint64(stop - start))]
    free = np.uint64(tables.free[user])
    for k in range(pool):
        word = random_bits_at(unlabelled_key, np.uint64(row * pool + k + 1)) >> _BIT
        items[1 + m + k] = unlabelled_at(tables, user, np.int64(word % free))


@compiled
def unlabelled_at(tables: Tables, user: Index, place: Index) -> Index:
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


@compiled
def inverse_norm(vectors: Floats, row: Index) -> np.float32:
    """1 / max(‖e‖, ε)."""
    square = ZERO
    for k in range(vectors.shape[1]):
        square += vectors[row, k] * vectors[row, k]
    norm = np.sqrt(square)
    return ONE / (SHORTEST if norm < SHORTEST else norm)


@compiled
def choose_hardest(numbers: Numbers, items: Ints, scores: Floats) -> None:
    """Bring the n highest-scoring of the pool to places 1+m … 1+m+n, falling; of equal ones the first drawn.

    What the places behind them hold is of no use afterwards. NaN counts as the lowest score, as in `DNS`.
    """
    first = 1 + numbers.m
    last = first + numbers.n
    for i in range(first + 1, first + numbers.pool):
        item, score = items[i], scores[i]
        place = min(i, last)
        while place > first and _outranks(score, scores[place - 1]):
            place -= 1
            if place + 1 < last:
                items[place + 1], scores[place + 1] = items[place], scores[place]
        if place < last:
            items[place], scores[place] = item, score


@compiled
def _outranks(score: np.float32, other: np.float32) -> bool:
    return bool(score > other or (other != other and score == score))
