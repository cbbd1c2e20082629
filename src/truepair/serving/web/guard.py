"""Guard: what stands between the network and the routes: ids of requests, time limits, logs, errors."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from truepair.errors import check_number
from truepair.serving.id_texts import escaped
from truepair.serving.limits import Limits
from truepair.serving.web.monitoring import Metrics, RequestLog
from truepair.serving.web.tokens import Tokens, credentials, is_loopback

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = ("GET", "POST", "HEAD", "PUT", "PATCH", "DELETE")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]

_CALLERS = 10_000  # that are remembered; of more, those who have been silent for longest are forgotten


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
        loopback_only: bool,
        rates: RateLimit | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self.app, self.limits, self.metrics, self.log = app, limits, metrics, log
        self.loopback_only, self.rates, self.tokens = loopback_only, rates, tokens or Tokens()
        self._start, self._numbers = secrets.token_hex(4), count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started, headers, status = time.perf_counter(), dict(scope["headers"]), 0
        given = headers.get(b"x-request-id", b"")
        request = given.decode() if _REQUEST_ID.fullmatch(given) else f"{self._start}-{next(self._numbers):x}"
        scope["state"] = {**scope.get("state", {}), "request": request}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(b"x-request-id", request.encode()), *_HEADERS]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        try:
            if self.loopback_only and not _names_this_machine(headers):
                text = "without tokens only this machine is served; ask for localhost, or set tokens."
                await refuse(sending, 403, text, request)
                return
            if self.rates is not None and not scope["path"].startswith("/health/"):
                wait = self.rates.wait(self._caller(scope, headers))
                if wait:
                    text = f"more than {self.rates.per_second:g} requests a second; wait {wait} s."
                    await refuse(sending, 429, text, request, [(b"retry-after", str(wait).encode())])
                    return
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, receive, sending)
        except TimeoutError as error:
            self.log.failed(request, error)
            if not status:
                await refuse(
                    sending, 503, f"no answer within {self.limits.seconds:g} s; ask for less.", request
                )
        except Exception as error:  # the application has answered with 500 by then
            self.log.failed(request, error)
        finally:
            self._count(scope, request, status, time.perf_counter() - started)

    def _caller(self, scope: Scope, headers: dict[bytes, bytes]) -> bytes:
        """Who asks: a known token, or an address; tokens by chance would each be a new caller."""
        address: str = (scope.get("client") or ("",))[0]
        names = (b"authorization", b"x-api-key")
        given = {name.decode(): headers[name].decode("latin-1") for name in names if name in headers}
        return self.tokens.owner(credentials(given)) or address.encode()

    def _count(self, scope: Scope, request: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.answered(method, route, status, seconds)
        facts = {"request": request, "method": method, "route": route, "status": status}
        self.log.request({**facts, "ms": round(seconds * 1000, 2)}, scope["path"])


def _names_this_machine(headers: dict[bytes, bytes]) -> bool:
    host = headers.get(b"host", b"").decode("latin-1")
    return is_loopback(host if host.endswith("]") else host.rpartition(":")[0] or host)


async def refuse(
    send: Send, status: int, text: str, request: str, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send an error as JSON."""
    body = escaped({"error": text, "request": request}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += more or []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
