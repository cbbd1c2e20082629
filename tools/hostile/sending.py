"""Send hostile requests to a service by raw sockets, and judge what comes back."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hostile.requests import Hostile

CLOSED = "closed"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


class Outcome(NamedTuple):
    """What a service did with a request: the statuses of its answers, or nothing but closing."""

    statuses: tuple[int, ...]
    was_closed: bool

    def is_right(self) -> bool:
        """Every answer is a 4xx; without an answer, the connection was closed."""
        if not self.statuses:
            return self.was_closed
        return all(400 <= status < 500 for status in self.statuses)


@dataclass
class Tally:
    """What happened to many requests."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[tuple[str, bytes, Outcome]] = field(default_factory=list)

    def total(self) -> int:
        """How many requests were sent."""
        return sum(self.outcomes.values())


def send(port: int, request: Hostile, patience: float = 15.0) -> Outcome:
    """Send one request; waits until an answer is complete, or the connection is closed."""
    received, was_closed, end = b"", False, time.monotonic() + patience
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as connection:
        try:
            for number, part in enumerate(request.parts):
                if number and request.pause:
                    time.sleep(request.pause)
                connection.sendall(part)
            if request.half_close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:  # the service has refused, and closed
            was_closed = True
        connection.settimeout(0.3)
        while time.monotonic() < end:
            try:
                data = connection.recv(65536)
            except TimeoutError:
                if _STATUS.search(received):
                    break
                continue
            except OSError:
                was_closed = True
                break
            if not data:
                was_closed = True
                break
            received += data
            if _is_whole(received) and request.kind != "pipelined":
                break
    return Outcome(tuple(int(status) for status in _STATUS.findall(received)), was_closed)


def _is_whole(received: bytes) -> bool:
    head, found, body = received.partition(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", head.lower())
    return bool(found and size and len(body) >= int(size[1]))


def send_all(port: int, requests: Iterable[Hostile]) -> Tally:
    """Send them one after the other."""
    tally = Tally()
    for request in requests:
        outcome = send(port, request)
        shown = str(outcome.statuses[0]) if outcome.statuses else CLOSED if outcome.was_closed else "nothing"
        tally.outcomes[request.kind, shown] += 1
        if not outcome.is_right():
            tally.wrong.append((request.kind, b"".join(request.parts)[:300], outcome))
    return tally
