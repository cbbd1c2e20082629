"""In-batch BNS in compiled code: how much risk a row's candidates carry, judged among the batch's rivals.

The rivals are the first candidates of all rows of the batch, so every row waits until all are drawn. A row's
sums have one order and one thread, so any number of threads gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.training.cpu_course import NarrowTables, inner
from truepair.training.cpu_functions import HALF, sigmoid
from truepair.training.cpu_graph import Bytes
from truepair.training.cpu_rows import ONE, ZERO, Floats, Ints, Numbers, Tables, exactly, inverse_norm

_INFINITY = np.float32(np.inf)


class Rivals(NamedTuple):
    """The items that a batch's candidates are ranked among, and room for each thread to do it."""

    items: Ints  # [B]
    vectors: Floats  # [width, ≥ B], a rival a column: scores with many rivals are vector code
    popularity: Floats  # [n_items], shares of all interactions
    scores: Floats  # [threads, ≥ B], of one user with the rivals
    known: Bytes  # [threads, n_items], marks of one user's items
    merits: Floats  # [threads, ≥ C], minus the risk of each item of one row


@inner
def gather_rivals(
    numbers: Numbers, vectors: Floats, items: Ints, rivals: Rivals, size: int, thread: int, threads: int
) -> None:
    """One thread's rivals: the first candidate of its rows items[b]; unit vectors if scores are cosines."""
    for b in range(thread * size // threads, (thread + 1) * size // threads):
        item = items[b, 1 + numbers.m]
        rivals.items[b] = item
        factor = inverse_norm(vectors, item) if numbers.cosine else ONE
        for k in range(vectors.shape[1]):
            rivals.vectors[k, b] = factor * vectors[item, k]


@inner
def judge_row(
    numbers: Numbers, tables: Tables, narrow: NarrowTables, vectors: Floats, user: int, factor: np.float32,
    items: Ints, scores: Floats, rivals: Rivals, size: int, thread: int,
) -> None:  # fmt: skip
    """rivals.merits[thread]: minus the risk of each candidate of a row, from its items' scores."""
    score_rivals(vectors, user, factor, rivals, size, thread)
    unlabelled = leave_out_known(tables, narrow, user, rivals, size, thread)
    for c in range(1 + numbers.m, len(items)):
        beaten = count_beaten(rivals.scores[thread], rivals.items, scores[c], items[c], size)
        popularity = rivals.popularity[items[c]]
        risk = risk_of(scores[c] - scores[0], beaten, unlabelled, popularity, numbers.risk)
        rivals.merits[thread, c] = -risk


@inner
def score_rivals(
    vectors: Floats, user: int, factor: np.float32, rivals: Rivals, size: int, thread: int
) -> None:
    """The user's scores with all rivals; four dimensions at a time, of which vectors have whole lines."""
    scores = rivals.scores[thread]
    for r in range(size):
        scores[r] = ZERO
    for k in range(0, vectors.shape[1], 4):
        a, b = factor * vectors[user, k], factor * vectors[user, k + 1]
        c, d = factor * vectors[user, k + 2], factor * vectors[user, k + 3]
        for r in range(size):
            scores[r] += (a * rivals.vectors[k, r] + b * rivals.vectors[k + 1, r]) + (
                c * rivals.vectors[k + 2, r] + d * rivals.vectors[k + 3, r]
            )


@inner
def leave_out_known(
    tables: Tables, narrow: NarrowTables, user: int, rivals: Rivals, size: int, thread: int
) -> int:
    """Rivals that the user has score ∞, so they are below nobody; how many others there are.

    There is at least one: the row's own.
    """
    first, last, known, others = tables.indptr[user], tables.indptr[user + 1], rivals.known[thread], size
    for place in range(first, last):
        known[narrow.items[place]] = 1
    for r in range(size):
        if known[rivals.items[r]]:
            rivals.scores[thread, r] = _INFINITY
            others -= 1
    for place in range(first, last):
        known[narrow.items[place]] = 0
    return others


@inner
def count_beaten(scores: Floats, items: Ints, score: np.float32, item: int, size: int) -> int:
    """How many rivals score no more. An item counts itself, whatever the last bits of its scores say."""
    count = np.int32(0)
    for r in range(size):
        count += np.int32((scores[r] <= score) | (items[r] == item))
    return int(count)


@exactly  # a count divided by itself must be 1
def risk_of(
    above_anchor: np.float32, beaten: int, unlabelled: int, popularity: np.float32, weight: np.float32
) -> np.float32:
    """info·(1 − (1+λ)·unbias): the formulas of `BNS`; `weight` is 1 + λ."""
    f = np.float32(beaten) / np.float32(unlabelled)
    negative, positive = (ONE - f) * (ONE - popularity), f * popularity
    unbias = negative / (negative + positive) if negative + positive > ZERO else HALF
    return sigmoid(above_anchor) * (ONE - weight * unbias)
