"""Steps of training in compiled code, equal to `reference` step for step.

A step is a sequence of phases. In each, every thread does its part; the next begins when all are done.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from truepair.training.sampled.cpu.batch import (
    Epoch,
    Room,
    Rows,
    Rules,
    Side,
    collect,
    draw_rows,
    learn_rows,
    penalise_and_forget,
    project,
)
from truepair.training.sampled.cpu.draws import ONE, ZERO, Floats, Numbers, Tables, compiled
from truepair.training.sampled.cpu.epoch_order import NarrowTables, inner
from truepair.training.sampled.cpu.in_batch import BatchSample, gather_sample
from truepair.training.sampled.cpu.lightgcn import Neighbours, Part, mostly, spread

PIECE = 4096  # parameters that are updated in one go: pieces that depend on the threads could round otherwise
BETAS = 0.9, 0.999  # of Adam, as in torch
_KEEP_FIRST, _TAKE_FIRST = np.float32(BETAS[0]), np.float32(1 - BETAS[0])
_KEEP_SECOND, _TAKE_SECOND = np.float32(BETAS[1]), np.float32(1 - BETAS[1])
_ADAM_EPSILON = np.float32(1e-8)

DRAW, ENCODE, GATHER, LEARN, COLLECT, PROJECT, SPREAD_BACK, FORGET, UPDATE = range(9)


class Now(NamedTuple):
    """Where training is."""

    phase: int
    step: int
    size: int  # rows of the batch
    hop: int  # of a spread; 0 is what comes before the first
    all_rows: bool  # whether a spread is for all rows, or for those that the batch needs
    most_users: bool  # whether most users have something to spread
    most_items: bool
    rate: np.float32
    unbias: np.float32  # 1/√(1 − β₂ᵗ)


# --- updates -------------------------------------------------------------------------------------------


@inner
def update(
    side: Side,
    is_adam: bool,
    rate: np.float32,
    unbias: np.float32,
    decay: np.float32,
    thread: int,
    threads: int,
) -> None:
    """One thread's pieces of the parameters. The gradient is zero afterwards."""
    weights, gradient = side.weights.reshape(-1), side.gradient.reshape(-1)
    first, second = side.first.reshape(-1), side.second.reshape(-1)
    pieces = (len(weights) + PIECE - 1) // PIECE
    for piece in range(thread * pieces // threads, (thread + 1) * pieces // threads):
        start, stop = piece * PIECE, min((piece + 1) * PIECE, len(weights))
        w, g = weights[start:stop], gradient[start:stop]
        if is_adam:
            adam(w, g, first[start:stop], second[start:stop], rate, unbias, decay)
        else:
            descend(w, g, rate, decay)


@inner
def adam(
    weights: Floats, gradient: Floats, first: Floats, second: Floats,
    rate: np.float32, unbias: np.float32, decay: np.float32,
) -> None:  # fmt: skip
    """w −= rate·m / (unbias·√v + ε). A function of its own, because LLVM vectorises it only then."""
    for k in range(len(weights)):
        g = gradient[k] + decay * weights[k]
        m = _KEEP_FIRST * first[k] + _TAKE_FIRST * g
        v = _KEEP_SECOND * second[k] + _TAKE_SECOND * (g * g)
        weights[k] -= rate * m / (np.sqrt(v) * unbias + _ADAM_EPSILON)
        first[k], second[k], gradient[k] = m, v, ZERO


@inner
def descend(weights: Floats, gradient: Floats, rate: np.float32, decay: np.float32) -> None:
    """w −= rate·(g + decay·w)."""
    for k in range(len(weights)):
        weights[k] -= rate * (gradient[k] + decay * weights[k])
        gradient[k] = ZERO


# --- phases --------------------------------------------------------------------------------------------


@inner
def do_part(
    now: Now, numbers: Numbers, rules: Rules, tables: Tables, narrow: NarrowTables, epoch: Epoch,
    users: Side, items: Side, by_user: Neighbours | None, by_item: Neighbours | None, rows: Rows, room: Room,
    sample: BatchSample | None, thread: int, threads: int,
) -> None:  # fmt: skip
    """One thread's part of a phase."""
    phase, size = now.phase, now.size
    if phase == DRAW:
        draw_rows(numbers, rules, tables, narrow, epoch, users, items, rows, now.step, size, thread, threads)
    elif phase in (ENCODE, SPREAD_BACK):
        if by_user is not None and by_item is not None:  # without a graph this is not even compiled
            of_users = Part(users.weights, users.encoded, users.touched, users.needed)
            of_items = Part(items.weights, items.encoded, items.touched, items.needed)
            if phase == SPREAD_BACK:
                of_users = Part(users.collected, users.gradient, users.touched, users.needed)
                of_items = Part(items.collected, items.gradient, items.touched, items.needed)
            spread(
                by_user, by_item, of_users, of_items, now.most_users, now.most_items, now.all_rows,
                now.hop, rules.hops, thread, threads,
            )  # fmt: skip
    elif phase == GATHER:
        if sample is not None:  # nor is this, where nothing is chosen by risk
            gather_sample(numbers, items.encoded, rows.items, sample, size, thread, threads)
    elif phase == LEARN:
        learn_rows(numbers, tables, narrow, users, items, rows, sample, size, thread, threads)
    elif phase == COLLECT:
        collect(numbers, rules, users, items, rows, room, size, thread, threads)
    else:  # one call in a loop, not two: what is written twice is compiled twice
        share, l2 = ONE / np.float32(size), rules.l2_users
        for side in (users, items):
            if phase == PROJECT:
                project(side, thread, threads)
            elif phase == FORGET:
                penalise_and_forget(side, l2 * share, rules.hops > 0, thread, threads)
            else:
                update(side, rules.adam, now.rate, now.unbias, rules.weight_decay, thread, threads)
            l2 = rules.l2_items


def _run_phase(
    now: Now, numbers: Numbers, rules: Rules, tables: Tables, narrow: NarrowTables, epoch: Epoch,
    users: Side, items: Side, by_user: Neighbours | None, by_item: Neighbours | None, rows: Rows, room: Room,
    sample: BatchSample | None,
) -> None:  # fmt: skip
    """A phase, on as many threads as there is room for.

    The one parallel loop of the engine: each costs seconds of compilation, and Numba makes one of loops that
    follow each other, unaware that the second reads what all threads of the first wrote.
    """
    threads = len(room.rows)
    for thread in numba.prange(threads):
        do_part(
            now, numbers, rules, tables, narrow, epoch, users, items, by_user, by_item, rows, room,
            sample, np.int64(thread), threads,  # type: ignore[arg-type]
        )  # fmt: skip


_in_parallel = inner(_run_phase, parallel=True, nogil=True, _nrt=False)


@inner
def run_phase(
    now: Now, numbers: Numbers, rules: Rules, tables: Tables, narrow: NarrowTables, epoch: Epoch,
    users: Side, items: Side, by_user: Neighbours | None, by_item: Neighbours | None, rows: Rows, room: Room,
    sample: BatchSample | None,
) -> None:  # fmt: skip
    """A phase. One thread does it where it is: to hand it over takes long on a machine that is busy."""
    if len(room.rows) == 1:
        do_part(
            now, numbers, rules, tables, narrow, epoch, users, items, by_user, by_item, rows, room, sample,
            0, 1,
        )  # fmt: skip
    else:
        _in_parallel(
            now, numbers, rules, tables, narrow, epoch, users, items, by_user, by_item, rows, room, sample
        )


# --- a range of steps ----------------------------------------------------------------------------------


def _run_steps(
    first: int, last: int, done: int, numbers: Numbers, rules: Rules, tables: Tables, narrow: NarrowTables,
    epoch: Epoch, users: Side, items: Side, by_user: Neighbours | None, by_item: Neighbours | None,
    rows: Rows, room: Room, sample: BatchSample | None,
) -> None:  # fmt: skip
    """Steps first … last of an epoch; `done` steps were made before the epoch's first.

    With no step to make it only encodes, all rows: a second function would take as long to compile.
    """
    none = np.float32(0)
    for hop in range(rules.hops + 1 if first == last else 0):
        now = at(ENCODE, first, 0, hop, True, True, True, none, none)
        run_phase(
            now, numbers, rules, tables, narrow, epoch, users, items, by_user, by_item, rows, room, sample
        )
    for step in range(first, last):
        count = done + step + 1
        size = min(rules.batch, len(epoch.users) - step * rules.batch)
        rate = np.float32(rules.rate / (1 - BETAS[0] ** count) if rules.adam else rules.rate)
        unbias = np.float32(1 / np.sqrt(1 - BETAS[1] ** count))
        for phase in range(DRAW, UPDATE + 1):
            spreads = phase in (ENCODE, SPREAD_BACK)
            idle = (phase == PROJECT and not numbers.cosine) or (phase == FORGET and not rules.marks)
            idle = idle or (phase == GATHER and not numbers.risk)
            if idle or (spreads and not rules.hops):
                continue
            encode = phase == ENCODE
            most_users, most_items = encode or mostly(users.touched), encode or mostly(items.touched)
            for hop in range(rules.hops + 1 if spreads else 1):
                now = at(phase, step, size, hop, not encode, most_users, most_items, rate, unbias)
                run_phase(
                    now, numbers, rules, tables, narrow, epoch, users, items, by_user, by_item, rows,
                    room, sample,
                )  # fmt: skip
        epoch.losses[step], epoch.clamped[step] = totals(rows, size)


@inner
def at(
    phase: int, step: int, size: int, hop: int, all_rows: bool, most_users: bool, most_items: bool,
    rate: np.float32, unbias: np.float32,
) -> Now:  # fmt: skip
    """`Now`, whose type does not depend on which of its parts are constants: each type is compiled anew."""
    return Now(phase, step, size, hop, all_rows, most_users, most_items, rate, unbias)


@inner
def totals(rows: Rows, size: int) -> tuple[float, int]:
    """The sum of the rows' losses, and how many were clamped."""
    loss, clamped = 0.0, 0
    for b in range(size):
        loss += rows.loss[b]
        clamped += rows.clamped[b]
    return loss, clamped


run_steps = compiled(_run_steps, nogil=True)
