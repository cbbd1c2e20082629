"""Parts: a random split of pair files, in blocks. The draws are those of `split_random`.

The share that is drawn are the pairs with the lowest random numbers, so that it is enough to know the number
below which they lie: nothing is sorted but the numbers near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from truepair.data.prepared.array_files import ArrayFile
from truepair.data.preparing.pair_files import AT_ONCE, PairFiles, PairWriter
from truepair.data.split_recipes import check_shares, draw_key
from truepair.errors import InputError
from truepair.randomness import random_bits

_BUCKETS = 1 << 16

Words = npt.NDArray[np.uint64]


def write_split(
    folder: Path,
    pairs: PairFiles,
    sizes: tuple[int, int],
    shares: tuple[float, float],
    seed: int,
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], list[ArrayFile]]:
    """The parts train, valid (if its share is above 0) and test, below `folder`/split."""
    test, valid, seed = check_shares(*shares, seed)
    n = len(pairs)
    in_test = lowest_words(draw_key(seed, "test"), n, int(n * test + 0.5))
    n_train = n - int(n * test + 0.5)
    in_valid = lowest_words(draw_key(seed, "valid"), n_train, int(n_train * valid + 0.5)) if valid else None
    if n_train - (int(n_train * valid + 0.5) if valid else 0) <= 0:
        raise InputError(f"test = {test} and valid = {valid} leave no pair for train; hold out fewer pairs.")
    names = ["train", *(["valid"] if valid else []), "test"]
    writers = {name: PairWriter(folder, f"split/{name}", *sizes) for name in names}
    rank = 0  # among the pairs that are not in test
    try:
        for block in pairs.blocks():
            of_test = in_test(block.first, len(block.users))
            masks = {"test": of_test, "train": ~of_test}
            if in_valid is not None:
                left = int((~of_test).sum())
                masks["valid"] = np.zeros_like(of_test)
                masks["valid"][~of_test] = in_valid(rank, left)
                masks["train"] = ~of_test & ~masks["valid"]
                rank += left
            for name, mask in masks.items():
                columns = {column: values[mask] for column, values in block.columns.items()}
                writers[name].write(block.users[mask], block.items[mask], columns)
            advance(block.first + len(block.users))
        arrays = [file for writer in writers.values() for file in writer.close(pairs.columns)]
    finally:
        for writer in writers.values():
            writer.__exit__(None, None, None)
    recipe = f"random(test={test}, valid={valid}, seed={seed})"
    return {"recipe": recipe, "parts": names}, arrays


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
