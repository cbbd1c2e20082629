"""Exact scores of the items that an index found, in compiled code: the bits and ties of exact lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from truepair.ranking.compiled_top_k import offer, sort_heap
from truepair.storage.compiled_code import compiled_and_kept

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(function: _Function) -> _Function:
    """As in `compiled_top_k`, so that sums are rounded in the same way."""
    return compiled_and_kept(function, nogil=True, error_model="numpy", fastmath={"contract"})


@_compiled
def best_of_found(
    users: Floats,
    items: Floats,
    column: Codes,
    order: Codes,
    found: Codes,
    starts: Codes,
    ends: Codes,
    hidden: Codes,
    best: Codes,
    best_scores: Floats,
) -> Codes:
    """Fill each row of `best` from the items in its row of `found`, -1 for none; returns the list lengths.

    Row r does not list hidden[starts[r]:ends[r]]. `column` is the position of each item in `order`: of equal
    scores, the item in the lower column comes first.
    """
    k, dim = best.shape[1], items.shape[1]
    marked = np.zeros(len(items), np.bool_)
    columns, scores = np.empty(k, np.int64), np.empty(k, np.float32)
    lengths = np.empty(len(users), np.int64)
    for row in range(len(users)):
        for item in hidden[starts[row] : ends[row]]:
            marked[item] = True
        size = 0
        for item in found[row]:
            if item < 0 or marked[item]:
                continue
            score: Any = np.float32(0)
            for at in range(dim):
                score = score + users[row, at] * items[item, at]
            worse = size == k and (score < scores[0] or (score == scores[0] and column[item] > columns[0]))
            if not worse:
                size = offer(columns, scores, size, column[item], score)
        for item in hidden[starts[row] : ends[row]]:
            marked[item] = False
        sort_heap(columns, scores, size)
        for place in range(k):
            best[row, place] = order[columns[place]] if place < size else -1
            best_scores[row, place] = scores[place] + np.float32(0) if place < size else -np.inf
        lengths[row] = size
    return lengths
