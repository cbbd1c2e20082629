"""Exact scores of the items that an index found, in compiled code: the bits and ties of exact lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from truepair.ranking.compiled_top_k import compiled, offer, sort_heap
from truepair.ranking.hidden import Hidden

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]


@compiled
def best_of_found(
    users: Floats,
    items: Floats,
    codes: Codes,
    column: Codes,
    listed: Codes,
    found: Codes,
    hidden: Hidden,
    best: Codes,
    best_scores: Floats,
) -> Codes:
    """Fill each row of `best` from the items in its row of `found`, -1 for none; returns the list lengths.

    `found` are rows of `items`, `codes` their codes, `column` and `listed` those of `PreparedItems`.
    """
    k, dim = best.shape[1], items.shape[1]
    marked = np.zeros(len(column), np.bool_)
    columns, scores = np.empty(k, np.int64), np.empty(k, np.float32)
    lengths = np.empty(len(users), np.int64)
    for row in range(len(users)):
        for item in hidden.items[hidden.starts[row] : hidden.ends[row]]:
            marked[item] = True
        size = 0
        for item in found[row]:
            if item < 0 or marked[codes[item]]:
                continue
            place = column[codes[item]]
            score: Any = np.float32(0)
            for at in range(dim):
                score = score + users[row, at] * items[item, at]
            worse = size == k and (score < scores[0] or (score == scores[0] and place > columns[0]))
            if not worse:
                size = offer(columns, scores, size, place, score)
        for item in hidden.items[hidden.starts[row] : hidden.ends[row]]:
            marked[item] = False
        sort_heap(columns, scores, size)
        for place in range(k):
            best[row, place] = listed[columns[place]] if place < size else -1
            best_scores[row, place] = scores[place] + np.float32(0) if place < size else -np.inf
        lengths[row] = size
    return lengths
