"""Deadlines: a query that is not answered in time loses its connection, so that no request waits for ever."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

_LOOK = 0.1  # seconds between looks


class Connected(Protocol):
    """A connection with a socket."""

    def fileno(self) -> int:
        """The number of the socket."""
        ...


class Deadlines:
    """A thread that shuts sockets down: a server that stands still does not heed its own time limits."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[float, Connected]] = {}
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="truepair-deadlines")
        self._thread.start()

    @contextmanager
    def within(self, connection: Connected, seconds: float) -> Iterator[None]:
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


def _shut(connection: Connected) -> None:
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as open_one:
        open_one.shutdown(socket.SHUT_RDWR)
