"""An unlabelled item of a user in compiled code, by weight: from the tables of `Draws`."""

from __future__ import annotations

from typing import NamedTuple

from truepair.sampling import Draws
from truepair.training.sampled.cpu.arithmetic import Index, Longs, compiled


class WeightedTables(NamedTuple):
    """The tables of `Draws`, as arrays."""

    gaps: Longs  # [interactions]
    passed: Longs  # [interactions + 1]
    ends: Longs  # [n_items]
    indptr: Longs  # [n_users + 1]
    free: Longs  # [n_users]
    stride: int
    uniform: bool  # every weight is 1, so ends[i] = i + 1


def weighted_tables_of(draws: Draws) -> WeightedTables:
    """The tables of `draws`; they share its memory."""
    return WeightedTables(
        gaps=draws.gaps.numpy(),
        passed=draws.passed.numpy(),
        ends=draws.ends.numpy(),
        indptr=draws.indptr.numpy(),
        free=draws.free.numpy(),
        stride=draws.stride,
        uniform=draws.stride == draws.n_items + 1,
    )


@compiled
def unlabelled_at(tables: WeightedTables, user: Index, place: Index) -> Index:
    """The unlabelled item of the user that lies at `place` in [0, free[user]) by weight."""
    start = tables.indptr[user]
    steps = _first_above(tables.gaps, start, tables.indptr[user + 1], user * tables.stride + place)
    place += tables.passed[steps] - tables.passed[start]
    return place if tables.uniform else _first_above(tables.ends, 0, len(tables.ends), place)


@compiled
def _first_above(rising: Longs, start: Index, stop: Index, value: Index) -> Index:
    """The first place in [start, stop) that holds more than `value`, else `stop`."""
    while start < stop:
        middle = (start + stop) >> 1
        above = rising[middle] > value
        start, stop = (start, middle) if above else (middle + 1, stop)
    return start
