"""EventStore: events in an SQLite file. An event that is acknowledged is on the disk, and there once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from truepair.errors import StorageError
from truepair.serving.events.event import Event

_APPLICATION = 0x74727065  # "trpe": what the file says it belongs to
_WAIT = 10.0  # seconds for another process to finish its transaction

MIGRATIONS = [
    """
    CREATE TABLE events (
        number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of arrival
        user TEXT NOT NULL, item TEXT NOT NULL, kind TEXT NOT NULL, weight REAL NOT NULL,
        time INTEGER NOT NULL,  -- microseconds since 1970
        id TEXT UNIQUE,
        UNIQUE (user, item, kind, time)
    )
    """,
]
"""Statements from each version of the schema to the next; the version is the number of those done."""

_INSERT = (
    "INSERT INTO events (user, item, kind, weight, time, id) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)

_LARGEST = 2**63 - 1
_SELECT = (
    "SELECT number, user, item, kind, weight, time FROM events WHERE number > ? AND number <= ? "
    "ORDER BY number LIMIT 65536"
)
SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "user": pa.large_string(),
        "item": pa.large_string(),
        "kind": pa.large_string(),
        "weight": pa.float64(),
        "time": pa.timestamp("us", "UTC"),
    }
)
"""The columns of tables of events."""


class EventStore:
    """Writes events. Several processes may have the same file open."""

    def __init__(self, path: Path) -> None:
        self.path = path
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
                raise StorageError(
                    f"{self.path} has version {version} of the store, and this truepair knows "
                    f"{len(MIGRATIONS)}; install a newer truepair."
                )
            for statement in MIGRATIONS[version:]:
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            self._database.execute(f"PRAGMA application_id = {_APPLICATION}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def add(self, batches: Sequence[Sequence[Event]]) -> list[int]:
        """Store batches of events in one transaction: how many of each batch are new.

        When it returns, they are on the disk. An event is one from before if it has the same id, or the
        same user, item, kind and time.
        """
        with _explained(self.path), self._transaction():
            insert = self._database.execute
            return [sum(insert(_INSERT, event).rowcount for event in batch) for batch in batches]

    def close(self) -> None:
        """Write everything to the main file."""
        self._database.close()


class EventReader:
    """Reads events, and notices new ones of any process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _explained(path):
            address = f"{path.absolute().as_uri()}?mode=ro"
            self._database = sqlite3.connect(address, uri=True, timeout=_WAIT, check_same_thread=False)
            self._version = self._data_version()
            self._last = self._last_number()

    def _data_version(self) -> int:
        return int(self._database.execute("PRAGMA data_version").fetchone()[0])

    def _last_number(self) -> int:
        return int(self._database.execute("SELECT coalesce(max(number), 0) FROM events").fetchone()[0])

    def changed_users(self) -> set[str]:
        """Who has events that came since the last call; a few microseconds where there are none."""
        with _explained(self.path):
            version = self._data_version()
            if version == self._version:
                return set()
            rows = self._database.execute(
                "SELECT number, user FROM events WHERE number > ? ORDER BY number", (self._last,)
            ).fetchall()
            self._version = version
            self._last = rows[-1][0] if rows else self._last
            return {user for _, user in rows}

    def of_user(self, user: str) -> list[tuple[str, str, float]]:
        """(item, kind, weight) of a person's events, oldest first; of the same time, in order of arrival."""
        with _explained(self.path):
            query = "SELECT item, kind, weight FROM events WHERE user = ? ORDER BY time, number"
            return self._database.execute(query, (user,)).fetchall()

    def count(self) -> int:
        """How many events there are."""
        with _explained(self.path):
            return int(self._database.execute("SELECT count(*) FROM events").fetchone()[0])

    def table(self, after: int = 0, until: int | None = None) -> pa.Table:
        """Events in order of arrival: those with a number above `after`, up to `until`."""
        return pa.Table.from_batches(self.batches(after, until), SCHEMA)

    def batches(self, after: int = 0, until: int | None = None) -> Iterator[pa.RecordBatch]:
        """The same, some thousand at a time."""
        while True:
            with _explained(self.path):
                rows = self._database.execute(
                    _SELECT, (after, _LARGEST if until is None else until)
                ).fetchall()
            if not rows:
                return
            yield pa.record_batch(
                [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), SCHEMA, strict=True)],
                schema=SCHEMA,
            )
            after = rows[-1][0]

    def close(self) -> None:
        """Close the file."""
        self._database.close()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as StorageErrors that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(
            f"the store {path} cannot be used: {error}; check the file and the disk."
        ) from error
