"""prepare_interactions: any source -> a folder of memory-mapped arrays, within a given memory."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions, Step
from truepair.data.prepared.manifest import SPLIT, VERSION, WHOLE, Manifest, Part, write_manifest
from truepair.data.prepared.opening import OpenedFolder, is_prepared, open_prepared
from truepair.data.preparing.coding import coded_rows, write_id_maps
from truepair.data.preparing.merging import write_pairs
from truepair.data.preparing.parts import write_core, write_split
from truepair.data.preparing.staging import stage
from truepair.data.preparing.work import Done, Work, database_errors, memory_bytes, shown_progress
from truepair.data.rows.options import ReadOptions
from truepair.data.sources.file_opening import expanded
from truepair.data.sources.sql_urls import find_database, without_password
from truepair.data.split import Split
from truepair.data.split_recipes import check_shares
from truepair.errors import InputError, StorageError, did_you_mean
from truepair.storage.atomic import flush_folder
from truepair.storage.types import Json, Source
from truepair.storage.versions import package_version

_STEPS = 3
"""Which steps there are, and what they keep: unfinished work of another version is done anew."""


def prepare_interactions(
    source: Source,
    folder: str | Path,
    *,
    memory: str | float = "4GB",
    temp: str | Path | None = None,
    test: float | None = None,
    valid: float = 0.0,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Interactions | Split:
    """Read `source` once, and keep its pairs in a folder of memory-mapped arrays, which is then opened.

    The pairs, ids, codes, hash and log are those of `read_interactions(source, **options)`. They need not fit
    into memory: rows are sorted and merged out of core by DuckDB. Everything that takes interactions takes
    the folder, and opens it in milliseconds: docs/prepare.md.

    - `memory`: about how much of it the process may use, such as "4GB".
    - `temp`: a folder for what does not fit into memory; by default it lies beside `folder`.
    - `test`, `valid`, `seed`: the shares of `split_random`. The folder then holds the parts of the split.
    - `options`: those of `read_interactions`.

    The folder appears whole or not at all, and must not exist. After a kill or an error, the same call goes
    on from the last finished step, if the source's files have not changed.

    >>> import tempfile
    >>> clicks = {"user": ["ann", "bob", "bob"], "item": [7, 7, 9]}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     prepare_interactions(clicks, f"{place}/clicks")
    <Interactions: 2 users x 2 items, 3 pairs, density 75.00%>
    """
    target, limit = expanded(folder), memory_bytes(memory)
    names = [each.name for each in fields(ReadOptions)]
    for name in options:
        if name not in names:
            raise InputError(f"{name!r} is no option of prepare_interactions.{did_you_mean(name, names)}")
    if test is None and valid:
        raise InputError(f"valid = {valid} has no effect without test; give both.")
    chosen, shares = ReadOptions(**options), None if test is None else check_shares(test, valid, seed)
    if is_prepared(source):
        raise InputError(f"{source} is prepared already; open it, or give what it was made from.")
    check_new(target)
    job, spill = _job(source, options, [test, valid, seed]), None if temp is None else expanded(temp)
    failing = database_errors(f"preparing {target} fails")
    with failing, Work(target, job, limit, spill, progress) as work:
        made = _prepare(work, source, chosen, shares)
        with shown_progress("hash", progress):
            publish(work.folder, made, target)
        work.remove()
    return open_prepared(target)


def _prepare(
    work: Work, source: Source, options: ReadOptions, shares: tuple[float, float, int] | None
) -> Manifest:
    """All steps until the arrays are there; those that are finished are skipped."""
    staged, _ = work.step("rows", lambda advance: stage(work, source, options, advance))
    maps = work.step("ids", lambda advance: write_id_maps(work, staged["types"], options))
    empty = Manifest(
        history=tuple(Step(**step) for step in staged["steps"]),
        about={"source": staged["source"]},
        policy=replace(options.policy, now=staged["now"]),
    )
    made = after(empty, maps)
    folder, cores = work.folder, options.cores
    rows = coded_rows(work, staged, options)  # read when they are needed
    pairs = work.step("pairs", lambda advance: write_pairs(folder, made, rows, staged, options, advance))
    work.shrink()
    made = after(made, pairs)
    if cores is not None:
        core = work.step("core", lambda advance: write_core(folder, made, cores, staged["source"]))
        made = after(made, core, "core/", replaces="")
    if shares is not None:
        split = work.step("split", lambda advance: write_split(folder, made, *shares, advance))
        made = after(made, split, "split/")
    return made


def _job(source: Source, options: Json, split: list[float | None]) -> Json | None:
    """What must be equal to go on from unfinished work; None if that cannot be known, as for a table."""
    if not isinstance(source, str | os.PathLike):
        return None
    database = find_database(source)
    path = expanded(source) if database is None else database.path
    given = {name: repr(value) for name, value in options.items()}
    if (catalogue := options.get("items")) is not None:
        is_file = isinstance(catalogue, str | os.PathLike)
        mark = _files(expanded(catalogue)) if is_file else IdMap.of(catalogue, "item").digest().hex()
        given["items"] = repr(mark)
    return {
        "version": [VERSION, _STEPS],
        "truepair": package_version("truepair"),
        "source": without_password(str(source)),
        "files": [] if path is None else _files(path),
        "options": given,
        "split": split,
    }


def _files(path: Path) -> list[list[str | int]]:
    """Name, size and time of the last change of a file, or of all files in a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    try:
        found = [(file, file.stat()) for file in files]
    except OSError:  # the reader says what is wrong
        return []
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in found]


# --- the manifest, which grows with each step, and the folder, which appears whole ----------------------


def after(made: Manifest, done: Done, folder: str = "", replaces: str = "all/") -> Manifest:
    """The manifest after a step that wrote its arrays below `folder`, in place of those that begin so."""
    facts, files = done
    history = (*made.history, *(Step(**step) for step in facts.get("history", ())))
    arrays = {name: file for name, file in made.arrays.items() if not name.startswith(replaces)}
    arrays |= {file.file.removeprefix(folder).removesuffix(".npy"): file for file in files}
    return replace(made, **{**facts, "history": history, "arrays": arrays})


def check_new(path: Path) -> None:
    """Raise if there is something at the path."""
    if os.path.lexists(path):
        raise StorageError(f"{path} exists; remove it, or choose another folder.")


def publish(folder: Path, made: Manifest, target: Path) -> None:
    """Move the arrays below `folder` to their places beside the manifest, and rename that to `target`."""
    lengths = {name: made.arrays.get(f"{name}/users") for name in (*WHOLE, *SPLIT)}
    parts = {name: Part(users.shape[0]) for name, users in lengths.items() if users is not None}
    log = made.arrays.get("log/users")
    about = {**made.about, "truepair": package_version("truepair")}
    made = replace(made, parts=parts, events=None if log is None else log.shape[0], about=about)
    opened = OpenedFolder(folder, made)
    hashed = {name: replace(part, hash=opened.part(name).hash) for name, part in parts.items()}
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    write_manifest(result, replace(made, parts=hashed))
    for name, file in made.arrays.items():
        place = result / f"{name}.npy"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folder / file.file, place)
    for inside in {place.parent for place in result.rglob("*.npy")} | {result}:
        flush_folder(inside)
    os.rename(result, target)
    flush_folder(target.parent)
