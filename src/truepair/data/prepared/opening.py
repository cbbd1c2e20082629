"""Opening a prepared folder: Interactions or a Split on its memory maps; nothing is copied."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import EXTRA, Interactions, Origin, trusted_interactions
from truepair.data.log import Log
from truepair.data.prepared.array_files import open_array, verify_array
from truepair.data.prepared.id_files import open_ids
from truepair.data.prepared.manifest import NAME, SPLIT, WHOLE, Manifest, read_manifest
from truepair.data.split import Split, disjoint_split
from truepair.errors import StorageError
from truepair.storage.types import Array, Json, Source

_AT_ONCE = 1 << 22  # pairs that are checked at once


def is_prepared(source: Source) -> bool:
    """Whether `source` is the path of a prepared folder, or of one of its parts, such as FOLDER/test."""
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        folder, _ = _folder_and_part(Path(source).expanduser())
    except (OSError, RuntimeError, ValueError):  # no such user; a NUL in the name
        return False
    return folder is not None


def open_prepared(folder: str | Path, *, verify: bool = False) -> Interactions | Split:
    """The interactions of a folder that `prepare` made, or its split; FOLDER/test is its test part alone.

    The arrays are memory maps: opening takes milliseconds whatever their length, and pages are read when they
    are used. Codes of users and items have 32 bits where that is enough. The sizes of all files are compared
    with the manifest. `verify=True` also reads every byte and compares checksums, so that a flipped bit is
    noticed, and checks that all codes are in range and sorted.
    """
    root, part = _found(Path(folder).expanduser())
    manifest = read_manifest(root)
    opened = OpenedFolder(root, manifest)
    if verify:
        for file in manifest.arrays.values():
            verify_array(root, file)
    found = {name: opened.part(name) for name in (manifest.parts if part is None else [part])}
    if verify:
        if opened.log is not None and not _log_in_order(opened.log):
            raise StorageError(f"{root}/log is damaged: its events are not in order; prepare it again.")
        for name, each in found.items():
            _verify(root / name, each, manifest.parts[name].hash)
    if part is not None or "all" in found:
        return found[part or "all"]
    return disjoint_split(found["train"], found.get("valid"), found["test"], manifest.recipe or "given()")


def manifest_of(folder: str | Path) -> Manifest:
    """The manifest of a prepared folder; nothing else is read."""
    return read_manifest(_found(Path(folder).expanduser())[0])


def _folder_and_part(path: Path) -> tuple[Path | None, str | None]:
    if (path / NAME).is_file():
        return path, None
    if path.name in (*WHOLE, *SPLIT) and (path.parent / NAME).is_file() and path.is_dir():
        return path.parent, path.name
    return None, None


def _found(path: Path) -> tuple[Path, str | None]:
    root, part = _folder_and_part(path)
    if root is not None:
        return root, part
    if path.is_file():
        raise StorageError(f"{path} is a file, not a prepared folder; make one with `truepair prepare`.")
    if not path.is_dir():
        raise StorageError(f"there is no prepared folder at {path}; check the path.")
    raise StorageError(f"{path} has no {NAME}: it is incomplete, or was not made by `truepair prepare`.")


class OpenedFolder:
    """The mapped arrays of a folder whose manifest is known; its ids, and the log that all parts share."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root, self.manifest = root, manifest
        self._arrays = {name: open_array(root, file) for name, file in manifest.arrays.items()}
        self.users = open_ids(root, "user_ids", manifest.user_type, self._arrays)
        self.items = open_ids(root, "item_ids", manifest.item_type, self._arrays)
        self.log = None if manifest.events is None else self._log()

    def part(self, name: str) -> Interactions:
        """The interactions of one part."""
        known, arrays = self.manifest.parts.get(name), self._columns(name)
        if known is None:
            parts = ", ".join(self.manifest.parts)
            raise StorageError(f"{self.root} has no part {name!r}; its parts are {parts}.")
        starts, users, items = (arrays.pop(each) for each in ("starts", "users", "items"))
        counts = np.diff(starts)
        if starts[0] != 0 or starts[-1] != known.pairs or (counts < 0).any():
            raise StorageError(f"{self.root}/{name}/starts.npy is damaged: it does not rise to the end.")
        fields: Json = {"indptr": starts, "user_counts": counts, "item_counts": arrays.pop("popularity")}
        fields |= {} if known.hash is None else {"hash": known.hash}
        fields |= {"history": self.manifest.history, "time_kind": self.manifest.time_kind}
        disliked, places = self._arrays.get("disliked"), arrays.pop("places", None)
        fields |= {"disliked": disliked if disliked is not None and len(disliked) else None, **arrays}
        made = trusted_interactions(users, items, self.users, self.items, **fields)
        return made.made_from(Origin(self.manifest.policy, self.log, places))

    def _log(self) -> Log:
        columns: Json = {**self._columns("log"), "time_kind": self.manifest.time_kind}
        return Log(user_ids=self.users, item_ids=self.items, policy=self.manifest.policy, **columns)

    def _columns(self, part: str) -> dict[str, Array]:
        """The arrays in the folder of this part, by their names there."""
        inside = (name for name in self._arrays if name.startswith(f"{part}/"))
        return {name.removeprefix(f"{part}/"): self._arrays[name] for name in inside}


# --- verification ------------------------------------------------------------------------------------


def _verify(place: Path, found: Interactions, known: str | None) -> None:
    """Raise unless pairs are in range and sorted, counts are theirs, and the hash is the manifest's."""
    if not _in_order(found):
        raise StorageError(f"{place} is damaged: pairs, starts or popularity are wrong; prepare it again.")
    plain = {name: getattr(found, name) for name in (*EXTRA, "time_kind", "disliked")}
    anew = trusted_interactions(found.users, found.items, found.user_ids, found.item_ids, **plain)
    if known is not None and anew.hash != known:
        raise StorageError(f"{place} is damaged: its hash is not the manifest's; prepare it again.")


def _in_order(found: Interactions) -> bool:
    """Whether pairs are in range and rise, and starts and popularity count them; a chunk at a time."""
    popularity, counts, last = np.zeros(found.n_items, np.int64), np.zeros(found.n_users, np.int64), -1
    for first in range(0, len(found), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        users, items = (codes[some].astype(np.int64) for codes in (found.users, found.items))
        if not (_in_range(users, found.user_ids) and _in_range(items, found.item_ids)):
            return False
        keys = users * found.n_items + items
        if keys[0] <= last or (np.diff(keys) <= 0).any():
            return False
        last = int(keys[-1])
        popularity += np.bincount(items, minlength=found.n_items)
        low = int(users[0])
        counts[low : int(users[-1]) + 1] += np.bincount(users - low)
    return np.array_equal(popularity, found.item_counts) and np.array_equal(counts, found.user_counts)


def _log_in_order(log: Log) -> bool:
    """Whether codes are in range, users do not fall, and the times of a user do not; a chunk at a time."""
    assert log.time is not None
    for first in range(0, len(log), _AT_ONCE):
        some = slice(max(first - 1, 0), first + _AT_ONCE)
        users, items, time = log.users[some], log.items[some], log.time[some]
        if not (_in_range(users, log.user_ids) and _in_range(items, log.item_ids)):
            return False
        later_user = users[1:] > users[:-1]
        if not (later_user | (users[1:] == users[:-1]) & (time[1:] >= time[:-1])).all():
            return False
    return True


def _in_range(codes: Codes, ids: IdMap) -> bool:
    return bool(codes.min() >= 0 and codes.max() < len(ids))
