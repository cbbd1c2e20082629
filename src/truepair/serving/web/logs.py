"""Logs: one JSON object a line. Without `with_ids`, no line names a user or an item."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO


@dataclass(eq=False)
class RequestLog:
    """Writes lines to a stream."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    requests: bool = True
    """A line for each request; False writes errors alone."""
    with_ids: bool = False
    """Lines have the address as it was asked for, with the ids of users and items."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, facts: dict[str, Any], path: str) -> None:
        """A request that was answered."""
        if self.requests:
            self.write("request", **facts, **({"path": path} if self.with_ids else {}))

    def failed(self, request: str, error: BaseException) -> None:
        """An error of the service itself: the callers see the id of the request alone."""
        text = "".join(traceback.format_exception(error)) if self.with_ids else _frames(error)
        self.write("error", request=request, error=type(error).__name__, trace=text)

    def write(self, what: str, **facts: Any) -> None:
        """A line with the time, what happened, and facts."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "what": what, **facts}, default=str)
        with self._lock:
            self.stream.write(line + "\n")
            self.stream.flush()


def _frames(error: BaseException) -> str:
    """Where an error was raised, without its message, which may hold ids."""
    return "".join(traceback.format_tb(error.__traceback__))
