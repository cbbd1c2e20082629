"""Watcher: a thread that learns from PostgreSQL what any process changed, so that requests need not ask."""

from __future__ import annotations

import threading
from collections.abc import Collection
from contextlib import suppress

import psycopg

from truepair.errors import StorageError
from truepair.serving.events.connections import OPTIONS, READING, Connection, Connections, configure, rows_of
from truepair.serving.events.reading import by_kind, changes_after, last_numbers

CHANNEL = "truepair_store"
_LOOK = 1.0  # seconds between looks without a notification
_AGAIN = 0.25  # seconds between tries to connect


class Watcher:
    """Waits for notifications of writers; sets and clears `Connections.away`."""

    def __init__(self, pool: Connections) -> None:
        self._connections = pool
        self._touched: dict[object, set[tuple[str, str]]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        with pool.connection() as connection:
            self._last = last_numbers(rows_of(connection))
        pool.is_watched = True
        self._thread = threading.Thread(target=self._watch, daemon=True, name="truepair-store")
        self._thread.start()

    def subscribe(self, reader: object) -> None:
        """Keep for this reader what changes from now on."""
        with self._lock:
            self._touched[reader] = set()

    def unsubscribe(self, reader: object) -> None:
        """Keep nothing more for this reader."""
        with self._lock:
            self._touched.pop(reader, None)

    def tell(self, touched: Collection[tuple[str, str]]) -> None:
        """Keep it for all readers."""
        with self._lock:
            for kept in self._touched.values():
                kept.update(touched)

    def take(self, reader: object) -> dict[str, set[str]]:
        """The ids that changed, once; StorageError while it cannot be known."""
        with self._lock:
            found, self._touched[reader] = self._touched[reader], set()
        if not found and self._connections.away.is_set():
            raise StorageError(f"the store {self._connections.name} does not answer.")
        return by_kind(found)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                with psycopg.connect(self._connections.address, **OPTIONS) as connection:
                    with self._connections.deadlines.within(connection, READING):
                        configure(connection)
                        connection.execute(f"LISTEN {CHANNEL}")
                    self._follow(connection)
            except Exception:  # the server is away, or about to be
                self._connections.away.set()
                self._stopped.wait(_AGAIN)

    def _follow(self, connection: Connection) -> None:
        while not self._stopped.is_set():
            with self._connections.deadlines.within(connection, READING):
                self.tell(changes_after(rows_of(connection), self._last))
            self._connections.away.clear()  # after the readers know what they missed
            for _ in connection.notifies(timeout=_LOOK, stop_after=1):
                pass

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        with suppress(StorageError), self._connections.connection() as connection:  # else it is between tries
            connection.execute(f"NOTIFY {CHANNEL}")
        self._thread.join(timeout=5)
