"""Pairs that others have sorted, such as a cluster: a stream of tables -> a prepared folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from truepair.data.interactions import Interactions
from truepair.data.log import Policy
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.id_files import id_type, write_ids
from truepair.data.prepared.manifest import Manifest, Part, write_manifest
from truepair.data.prepared.opening import open_prepared, part_of
from truepair.data.preparing.distinct_ids import Maps
from truepair.data.preparing.pair_files import PairFiles, PairWriter
from truepair.data.preparing.parts import write_split
from truepair.data.preparing.sorted_rows import SortedRows, Tables
from truepair.data.reading import ReadOptions
from truepair.data.sources.file_opening import expanded
from truepair.data.split import Split
from truepair.errors import StorageError
from truepair.storage.atomic import flush_folder
from truepair.storage.versions import package_version


class Shares(NamedTuple):
    """The shares of `split_random`."""

    test: float
    valid: float = 0.0
    seed: int = 0


class _Written(NamedTuple):
    """The arrays of parts, and the recipe of their split."""

    arrays: list[ArrayFile]
    parts: list[str]
    recipe: str | None


def write_sorted_pairs(
    tables: Tables,
    folder: str | Path,
    source: str,
    options: ReadOptions | None = None,
    shares: Shares | None = None,
) -> Interactions | Split:
    """Write a prepared folder from tables with the columns `user` and `item`, which is then opened.

    `rating`, `weight` and `time` are the other columns, if there are. `tables()` is called twice, for ids and
    for pairs. The rows of all tables together are sorted by user, then item, text by its bytes; rows of one
    pair are in the order of the source. Of the `options`, `min_rating` and `duplicates` have an effect. Only
    the ids, a table and the rows of a pair are in memory. The folder appears whole or not at all, and its
    arrays are those that `prepare_interactions` makes of the same rows, without the log of events.
    """
    rows = SortedRows(tables, source, ReadOptions() if options is None else options)
    target = expanded(folder)
    with _new_folder(target) as made:
        _write(rows, made, shares)
    return open_prepared(target)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder beside the target, which becomes the target if there is no error."""
    check_new(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield made
        made.chmod(0o755)  # others may read it, as they may read a folder of `prepare`
        os.rename(made, target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    flush_folder(target.parent)


def check_new(path: Path) -> None:
    """Raise if there is something at the path."""
    if os.path.lexists(path):
        raise StorageError(f"{path} exists; remove it, or choose another folder.")


def _write(rows: SortedRows, folder: Path, shares: Shares | None) -> None:
    maps = rows.id_maps()
    ids = _write_ids(maps, folder)
    written = _write_pairs(rows, maps, folder)
    if shares is not None:
        written = _split(written, maps, folder, shares)
    arrays = {file.file.removesuffix(".npy"): file for file in [*ids, *written.arrays]}
    types = id_type(maps["user"].ids.type), id_type(maps["item"].ids.type)
    parts = {name: Part(arrays[f"{name}/users"].shape[0]) for name in written.parts}
    manifest = Manifest(
        len(maps["user"]),
        len(maps["item"]),
        *types,
        parts,
        arrays,
        recipe=written.recipe,
        history=tuple(rows.steps),
        about={"source": rows.source, "truepair": package_version("truepair") or "unknown"},
        policy=Policy(rows.options.policy),
    )
    hashes = {name: part_of(folder, manifest, name).hash for name in parts}
    parts |= {name: Part(part.pairs, hashes[name]) for name, part in parts.items()}
    write_manifest(folder, manifest)
    for inside in (folder / "user_ids", folder / "item_ids", *(folder / name for name in parts), folder):
        flush_folder(inside)


def _write_ids(maps: Maps, folder: Path) -> list[ArrayFile]:
    files: list[ArrayFile] = []
    for role, each in maps.items():
        stored = each.ids.storage if isinstance(each.ids, pa.ExtensionArray) else each.ids
        files += write_ids(folder, f"{role}_ids", id_type(each.ids.type), [stored])
    return files


def _write_pairs(rows: SortedRows, maps: Maps, folder: Path) -> _Written:
    with PairWriter(folder, "all", len(maps["user"]), len(maps["item"])) as writer:
        for pairs in rows.pairs(maps["user"], maps["item"]):
            writer.write(*pairs)
        return _Written(writer.close({}), ["all"], None)


def _split(written: _Written, maps: Maps, folder: Path, shares: Shares) -> _Written:
    """The parts of the split in place of all pairs."""
    pairs, sizes = PairFiles(folder, written.arrays, "all"), (len(maps["user"]), len(maps["item"]))
    facts, arrays = write_split(
        folder, pairs, sizes, (shares.test, shares.valid), shares.seed, lambda n: None
    )
    shutil.rmtree(folder / "all")
    for name in facts["parts"]:
        os.rename(folder / "split" / name, folder / name)
    (folder / "split").rmdir()
    named = [replace(file, file=file.file.removeprefix("split/")) for file in arrays]
    return _Written(named, facts["parts"], facts["recipe"])
