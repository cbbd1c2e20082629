"""Connections: a pool of connections to PostgreSQL that fails soon, and at once while the server is away."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from truepair.data.sources.sql_urls import Database
from truepair.errors import InputError, StorageError
from truepair.serving.events.reading import Rows
from truepair.serving.events.records import Row

SCHEMA = "truepair"
"""The schema of the store's tables."""
READING, WRITING = 2.0, 15.0
"""Seconds that a query and a transaction may take."""
_WAIT = 2.0  # seconds until a connection must be there
_SETTINGS = f"""
    SET search_path TO {SCHEMA};
    SET statement_timeout TO '10s';
    SET lock_timeout TO '10s';
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""  # a commit waits for the disk
_LOOK = 0.1  # seconds between looks at deadlines
_LOST = ("08", "57P")  # classes of errors: no connection, the server stops
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())  # errors are raised, and told by us

Connection = psycopg.Connection[Row]


class Connections:
    """Connections of one process. `is_away` is set after a failure, by whoever watches for the return."""

    def __init__(self, database: Database) -> None:
        self.name, self.address = database.shown, database.address
        self.is_watched = False
        self.away = threading.Event()
        """Set: the server does not answer, and nothing is tried but by the watcher."""
        self.deadlines = Deadlines()
        with explained(self.name, self.deadlines.stop):
            psycopg.connect(self.address, **OPTIONS).close()  # says what is wrong; a pool only waits
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self.address,
            min_size=0,
            max_size=8,
            timeout=_WAIT,
            reconnect_timeout=0.5,
            check=self._check,
            configure=configure,
            kwargs=OPTIONS,
            open=True,
        )

    def _check(self, connection: Connection) -> None:
        with self.deadlines.within(connection, READING):
            ConnectionPool.check_connection(connection)

    @contextmanager
    def connection(self, seconds: float = READING) -> Iterator[Connection]:
        """A connection for so many seconds.

        Its errors are StorageErrors, and InputErrors about values that cannot be stored.
        """
        if self.away.is_set():
            raise StorageError(f"the store {self.name} does not answer; it is tried again all the time.")
        with (
            explained(self.name, self._failed),
            self._pool.connection() as connection,
            self.deadlines.within(connection, seconds),
        ):
            yield connection

    def _failed(self) -> None:
        if self.is_watched:
            self.away.set()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close(timeout=1)
        self.deadlines.stop()


OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": 2,
    "tcp_user_timeout": 2000,  # ms: a network that loses everything
    "application_name": "truepair",
}


def configure(connection: Connection) -> None:
    """Settings of a new connection."""
    connection.execute(_SETTINGS)


def marked(query: str) -> bytes:
    """The query with psycopg's placeholders."""
    return query.replace("%", "%%").replace("?", "%s").encode()


def rows_of(connection: Connection) -> Rows:
    """What gives the rows of a query by this connection."""
    return lambda query, values: connection.execute(marked(query), values).fetchall()


@contextmanager
def explained(name: str, failed: Callable[[], object]) -> Iterator[None]:
    """psycopg's errors as those of truepair; `failed` is called if there is no connection."""
    try:
        yield
    except (psycopg.DataError, UnicodeEncodeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the store {name} cannot keep a value: {reason[:200]}; correct it.") from error
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate.startswith(_LOST):
            failed()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(f"the store {name} cannot be used: {reason}; check server and rights.") from error


# --- deadlines -------------------------------------------------------------------------------------------


class Deadlines:
    """A thread that shuts sockets down: a server that stands still does not heed its own time limits."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, psycopg.Connection[Any]]] = {}
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="truepair-deadlines")
        self._thread.start()

    @contextmanager
    def within(self, connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
        """What is done here with the connection fails after so many seconds."""
        with self._lock:
            self._open[id(connection)] = time.monotonic() + seconds, connection
        try:
            yield
        finally:
            with self._lock:
                self._open.pop(id(connection), None)

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK):
            now = time.monotonic()
            with self._lock:
                for deadline, connection in self._open.values():
                    if now > deadline:
                        _shut(connection)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout=5)


def _shut(connection: psycopg.Connection[Any]) -> None:
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as open_one:
        open_one.shutdown(socket.SHUT_RDWR)
