"""Parts: a random split of row files, in blocks. The draws are those of `split_random`.

The sampled share are the pairs with the lowest random numbers, so that it is enough to know the number below
which they lie: nothing is sorted but the numbers near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from truepair.data.prepared.manifest import Manifest
from truepair.data.preparing.publishing import Done
from truepair.data.preparing.row_files import AT_ONCE, RowFiles, RowWriter, taken
from truepair.data.split_recipes import check_shares, draw_key
from truepair.errors import InputError
from truepair.randomness import random_bits

_BUCKETS = 1 << 16

Words = npt.NDArray[np.uint64]


class Shares(NamedTuple):
    """The shares of `split_random`."""

    test: float
    valid: float = 0.0
    seed: int = 0


def shares_of(test: float | None = None, valid: float = 0.0, seed: int = 0) -> Shares | None:
    """The shares, checked; None without a test part."""
    if test is not None:
        return Shares(*check_shares(test, valid, seed))
    if valid:
        raise InputError(f"valid = {valid} has no effect without test; give both.")
    return None


def write_split(
    folder: Path, made: Manifest, shares: Shares, advance: Callable[[int], None] = lambda done: None
) -> Done:
    """The parts train, valid (if its share is above 0) and test, below `folder`/split."""
    pairs = RowFiles(folder, made.arrays, "all")
    test, valid, seed = shares
    n_test = int(len(pairs) * test + 0.5)
    n_train = len(pairs) - n_test
    n_valid = int(n_train * valid + 0.5)
    if n_train <= n_valid:
        raise InputError(f"test = {test} and valid = {valid} leave no pair for train; hold out fewer pairs.")
    in_test = lowest_words(draw_key(seed, "test"), len(pairs), n_test)
    in_valid = lowest_words(draw_key(seed, "valid"), n_train, n_valid)
    names, sizes = ("train", *(["valid"] if valid else []), "test"), (made.users, made.items)
    first = rank = 0  # among all pairs, and among those that are not in test
    with ExitStack() as opened:
        writers = {n: opened.enter_context(RowWriter(folder, f"split/{n}", sizes)) for n in names}
        for block in pairs.blocks():
            n = len(block["users"])
            masks = {"test": in_test(first, n)}
            masks["valid"] = ~masks["test"]
            left = int(masks["valid"].sum())
            masks["valid"][masks["valid"]] = in_valid(rank, left)
            masks["train"] = ~masks["test"] & ~masks["valid"]
            for name, writer in writers.items():
                writer.write(taken(block, masks[name]))
            first, rank = first + n, rank + left
            advance(first)
        files = [file for writer in writers.values() for file in writer.finish()]
    return {"recipe": f"random(test={test}, valid={valid}, seed={seed})"}, files


def lowest_words(key: int, n: int, wanted: int) -> Callable[[int, int], npt.NDArray[np.bool_]]:
    """A function of (first, count): whether each of these positions has one of the `wanted` lowest words.

    >>> chosen = lowest_words(7, 100, 20)
    >>> int(chosen(0, 50).sum() + chosen(50, 50).sum())
    20
    """
    if wanted <= 0:
        return lambda first, count: np.zeros(count, dtype=bool)
    if wanted >= n:
        return lambda first, count: np.ones(count, dtype=bool)
    counts = np.zeros(_BUCKETS, dtype=np.int64)
    for words in _words(key, n):
        counts += np.bincount((words >> np.uint64(48)).astype(np.int64), minlength=_BUCKETS)
    upto = np.cumsum(counts)
    bucket = int(np.searchsorted(upto, wanted))
    near = np.sort(np.concatenate([words[words >> np.uint64(48) == bucket] for words in _words(key, n)]))
    last = near[wanted - int(upto[bucket] - counts[bucket]) - 1]
    return lambda first, count: random_bits(key, count, first) <= last  # words of a stream are distinct


def _words(key: int, n: int) -> Iterator[Words]:
    for first in range(0, n, AT_ONCE):
        yield random_bits(key, min(AT_ONCE, n - first), first)
