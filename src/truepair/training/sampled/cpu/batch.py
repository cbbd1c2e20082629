"""The rows of a batch in compiled code: draw, score, differentiate, and collect the gradients by vectors.

Every function is one thread's part. Every sum is taken in an order that depends on the data alone: rows are
independent, and each vector's gradient is summed by one thread, in the order of the rows. So any number of
threads gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.training.sampled.cpu.draws import (
    ONE,
    SHORTEST,
    ZERO,
    Floats,
    Ints,
    Longs,
    Numbers,
    Tables,
    choose_hardest,
    inverse_norm,
    loss_row,
)
from truepair.training.sampled.cpu.epoch_order import NarrowTables, Words, draw_exactly, inner, within
from truepair.training.sampled.cpu.in_batch import BatchSample, choose_least_risk
from truepair.training.sampled.cpu.lightgcn import Bytes

_SPREAD, _WORD, _LOW_WORD = np.uint64(0x9E3779B1), np.uint64(32), np.uint64(0xFFFFFFFF)


class Rules(NamedTuple):
    """How parameters move."""

    batch: int
    hops: int
    adam: bool
    rate: float
    weight_decay: np.float32
    l2_users: np.float32
    l2_items: np.float32
    marks: bool  # whether anything needs to know which rows a batch touches


class Epoch(NamedTuple):
    """The anchors of an epoch, and its sums of losses."""

    users: Ints  # [anchors], in their order
    items: Ints
    weights: Floats  # of the anchors; empty where all are 1
    keys: Words  # [steps, 2], of the streams of extra and of unlabelled items
    losses: npt.NDArray[np.float64]  # [steps], written
    clamped: Longs  # [steps], written


NO_EPOCH = Epoch(
    users=np.zeros(0, dtype=np.int32),
    items=np.zeros(0, dtype=np.int32),
    weights=np.zeros(0, dtype=np.float32),
    keys=np.zeros((0, 2), dtype=np.uint64),
    losses=np.zeros(0),
    clamped=np.zeros(0, dtype=np.int64),
)


class Side(NamedTuple):
    """Users or items: parameters, and what a step knows of them. [n, width], zero beyond the dimension."""

    weights: Floats
    first: Floats  # Adam's moments; empty for SGD
    second: Floats
    gradient: Floats  # by the weights
    encoded: Floats  # what is scored; without a graph the weights themselves
    collected: Floats  # gradient by what is scored; without a graph `gradient` itself
    pull: Floats  # [n], Σ of d loss / d score · score over the entries: cosine's part along the vector
    touches: Floats  # [n], in how many entries of the batch the row is, by the weights of their anchors
    touched: Bytes  # [n]
    needed: Bytes  # [n], rows that a batch scores


class Rows(NamedTuple):
    """The rows of a batch. C = 1+m+pool items are drawn and scored, the first K = 1+m+n are learnt from."""

    users: Ints  # [B]
    anchor_weight: Floats  # [B]
    items: Ints  # [B, C]
    scores: Floats  # [B, ≥ C]
    slopes: Floats  # [B, ≥ K], d mean loss / d score
    weights: Floats  # [B, ≥ C], factor that makes an item's vector a part of the user's gradient
    user_factor: Floats  # [B], the same for the user's vector
    user_pull: Floats  # [B]
    user_gradient: Floats  # [B, width]
    loss: Floats  # [B]
    clamped: Bytes  # [B]
    tau: Floats  # [1] or [n_users]
    log_rest: Floats


class Room(NamedTuple):
    """Room to work in, for each thread."""

    rows: Ints  # [threads, B·K]
    places: Ints  # [threads, B·K]


# --- rows ----------------------------------------------------------------------------------------------


@inner
def draw_rows(
    numbers: Numbers, rules: Rules, tables: Tables, narrow: NarrowTables, epoch: Epoch, users: Side,
    items: Side, rows: Rows, step: int, size: int, thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's part of the batch's draws."""
    for b in range(thread * size // threads, (thread + 1) * size // threads):
        anchor = step * rules.batch + b
        user = epoch.users[anchor]
        rows.users[b] = user
        rows.anchor_weight[b] = epoch.weights[anchor] if len(epoch.weights) else ONE
        extra_key, unlabelled_key = epoch.keys[step, 0], epoch.keys[step, 1]
        item = epoch.items[anchor]
        draw_exactly(tables, narrow, user, item, extra_key, unlabelled_key, b, numbers, rows.items[b])
        if rules.hops:  # threads may mark the same row, with the same mark; a mark that is there is only read
            users.needed[user] = 1
            for c in range(rows.items.shape[1]):
                if not items.needed[rows.items[b, c]]:
                    items.needed[rows.items[b, c]] = 1


@inner
def learn_rows(
    numbers: Numbers, tables: Tables, narrow: NarrowTables, users: Side, items: Side, rows: Rows,
    sample: BatchSample | None, size: int, thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's part of the batch: scores, losses, gradients by the scores and by the user's vector."""
    learnt, drawn = 1 + numbers.m + numbers.n, rows.items.shape[1]
    padded, per_user = rows.slopes.shape[1], len(rows.tau) > 1
    first, last = thread * size // threads, (thread + 1) * size // threads
    choices = int(numbers.pool > numbers.n)
    if sample is not None:  # without them this is not even compiled
        for b in range(first, last):
            score_row(numbers, users, items, rows, b, drawn)
        choose_least_risk(
            numbers, tables, narrow, users.encoded, rows.users, rows.user_factor, rows.items, rows.scores,
            sample, size, thread, threads,
        )  # fmt: skip
        choices = 0
    for b in range(first, last):
        user = rows.users[b]
        for choice in range(choices, -1, -1):  # the last time after the choice: the factors, in the new order
            score_row(numbers, users, items, rows, b, drawn if choice else learnt)
            if choice:
                choose_hardest(numbers, rows.items[b], rows.scores[b])
        of = user if per_user else 0
        loss, clamped = loss_row(
            numbers, rows.tau[of], rows.log_rest[of], rows.scores[b, :padded], rows.slopes[b]
        )
        rows.loss[b], rows.clamped[b] = loss * rows.anchor_weight[b], clamped
        pull, share = ZERO, rows.anchor_weight[b] / np.float32(size)
        for c in range(learnt):
            slope = rows.slopes[b, c] * share
            pull += slope * rows.scores[b, c]
            rows.slopes[b, c] = slope
            rows.weights[b, c] *= slope
        rows.user_pull[b] = pull
        weigh_rows(rows, items.encoded, learnt, b)


@within
def score_row(numbers: Numbers, users: Side, items: Side, rows: Rows, b: int, count: int) -> None:
    """The scores of a row's first items, and the factors of its vectors: ⟨e_u, e_i⟩, or cos(e_u, e_i) / t."""
    user, width = rows.users[b], users.encoded.shape[1]
    scale, of_user = numbers.score_scale, ONE
    if numbers.cosine:
        of_user = inverse_norm(users.encoded, user)
    rows.user_factor[b] = scale * of_user
    for c in range(count):
        item = rows.items[b, c]
        product = ZERO
        for k in range(width):
            product += users.encoded[user, k] * items.encoded[item, k]
        of_item = inverse_norm(items.encoded, item) if numbers.cosine else ONE
        rows.weights[b, c] = scale * of_item
        rows.scores[b, c] = scale * of_user * of_item * product


@within
def weigh_rows(rows: Rows, vectors: Floats, count: int, b: int) -> None:
    """user_gradient[b] = Σ_c weights[b, c]·vectors[items[b, c]]; four at a time."""
    width, c = vectors.shape[1], 0
    for k in range(width):
        rows.user_gradient[b, k] = ZERO
    while c + 4 <= count:
        i, j, p, q = rows.items[b, c], rows.items[b, c + 1], rows.items[b, c + 2], rows.items[b, c + 3]
        wi, wj, wp, wq = (
            rows.weights[b, c], rows.weights[b, c + 1], rows.weights[b, c + 2], rows.weights[b, c + 3],
        )  # fmt: skip
        for k in range(width):
            rows.user_gradient[b, k] += (wi * vectors[i, k] + wj * vectors[j, k]) + (
                wp * vectors[p, k] + wq * vectors[q, k]
            )
        c += 4
    while c < count:
        i, wi = rows.items[b, c], rows.weights[b, c]
        for k in range(width):
            rows.user_gradient[b, k] += wi * vectors[i, k]
        c += 1


# --- gradients by vectors ------------------------------------------------------------------------------


@inner
def is_owner(row: int, thread: int, threads: int) -> bool:
    """Whether a vector is this thread's to sum: rows are dealt out as if at random."""
    mixed = (np.uint64(row) * _SPREAD) & _LOW_WORD
    return int((mixed * np.uint64(threads)) >> _WORD) == thread


@inner
def collect(
    numbers: Numbers, rules: Rules, users: Side, items: Side, rows: Rows, room: Room, size: int,
    thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's vectors: the sum of their gradients over the rows of the batch, in the rows' order."""
    learnt, width, mine = 1 + numbers.m + numbers.n, users.collected.shape[1], 0
    for b in range(size):
        user = rows.users[b]
        if is_owner(user, thread, threads):
            for k in range(width):
                users.collected[user, k] += rows.user_gradient[b, k]
            if rules.marks:
                mark(users, user, rows.user_pull[b], rows.anchor_weight[b])
        for c in range(learnt):  # the list is written without a branch that could be guessed wrong
            room.rows[thread, mine], room.places[thread, mine] = b, c
            mine += is_owner(rows.items[b, c], thread, threads)
    for e in range(mine):
        b, c = room.rows[thread, e], room.places[thread, e]
        item, user = rows.items[b, c], rows.users[b]
        weight = rows.slopes[b, c] * rows.user_factor[b]
        for k in range(width):
            items.collected[item, k] += weight * users.encoded[user, k]
        if rules.marks:
            mark(items, item, rows.slopes[b, c] * rows.scores[b, c], rows.anchor_weight[b])


@within
def mark(side: Side, row: int, pull: np.float32, weight: np.float32) -> None:
    """Count an entry that a row is in, by the weight of its anchor."""
    side.pull[row] += pull
    side.touches[row] += weight
    side.touched[row] = 1


@inner
def project(side: Side, thread: int, threads: int) -> None:
    """From unit vectors ê to vectors e: (Σ g·s·∂ − (Σ g·s)·ê) / ‖e‖, one thread's rows."""
    vectors, gradient = side.encoded, side.collected
    for row in range(thread * len(vectors) // threads, (thread + 1) * len(vectors) // threads):
        if side.touched[row]:
            inverse = inverse_norm(vectors, row)
            along = side.pull[row] * inverse if inverse * SHORTEST < ONE else ZERO  # below ε the norm is ε
            for k in range(vectors.shape[1]):
                gradient[row, k] = (gradient[row, k] - along * vectors[row, k]) * inverse


@inner
def penalise_and_forget(side: Side, l2: np.float32, graph: bool, thread: int, threads: int) -> None:
    """Add l2·e for every entry that a row was in (`l2` is a share of the batch); forget the batch."""
    n = len(side.touches)
    for row in range(thread * n // threads, (thread + 1) * n // threads):
        side.needed[row] = 0
        if side.touched[row]:
            decay = l2 * side.touches[row]
            for k in range(side.weights.shape[1]):
                side.gradient[row, k] += decay * side.weights[row, k]
                if graph:
                    side.collected[row, k] = ZERO
            side.pull[row], side.touches[row], side.touched[row] = ZERO, ZERO, 0
