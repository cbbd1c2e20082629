"""Values of some users out of a column of pairs, without Python's lock: another thread goes on meanwhile."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from truepair.training.sampled.cpu.arithmetic import Longs, compiled


def _without_lock(function: Any) -> Any:
    return compiled(function, nogil=True)


@_without_lock
def gather(
    column: npt.NDArray[Any], users: Longs, firsts: Longs, lengths: Longs, found: npt.NDArray[Any]
) -> None:
    """The values of these users, one user after the other."""
    place = 0
    for k in range(len(users)):
        first = firsts[users[k]]
        for j in range(lengths[users[k]]):
            found[place + j] = column[first + j]
        place += lengths[users[k]]
