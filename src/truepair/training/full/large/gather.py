"""Values of some users out of a column of pairs, without Python's lock: another thread goes on meanwhile."""

from __future__ import annotations

from truepair.storage.types import Array
from truepair.training.sampled.cpu.arithmetic import Longs, without_lock


@without_lock
def gather(column: Array, users: Longs, firsts: Longs, lengths: Longs, found: Array) -> None:
    """The values of these users, one user after the other."""
    place = 0
    for k in range(len(users)):
        first = firsts[users[k]]
        for j in range(lengths[users[k]]):
            found[place + j] = column[first + j]
        place += lengths[users[k]]
