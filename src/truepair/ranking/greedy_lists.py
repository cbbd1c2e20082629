"""Greedy lists on the CPU in compiled code: quotas of groups, and diversity by maximal marginal relevance."""

from __future__ import annotations

from functools import partial

import numpy as np

from truepair.ranking.compiled_top_k import Codes, Floats, call_in_blocks, compiled

_BLOCK = 64  # rows that a thread takes at a time


def greedy_places(
    items: Codes,
    scores: Floats,
    k: int,
    groups: Codes,
    limits: Codes,
    vectors: Floats | None,
    is_table: bool,
    diversify: float,
    threads: int,
) -> Codes:
    """The places in its pool of the k items of each row, in the order in which they are chosen; -1: none.

    items, scores      [n, m] pools, best first; -1 ends a pool.
    groups, limits     [g, n_items] and [g]: at most limits[g] items of each value of groups[g]; -1: no value.
    vectors, is_table  unit vectors of the items [n_items, d], or a table of their cosines [n_items, n_items].
    diversify          λ: the next item has the highest (1 - λ) · score - λ · (largest cosine to one chosen),
                       with the scores of the pool scaled to [0, 1].
    """
    places = np.full((len(items), k), -1, np.int64)
    matrix = np.zeros((1, 1), np.float32) if vectors is None else vectors
    diversify = 0.0 if vectors is None else diversify
    choose = partial(_choose, items, scores, groups, limits, matrix, is_table, diversify, places)
    call_in_blocks(choose, len(items), _BLOCK, threads)
    return places


@compiled
def _choose(
    items: Codes,
    scores: Floats,
    groups: Codes,
    limits: Codes,
    matrix: Floats,
    is_table: bool,
    diversify: float,
    places: Codes,
    first: int,
    last: int,
) -> None:
    """Fill the rows first … last - 1 of `places`."""
    n_pool, k, n_groups, dim = items.shape[1], places.shape[1], len(groups), matrix.shape[1]
    most = 0
    for g in range(n_groups):
        most = max(most, groups[g].max() + 1)
    counts = np.zeros((n_groups, most), np.int64)
    free, relevance = np.empty(n_pool, np.bool_), np.empty(n_pool)
    nearest, cosine = np.empty(n_pool, np.float32), np.empty(n_pool, np.float32)
    columns = np.empty((0 if is_table or diversify == 0 else dim, n_pool), np.float32)  # vectors of the pool
    for row in range(first, last):
        size = 0
        while size < n_pool and items[row, size] >= 0:
            size += 1
        if size == 0:
            continue
        low, high = np.float64(scores[row, size - 1]), np.float64(scores[row, 0])
        for p in range(size):
            scaled = (scores[row, p] - low) / (high - low) if high > low else 0.0
            relevance[p], nearest[p], free[p] = (1 - diversify) * scaled, 0.0, True
            for at in range(len(columns)):
                columns[at, p] = matrix[items[row, p], at]
        for place in range(k):
            best = -1
            highest = -np.inf
            for p in range(size):
                value = relevance[p] - diversify * nearest[p]
                if free[p] and value > highest:
                    best, highest = p, value
            if best < 0:
                break
            places[row, place] = best
            free[best] = False
            for g in range(n_groups):
                value_of_best = groups[g, items[row, best]]
                if value_of_best >= 0:
                    counts[g, value_of_best] += 1
                    if counts[g, value_of_best] == limits[g]:
                        for p in range(size):
                            free[p] = free[p] and groups[g, items[row, p]] != value_of_best
            if diversify > 0:
                _cosines(matrix, is_table, columns, items[row], best, size, cosine)
                for p in range(size):
                    nearest[p] = cosine[p] if place == 0 else max(nearest[p], cosine[p])
        for best in places[row]:  # there may be more values than places, so only what was counted is cleared
            for g in range(n_groups):
                if best >= 0 and groups[g, items[row, best]] >= 0:
                    counts[g, groups[g, items[row, best]]] = 0


@compiled
def _cosines(
    matrix: Floats, is_table: bool, columns: Floats, pool: Codes, best: int, size: int, out: Floats
) -> None:
    """The cosines of the pool's items to the item at `best`."""
    if is_table:
        for p in range(size):
            out[p] = matrix[pool[best], pool[p]]
        return
    out[:size] = 0
    for at in range(len(columns)):
        factor = columns[at, best]
        for p in range(size):
            out[p] += factor * columns[at, p]
