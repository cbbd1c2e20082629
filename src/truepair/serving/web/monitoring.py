"""Monitoring: what the service tells those who run it: a log of requests, and metrics for Prometheus."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from truepair.ranking.approximate.faiss_indexes import INDEXES
from truepair.serving.lists.served_model import ServedModel

_TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(eq=False)
class RequestLog:
    """Writes one JSON object a line. Without `with_ids`, no line names a user or an item."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    requests: bool = True
    """A line for each request; False writes errors alone."""
    with_ids: bool = False
    """Lines have the address as it was asked for, with the ids of users and items."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def request(self, facts: dict[str, object], path: str) -> None:
        """A request that was answered."""
        if self.requests:
            self.write("request", **facts, **({"path": path} if self.with_ids else {}))

    def failed(self, request: str, error: BaseException) -> None:
        """An error of the service itself: the callers see the id of the request alone.

        Without `with_ids`, the line says where it was raised, without its message, which may hold ids.
        """
        lines = (
            traceback.format_exception(error) if self.with_ids else traceback.format_tb(error.__traceback__)
        )
        self.write("error", request=request, error=type(error).__name__, trace="".join(lines))

    def write(self, what: str, **facts: object) -> None:
        """A line with the time, what happened, and facts."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "what": what, **facts}, default=str)
        with self._lock:
            self.stream.write(line + "\n")
            self.stream.flush()


class Metrics:
    """Counters and times of one process; `served` gives the model that is served now."""

    def __init__(self, served: Callable[[], ServedModel]) -> None:
        self.registry = registry = CollectorRegistry()
        by = "method", "route", "status"
        requests = Counter("truepair_requests", "Requests that were answered", by, registry=registry)
        seconds = Histogram(
            "truepair_request_seconds", "Time until an answer", ("route",), buckets=_TIMES, registry=registry
        )
        self._requests, self._seconds = cache(requests.labels), cache(seconds.labels)
        self.events = Counter("truepair_events", "Events by result", ("result",), registry=registry)
        self.gathered = Histogram(
            "truepair_gathered_requests", "Requests in one product", buckets=_SIZES, registry=registry
        )
        folded = Gauge("truepair_fold_ins", "Users who were folded in", registry=registry)
        folded.set_function(lambda: served().histories.fold_ins)
        failed = Gauge("truepair_store_failures", "Failed readings of the store", registry=registry)
        failed.set_function(lambda: served().histories.store_failures)
        about = "Share of exact lists that the index finds, measured; 1 without one"
        recall = Gauge("truepair_index_recall", about, registry=registry)
        recall.set_function(lambda: served().indexing.recall)
        size = Gauge("truepair_index_items", "Items in the index by its kind", ("kind",), registry=registry)
        for kind in INDEXES:
            size.labels(kind).set_function(partial(_index_size, served, kind))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests(method, route, status).inc()
        self._seconds(route).observe(seconds)

    def stored(self, new: int, given: int) -> None:
        """Count events: new ones, and those that were there already."""
        self.events.labels("stored").inc(new)
        self.events.labels("repeated").inc(given - new)

    def text(self) -> bytes:
        """All of them, in the format of Prometheus."""
        return generate_latest(self.registry)


def _index_size(served: Callable[[], ServedModel], kind: str) -> int:
    """How many items the index has, if it is of this kind."""
    indexing = served().indexing
    return len(served().lister.codes) if indexing.kind == kind else 0
