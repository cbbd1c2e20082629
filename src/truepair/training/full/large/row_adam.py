"""Compiled for the CPU: Adam for a table of many rows of which a step uses few; values out of a column."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.storage.types import Array
from truepair.training.full.large.table_adam import BETAS, EPSILON, LOOK, Course, Means
from truepair.training.sampled.cpu.arithmetic import ONE, ZERO, Index, Ints, Longs, inlined, without_lock
from truepair.training.sampled.plan import Floats

Doubles: TypeAlias = npt.NDArray[np.float64]
Tables: TypeAlias = tuple[Floats, Floats, Floats, Ints]  # `Means` as arrays

_KEEP_FIRST, _TAKE_FIRST = np.float32(BETAS[0]), np.float32(1 - BETAS[0])
_KEEP_SECOND, _TAKE_SECOND = np.float32(BETAS[1]), np.float32(1 - BETAS[1])
_EPSILON = np.float32(EPSILON)


def catch_up(means: Means, rows: Tensor | None, step: int, course: Course, decay: float) -> None:
    """The steps before `step` that each of these rows has missed; None: all rows.

    On as many threads as PyTorch uses, and Python's own: after Numba's have run, PyTorch hangs in a forked
    process.
    """
    places = np.arange(len(means.weights)) if rows is None else rows.numpy()
    parts = np.array_split(places, torch.get_num_threads())
    tables, rates, roots = _tables(means), course.rates.numpy(), course.roots.numpy()
    with ThreadPoolExecutor(len(parts)) as pool:
        same = (repeat(value) for value in (step, tables, rates, roots, np.float32(decay)))
        list(pool.map(catch_up_rows, parts, *same))


def update(means: Means, rows: Tensor, gradient: Tensor, step: int, course: Course, decay: float) -> None:
    """A step of each row by its gradient."""
    rate, root = np.float32(course.rates[step]), np.float32(course.roots[step])
    update_rows(rows.numpy(), gradient.numpy(), step, _tables(means), rate, root, np.float32(decay))


def _tables(means: Means) -> Tables:
    weights, first, second, made = means
    return weights.numpy(), first.numpy(), second.numpy(), made.numpy()


@without_lock
def catch_up_rows(
    rows: Longs, step: int, tables: Tables, rates: Doubles, roots: Doubles, decay: np.float32
) -> None:
    """The steps before `step` that each row has missed."""
    weights, first, second, made = tables
    for k in range(len(rows)):
        row = rows[k]
        begin, made[row] = made[row], step
        if decay > ZERO:
            for missed in range(begin, step):
                rate, root = np.float32(rates[missed]), np.float32(roots[missed])
                _move(weights[row], weights[row], ZERO, first[row], second[row], rate, root, decay)
        else:
            _fade(weights[row], first[row], second[row], begin, step, rates, roots)


@without_lock
def update_rows(
    rows: Longs, gradient: Floats, step: int, tables: Tables,
    rate: np.float32, root: np.float32, decay: np.float32,
) -> None:  # fmt: skip
    """A step of each row by its gradient."""
    weights, first, second, made = tables
    for k in range(len(rows)):
        row = rows[k]
        made[row] = step + 1
        _move(weights[row], gradient[k], ONE, first[row], second[row], rate, root, decay)


@inlined
def _move(
    weights: Floats, gradient: Floats, has_gradient: np.float32, first: Floats, second: Floats,
    rate: np.float32, root: np.float32, decay: np.float32,
) -> None:  # fmt: skip
    """One step of Adam for one row."""
    for j in range(len(weights)):
        g = has_gradient * gradient[j] + decay * weights[j]
        m = _KEEP_FIRST * first[j] + _TAKE_FIRST * g
        v = _KEEP_SECOND * second[j] + _TAKE_SECOND * (g * g)
        weights[j] -= rate * m / (np.sqrt(v) * root + _EPSILON)
        first[j], second[j] = m, v


@inlined
def _fade(
    weights: Floats, first: Floats, second: Floats, begin: Index, end: Index, rates: Doubles, roots: Doubles
) -> None:
    """Steps begin … end − 1 of a row without gradient and decay.

    The means are scaled by powers of β₁ and β₂, so they are read as they were, and scaled once at the end.
    """
    by_first, by_root = 1.0, 1.0
    for step in range(begin, end):
        by_first *= BETAS[0]
        by_root *= np.sqrt(BETAS[1])
        above, below = np.float32(rates[step] * by_first), np.float32(roots[step] * by_root)
        if (step - begin) % LOOK == LOOK - 1 and not _changes(weights, first, second, above, below):
            break
        for j in range(len(weights)):
            weights[j] -= above * first[j] / (below * np.sqrt(second[j]) + _EPSILON)
    missed = end - begin
    keep_first, keep_second = np.float32(BETAS[0] ** missed), np.float32(BETAS[1] ** missed)
    for j in range(len(weights)):
        first[j] *= keep_first
        second[j] *= keep_second


@inlined
def _changes(weights: Floats, first: Floats, second: Floats, above: np.float32, below: np.float32) -> bool:
    """Whether a step changes any number of the row."""
    for j in range(len(weights)):
        if weights[j] - above * first[j] / (below * np.sqrt(second[j]) + _EPSILON) != weights[j]:
            return True
    return False


@without_lock
def gather(column: Array, users: Longs, firsts: Longs, lengths: Longs, found: Array) -> None:
    """The values of these users, one user after the other; another thread goes on meanwhile."""
    place = 0
    for k in range(len(users)):
        first = firsts[users[k]]
        for j in range(lengths[users[k]]):
            found[place + j] = column[first + j]
        place += lengths[users[k]]
