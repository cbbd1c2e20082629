"""The k-core of pair files: users and items with too few pairs leave until nothing changes, in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from truepair.data.ids import IdMap
from truepair.data.interactions import Step
from truepair.data.prepared.array_files import ArrayFile, open_array, write_array
from truepair.data.prepared.id_files import open_ids, write_ids
from truepair.data.preparing.log_files import Events, log_blocks, write_log
from truepair.data.preparing.pair_files import PairFiles, PairWriter
from truepair.data.preparing.work import Work
from truepair.errors import InputError

Counts = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_IDS_AT_ONCE = 1 << 18


def core_members(pairs: PairFiles, least_items: int, least_users: int) -> tuple[Counts, Counts]:
    """The items of each user and the users of each item within the core; 0 for those outside."""
    users, items = pairs.counts, np.array(pairs.popularity)
    while True:
        users_in, items_in = users >= least_items, items >= least_users
        users_left, items_left = np.zeros_like(users), np.zeros_like(items)
        for block in pairs.blocks():
            kept = users_in[block.users] & items_in[block.items]
            users_left += np.bincount(block.users[kept], minlength=len(users))
            items_left += np.bincount(block.items[kept], minlength=len(items))
        if users_left.sum() == users.sum():
            return users_left, items_left
        users, items = users_left, items_left


def write_core(
    work: Work,
    pairs: PairFiles,
    ids: dict[str, Any],
    maps: list[ArrayFile],
    cores: tuple[int, int],
    source: str,
) -> tuple[dict[str, Any], list[ArrayFile]]:
    """The pairs, ids, dislikes and events of the core in the folder `core`; the facts have the sizes and the
    step."""
    what = f"outside the core (users ≥ {cores[0]} items, items ≥ {cores[1]} users)"
    users, items = core_members(pairs, *cores)
    if not users.any():
        raise InputError(
            f"{source}: no row is left: all {len(pairs):,} rows are removed ({what}); lower the bound."
        )
    kept = {"user": users > 0, "item": items > 0}
    codes = {role: np.cumsum(mask) - 1 for role, mask in kept.items()}
    sizes = {role: int(mask.sum()) for role, mask in kept.items()}
    folder = work.new_folder("core")
    arrays: list[ArrayFile] = []
    facts: dict[str, Any] = {}
    for role, mask in kept.items():
        whole = _ids(work, role, ids[role]["type"], maps)
        some = (
            _storage(whole.ids.slice(at, _IDS_AT_ONCE)).filter(mask[at : at + _IDS_AT_ONCE])
            for at in range(0, len(whole), _IDS_AT_ONCE)
        )
        arrays += write_ids(folder, f"core/{role}_ids", ids[role]["type"], some)
        facts[role] = {"ids": sizes[role], "type": ids[role]["type"]}
    with PairWriter(folder, "core/all", sizes["user"], sizes["item"]) as writer:
        for block in pairs.blocks():
            inside = kept["user"][block.users] & kept["item"][block.items]
            columns = {name: column[inside] for name, column in block.columns.items()}
            writer.write(codes["user"][block.users[inside]], codes["item"][block.items[inside]], columns)
        arrays += writer.close(pairs.columns)
    disliked = next((file for file in maps if file.file == "disliked.npy"), None)
    if disliked is not None:
        of = np.divmod(open_array(work.folder, disliked), ids["item"]["ids"])
        inside = kept["user"][of[0]] & kept["item"][of[1]]
        keys = codes["user"][of[0][inside]] * sizes["item"] + codes["item"][of[1][inside]]
        arrays += [write_array(folder, "core/disliked.npy", keys)] if len(keys) else []
    if log := [file for file in maps if file.file.startswith("log/")]:
        inner = (_inside(events, kept, codes) for events in log_blocks(work.folder, log))
        arrays += write_log(folder, "core/log", (sizes["user"], sizes["item"]), inner)
    removed = [ids[role]["ids"] - sizes[role] for role in ("user", "item")]
    facts["step"] = vars(Step(what, len(pairs) - writer.pairs, *removed))
    return facts, arrays


def _inside(events: Events, kept: dict[str, Mask], codes: dict[str, Counts]) -> Events:
    """The events of users and items that are kept, in the new codes."""
    inside = kept["user"][events["users"]] & kept["item"][events["items"]]
    some = {name: column[inside] for name, column in events.items()}
    return {**some, "users": codes["user"][some["users"]], "items": codes["item"][some["items"]]}


def _ids(work: Work, role: str, kind: str, maps: list[ArrayFile]) -> IdMap:
    files = [file for file in maps if file.file.startswith(f"{role}_ids/")]
    arrays = {file.file.removesuffix(".npy"): open_array(work.folder, file) for file in files}
    return open_ids(work.folder, f"{role}_ids", kind, arrays)


def _storage(array: Any) -> Any:
    return getattr(array, "storage", array)
