"""Top-k on the CPU in compiled code, without storing the scores.

The catalogue is stored in strips of `WIDTH` columns. Four users at a time are scored against a strip, into a
buffer that stays in the L1 cache; scores above a user's k-th best so far go into the user's heap. A score is
one chain of multiply-adds over the dimensions, in order, so its bits depend only on the two vectors.

The first call after installation compiles for some seconds; the machine code is then cached on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from truepair.ranking.hidden import Hidden
from truepair.storage.compiled_code import compiled_and_kept

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int32]
_Inputs = ParamSpec("_Inputs")
_Result = TypeVar("_Result")

WIDTH = 256  # columns of a strip: a strip of 64 dimensions takes 64 KB, a buffer of scores 4 KB
BLOCK = 64  # users who share a strip while it is in cache
_ROWS = 4  # users scored together: 4 x 4 factors fit the registers beside their sums
_CHUNK = 128  # scores skipped together where none is good enough; LLVM does not vectorise chunks of 64


def compiled(function: Callable[_Inputs, _Result]) -> Callable[_Inputs, _Result]:
    """Compile without the GIL; multiply-adds may be contracted, other floating-point rules are kept."""
    return compiled_and_kept(function, nogil=True, error_model="numpy", fastmath={"contract"})


def call_in_blocks(call: Callable[[int, int], object], n: int, block: int, threads: int) -> None:
    """Call for (first, last) of blocks of n rows, distributed over threads."""
    starts = range(0, n, block)
    if starts:
        call(0, min(block, n))  # in this thread, because it may have to be compiled
    if min(threads, len(starts)) <= 1:
        for start in starts[1:]:
            call(start, min(start + block, n))
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start: call(start, min(start + block, n)), starts[1:]))  # raises their errors


class Strips(NamedTuple):
    """A catalogue in strips, and the codes of its items."""

    vectors: Floats  # [strips, dim, WIDTH]
    listed: Codes  # column -> code
    column: Codes  # code -> column; -1: not in the catalogue


class Heaps(NamedTuple):
    """The best columns so far of each row: a heap whose root is the worst entry."""

    columns: Codes  # [n, k]
    scores: Floats  # [n, k]
    sizes: Codes  # [n]


def rank_in_strips(
    users: Floats, strips: Strips, k: int, codes: Codes, hidden: Hidden, block: int, threads: int
) -> tuple[Codes, Floats]:
    """The k best (items, scores) of the users `codes`."""
    best = np.empty((len(codes), k), np.int64), np.empty((len(codes), k), np.float32)
    call_in_blocks(partial(rank_rows, users, strips, codes, hidden, *best), len(codes), block, threads)
    return best


@compiled
def in_strips(items: Floats, order: Codes) -> Floats:
    """The vectors in strips: strips[s, :, j] is column s·WIDTH + j, padded with zeros."""
    n, dim = items.shape
    strips = np.zeros((-(-n // WIDTH), -(-dim // 4) * 4, WIDTH), np.float32)
    for column in range(n):
        strip, vector = strips[column // WIDTH], items[order[column]]
        for at in range(dim):
            strip[at, column % WIDTH] = vector[at]
    return strips


@compiled
def rank_rows(
    users: Floats,
    strips: Strips,
    codes: Codes,
    hidden: Hidden,
    items: Codes,
    scores: Floats,
    first: int,
    last: int,
) -> None:
    """Fill the rows first … last - 1 of `items` and `scores`."""
    n, n_items, k = last - first, len(strips.listed), items.shape[1]
    vectors = np.zeros((-(-n // _ROWS) * _ROWS, strips.vectors.shape[1]), np.float32)
    vectors[:n, : users.shape[1]] = users[codes[first:last]]
    heaps = Heaps(np.empty((n, k), np.int64), np.empty((n, k), np.float32), np.zeros(n, np.int64))
    masked = np.zeros((n, (n_items + 7) // 8), np.uint8)  # one bit per column
    for row in range(n):
        for item in hidden.items[hidden.starts[first + row] : hidden.ends[first + row]]:
            column = strips.column[item]
            if column >= 0:
                masked[row, column >> 3] |= np.uint8(1 << (column & 7))
    buffer, good = np.empty((_ROWS, WIDTH), np.float32), np.empty(_CHUNK, np.int32)
    for s in range(len(strips.vectors)):
        left = s * WIDTH
        for group in range(0, n, _ROWS):
            _score(vectors, group, strips.vectors[s], buffer)
            if left + WIDTH > n_items:
                buffer[:, n_items - left :] = -np.inf  # columns beyond the catalogue
            for row in range(group, min(group + _ROWS, n)):
                _scan(buffer, row - group, left, masked, heaps, row, good)
    for row in range(n):
        size = heaps.sizes[row]
        sort_heap(heaps.columns[row], heaps.scores[row], size)
        for place in range(k):
            here = place < size
            items[first + row, place] = strips.listed[heaps.columns[row, place]] if here else -1
            scores[first + row, place] = heaps.scores[row, place] + np.float32(0) if here else -np.inf


@compiled
def _score(rows: Floats, r: int, strip: Floats, out: Floats) -> None:
    """out[i, j] = Σ_k rows[r + i, k] · strip[k, j] of four rows i, added up in the order of k.

    Four terms at a time for four rows keep loads and stores few, so that multiply-adds are the bottleneck.
    """
    out[:] = 0
    for k in range(0, len(strip), 4):
        a0, a1, a2, a3 = rows[r, k], rows[r, k + 1], rows[r, k + 2], rows[r, k + 3]
        b0, b1, b2, b3 = rows[r + 1, k], rows[r + 1, k + 1], rows[r + 1, k + 2], rows[r + 1, k + 3]
        c0, c1, c2, c3 = rows[r + 2, k], rows[r + 2, k + 1], rows[r + 2, k + 2], rows[r + 2, k + 3]
        d0, d1, d2, d3 = rows[r + 3, k], rows[r + 3, k + 1], rows[r + 3, k + 2], rows[r + 3, k + 3]
        for j in range(WIDTH):
            s0, s1, s2, s3 = strip[k, j], strip[k + 1, j], strip[k + 2, j], strip[k + 3, j]
            out[0, j] = out[0, j] + a0 * s0 + a1 * s1 + a2 * s2 + a3 * s3
            out[1, j] = out[1, j] + b0 * s0 + b1 * s1 + b2 * s2 + b3 * s3
            out[2, j] = out[2, j] + c0 * s0 + c1 * s1 + c2 * s2 + c3 * s3
            out[3, j] = out[3, j] + d0 * s0 + d1 * s1 + d2 * s2 + d3 * s3


@compiled
def _scan(buffer: Floats, at: int, left: int, masked: Bits, heaps: Heaps, row: int, good: Places) -> None:
    """Offer buffer[at], the scores of the columns left, left + 1, …, to the heap of `row`.

    Columns come in increasing order, so of equal scores the earlier one stays. Whole arrays are passed
    because making a slice costs more than scanning a chunk.
    """
    columns, scores, sizes = heaps
    k = scores.shape[1]
    least = scores[row, 0] if sizes[row] == k else np.float32(-np.inf)
    for start in range(0, WIDTH, _CHUNK):
        is_any = False
        for j in range(start, start + _CHUNK):
            is_any = is_any | (buffer[at, j] > least)
        if not is_any:
            continue
        count = 0
        for j in range(start, start + _CHUNK):  # without branches, which could not be predicted
            good[count] = j
            count += buffer[at, j] > least
        for place in range(count):
            score, column = buffer[at, good[place]], left + good[place]
            if score > least and not masked[row, column >> 3] & (1 << (column & 7)):
                sizes[row] = offer(columns[row], scores[row], sizes[row], column, score)
                least = scores[row, 0] if sizes[row] == k else least


# --- a heap whose root is the worst entry: lowest score, then highest column ---------------------------


@compiled
def offer(columns: Codes, scores: Floats, size: int, column: int, score: float) -> int:
    """Add to a heap, or replace the worst entry of a full one; returns the new size."""
    if size == len(scores):
        _sink(columns, scores, size, 0, column, score)
        return size
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if not _is_worse(score, column, scores[parent], columns[parent]):
            break
        scores[place], columns[place] = scores[parent], columns[parent]
        place = parent
    scores[place], columns[place] = score, column
    return size + 1


@compiled
def _sink(columns: Codes, scores: Floats, size: int, place: int, column: int, score: float) -> None:
    """Insert (score, column) at `place` or below it, to keep the heap in order."""
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _is_worse(
            scores[child + 1], columns[child + 1], scores[child], columns[child]
        ):
            child += 1
        if not _is_worse(scores[child], columns[child], score, column):
            break
        scores[place], columns[place] = scores[child], columns[child]
        place = child
    scores[place], columns[place] = score, column


@compiled
def sort_heap(columns: Codes, scores: Floats, size: int) -> None:
    """Sort the heap, best first."""
    for end in range(size - 1, 0, -1):
        column, score = columns[end], scores[end]
        columns[end], scores[end] = columns[0], scores[0]
        _sink(columns, scores, end, 0, column, score)


@compiled
def _is_worse(score: float, column: int, other_score: float, other_column: int) -> bool:
    return score < other_score or (score == other_score and column > other_column)


# --- membership ----------------------------------------------------------------------------------------


@compiled
def has_pairs(
    indptr: Codes, items: Codes, n_items: int, users: Codes, wanted: Codes
) -> npt.NDArray[np.bool_]:
    """Whether each (users[p], wanted[p]) is a pair, where user u has items[indptr[u]:indptr[u + 1]].

    A user's items are marked in an array over the catalogue. This is fast if the pairs of a user are
    adjacent.
    """
    marked, found = np.zeros(n_items, np.bool_), np.zeros(len(wanted), np.bool_)
    user = -1
    for p in range(len(wanted)):
        if users[p] != user:
            if user >= 0:
                marked[items[indptr[user] : indptr[user + 1]]] = False
            user = users[p]
            marked[items[indptr[user] : indptr[user + 1]]] = True
        found[p] = wanted[p] >= 0 and marked[wanted[p]]
    return found


# --- the items that an index found -----------------------------------------------------------------------


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
