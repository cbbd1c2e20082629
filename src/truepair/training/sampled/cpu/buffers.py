"""The arrays that the compiled code of engine "cpu" works on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.training.sampled.cpu.batch import Room, Rows, Side
from truepair.training.sampled.cpu.in_batch import USERS, BatchSample
from truepair.training.sampled.cpu.lightgcn import Neighbours
from truepair.training.sampled.cpu.vectors import LINE
from truepair.training.sampled.plan import Floats, Plan


def aligned(rows: int, columns: int) -> Floats:
    """Zeros [rows, columns rounded up to whole lines], each row at the beginning of a cache line.

    So no two threads write to the same line, and no row has an odd end, which would cost as much as a line.
    """
    width = -(-columns // LINE) * LINE
    memory = np.zeros(rows * width + LINE, dtype=np.float32)
    first = -(memory.ctypes.data // memory.itemsize) % LINE
    return memory[first : first + rows * width].reshape(rows, width)


def side_of(start: Tensor, hops: int, adam: bool) -> Side:
    """Users or items, from their first vectors [n, dim]."""
    n, dim = start.shape
    weights, gradient = aligned(n, dim), aligned(n, dim)
    weights[:, :dim] = start.detach().numpy()
    return Side(
        weights=weights,
        first=aligned(n if adam else 0, dim),
        second=aligned(n if adam else 0, dim),
        gradient=gradient,
        encoded=aligned(n, dim) if hops else weights,
        collected=aligned(n, dim) if hops else gradient,
        pull=np.zeros(n, dtype=np.float32),
        touches=np.zeros(n, dtype=np.float32),
        touched=np.zeros(n, dtype=np.uint8),
        needed=np.zeros(n, dtype=np.uint8),
    )


def neighbours_of(interactions: Interactions, hops: int, dim: int) -> tuple[Neighbours, Neighbours]:
    """The two sides of the graph: the items of each user, the users of each item."""
    by_item = np.argsort(interactions.items, kind="stable")
    return (
        _neighbours(interactions.user_counts, np.asarray(interactions.items, np.int64), hops, dim),
        _neighbours(interactions.item_counts, np.asarray(interactions.users, np.int64)[by_item], hops, dim),
    )


def _neighbours(
    counts: npt.NDArray[np.int64], others: npt.NDArray[np.int64], hops: int, dim: int
) -> Neighbours:
    n = len(counts)
    return Neighbours(
        indptr=np.concatenate([[0], np.cumsum(counts)]),
        indices=others.astype(np.uint32),
        factor=(1 / np.sqrt(np.maximum(counts, 1))).astype(np.float32),
        scaled=aligned(n, dim),
        odd=aligned(n if hops > 1 else 0, dim),
        even=aligned(n if hops > 2 else 0, dim),
    )


def rows_of(plan: Plan, n: int, dim: int) -> Rows:
    """Room for a batch of `n` rows."""
    learnt = 1 + plan.m + plan.n
    return Rows(
        users=np.zeros(n, dtype=np.int32),
        anchor_weight=np.ones(n, dtype=np.float32),
        items=np.zeros((n, plan.width), dtype=np.int32),
        scores=aligned(n, plan.width),
        slopes=aligned(n, learnt),
        weights=aligned(n, plan.width),
        user_factor=np.zeros(n, dtype=np.float32),
        user_pull=np.zeros(n, dtype=np.float32),
        user_gradient=aligned(n, dim),
        loss=np.zeros(n, dtype=np.float32),
        clamped=np.zeros(n, dtype=np.uint8),
        tau=plan.tau,
        log_rest=plan.log_rest,
    )


def room_of(rows: Rows, threads: int) -> Room:
    """Room for so many threads."""
    entries = rows.items.size + 1  # one more, where what is not the thread's own is written and forgotten
    shape = threads, entries
    return Room(rows=np.zeros(shape, dtype=np.int32), places=np.zeros(shape, dtype=np.int32))


def sample_of(rows: Rows, popularity: Floats, n_users: int, threads: int) -> BatchSample:
    """Room to rank the candidates of a batch, for so many threads."""
    (batch, drawn), width = rows.items.shape, rows.user_gradient.shape[1]
    lines = batch // LINE + 1  # there is always a place more than items
    return BatchSample(
        different=np.zeros(threads, dtype=np.int32),
        items=np.zeros((threads, batch), dtype=np.int32),
        times=np.zeros((threads, lines * LINE), dtype=np.int32),
        places=np.full((threads, len(popularity)), lines * LINE - 1, dtype=np.int32),
        vectors=aligned(lines, width * LINE),
        popularity=popularity,
        own=aligned(threads * USERS, width),
        scores=aligned(threads * USERS, lines * LINE),
        merits=aligned(threads, drawn),
        latest=np.zeros((threads, n_users), dtype=np.int32),
        heads=np.zeros(batch, dtype=np.int32),
        after=np.zeros(batch, dtype=np.int32),
    )
