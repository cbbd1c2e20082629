"""The inner loop: entries sampled a block at a time, then each scored, differentiated, updated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.training.sampled.cpu.arithmetic import ONE, Index, Ints, compiled, inlined
from truepair.training.sampled.cpu.draws import (
    DrawTables,
    HalfWords,
    Order,
    Words,
    anchor_at,
    draw_by_weight,
    draw_extra,
    fill_words,
    settle_doubtful,
    try_unlabelled,
)
from truepair.training.sampled.cpu.losses import Numbers, loss_row
from truepair.training.sampled.cpu.updates import (
    adagrad_rows,
    dot_rows,
    fetch_rows,
    sgd_rows,
    square_row,
    square_rows,
)
from truepair.training.sampled.cpu.vectors import LINE
from truepair.training.sampled.plan import Floats

_BLOCK = 192  # items drawn at a time, or one entry: enough to wait for the memory once, all in the cache
_MOSTLY_CACHED = 1 << 19  # floats of a table whose rows are not worth asking for ahead
_SHORTEST = np.float32(1e-12)  # what F.normalize divides by at least
_APART = 16 * LINE  # floats between two arrays of `Space`: more than a vector loop takes in one round


class EmbeddingTables(NamedTuple):
    """Embeddings and Adagrad's sums of squared gradients (for SGD without rows), padded to whole lines."""

    users: Floats  # [n_users, columns]
    items: Floats  # [n_items, columns]
    user_sums: Floats
    item_sums: Floats
    tau: Floats  # [1] or [n_users]
    log_rest: Floats
    weights: Floats  # [anchors]; empty where all are 1


class StepSettings(NamedTuple):
    """What the steps of an epoch have in common."""

    rate: np.float32
    l2_users: np.float32
    l2_items: np.float32
    adagrad: bool


class Space(NamedTuple):
    """The memory a thread works in."""

    users: Ints  # [block]
    weights: Floats  # [block], of the anchors
    items: Ints  # [block · width], the items of each entry
    doubtful: Ints  # [block · pool + 1], places in `items`
    words: Words  # random
    bits: HalfWords  # the same memory as `words`
    scores: Floats  # [width, padded], as all below; see `_arrays_apart`
    gradient: Floats
    inverse_norms: Floats
    by_other: Floats  # an item's gradient: so much of the user's vector,
    by_self: Floats  # and so much of its own


