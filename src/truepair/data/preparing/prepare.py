"""prepare_interactions: any source -> a folder of memory-mapped arrays, within a given memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from truepair.data.columns import Raw
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions, Step
from truepair.data.log import Policy
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.manifest import VERSION, Manifest, Part, write_manifest
from truepair.data.prepared.opening import is_prepared, open_prepared, part_of
from truepair.data.preparing.core import write_core
from truepair.data.preparing.merging import (
    merge_steps,
    removed_steps,
    write_events,
    write_id_maps,
    write_pairs,
)
from truepair.data.preparing.pair_files import PairFiles
from truepair.data.preparing.parts import write_split
from truepair.data.preparing.staging import stage
from truepair.data.preparing.work import Work, arrays_of, database_errors, memory_bytes
from truepair.data.reading import ReadOptions
from truepair.data.sources.file_opening import expanded
from truepair.data.sources.sql_urls import find_database, without_password
from truepair.data.split import Split
from truepair.data.split_recipes import check_shares
from truepair.errors import InputError, StorageError, did_you_mean
from truepair.storage.atomic import flush_folder
from truepair.storage.versions import package_version

Advance = Callable[[int], None]


def prepare_interactions(
    source: Any,
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
    chosen = _options(options)
    if test is not None:
        check_shares(test, valid, seed)
    elif valid:
        raise InputError(f"valid = {valid} has no effect without test; give both.")
    if is_prepared(source):
        raise InputError(f"{source} is prepared already; open it, or give what it was made from.")
    if os.path.lexists(target):
        raise StorageError(f"{target} exists; remove it, or choose another folder.")
    job = _job(source, options, test, valid, seed)
    failing = database_errors(f"preparing {target} fails")
    with failing, Work(target, job, limit, None if temp is None else expanded(temp)) as work:
        made = _Preparing(work, source, chosen, progress)
        made.run(None if test is None else (test, valid), seed)
        made.publish(target)
        work.remove()
    return open_prepared(target)


def _options(options: dict[str, Any]) -> ReadOptions:
    names = [each.name for each in fields(ReadOptions)]
    for name in options:
        if name not in names:
            raise InputError(f"{name!r} is no option of prepare_interactions.{did_you_mean(name, names)}")
    return ReadOptions(**options)


class _Preparing:
    """The steps, in order; each is skipped if it is finished."""

    def __init__(self, work: Work, source: Any, options: ReadOptions, progress: bool) -> None:
        self.work, self.source, self.options, self.progress = work, source, options, progress
        self.arrays: dict[str, ArrayFile] = {}
        self.history: list[Step] = []
        self.ids: dict[str, Any] = {}
        self.recipe: str | None = None
        self.parts = ["all"]
        self.policy = Policy()
        self.time_kind, self.prefix = "clock", ""

    def run(self, shares: tuple[float, float] | None, seed: int) -> None:
        """All steps until the arrays are there."""
        staged, raw = self._staged()
        steps, clock = removed_steps(self.work, staged, raw, self.options)
        with self._step("ids"):
            maps = self.work.finished("ids")
            if maps is None:
                maps = self.work.finish("ids", *write_id_maps(self.work, staged["types"], self.options))
        with self._step("pairs") as advance:
            merged = self.work.finished("pairs")
            if merged is None:
                found = write_pairs(self.work, staged, maps, clock, self.options, advance)
                merged = self.work.finish("pairs", *found)
        events = self._events(staged, maps) if merged["log"] else []
        self.work.shrink()
        now = self.options.weighting.given_now(raw)
        self.policy = Policy(self.options.policy, self.options.half_life, now, self.options.counts)
        self.history = [*steps, *merge_steps(merged, self.options.policy)]
        self.ids, self.time_kind = {role: maps[role] for role in ("user", "item")}, merged["time_kind"]
        self._take("", [*arrays_of(maps), *arrays_of(merged), *events])
        if self.options.cores is not None:
            self._core(self.options.cores, staged["source"])
        if shares is not None:
            self._split(shares, seed)

    def _staged(self) -> tuple[dict[str, Any], Raw]:
        staged = self.work.finished("rows")
        if staged is not None and self.work.value("select count(*) from rows") == staged["rows"]:
            return staged, Raw(staged["source"], (), lambda positions: [])
        with self._step("rows") as advance, closing(self.options.open(self.source)) as raw:
            at = self.options.find_columns(raw)
            return self.work.finish("rows", stage(self.work, raw, at, self.options, advance)), raw

    def _events(self, staged: dict[str, Any], maps: dict[str, Any]) -> list[ArrayFile]:
        with self._step("log"):
            facts = self.work.finished("log")
            if facts is None:
                facts = self.work.finish("log", *write_events(self.work, staged, maps, self.options))
            return arrays_of(facts)

    def _core(self, cores: tuple[int, int], source: str) -> None:
        with self._step("core"):
            facts = self.work.finished("core")
            if facts is None:
                pairs = PairFiles(self.work.folder, list(self.arrays.values()), "all")
                found = write_core(self.work, pairs, self.ids, list(self.arrays.values()), cores, source)
                facts = self.work.finish("core", *found)
        step = Step(**facts["step"])
        self.history += [step] if step.rows or step.users or step.items else []
        self.ids = {role: facts[role] for role in ("user", "item")}
        self.arrays.clear()
        self._take("core/", arrays_of(facts))

    def _split(self, shares: tuple[float, float], seed: int) -> None:
        with self._step("split") as advance:
            facts = self.work.finished("split")
            if facts is None:
                files = list(self.arrays.values())
                pairs = PairFiles(self.work.folder, files, f"{self.prefix}all")
                sizes = self.ids["user"]["ids"], self.ids["item"]["ids"]
                folder = self.work.new_folder("split")
                found = write_split(folder, pairs, sizes, shares, seed, advance)
                facts = self.work.finish("split", *found)
        self.recipe, self.parts = facts["recipe"], facts["parts"]
        self.arrays = {name: file for name, file in self.arrays.items() if not name.startswith("all/")}
        self._take("split/", arrays_of(facts))

    def _take(self, prefix: str, files: list[ArrayFile]) -> None:
        """These files are part of the result, under their names without the prefix."""
        self.prefix = prefix
        for file in files:
            self.arrays[file.file.removeprefix(prefix).removesuffix(".npy")] = file

    def publish(self, target: Path) -> None:
        """Put the arrays and the manifest into one folder, and rename it to the target."""
        with self._step("hash"):
            self.work.new_folder("result")
            result = self.work.folder / "result"
            files = {}
            for name, file in self.arrays.items():
                place = result / f"{name}.npy"
                place.parent.mkdir(parents=True, exist_ok=True)
                _link(self.work.folder / file.file, place)
                files[name] = ArrayFile(f"{name}.npy", file.dtype, file.shape, file.bytes, file.digest)
            users, items = self.ids["user"], self.ids["item"]
            parts = {name: Part(files[f"{name}/users"].shape[0]) for name in self.parts}
            manifest = Manifest(
                users["ids"],
                items["ids"],
                users["type"],
                items["type"],
                parts,
                files,
                self.time_kind,
                self.recipe,
                tuple(self.history),
                self._about(),
                self.policy,
                files["log/users"].shape[0] if "log/users" in files else None,
            )
            hashes = {name: part_of(result, manifest, name).hash for name in parts}
            parts |= {name: Part(part.pairs, hashes[name]) for name, part in parts.items()}
            write_manifest(result, manifest)
            for inside in {place.parent for place in result.rglob("*.npy")} | {result}:
                flush_folder(inside)
        try:
            os.rename(result, target)
        except OSError as error:
            raise StorageError(f"cannot write {target}: {error.strerror or error}.") from error
        flush_folder(target.parent)

    def _about(self) -> dict[str, Any]:
        text = isinstance(self.source, str | os.PathLike)
        shown = without_password(str(self.source)) if text else f"a {type(self.source).__name__}"
        return {"source": shown, "truepair": package_version("truepair") or "unknown"}

    @contextmanager
    def _step(self, name: str) -> Iterator[Advance]:
        if not self.progress:
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(f"{name:<6}"), TimeElapsedColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True)) as shown:
            task = shown.add_task("")
            yield lambda done: shown.update(
                task, description=f"{done:,} {'rows' if name == 'rows' else 'pairs'}"
            )


def _link(made: Path, place: Path) -> None:
    """The file under another name: the step that made it stays finished until all is done."""
    try:
        os.link(made, place)
    except OSError:  # a drive without links
        os.replace(made, place)


def _job(
    source: Any, options: dict[str, Any], test: float | None, valid: float, seed: int
) -> dict[str, Any] | None:
    """What must be equal to go on from unfinished work; None if that cannot be known, as for a table."""
    if not isinstance(source, str | os.PathLike):
        return None
    database = find_database(source)
    path = expanded(source) if database is None else database.path
    given = {name: repr(value) for name, value in options.items()}
    if options.get("items") is not None:
        catalogue = options["items"]
        is_file = isinstance(catalogue, str | os.PathLike)
        found = _files(expanded(catalogue)) if is_file else IdMap.of(catalogue, "item").digest().hex()
        given["items"] = repr(found)
    return {
        "version": VERSION,
        "truepair": package_version("truepair"),
        "source": without_password(str(source)),
        "files": [] if path is None else _files(path),
        "options": given,
        "split": [test, valid, seed],
    }


def _files(path: Path) -> list[list[Any]]:
    """Name, size and time of the last change of a file, or of all files in a folder."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    try:
        found = [(file, file.stat()) for file in files]
    except OSError:  # the reader says what is wrong
        return []
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in found]
