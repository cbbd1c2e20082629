"""In-batch BNS in compiled code: the risk of a row's candidates, by their ranks in a sample of the batch.

The sample consists of the first candidates of all rows, so every row waits until all are drawn. An item that
occurs several times is scored once, and so is a user; four users are scored with sixteen items at a time. A
user's score with an item has one order of sums, whichever thread computes it, so any number of threads gives
the same bits.
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

USERS = 4  # whose scores with sixteen items are in registers at once
_INFINITY = np.float32(np.inf)
_NONE = np.int32(-1)


class BatchSample(NamedTuple):
    """The items that a batch's candidates are ranked among, and room for each thread to do it.

    Every thread makes its own list of the items: that costs less than waiting for one thread's list.
    """

    different: Ints  # [threads], how many there are
    items: Ints  # [threads, B]
    times: Ints  # [threads, > B], of how many rows this is the first candidate; zero up to the line's end
    places: Ints  # [threads, n_items], where an item is among `items`; else the last place, of zero times
    vectors: Floats  # [lines of B, width·16], sixteen items a row, dimension after dimension
    popularity: Floats  # [n_items], shares of all interactions
    own: Floats  # [threads·USERS, width], vectors of the users that are being scored
    scores: Floats  # [threads·USERS, > B], of these users with the items
    merits: Floats  # [threads, ≥ C], minus the risk of each item of one row
    latest: Ints  # [threads, n_users], a user's latest row
    heads: Ints  # [B], in a thread's part the rows that are their users' first
    after: Ints  # [B], the user's next row in a thread's part, else −1


# --- the sample ----------------------------------------------------------------------------------------


@inner
def gather_sample(
    numbers: Numbers, vectors: Floats, items: Ints, sample: BatchSample, size: int, thread: int, threads: int
) -> None:
    """The list of items, and one thread's part of their vectors; unit vectors if scores are cosines."""
    list_sample(items, 1 + numbers.m, sample, size, thread)
    count = int(sample.different[thread])
    for r in range(thread * count // threads, (thread + 1) * count // threads):
        item = sample.items[thread, r]
        factor = inverse_norm(vectors, item) if numbers.cosine else ONE
        for k in range(vectors.shape[1]):
            sample.vectors[r // LINE, k * LINE + r % LINE] = factor * vectors[item, k]


@within
def list_sample(items: Ints, column: int, sample: BatchSample, size: int, thread: int) -> None:
    """The items of a column, each once, in the order of the rows, and how often each is there."""
    listed, times, places, count = sample.items[thread], sample.times[thread], sample.places[thread], 0
    nowhere = len(times) - 1
    for r in range(sample.different[thread]):  # of the batch before
        places[listed[r]] = nowhere
    for b in range(size):
        item = items[b, column]
        if places[item] == nowhere:
            places[item], listed[count], times[count] = count, item, 0
            count += 1
        times[places[item]] += 1
    for r in range(count, (count + LINE - 1) // LINE * LINE):
        times[r] = 0
    sample.different[thread] = count


# --- rows ----------------------------------------------------------------------------------------------


@inner
def choose_least_risk(
    numbers: Numbers, tables: Tables, narrow: NarrowTables, vectors: Floats, users: Ints, factors: Floats,
    items: Ints, scores: Floats, sample: BatchSample, size: int, thread: int, threads: int,
) -> None:  # fmt: skip
    """Bring the n candidates of least risk to the front, in one thread's rows.

    scores [B, ≥ C] and factors [B] are those of the rows' items and users.
    """
    first, last = thread * size // threads, (thread + 1) * size // threads
    heads = chain_rows(users, sample, first, last, thread)
    for head in range(first, heads, USERS):
        score_sample(vectors, users, factors, sample, head, heads, thread)
        for each in range(min(USERS, heads - head)):
            row, slot = int(sample.heads[head + each]), thread * USERS + each
            unlabelled = size - leave_out_known(tables, narrow, users[row], sample, slot, thread)
            while row >= 0:
                judge_row(numbers, items[row], scores[row], sample, unlabelled, slot, thread)
                choose_hardest(numbers, items[row], sample.merits[thread])
                row = int(sample.after[row])


@within
def chain_rows(users: Ints, sample: BatchSample, first: int, last: int, thread: int) -> int:
    """sample.heads[first : …] and what comes after each head; where the heads end.

    `latest` may hold what an earlier batch left: it counts only if it is a row before this one, of this user.
    """
    heads, latest = first, sample.latest[thread]
    for b in range(first, last):
        user = users[b]
        before = int(latest[user])
        if first <= before < b and users[before] == user:
            sample.after[before] = b
        else:
            sample.heads[heads] = b
            heads += 1
        sample.after[b], latest[user] = _NONE, b
    return heads


@within
def score_sample(
    vectors: Floats, users: Ints, factors: Floats, sample: BatchSample, head: int, heads: int, thread: int
) -> None:
    """The scores of USERS users, from `head` on, with the sample; the last user pads the group."""
    own, scores, slot, width = sample.own, sample.scores, thread * USERS, vectors.shape[1]
    for each in range(USERS):
        row = sample.heads[min(head + each, heads - 1)]
        for k in range(width):
            own[slot + each, k] = factors[row] * vectors[users[row], k]
    for line in range((sample.different[thread] + LINE - 1) // LINE):
        a, b, c, d = same(ZERO), same(ZERO), same(ZERO), same(ZERO)
        for k in range(width):
            member = load_line(sample.vectors, line, k * LINE)
            a = add_product(a, same(own[slot, k]), member)
            b = add_product(b, same(own[slot + 1, k]), member)
            c = add_product(c, same(own[slot + 2, k]), member)
            d = add_product(d, same(own[slot + 3, k]), member)
        store_line(scores, slot, line * LINE, a)
        store_line(scores, slot + 1, line * LINE, b)
        store_line(scores, slot + 2, line * LINE, c)
        store_line(scores, slot + 3, line * LINE, d)


@within
def leave_out_known(
    tables: Tables, narrow: NarrowTables, user: int, sample: BatchSample, slot: int, thread: int
) -> int:
    """Give known items of the sample the score ∞, so that no candidate beats them; of how many rows they are
    the first candidate. A row of this user has another one.
    """
    known, scores, places = 0, sample.scores[slot], sample.places[thread]
    for place in range(tables.indptr[user], tables.indptr[user + 1]):
        member = places[narrow.items[place]]
        scores[member] = _INFINITY
        known += sample.times[thread, member]
    return known


@within
def judge_row(
    numbers: Numbers,
    items: Ints,
    scores: Floats,
    sample: BatchSample,
    unlabelled: int,
    slot: int,
    thread: int,
) -> None:
    """sample.merits[thread]: minus the risk of each candidate of a row, from its items' scores."""
    size = (sample.different[thread] + LINE - 1) // LINE * LINE
    among, times = sample.scores[slot], sample.times[thread]
    for c in range(1 + numbers.m, len(items)):
        beaten, itself = count_beaten(among[:size], times[:size], scores[c]), sample.places[thread, items[c]]
        if not among[itself] <= scores[c]:  # it counts itself, whatever the last bits say
            beaten += times[itself]
        popularity = sample.popularity[items[c]]
        risk = risk_of(scores[c] - scores[0], beaten, unlabelled, popularity, numbers.risk)
        sample.merits[thread, c] = -risk


@inner
def count_beaten(among: Floats, times: Ints, score: np.float32) -> int:
    """How many items of the sample score no more."""
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
