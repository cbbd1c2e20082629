"""Arrays that begin where a line of the cache does, and the memory that a thread works in."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.training.sampled.cpu.arithmetic import Ints
from truepair.training.sampled.cpu.vectors import LINE
from truepair.training.sampled.plan import Floats, KernelPlan

Words = npt.NDArray[np.uint64]
HalfWords = npt.NDArray[np.uint32]

_BLOCK = 192  # items sampled at a time, or one entry: enough to wait for the memory once, all in the cache
_APART = 16 * LINE  # floats between two arrays of `Space`: more than a vector loop takes in one round


class Space(NamedTuple):
    """The memory a thread works in."""

    users: Ints  # [block]
    weights: Floats  # [block], of the anchors
    items: Ints  # [block · width], the items of each entry
    doubtful: Ints  # [block · pool + 1], places in `items`
    words: Words  # random
    bits: HalfWords  # the same memory as `words`
    scores: Floats  # [width, padded], as all below
    gradient: Floats
    inverse_norms: Floats
    by_other: Floats  # an item's gradient: so much of the user's vector,
    by_self: Floats  # and so much of its own


def space_for(plan: KernelPlan) -> Space:
    """Memory for one thread.

    The arrays of floats lie far from each other and from any other array, because the compiler cannot know
    that two arrays do not overlap. Its vector loop runs only if they lie far enough apart, else a plain loop
    does, which adds in another order: the last bits would depend on where the memory of a process lies.
    """
    block, padded = max(1, min(8, _BLOCK // plan.width)), -(-plan.width // LINE) * LINE
    words = np.zeros(block * (plan.width // 2), np.uint64)  # half a word a draw, of which a row has width − 1
    floats = aligned_zeros(5, _APART + padded, beyond=_APART)[:, _APART:]
    return Space(
        np.zeros(block, np.int32),
        np.ones(block, np.float32),
        np.zeros(block * plan.width, np.int32),
        np.zeros(block * plan.pool + 1, np.int32),
        words,
        words.view(np.uint32),
        *floats,
    )


def aligned_zeros(rows: int, columns: int, beyond: int = 0) -> Floats:
    """Zeros that begin where a line of the cache does: an unaligned row would touch one line more.

    `beyond` floats at least lie after them.
    """
    memory = np.zeros(rows * columns + LINE + beyond, dtype=np.float32)
    skip = -memory.ctypes.data % (LINE * memory.itemsize) // memory.itemsize
    return memory[skip : skip + rows * columns].reshape(rows, columns)
