"""Metrics: what the service does, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from truepair.ranking.approximate.faiss_indexes import INDEXES
from truepair.ranking.approximate.indexing import Indexing
from truepair.serving.lists.histories import UserHistories

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters and times of one process."""

    def __init__(self, histories: Callable[[], UserHistories]) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "truepair_requests", "Requests that were answered", labels, registry=self.registry
        )
        self._seconds = Histogram(
            "truepair_request_seconds",
            "Time until an answer",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.events = Counter("truepair_events", "Events by result", ("result",), registry=self.registry)
        self._gathered = Histogram(
            "truepair_gathered_requests", "Requests in one product", buckets=_SIZES, registry=self.registry
        )
        folded = Gauge("truepair_fold_ins", "Users who were folded in", registry=self.registry)
        folded.set_function(lambda: histories().fold_ins)
        failed = Gauge("truepair_store_failures", "Failed readings of the store", registry=self.registry)
        failed.set_function(lambda: histories().store_failures)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def stored(self, new: int, given: int) -> None:
        """Count events: new ones, and those that were there already."""
        self.events.labels("stored").inc(new)
        self.events.labels("repeated").inc(given - new)

    def show_index(self, indexing: Callable[[], Indexing]) -> None:
        """Report the index of the model that is served: its measured recall, and how many items it has."""
        recall = Gauge(
            "truepair_index_recall",
            "Share of exact lists that the index finds, measured; 1 without one",
            registry=self.registry,
        )
        recall.set_function(lambda: indexing().recall)
        size = Gauge(
            "truepair_index_items", "Items in the index by its kind", ("kind",), registry=self.registry
        )
        for kind in INDEXES:
            size.labels(kind).set_function(partial(_size_if, indexing, kind))

    def gathered(self, size: int) -> None:
        """Count a product of so many requests."""
        self._gathered.observe(size)

    def text(self) -> bytes:
        """All of them, in the format of Prometheus."""
        return generate_latest(self.registry)


def _size_if(indexing: Callable[[], Indexing], kind: str) -> int:
    """How many items the index has, if it is of this kind."""
    return indexing().size if indexing().kind == kind else 0
