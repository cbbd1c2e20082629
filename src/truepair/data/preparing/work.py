"""Work: the folder beside the target in which preparing goes on, its DuckDB database, and finished steps.

A step ends with an entry in a journal. What a killed process has not finished is done again; what it has is
verified and kept, if the source and the options are the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from truepair.data.prepared.array_files import ArrayFile, verify_array
from truepair.errors import InputError, StorageError, TruepairError
from truepair.storage.atomic import atomic_write

SUFFIX = ".preparing"
_JOURNAL, _DATABASE, _SPILL = "journal.json", "work.duckdb", "spill"
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_LEAST = 500_000_000  # bytes
_OWN = 300_000_000  # bytes that Python, Arrow and blocks of pairs take beside DuckDB
_RESTING = 200_000_000  # bytes of DuckDB where it has nothing to do


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

    def __init__(self, target: Path, job: Mapping[str, Any] | None, memory: int, temp: Path | None) -> None:
        self.folder = target.with_name(target.name + SUFFIX)
        self._spill = (self.folder if temp is None else temp) / _SPILL
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.db = _without_bar(_connect(self.folder / _DATABASE, memory, self._spill))
        except OSError as error:
            raise StorageError(f"cannot write to {self.folder}: {error.strerror or error}.") from error
        self._steps = self._kept(job)
        self._job = job
        self._store()

    def _kept(self, job: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
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

    def finished(self, step: str) -> dict[str, Any] | None:
        """The facts of a step that is finished; its arrays are verified. None if it must be done."""
        facts = self._steps.get(step)
        if facts is None:
            return None
        try:
            for file in arrays_of(facts):
                verify_array(self.folder, file)
        except StorageError:
            return None
        return facts

    def finish(
        self, step: str, facts: dict[str, Any], arrays: list[ArrayFile] | None = None
    ) -> dict[str, Any]:
        """Record a finished step."""
        listed = [{**vars(file), "shape": list(file.shape)} for file in arrays or ()]
        self._steps[step] = {**facts, "arrays": listed}
        with database_errors("cannot keep what is finished"):
            self.db.execute("checkpoint")
        self._store()
        return self._steps[step]

    def _store(self) -> None:
        with atomic_write(self.folder / _JOURNAL) as file:
            file.write(json.dumps({"job": self._job, "steps": self._steps}).encode())

    def new_folder(self, name: str) -> Path:
        """An empty folder for the arrays of a step."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / name).mkdir()
        return self.folder

    def table(self, sql: str) -> None:
        """Make a table, `create or replace table … as …`: whole, or not at all."""
        with database_errors("preparing fails"):
            self.db.execute(sql)

    def value(self, sql: str) -> Any:
        """The only value, or the only row, of a query."""
        with database_errors("preparing fails"):
            row = self.db.execute(sql).fetchone()
        return row[0] if len(row) == 1 else row

    def batches(self, sql: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The result of a query, some rows at a time, without having all of it in memory."""
        reader = None
        while True:
            with database_errors("preparing fails"):
                if reader is None:
                    found = _without_bar(self.db.cursor()).sql(sql).to_arrow_reader(rows)
                    reader = pa.RecordBatchReader.from_stream(found)
                if (batch := next(reader, None)) is None:
                    return
            yield batch

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


def arrays_of(facts: Mapping[str, Any]) -> list[ArrayFile]:
    """The array files of a step."""
    return [ArrayFile(**{**one, "shape": tuple(one["shape"])}) for one in facts["arrays"]]


def _connect(path: Path, memory: int, spill: Path) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise InputError(
            "prepare needs duckdb, which is not installed: pip install 'truepair[sql]'"
        ) from error
    spill.mkdir(parents=True, exist_ok=True)
    settings: Any = {
        "memory_limit": f"{(memory - _OWN) // 1_000_000}MB",
        "temp_directory": str(spill),
        "preserve_insertion_order": False,
        "threads": os.cpu_count() or 1,
    }
    try:
        return duckdb.connect(str(path), config=settings)
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise StorageError(
                f"another process is preparing {path.parent}; wait for it, or choose another folder."
            ) from error
        _remove_database(path)  # damaged: nothing of it can be used
        return duckdb.connect(str(path), config=settings)


def _without_bar(connection: Any) -> Any:
    """The connection, which prints no progress: that would be on stdout, among results."""
    connection.execute("set enable_progress_bar = false")
    return connection


def _remove_database(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}.wal"), path.with_name(_JOURNAL)):
        each.unlink(missing_ok=True)


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Turn errors of DuckDB, such as a full disk, into a StorageError with the reason."""
    try:
        yield
    except (TruepairError, KeyboardInterrupt):
        raise
    except Exception as error:
        import duckdb

        if not isinstance(error, duckdb.Error | pa.ArrowException | OSError):
            raise
        reason = " ".join(str(error).split())
        raise StorageError(
            f"{what}: {reason:.400}; finished steps are kept, and the same command goes on from them."
        ) from error
