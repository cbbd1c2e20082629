"""In-batch BNS in compiled code: how much risk a row's candidates carry, judged among the batch's rivals.

The rivals are the first candidates of all rows of the batch, so every row waits until all are drawn. An item
that is there several times is scored once, and so is a user; four users meet sixteen rivals at a time. A
user's score with a rival has one order of sums, whoever takes it, so any number of threads gives the same
bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.training.sampled.cpu.arithmetic import HALF, sigmoid
from truepair.training.sampled.cpu.draws import (
    ONE,
    ZERO,
    Floats,
    Ints,
    Numbers,
    Tables,
    choose_hardest,
    exactly,
    inverse_norm,
)
from truepair.training.sampled.cpu.epoch_order import NarrowTables, inner, within
from truepair.training.sampled.cpu.vectors import LINE, add_product, load_line, same, store_line

USERS = 4  # whose scores with sixteen rivals are in registers at once
_INFINITY = np.float32(np.inf)
_NONE = np.int32(-1)


class Rivals(NamedTuple):
    """The items that a batch's candidates are ranked among, and room for each thread to do it.

    Every thread lists the rivals for itself: that costs less than to wait for one that does it for all.
    """

    different: Ints  # [threads], how many there are
    items: Ints  # [threads, B]
    times: Ints  # [threads, > B], of how many rows this is the first candidate; zero up to the line's end
    places: Ints  # [threads, n_items], where an item is among `items`; else the last place, of zero times
    vectors: Floats  # [lines of B, width·16], sixteen rivals a row, dimension after dimension
    popularity: Floats  # [n_items], shares of all interactions
    own: Floats  # [threads·USERS, width], vectors of the users whose turn it is
    scores: Floats  # [threads·USERS, > B], of these users with the rivals
    merits: Floats  # [threads, ≥ C], minus the risk of each item of one row
    latest: Ints  # [threads, n_users], a user's latest row
    heads: Ints  # [B], in a thread's part the rows that are their users' first
    after: Ints  # [B], the user's next row in a thread's part, else −1


# --- rivals --------------------------------------------------------------------------------------------


@inner
def gather_rivals(
    numbers: Numbers, vectors: Floats, items: Ints, rivals: Rivals, size: int, thread: int, threads: int
) -> None:
    """The list of rivals, and one thread's part of their vectors; unit vectors if scores are cosines."""
    list_rivals(items, 1 + numbers.m, rivals, size, thread)
    count = int(rivals.different[thread])
    for r in range(thread * count // threads, (thread + 1) * count // threads):
        item = rivals.items[thread, r]
        factor = inverse_norm(vectors, item) if numbers.cosine else ONE
        for k in range(vectors.shape[1]):
            rivals.vectors[r // LINE, k * LINE + r % LINE] = factor * vectors[item, k]


@within
def list_rivals(items: Ints, column: int, rivals: Rivals, size: int, thread: int) -> None:
    """The items of a column, each once, in the order of the rows, and how often each is there."""
    listed, times, places, count = rivals.items[thread], rivals.times[thread], rivals.places[thread], 0
    nowhere = len(times) - 1
    for r in range(rivals.different[thread]):  # of the batch before
        places[listed[r]] = nowhere
    for b in range(size):
        item = items[b, column]
        if places[item] == nowhere:
            places[item], listed[count], times[count] = count, item, 0
            count += 1
        times[places[item]] += 1
    for r in range(count, (count + LINE - 1) // LINE * LINE):
        times[r] = 0
    rivals.different[thread] = count


# --- rows ----------------------------------------------------------------------------------------------


@inner
def choose_least_risk(
    numbers: Numbers, tables: Tables, narrow: NarrowTables, vectors: Floats, users: Ints, factors: Floats,
    items: Ints, scores: Floats, rivals: Rivals, size: int, thread: int, threads: int,
) -> None:  # fmt: skip
    """Bring the n candidates of least risk to the front, in one thread's rows.

    scores [B, ≥ C] and factors [B] are those of the rows' items and users.
    """
    first, last = thread * size // threads, (thread + 1) * size // threads
    heads = chain_rows(users, rivals, first, last, thread)
    for head in range(first, heads, USERS):
        score_rivals(vectors, users, factors, rivals, head, heads, thread)
        for each in range(min(USERS, heads - head)):
            row, ours = int(rivals.heads[head + each]), thread * USERS + each
            unlabelled = size - leave_out_known(tables, narrow, users[row], rivals, ours, thread)
            while row >= 0:
                judge_row(numbers, items[row], scores[row], rivals, unlabelled, ours, thread)
                choose_hardest(numbers, items[row], rivals.merits[thread])
                row = int(rivals.after[row])


@within
def chain_rows(users: Ints, rivals: Rivals, first: int, last: int, thread: int) -> int:
    """rivals.heads[first : …] and what comes after each head; where the heads end.

    `latest` may hold what an earlier batch left: it counts only if it is a row before this one, of this user.
    """
    heads, latest = first, rivals.latest[thread]
    for b in range(first, last):
        user = users[b]
        before = int(latest[user])
        if first <= before < b and users[before] == user:
            rivals.after[before] = b
        else:
            rivals.heads[heads] = b
            heads += 1
        rivals.after[b], latest[user] = _NONE, b
    return heads


@within
def score_rivals(
    vectors: Floats, users: Ints, factors: Floats, rivals: Rivals, head: int, heads: int, thread: int
) -> None:
    """The scores of USERS users, from `head` on, with all rivals; the last user stands in for none."""
    own, scores, ours, width = rivals.own, rivals.scores, thread * USERS, vectors.shape[1]
    for each in range(USERS):
        row = rivals.heads[min(head + each, heads - 1)]
        for k in range(width):
            own[ours + each, k] = factors[row] * vectors[users[row], k]
    for line in range((rivals.different[thread] + LINE - 1) // LINE):
        a, b, c, d = same(ZERO), same(ZERO), same(ZERO), same(ZERO)
        for k in range(width):
            rival = load_line(rivals.vectors, line, k * LINE)
            a = add_product(a, same(own[ours, k]), rival)
            b = add_product(b, same(own[ours + 1, k]), rival)
            c = add_product(c, same(own[ours + 2, k]), rival)
            d = add_product(d, same(own[ours + 3, k]), rival)
        store_line(scores, ours, line * LINE, a)
        store_line(scores, ours + 1, line * LINE, b)
        store_line(scores, ours + 2, line * LINE, c)
        store_line(scores, ours + 3, line * LINE, d)


@within
def leave_out_known(
    tables: Tables, narrow: NarrowTables, user: int, rivals: Rivals, ours: int, thread: int
) -> int:
    """Rivals that the user has score ∞, so they are below nobody; of how many rows they are the candidate.

    That is not all rows: a row of the user has another one.
    """
    known, scores, places = 0, rivals.scores[ours], rivals.places[thread]
    for place in range(tables.indptr[user], tables.indptr[user + 1]):
        rival = places[narrow.items[place]]
        scores[rival] = _INFINITY
        known += rivals.times[thread, rival]
    return known


@within
def judge_row(
    numbers: Numbers, items: Ints, scores: Floats, rivals: Rivals, unlabelled: int, ours: int, thread: int
) -> None:
    """rivals.merits[thread]: minus the risk of each candidate of a row, from its items' scores."""
    size = (rivals.different[thread] + LINE - 1) // LINE * LINE
    among, times = rivals.scores[ours], rivals.times[thread]
    for c in range(1 + numbers.m, len(items)):
        beaten, itself = count_beaten(among[:size], times[:size], scores[c]), rivals.places[thread, items[c]]
        if not among[itself] <= scores[c]:  # it counts itself, whatever the last bits say
            beaten += times[itself]
        popularity = rivals.popularity[items[c]]
        risk = risk_of(scores[c] - scores[0], beaten, unlabelled, popularity, numbers.risk)
        rivals.merits[thread, c] = -risk


@inner
def count_beaten(among: Floats, times: Ints, score: np.float32) -> int:
    """How many rivals score no more."""
    count = np.int32(0)
    for r in range(len(among)):
        count += times[r] if among[r] <= score else np.int32(0)
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
