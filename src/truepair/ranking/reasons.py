"""Reasons for listed items, in compiled code: the items of a user that have the largest weights for them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.ranking.compiled_top_k import Codes, Floats, call_in_blocks, compiled, offer, sort_heap

Doubles = npt.NDArray[np.float64]

_BLOCK = 512  # pairs that a thread takes at a time; the vectors of a user's items are read once for all pairs
_AT_ONCE = 1 << 22  # reasons that are in memory at a time, before empty places are left out

TABLE, SPARSE_ROWS, VECTORS = 0, 1, 2  # forms of weights


class Weights(NamedTuple):
    """Weights of items for a listed item, in one of three forms; the arrays of the others are empty."""

    form: int
    matrix: Floats  # TABLE: [item, listed item]; VECTORS: [n_items, d], whose products are the weights
    starts: Codes  # SPARSE_ROWS: the row of each listed item
    columns: Codes
    values: Floats


class Own(NamedTuple):
    """The items of each user, as sparse rows, with factors of their weights."""

    starts: Codes
    items: Codes
    factors: Floats


class Reasons(NamedTuple):
    """The items with the largest positive weights for each of n pairs, the largest first."""

    counts: Codes  # [n], how many
    items: Codes  # [sum of counts]
    weights: Floats  # [sum of counts]
    others: Doubles  # [n], the sum of the weights of all the user's other items


def reasons(users: Codes, listed: Codes, own: Own, weights: Weights, most: int, threads: int) -> Reasons:
    """At most `most` reasons for each pair (user, listed item); the user -1 has none.

    Of equal weights, that of the item with the lower place in the user's row is taken. Pairs of one user
    should be adjacent.
    """
    longest = int(np.diff(own.starts).max(initial=0))
    most = max(min(most, longest), 1)
    step = max(_AT_ONCE // most, _BLOCK)
    parts = [
        _reasons(users[start : start + step], listed[start : start + step], own, weights, most, threads)
        for start in range(0, max(len(users), 1), step)
    ]
    counts, items, values, others = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Reasons(counts, items, values, others)


def _reasons(users: Codes, listed: Codes, own: Own, weights: Weights, most: int, threads: int) -> Reasons:
    n = len(users)
    items, values = np.zeros((n, most), np.int64), np.zeros((n, most), np.float32)
    counts, others = np.zeros(n, np.int64), np.zeros(n)
    find = partial(_find, users, listed, own, weights, items, values, counts, others)
    call_in_blocks(find, n, _BLOCK, threads)
    real = np.arange(most) < counts[:, None]
    return Reasons(counts, items[real], values[real], others)


@compiled
def _find(
    users: Codes,
    listed: Codes,
    own: Own,
    weights: Weights,
    items: Codes,
    values: Floats,
    counts: Codes,
    others: Doubles,
    first: int,
    last: int,
) -> None:
    """Fill the rows first … last - 1 of the last four arrays before `first`."""
    most, user = items.shape[1], -1
    form, matrix = weights.form, weights.matrix
    theirs, theirs_factors = own.items[:0], own.factors[:0]
    parts, vectors = np.empty(0, np.float32), np.empty((0, 0), np.float32)
    largest = 0
    if form == SPARSE_ROWS and len(own.items):
        largest = max(own.items.max(), weights.columns.max() if len(weights.columns) else 0) + 1
    spread = np.zeros(largest, np.float32)  # one sparse row, made dense
    for row in range(first, last):
        if users[row] < 0:
            continue
        if users[row] != user:
            user = users[row]
            theirs = own.items[own.starts[user] : own.starts[user + 1]]
            theirs_factors = own.factors[own.starts[user] : own.starts[user + 1]]
            parts = np.empty(len(theirs), np.float32)
            if form == VECTORS:
                vectors = _columns_of(matrix, theirs)
        if form == TABLE:
            for place in range(len(theirs)):
                parts[place] = matrix[theirs[place], listed[row]]
        elif form == VECTORS:
            _products(vectors, matrix[listed[row]], parts)
        else:
            start, end = weights.starts[listed[row]], weights.starts[listed[row] + 1]
            for at in range(start, end):
                spread[weights.columns[at]] = weights.values[at]
            for place in range(len(theirs)):
                parts[place] = spread[theirs[place]]
            for at in range(start, end):
                spread[weights.columns[at]] = 0
        total, size = 0.0, 0
        for place in range(len(theirs)):
            weight = parts[place] * theirs_factors[place]
            total += np.float64(weight)
            if weight > 0 and (size < most or weight > values[row, 0]):
                size = offer(items[row], values[row], size, place, weight)
        sort_heap(items[row], values[row], size)
        for at in range(size):
            total -= np.float64(values[row, at])
            items[row, at] = theirs[items[row, at]]
        counts[row], others[row] = size, total


@compiled
def _columns_of(matrix: Floats, codes: Codes) -> Floats:
    """The vectors of these items as columns, so that products with all of them are vectorised."""
    vectors = np.empty((matrix.shape[1], len(codes)), np.float32)
    for place in range(len(codes)):
        for at in range(len(vectors)):
            vectors[at, place] = matrix[codes[place], at]
    return vectors


@compiled
def _products(vectors: Floats, vector: Floats, out: Floats) -> None:
    """The products of one vector with each column; each is a sum over the dimensions in order."""
    out[:] = 0
    for at in range(len(vectors)):
        factor = vector[at]
        for place in range(len(out)):
            out[place] += factor * vectors[at, place]
