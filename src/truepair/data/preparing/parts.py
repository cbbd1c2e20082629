"""Parts of row files, in blocks: the k-core, and a random split with the draws of `split_random`.

Users and items with too few pairs leave the core until nothing changes. The sampled share of a split are the
pairs with the lowest random numbers, so that it is enough to know the number below which they lie: nothing is
sorted but the numbers near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.ids import Codes, storage_of
from truepair.data.interactions import Step
from truepair.data.log import Mask
from truepair.data.prepared.array_files import ArrayFile, open_array, write_array
from truepair.data.prepared.id_files import write_ids
from truepair.data.prepared.manifest import Manifest
from truepair.data.prepared.opening import OpenedFolder
from truepair.data.preparing.row_files import AT_ONCE, Block, RowFiles, RowWriter, taken
from truepair.data.preparing.work import Advance, Done
from truepair.data.split_recipes import draw_key
from truepair.errors import InputError
from truepair.randomness import random_bits

_BUCKETS = 1 << 16
_IDS_AT_ONCE = 1 << 18

Words = npt.NDArray[np.uint64]


def core_members(pairs: RowFiles, least_items: int, least_users: int) -> tuple[Codes, Codes]:
    """The items of each user and the users of each item within the core; 0 for those outside."""
    users, items = np.diff(pairs.arrays["starts"]), np.array(pairs.arrays["popularity"])
    while True:
        users_in, items_in = users >= least_items, items >= least_users
        users_left, items_left = np.zeros_like(users), np.zeros_like(items)
        for block in pairs.blocks():
            kept = users_in[block["users"]] & items_in[block["items"]]
            users_left += np.bincount(block["users"][kept], minlength=len(users))
            items_left += np.bincount(block["items"][kept], minlength=len(items))
        if users_left.sum() == users.sum():
            return users_left, items_left
        users, items = users_left, items_left


def write_core(folder: Path, made: Manifest, cores: tuple[int, int], source: str) -> Done:
    """The pairs, ids, dislikes and events of the core, below `folder`/core."""
    pairs = RowFiles(folder, made.arrays, "all")
    what = f"outside the core (users ≥ {cores[0]} items, items ≥ {cores[1]} users)"
    users, items = core_members(pairs, *cores)
    if not users.any():
        raise InputError(f"{source}: no row is left of {len(pairs):,} ({what}); lower the bound.")
    core = _Core(users > 0, items > 0)
    opened = OpenedFolder(folder, made)
    files = _write_ids(folder, "user", made.user_type, opened.users.ids, core.users)
    files += _write_ids(folder, "item", made.item_type, opened.items.ids, core.items)
    with RowWriter(folder, "core/all", core.sizes) as writer:
        for block in pairs.blocks():
            writer.write(core.of(block))
        files += writer.finish()
    if (disliked := made.arrays.get("disliked")) is not None:
        of_users, of_items = np.divmod(open_array(folder, disliked), made.items)
        block = core.of({"users": of_users, "items": of_items})
        keys = block["users"] * core.sizes[1] + block["items"]
        files += [write_array(folder, "core/disliked.npy", keys)] if len(keys) else []
    if "log/users" in made.arrays:
        with RowWriter(folder, "core/log", core.sizes, pairs=False) as events:
            for block in RowFiles(folder, made.arrays, "log").blocks():
                events.write(core.of(block))
            files += events.finish()
    left = core.sizes
    step = Step(what, len(pairs) - writer.rows, made.users - left[0], made.items - left[1])
    removed = [step] if step.rows or step.users or step.items else []
    return {"users": left[0], "items": left[1], "history": [vars(each) for each in removed]}, files


class _Core:
    """Which users and items are in the core, and their codes there."""

    def __init__(self, users: Mask, items: Mask) -> None:
        self.users, self.items = users, items
        self.sizes = int(users.sum()), int(items.sum())
        self._codes = {"users": np.cumsum(users) - 1, "items": np.cumsum(items) - 1}

    def of(self, block: Block) -> Block:
        """The rows of users and items in the core, in its codes."""
        inside = taken(block, self.users[block["users"]] & self.items[block["items"]])
        return {**inside, **{name: codes[inside[name]] for name, codes in self._codes.items()}}


def _write_ids(folder: Path, role: str, kind: str, ids: pa.Array, kept: Mask) -> list[ArrayFile]:
    plain = storage_of(ids)
    some = (
        plain.slice(at, _IDS_AT_ONCE).filter(kept[at : at + _IDS_AT_ONCE])
        for at in range(0, len(plain), _IDS_AT_ONCE)
    )
    return write_ids(folder, f"core/{role}_ids", kind, some)


# --- a random split --------------------------------------------------------------------------------------


def write_split(folder: Path, made: Manifest, test: float, valid: float, seed: int, advance: Advance) -> Done:
    """The parts train, valid (if its share is above 0) and test, below `folder`/split."""
    pairs = RowFiles(folder, made.arrays, "all")
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


def lowest_words(key: int, n: int, wanted: int) -> Callable[[int, int], Mask]:
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
