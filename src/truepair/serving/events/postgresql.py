"""PostgresqlStore, PostgresqlReader: a store in the schema `truepair` of a PostgreSQL database.

Numbers of a sequence become visible in the order of commits, not of the numbers, so that a reader that asks
for numbers above the last one would miss events. All writers therefore take one lock for their transaction.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from truepair.data.sources.sql_urls import Database
from truepair.errors import InputError
from truepair.serving.events.connections import SCHEMA, WRITING, Connection, Connections, marked, rows_of
from truepair.serving.events.event import Event
from truepair.serving.events.migrations import POSTGRESQL as MIGRATIONS
from truepair.serving.events.migrations import newer_version
from truepair.serving.events.reading import StoreReader, Values
from truepair.serving.events.records import Row
from truepair.serving.events.watching import CHANNEL, Watcher
from truepair.serving.events.writing import StoreWriter, Transaction

_WRITERS = 0x74727065  # the number of the lock
_INSERT_ALL = """
    INSERT INTO events ("user", item, kind, weight, time, id, value, comment)
    SELECT * FROM unnest(
        %s::text[], %s::text[], %s::text[], %s::double precision[], %s::bigint[], %s::text[],
        %s::double precision[], %s::text[]
    )
    ON CONFLICT DO NOTHING
"""
_SCHEMA_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"


class PostgresqlStore(StoreWriter):
    """Writes events, items and users. Several processes may use the same database."""

    def __init__(self, database: Database) -> None:
        if database.table is not None:
            raise InputError(
                f"--store {database.shown}#{database.table} names a table; the store has its own schema "
                f"{SCHEMA!r}: leave #{database.table} out."
            )
        self.name = database.shown
        self.connections = Connections(database)
        self._watcher: Watcher | None = None
        try:
            self._migrate()
        except BaseException:
            self.connections.close()
            raise

    def _migrate(self) -> None:
        with self.connections.connection(math.inf) as connection:
            if _version(connection) == len(MIGRATIONS):
                return
            with _locked(connection):
                if not connection.execute(_SCHEMA_EXISTS, (SCHEMA,)).fetchone():
                    connection.execute(f"CREATE SCHEMA {SCHEMA}")
                version = _version(connection)
                if version > len(MIGRATIONS):
                    raise newer_version(self.name, version, len(MIGRATIONS))
                for statements in MIGRATIONS[version:]:
                    for statement in statements:
                        connection.execute(statement)
                connection.execute("CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL)")
                connection.execute("DELETE FROM version")
                connection.execute("INSERT INTO version VALUES (%s)", (len(MIGRATIONS),))

    @contextmanager
    def writing(self, limited: bool = True) -> Iterator[Transaction]:
        """A transaction; what it touched is told to the readers of this process when it is committed."""
        with self.connections.connection(WRITING if limited else math.inf) as connection:
            with _locked(connection), connection.cursor() as cursor:
                statements = _Statements(cursor)
                yield statements
                connection.execute(f"NOTIFY {CHANNEL}")
            if self._watcher is not None:
                self._watcher.tell(statements.touched)

    def reader(self) -> PostgresqlReader:
        """A reader of the same database."""
        if self._watcher is None:
            self._watcher = Watcher(self.connections)
        return PostgresqlReader(self.connections, self._watcher)

    def close(self) -> None:
        """Close all connections."""
        if self._watcher is not None:
            self._watcher.stop()
        self.connections.close()


def _version(connection: Connection) -> int:
    """How many migrations were done."""
    if not connection.execute("SELECT to_regclass('version') IS NOT NULL").fetchall()[0][0]:
        return 0
    return int(connection.execute("SELECT coalesce(max(version), 0) FROM version").fetchall()[0][0])


@contextmanager
def _locked(connection: Connection) -> Iterator[None]:
    """A transaction that no other writer shares the time with."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_WRITERS,))
        yield


class _Statements(Transaction):
    """A transaction of PostgreSQL."""

    marked = staticmethod(marked)

    def insert(self, events: Sequence[Event]) -> int:
        """How many of these events are new, and now stored; one statement for all."""
        columns = [list(column) for column in zip(*events, strict=True)]
        return int(self.cursor.execute(_INSERT_ALL, columns).rowcount) if events else 0


class PostgresqlReader(StoreReader):
    """Reads a database; the watcher says what any process changes."""

    def __init__(self, connections: Connections, watcher: Watcher) -> None:
        self._connections, self._watcher = connections, watcher
        self._pinned = threading.local()  # the connection of a snapshot
        watcher.subscribe(self)

    def rows(self, query: str, values: Values = ()) -> list[Row]:
        """The rows of a query."""
        pinned: Connection | None = getattr(self._pinned, "connection", None)
        if pinned is not None:
            return rows_of(pinned)(query, values)
        with self._connections.connection() as connection:
            return rows_of(connection)(query, values)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within this, every query of this thread sees the database as it was at the first one."""
        with self._connections.connection(math.inf) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._pinned.connection = connection
            try:
                yield
            finally:
                self._pinned.connection = None

    def changed(self) -> dict[str, set[str]]:
        """What changed since the last call; nothing is asked of the server."""
        return self._watcher.take(self)

    def close(self) -> None:
        """Listen no more."""
        self._watcher.unsubscribe(self)
