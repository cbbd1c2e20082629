"""open_store; EventStore, EventReader: a store in an SQLite file. What is acknowledged is on the disk."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from truepair.data.sources.sql_urls import is_url, parse_url
from truepair.errors import InputError, StorageError
from truepair.serving.events.migrations import SQLITE as MIGRATIONS
from truepair.serving.events.migrations import newer_version
from truepair.serving.events.reading import StoreReader, Values, by_kind, changes_after, last_numbers
from truepair.serving.events.records import Row
from truepair.serving.events.writing import StoreWriter, Transaction

_APPLICATION = 0x74727065  # "trpe": what the file says it belongs to
_WAIT = 10.0  # seconds for another process to finish its transaction


class EventStore(StoreWriter):
    """Writes events, items and users. Several processes may have the same file open."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)
        self._lock = threading.Lock()
        with _explained(path):
            self._database = sqlite3.connect(
                path, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
            try:
                self._check_owner()
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")  # a commit waits for the disk
                self._migrate()
            except BaseException:
                self._database.close()
                raise

    def _check_owner(self) -> None:
        owner, tables = (
            self._database.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if owner != _APPLICATION and (owner or tables):
            raise StorageError(f"{self.path} is an SQLite file of another program; give another --store.")

    def _migrate(self) -> None:
        with self._transaction():
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version > len(MIGRATIONS):
                raise newer_version(self.name, version, len(MIGRATIONS))
            for statements in MIGRATIONS[version:]:
                for statement in statements:
                    self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            self._database.execute(f"PRAGMA application_id = {_APPLICATION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:  # commits, or rolls back after an error
            yield

    @contextmanager
    def writing(self, limited: bool = True) -> Iterator[Transaction]:
        """A transaction; readers notice by the file what it changes."""
        with self._lock, _explained(self.path), self._transaction():
            yield Transaction(self._database.cursor())

    def reader(self) -> EventReader:
        """A reader of the same file."""
        return EventReader(self.path)

    def close(self) -> None:
        """Write everything to the main file."""
        self._database.close()


class EventReader(StoreReader):
    """Reads the file of an `EventStore`, and notices what any process changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _explained(path):
            address = f"{path.absolute().as_uri()}?mode=ro"
            self._database = sqlite3.connect(address, uri=True, timeout=_WAIT, check_same_thread=False)
            self._version = self._data_version()
            self._last = last_numbers(self.rows)

    def _data_version(self) -> int:
        return int(self._database.execute("PRAGMA data_version").fetchone()[0])

    def rows(self, query: str, values: Values = ()) -> list[Row]:
        """The rows of a query."""
        with _explained(self.path):
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within this, every query sees the file as it was at the first one."""
        with _explained(self.path):
            self._database.execute("BEGIN")
        with self._database:
            yield

    def changed(self) -> dict[str, set[str]]:
        """What changed since the last call: "user": whose histories, "item": items whose records."""
        with _explained(self.path):
            version = self._data_version()
            if version == self._version:
                return {"user": set(), "item": set()}
            touched = changes_after(self.rows, self._last)
        self._version = version
        return by_kind(touched)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def open_store(place: str | Path, *, create: bool = True) -> StoreWriter:
    """The store of an SQLite file (a path or sqlite:///…), or of PostgreSQL (postgresql://…).

    It is made or migrated if needed; with `create` False, a file that is not there is an error.
    """
    database = parse_url(str(place)) if is_url(place) else None
    if database is None or database.engine == "sqlite":
        path = Path(place).expanduser() if database is None else Path(database.address)
        if not create and not path.is_file():
            raise InputError(f"there is no store {path}; give the file or the URL of one.")
        return EventStore(path)
    if database.engine != "postgresql":
        raise InputError(f"{database.shown} cannot be a store; give an SQLite file or postgresql://…")
    if missing := [name for name in ("psycopg", "psycopg_pool") if find_spec(name) is None]:
        raise InputError(f"a store in PostgreSQL needs {', '.join(missing)}: pip install 'truepair[serve]'")
    from truepair.serving.events.postgresql import PostgresqlStore

    return PostgresqlStore(database)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as StorageErrors that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"the store {path} cannot be used: {error}; check file and disk.") from error
