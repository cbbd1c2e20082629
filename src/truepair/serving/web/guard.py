"""Guard: what stands between the network and the routes: request ids, time limits, log, metrics."""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truepair.errors import check_number
from truepair.ranking.approximate import ivf
from truepair.serving.id_texts import escaped
from truepair.serving.limits import Limits
from truepair.serving.lists.served_model import ServedModel
from truepair.serving.web.tokens import Tokens, credentials, is_loopback

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = ("GET", "POST", "HEAD", "PUT", "PATCH", "DELETE")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
_TIMES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_CALLERS = 10_000  # that are remembered; of more, those who have been silent for longest are forgotten


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
        self.gauge("fold_ins", "Users who were folded in", lambda: served().histories.fold_ins)
        about = "Failed readings of the store"
        self.gauge("store_failures", about, lambda: served().histories.store_failures)
        about = "Share of exact lists that the index finds, measured; 1 without one"
        self.gauge("index_recall", about, lambda: served().indexing.recall)
        size = Gauge("truepair_index_items", "Items in the index by its kind", ("kind",), registry=registry)
        size.labels(ivf.NAME).set_function(
            lambda: len(served().lister.codes) if served().indexing.kind == ivf.NAME else 0
        )

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """Add a number that is asked for whenever the metrics are."""
        Gauge(f"truepair_{name}", about, registry=self.registry).set_function(value)

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


class RateLimit:
    """A token bucket for each caller: it holds the tokens of one second, at least one.

    Of a bucket, only the time at which it will be full again is stored.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = check_number("rate", per_second, 0, 1e6, open_low=True)
        self._clock = clock
        self._room = max(1.0, 1 / self.per_second)  # seconds until an empty bucket is full
        self._full_at: OrderedDict[bytes, float] = OrderedDict()

    def wait(self, caller: bytes) -> int:
        """0 if the caller may ask now, which then counts; else the seconds to wait."""
        now = self._clock()
        full_at = max(self._full_at.pop(caller, now), now) + 1 / self.per_second
        over = full_at - now - self._room
        if over > 1e-9:
            full_at -= 1 / self.per_second  # a refused request costs nothing
        self._full_at[caller] = full_at
        if len(self._full_at) > _CALLERS:
            self._full_at.popitem(last=False)
        return math.ceil(over) if over > 1e-9 else 0


class Guard:
    """An ASGI application around another one.

    Without tokens, only requests that name this machine as their host are served: a page in a browser could
    otherwise reach the service by a name of its own that leads here.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        metrics: Metrics,
        log: RequestLog,
        tokens: Tokens,
        rates: RateLimit | None = None,
    ) -> None:
        self.app, self.limits, self.metrics, self.log = app, limits, metrics, log
        self.tokens, self.rates, self._needs_tokens = tokens, rates, bool(tokens)
        self._start, self._numbers = secrets.token_hex(4), count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, headers, status = time.perf_counter(), Headers(scope=scope), 0
        given = headers.get("x-request-id", "")
        request = given if _REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._numbers):x}"
        scope["state"] = {**scope.get("state", {}), "request": request}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(b"x-request-id", request.encode()), *_HEADERS]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        async def refuse(status: int, text: str, more: dict[str, str] | None = None) -> None:
            content = escaped({"error": text, "request": request})
            await Response(content, status, more, "application/json")(scope, receive, sending)

        try:
            if not self._needs_tokens and not _names_this_machine(headers):
                text = "without tokens only this machine is served; ask for localhost, or set tokens."
                await refuse(403, text)
                return
            if self.rates is not None and not scope["path"].startswith("/health/"):
                wait = self.rates.wait(self._caller(scope, headers))
                if wait:
                    text = f"more than {self.rates.per_second:g} requests a second; wait {wait} s."
                    await refuse(429, text, {"retry-after": str(wait)})
                    return
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, receive, sending)
        except TimeoutError as error:
            self.log.failed(request, error)
            if not status:
                await refuse(503, f"no answer within {self.limits.seconds:g} s; ask for less.")
        except Exception as error:  # the application has answered with 500 by then
            self.log.failed(request, error)
        finally:
            self._count(scope, request, status, time.perf_counter() - started)

    def _caller(self, scope: Scope, headers: Headers) -> bytes:
        """Who asks: a known token, or an address; tokens by chance would each be a new caller."""
        address: str = (scope.get("client") or ("",))[0]
        return self.tokens.owner(credentials(headers)) or address.encode()

    def _count(self, scope: Scope, request: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.answered(method, route, status, seconds)
        facts = {"request": request, "method": method, "route": route, "status": status}
        self.log.request({**facts, "ms": round(seconds * 1000, 2)}, scope["path"])


def _names_this_machine(headers: Headers) -> bool:
    host = headers.get("host", "")
    return is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host)