def space_for(numbers: Numbers) -> Space:
    """Memory for one thread."""
    draws = numbers.m + numbers.pool
    block, padded = max(1, min(8, _BLOCK // (1 + draws))), -(-(1 + draws) // LINE) * LINE
    words = np.zeros(block * _words_of_entry(numbers), np.uint64)
    scores, gradient, inverse_norms, by_other, by_self = _arrays_apart(5, padded)
    return Space(
        users=np.zeros(block, np.int32),
        weights=np.ones(block, np.float32),
        items=np.zeros(block * (1 + draws), np.int32),
        doubtful=np.zeros(block * numbers.pool + 1, np.int32),
        words=words,
        bits=words.view(np.uint32),
        scores=scores,
        gradient=gradient,
        inverse_norms=inverse_norms,
        by_other=by_other,
        by_self=by_self,
    )


def _arrays_apart(count: int, size: int) -> list[Floats]:
    """Arrays of zeros that lie far from each other and from any other array.

    The compiler cannot know that two arrays do not overlap. Its vector loop runs only if they lie far enough
    apart, else a plain loop does, which adds in another order: the last bits would depend on where the
    memory of a process happens to lie.
    """
    row = _APART + size
    memory = np.zeros(LINE + count * row + _APART, np.float32)
    first = -memory.ctypes.data % (LINE * memory.itemsize) // memory.itemsize
    starts = [first + k * row + _APART for k in range(count)]
    return [memory[start : start + size] for start in starts]


@inlined
def _words_of_entry(numbers: Numbers) -> Index:
    return (numbers.m + numbers.pool + 1) // 2  # half a word a draw


def _train_entries(
    model: EmbeddingTables,
    tables: DrawTables,
    order: Order,
    key: np.uint64,
    numbers: Numbers,
    step: StepSettings,
    space: Space,
    start: Index,
    stop: Index,
) -> tuple[float, int]:
    """Train the places start … stop of an epoch; the sum of the losses and how many rows were clamped."""
    losses, clamped, width = 0.0, 0, 1 + numbers.m + numbers.pool
    for first in range(start, stop, len(space.users)):
        count = min(len(space.users), stop - first)
        draw_block(model, tables, order, key, numbers, space, first, count)
        for b in range(count):
            user, weight = np.int64(space.users[b]), space.weights[b]
            loss, met_floor = train_entry(model, numbers, step, space, user, weight, b * width)
            losses += float(loss * weight)
            clamped += met_floor
    return losses, clamped


train_entries = compiled(_train_entries, nogil=True)


@inlined
def draw_block(
    model: EmbeddingTables,
    tables: DrawTables,
    order: Order,
    key: np.uint64,
    numbers: Numbers,
    space: Space,
    first: Index,
    count: Index,
) -> None:
    """Draw the entries of the places first … first + count, and ask the memory for the rows they need."""
    m, pool = numbers.m, numbers.pool
    found: Index = 0
    width, words = 1 + m + pool, _words_of_entry(numbers)
    fill_words(key, np.uint64(first * words), space.words)
    for b in range(count):
        anchor = np.int64(anchor_at(order, np.uint64(first + b)))
        space.users[b], space.items[b * width] = tables.pairs[anchor, 0], tables.pairs[anchor, 1]
        if len(model.weights):
            space.weights[b] = model.weights[anchor]
    fetch_rows(model.users, space.users, 0, count)
    for b in range(count):
        user, row, bits = np.int64(space.users[b]), b * width, 2 * b * words
        draw_extra(tables, user, space.bits, bits, space.items, row + 1, m)
        if tables.exact.uniform:
            found = try_unlabelled(
                tables, user, space.bits, bits + m, space.items, row + 1 + m, pool, space.doubtful, found
            )
        else:
            place = np.uint64((first + b) * pool + 1)
            draw_by_weight(tables.exact, user, ~key, place, space.items, row + 1 + m, pool)
    settle_doubtful(tables, ~key, np.uint64(first), space.users, space.items, width, space.doubtful, found)
    if model.items.size > _MOSTLY_CACHED:
        fetch_rows(model.items, space.items, 0, count * width)


@inlined
def train_entry(
    model: EmbeddingTables,
    numbers: Numbers,
    step: StepSettings,
    space: Space,
    user: Index,
    weight: np.float32,
    first: Index,
) -> tuple[np.float32, bool]:
    """Score, differentiate, step: one data entry, whose items are at first … of space.items.

    The weight scales the loss and the L2 of the entry; the loss that is returned is without it.
    """
    drawn, width, own_inverse_norm = 1 + numbers.m + numbers.pool, 1 + numbers.m + numbers.n, ONE
    dot_rows(model.items, space.items, first, drawn, model.users, user, space.scores)
    if numbers.cosine:
        own_inverse_norm = _inverse_norm(square_row(model.users, user))
        _find_inverse_norms(model, space, first, drawn)
        for c in range(drawn):
            space.scores[c] *= numbers.score_scale * own_inverse_norm * space.inverse_norms[c]
    if numbers.pool > numbers.n:
        choose_hardest(numbers, space.items[first : first + drawn], space.scores)
        if numbers.cosine:
            _find_inverse_norms(model, space, first, width)
    place = user if len(model.tau) > 1 else 0
    loss, clamped = loss_row(numbers, model.tau[place], model.log_rest[place], space.scores, space.gradient)
    own_by_self = _gradients(numbers, step, space, own_inverse_norm, weight, width)
    if step.adagrad:
        adagrad_rows(
            model.items,
            model.item_sums,
            space.items,
            first,
            width,
            model.users,
            model.user_sums,
            user,
            space.by_other,
            space.by_self,
            own_by_self,
            step.rate,
        )
    else:
        sgd_rows(
            model.items,
            space.items,
            first,
            width,
            model.users,
            user,
            space.by_other,
            space.by_self,
            own_by_self,
            step.rate,
        )
    return loss, clamped


@inlined
def _find_inverse_norms(model: EmbeddingTables, space: Space, first: Index, count: Index) -> None:
    square_rows(model.items, space.items, first, count, space.inverse_norms)
    for c in range(count):
        space.inverse_norms[c] = _inverse_norm(space.inverse_norms[c])


@inlined
def _inverse_norm(square: np.float32) -> np.float32:
    norm = np.sqrt(square)
    return ONE / (_SHORTEST if norm < _SHORTEST else norm)  # in this order NaN stays NaN


@inlined
def _gradients(
    numbers: Numbers,
    step: StepSettings,
    space: Space,
    own_inverse_norm: np.float32,
    weight: np.float32,
    width: Index,
) -> np.float32:
    """From d loss / d s to gradients of vectors, as weights of the user's and the item's own vector.

    dot:     ∂s/∂v = u;                                   cosine, with s = cos / t and unit vectors û, v̂:
    ∂s/∂v = û/(t‖v‖) − s·v/‖v‖²,  ∂s/∂u = v̂/(t‖u‖) − s·u/‖u‖². Both plus l2 times the vector itself. All of
    it times the weight of the anchor.
    Gives the weight of the user's vector in its own gradient.
    """
    own_by_self = step.l2_users * weight
    for c in range(width):
        space.gradient[c] *= weight
        space.by_other[c] = space.gradient[c]
        space.by_self[c] = step.l2_items * weight
    if numbers.cosine:
        for c in range(width):
            inverse, pull = space.inverse_norms[c], space.gradient[c] * space.scores[c]
            space.by_other[c] *= numbers.score_scale * own_inverse_norm * inverse
            space.by_self[c] -= pull * inverse * inverse
            own_by_self -= pull * own_inverse_norm * own_inverse_norm
    return own_by_self


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
