"""The inner loop: entries sampled a block at a time, then each scored, differentiated, updated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from truepair.training.sampled.cpu import draws, updates
from truepair.training.sampled.cpu.arithmetic import ONE, Float, Index, Ints, compiled, inlined, without_lock
from truepair.training.sampled.cpu.draw_tables import DrawTables
from truepair.training.sampled.cpu.losses import loss_row
from truepair.training.sampled.cpu.memory import Space
from truepair.training.sampled.cpu.updates import EmbeddingTables
from truepair.training.sampled.plan import Floats, KernelPlan

_MOSTLY_CACHED = 1 << 19  # floats of a table whose rows are not worth asking for ahead
_SHORTEST = Float(1e-12)  # what F.normalize divides by at least


class StepSettings(NamedTuple):
    """What the steps of an epoch have in common."""

    plan: KernelPlan
    rate: Float
    l2_users: Float
    l2_items: Float
    adagrad: bool


class Visits(NamedTuple):
    """What an epoch visits in which order, and the random numbers of its draws."""

    tables: DrawTables
    order: draws.Order
    key: np.uint64


@without_lock
def train_entries(
    model: EmbeddingTables, visits: Visits, step: StepSettings, space: Space, start: Index, stop: Index
) -> tuple[float, int]:
    """Train the places start … stop of an epoch; the sum of the losses and how many rows were clamped."""
    losses, clamped, width = 0.0, 0, 1 + step.plan.m + step.plan.pool
    for first in range(start, stop, len(space.users)):
        count = min(len(space.users), stop - first)
        draw_block(model, visits, step.plan, space, first, count)
        for b in range(count):
            user, weight = np.int64(space.users[b]), space.weights[b]
            loss, met_floor = train_entry(model, step, space, user, weight, b * width)
            losses += float(loss * weight)
            clamped += met_floor
    return losses, clamped


@inlined
def draw_block(
    model: EmbeddingTables, visits: Visits, plan: KernelPlan, space: Space, first: Index, count: Index
) -> None:
    """Sample the entries of the places first … first + count, and ask the memory for the rows they need."""
    tables, m, pool = visits.tables, plan.m, plan.pool
    found: Index = 0
    width, words = 1 + m + pool, (1 + m + pool) // 2
    draws.fill_words(visits.key, np.uint64(first * words), space.words)
    for b in range(count):
        anchor = np.int64(draws.anchor_at(visits.order, np.uint64(first + b)))
        space.users[b], space.items[b * width] = tables.pairs[anchor, 0], tables.pairs[anchor, 1]
        if len(model.weights):
            space.weights[b] = model.weights[anchor]
    updates.fetch_rows(model.users, space.users, count)
    for b in range(count):
        user, row, bits = np.int64(space.users[b]), b * width + 1, 2 * b * words
        draws.draw_extra(tables, space, user, bits, row, m)
        if tables.exact.uniform:
            found = draws.try_unlabelled(tables, space, user, bits + m, row + m, pool, found)
        else:
            place = np.uint64((first + b) * pool + 1)
            draws.draw_by_weight(tables.exact, user, ~visits.key, place, space.items, row + m, pool)
    draws.settle_doubtful(tables, space, ~visits.key, np.uint64(first), width, found)
    if model.items.size > _MOSTLY_CACHED:
        updates.fetch_rows(model.items, space.items, count * width)


@inlined
def train_entry(
    model: EmbeddingTables, step: StepSettings, space: Space, user: Index, weight: Float, first: Index
) -> tuple[Float, bool]:
    """Score, differentiate, step: one data entry, whose items are at first … of space.items.

    The weight scales the loss and the L2 of the entry; the loss that is returned is without it.
    """
    plan = step.plan
    sampled, width, own_inverse_norm = 1 + plan.m + plan.pool, 1 + plan.m + plan.n, ONE
    updates.dot_rows(model, space, user, first, sampled)
    if plan.cosine:
        own_inverse_norm = _inverse_norm(updates.square_row(model.users, user))
        _find_inverse_norms(model, space, first, sampled)
        for c in range(sampled):
            space.scores[c] *= plan.score_scale * own_inverse_norm * space.inverse_norms[c]
    if plan.pool > plan.n:
        choose_hardest(plan, space.items[first : first + sampled], space.scores)
        if plan.cosine:
            _find_inverse_norms(model, space, first, width)
    place = user if len(model.tau) > 1 else 0
    loss, clamped = loss_row(plan, model.tau[place], model.log_rest[place], space.scores, space.gradient)
    own = _gradients(step, space, own_inverse_norm, weight, width)
    if step.adagrad:
        updates.adagrad_rows(model, space, user, first, width, own, step.rate)
    else:
        updates.sgd_rows(model, space, user, first, width, own, step.rate)
    return loss, clamped


@inlined
def _find_inverse_norms(model: EmbeddingTables, space: Space, first: Index, count: Index) -> None:
    for c in range(count):
        space.inverse_norms[c] = updates.square_row(model.items, np.int64(space.items[first + c]))
    for c in range(count):
        space.inverse_norms[c] = _inverse_norm(space.inverse_norms[c])


@inlined
def _inverse_norm(square: Float) -> Float:
    norm = np.sqrt(square)
    return ONE / (_SHORTEST if norm < _SHORTEST else norm)  # in this order NaN stays NaN


@inlined
def _gradients(
    step: StepSettings, space: Space, own_inverse_norm: Float, weight: Float, width: Index
) -> Float:
    """From d loss / d s to gradients of vectors, as weights of the user's and the item's own vector.

    dot:     ∂s/∂v = u;                                   cosine, with s = cos / t and unit vectors û, v̂:
    ∂s/∂v = û/(t‖v‖) − s·v/‖v‖²,  ∂s/∂u = v̂/(t‖u‖) − s·u/‖u‖². Both plus l2 times the vector itself. All of
    it times the weight of the anchor.
    Gives the weight of the user's vector in its own gradient.
    """
    own = step.l2_users * weight
    for c in range(width):
        space.gradient[c] *= weight
        space.by_other[c] = space.gradient[c]
        space.by_self[c] = step.l2_items * weight
    if step.plan.cosine:
        for c in range(width):
            inverse, pull = space.inverse_norms[c], space.gradient[c] * space.scores[c]
            space.by_other[c] *= step.plan.score_scale * own_inverse_norm * inverse
            space.by_self[c] -= pull * inverse * inverse
            own -= pull * own_inverse_norm * own_inverse_norm
    return own


@compiled
def choose_hardest(plan: KernelPlan, items: Ints, scores: Floats) -> None:
    """Bring the n highest-scoring of the pool to places 1+m … 1+m+n, falling; of equal ones the first drawn.

    What the places behind them hold is of no use afterwards. NaN counts as the lowest score, as in `DNS`.
    """
    first = 1 + plan.m
    last = first + plan.n
    for i in range(first + 1, first + plan.pool):
        item, score = items[i], scores[i]
        place = min(i, last)
        while place > first and _outranks(score, scores[place - 1]):
            place -= 1
            if place + 1 < last:
                items[place + 1], scores[place + 1] = items[place], scores[place]
        if place < last:
            items[place], scores[place] = item, score


@compiled
def _outranks(score: Float, other: Float) -> bool:
    return bool(score > other or (other != other and score == score))
