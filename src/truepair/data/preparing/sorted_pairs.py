"""Pairs that others have sorted, such as a cluster: a stream of tables -> a prepared folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import Codes, IdMap, canonical_ids
from truepair.data.interactions import Interactions
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.id_files import id_type, write_ids
from truepair.data.prepared.manifest import Manifest, Part, write_manifest
from truepair.data.prepared.opening import open_prepared, part_of
from truepair.data.preparing.pair_files import PairWriter
from truepair.data.sources.file_opening import expanded
from truepair.errors import InputError, StorageError
from truepair.storage.atomic import flush_folder
from truepair.storage.versions import package_version

_MANY = 1 << 24  # ids, repeated ones among them, that are kept before they are made distinct

Tables = Callable[[], Iterator[pa.Table]]


def write_sorted_pairs(tables: Tables, folder: str | Path, source: str) -> Interactions:
    """Write a prepared folder from tables with the columns `user` and `item`, which is then opened.

    `tables()` is called twice, for ids and for pairs. The rows of all tables together are sorted by user,
    then item, text by its bytes; equal rows are one pair. Only the ids and a table are in memory. The folder
    appears whole or not at all, and equals what `prepare_interactions` makes of the same rows.
    """
    target = expanded(folder)
    if os.path.lexists(target):
        raise StorageError(f"{target} exists; remove it, or choose another folder.")
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(tables, made, source)
        made.chmod(0o755)  # others may read it, as they may read a folder of `prepare`
        os.rename(made, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    flush_folder(target.parent)
    found = open_prepared(target)
    assert isinstance(found, Interactions)
    return found


def _write(tables: Tables, folder: Path, source: str) -> None:
    maps = {role: IdMap.of(ids, role) for role, ids in _distinct_ids(tables, source).items()}
    files: list[ArrayFile] = []
    for role, ids in maps.items():
        stored = ids.ids.storage if isinstance(ids.ids, pa.ExtensionArray) else ids.ids
        files += write_ids(folder, f"{role}_ids", id_type(ids.ids.type), [stored])
    users, items = maps["user"], maps["item"]
    with PairWriter(folder, "all", len(users), len(items)) as writer:
        for block in _coded(tables, users, items, source):
            writer.write(*block, {})
        files += writer.close({})
    arrays = {file.file.removesuffix(".npy"): file for file in files}
    types = [id_type(ids.ids.type) for ids in maps.values()]
    about = {"source": source, "truepair": package_version("truepair") or "unknown"}
    parts = {"all": Part(writer.pairs)}
    manifest = Manifest(len(users), len(items), types[0], types[1], parts, arrays, about=about)
    parts["all"] = Part(writer.pairs, part_of(folder, manifest, "all").hash)
    write_manifest(folder, manifest)
    for inside in (folder / "user_ids", folder / "item_ids", folder / "all", folder):
        flush_folder(inside)


def _distinct_ids(tables: Tables, source: str) -> dict[str, pa.Array]:
    """The distinct ids of both roles."""
    found: dict[str, list[pa.Array]] = {"user": [], "item": []}
    for table in tables():
        for role, kept in found.items():
            if role not in table.column_names:
                raise InputError(f"{source} has no column {role!r}; it has {', '.join(table.column_names)}.")
            kept.append(pc.unique(table[role]))
            if sum(map(len, kept)) > _MANY:
                kept[:] = [pc.unique(pa.concat_arrays(kept))]
    if not any(map(len, found["user"])):
        raise InputError(f"{source} has no rows; give at least one pair.")
    return {role: _complete(pa.concat_arrays(kept), role, source) for role, kept in found.items()}


def _complete(ids: pa.Array, role: str, source: str) -> pa.Array:
    """The ids in their own type; an error if one is missing: null, NaN or empty."""
    found = canonical_ids(ids, role)
    is_text = found.type in (pa.large_string(), pa.large_binary())
    if found.null_count or (is_text and pc.any(pc.equal(pc.binary_length(found), 0)).as_py()):
        raise InputError(
            f"{source}: {role} has missing ids (null, NaN or empty); correct them, or drop their rows."
        )
    return found


def _coded(tables: Tables, users: IdMap, items: IdMap, source: str) -> Iterator[tuple[Codes, Codes]]:
    """The codes of distinct pairs, in order."""
    last = np.array([-1]), np.array([-1])
    for table in tables():
        if not len(table):
            continue
        near = IdMap(users.ids.slice(max(int(last[0][0]), 0), len(table) + 1))  # the table's own users
        first = near.find(table["user"], "user")
        of_users = np.concatenate([last[0], first + max(int(last[0][0]), 0)])
        of_items = np.concatenate([last[1], items.find(table["item"], "item")])
        steps, within = np.diff(of_users), np.diff(of_items)
        if (first < 0).any() or (steps < 0).any() or ((steps == 0) & (within < 0)).any():
            raise InputError(f"{source} is not sorted by user, then item, text by its bytes; sort it so.")
        new = (steps > 0) | (within > 0)
        yield of_users[1:][new], of_items[1:][new]
        last = of_users[-1:], of_items[-1:]


def id_columns(table: Any, user: str, item: str) -> pa.Table:
    """The two columns of ids under their names here."""
    for name in (user, item):
        if name not in table.column_names:
            raise InputError(f"there is no column {name!r}; the columns are {', '.join(table.column_names)}.")
    return pa.table({"user": table[user], "item": table[item]})
