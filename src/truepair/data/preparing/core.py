"""The k-core of row files: users and items with too few pairs leave until nothing changes, in blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.interactions import Step
from truepair.data.prepared.array_files import ArrayFile, open_array, write_array
from truepair.data.prepared.id_files import write_ids
from truepair.data.prepared.manifest import Manifest
from truepair.data.prepared.opening import OpenedFolder
from truepair.data.preparing.publishing import Done
from truepair.data.preparing.row_files import Block, RowFiles, RowWriter, taken
from truepair.errors import InputError

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_IDS_AT_ONCE = 1 << 18


def core_members(pairs: RowFiles, least_items: int, least_users: int) -> tuple[Counts, Counts]:
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
        raise InputError(
            f"{source}: no row is left: all {len(pairs):,} rows are removed ({what}); lower the bound."
        )
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
    plain = ids.storage if isinstance(ids, pa.ExtensionArray) else ids
    some = (
        plain.slice(at, _IDS_AT_ONCE).filter(kept[at : at + _IDS_AT_ONCE])
        for at in range(0, len(plain), _IDS_AT_ONCE)
    )
    return write_ids(folder, f"core/{role}_ids", kind, some)
