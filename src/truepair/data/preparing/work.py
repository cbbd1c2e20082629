"""Work: the folder beside the target in which preparing goes on, its DuckDB database, and finished steps.

A step ends with an entry in a journal. What a killed process has not finished is done again; what it has is
verified and kept, if the source and the options are the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from truepair.data.prepared.array_files import ArrayFile, verify_array
from truepair.errors import InputError, StorageError, TruepairError
from truepair.storage.atomic import atomic_write
from truepair.storage.notebook import progress_bar
from truepair.storage.types import Json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUFFIX = ".preparing"
_JOURNAL, _DATABASE, _SPILL = "journal.json", "work.duckdb", "spill"
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_LEAST = 500_000_000  # bytes
_OWN = 300_000_000  # bytes that Python, Arrow and blocks of pairs take beside DuckDB
_BEYOND = 6  # a sort in DuckDB goes beyond its limit, by less than a sixth of the memory
_RESTING = 200_000_000  # bytes of DuckDB where it has nothing to do

Done = tuple[Json, list[ArrayFile]]
"""What a step makes: values of the manifest, and arrays. `history` are the steps that it adds."""

Advance = Callable[[int], None]
"""Shows how much of a step is done."""


def memory_bytes(memory: str | float) -> int:
    """An amount of memory in bytes: a number, or text such as "4GB".

    >>> memory_bytes("4GB"), memory_bytes("1.5 g")
    (4000000000, 1500000000)
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)i?b?\s*", str(memory), re.IGNORECASE)
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].lower()])
    if size < _LEAST:
        raise InputError(f"memory = {memory!r:.60} is not an amount of 500MB or more, such as '4GB'.")
    return size


class Work:
    """The folder of unfinished work. `with` closes the database; `remove` deletes the folder."""

    def __init__(
        self, target: Path, job: Json | None, memory: int, temp: Path | None, progress: bool = False
    ) -> None:
        self.folder, self.progress = target.with_name(target.name + SUFFIX), progress
        self._spill = (self.folder if temp is None else temp) / _SPILL
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.db = _without_bar(_connect(self.folder / _DATABASE, memory, self._spill))
        except OSError as error:
            raise StorageError(f"cannot write to {self.folder}: {error.strerror or error}.") from error
        self._job, self._steps = job, self._kept(job)
        self._store()

    def _kept(self, job: Json | None) -> dict[str, Json]:
        """The finished steps of the same job; nothing of another one stays."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            found = json.loads((self.folder / _JOURNAL).read_bytes())
            if job is not None and found["job"] == job:
                return dict(found["steps"])
        for (table,) in self.db.execute("select table_name from duckdb_tables()").fetchall():
            self.db.execute(f'drop table "{table}"')
        for path in self.folder.iterdir():
            if path.name not in (_DATABASE, f"{_DATABASE}.wal", _SPILL):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {}

    def step(self, name: str, make: Callable[[Advance], Done]) -> Done:
        """What a step makes; it is skipped if it is finished."""
        with shown_progress(name, self.progress) as advance:
            return self._finished(name) or self.finish(name, *make(advance))

    def _finished(self, step: str) -> Done | None:
        """The facts of a step that is finished, and its arrays, verified. None if it must be done."""
        if (facts := self._steps.get(step)) is None:
            return None
        facts = dict(facts)
        files = [ArrayFile(**{**one, "shape": tuple(one["shape"])}) for one in facts.pop("arrays")]
        try:
            for file in files:
                verify_array(self.folder, file)
        except StorageError:
            return None
        return facts, files

    def finish(self, step: str, facts: Json, files: list[ArrayFile]) -> Done:
        """Record a finished step."""
        self._steps[step] = {**facts, "arrays": [asdict(file) for file in files]}
        self.db.execute("checkpoint")
        self._store()
        return facts, files

    def _store(self) -> None:
        with atomic_write(self.folder / _JOURNAL) as file:
            file.write(json.dumps({"job": self._job, "steps": self._steps}).encode())

    def value(self, sql: str) -> Any:
        """The only value of a query."""
        row = self.db.execute(sql).fetchone()
        assert row is not None
        return row[0]

    def batches(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The result of a query, some rows at a time, without having all of it in memory."""
        found = _without_bar(self.db.cursor()).sql(sql).to_arrow_reader(rows)
        yield from pa.RecordBatchReader.from_stream(found)

    def shrink(self) -> None:
        """Let go of the database's memory: only arrays are needed from here on. It stays open, as a lock."""
        import duckdb

        with suppress(duckdb.Error):  # it could not free so much
            self.db.execute(f"set memory_limit = '{_RESTING // 1_000_000}MB'")

    def remove(self) -> None:
        """Delete the folder, and what was spilled elsewhere."""
        self.db.close()
        shutil.rmtree(self._spill, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()


def _connect(path: Path, memory: int, spill: Path) -> DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise InputError("prepare needs duckdb: pip install 'truepair[sql]'") from error
    spill.mkdir(parents=True, exist_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{(memory - max(_OWN, memory // _BEYOND)) // 1_000_000}MB",
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "threads": os.cpu_count() or 1,
    }
    try:
        return duckdb.connect(str(path), config=settings)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise StorageError(f"another process is preparing {path.parent}; wait for it.") from error
        for each in (path, path.with_name(f"{path.name}.wal"), path.with_name(_JOURNAL)):
            each.unlink(missing_ok=True)  # damaged: nothing of it can be used
        return duckdb.connect(str(path), config=settings)


def _without_bar(connection: DuckDBPyConnection) -> DuckDBPyConnection:
    """The connection, which prints no progress: that would be on stdout, among results."""
    connection.execute("set enable_progress_bar = false")
    return connection


@contextmanager
def shown_progress(step: str, progress: bool) -> Iterator[Advance]:
    """A line on stderr with the time and the rows of a step, if that is asked for."""
    if not progress:
        yield lambda done: None
        return
    from rich.progress import TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"{step:<6}"), TimeElapsedColumn(), TextColumn("{task.description}"))
    noun = "rows" if step == "rows" else "pairs"
    with progress_bar(*columns) as shown:
        task = shown.add_task("")
        yield lambda done: shown.update(task, description=f"{done:,} {noun}")


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Turn errors of DuckDB, such as a full disk, into a StorageError with the reason."""
    try:
        yield
    except TruepairError:
        raise
    except Exception as error:
        import duckdb

        if not isinstance(error, duckdb.Error | pa.ArrowException | OSError):
            raise
        reason = " ".join(str(error).split())
        raise StorageError(f"{what}: {reason:.400}; the same command goes on from there.") from error
