"""Running the service: a socket, uvicorn, and a stop that finishes what is running."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TruepairError
from truepair.serving.id_texts import escaped
from truepair.serving.web.app import Service
from truepair.serving.web.gorse.routes import Gorse
from truepair.serving.web.guard import Guard, RequestLog
from truepair.serving.web.protocol import BoundedProtocol
from truepair.serving.web.routing import JSON, CheckedRouter, Gate, plain_value, refused
from truepair.serving.web.tokens import Tokens, check_binding
from truepair.storage.templates import rendered
from truepair.storage.types import Json
from truepair.storage.versions import package_version

_TELEMETRY = ("tracing", "metrics", "logs", "operation_spans", "auto_configure")  # nothing is sent anywhere
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"
_EXAMPLES = {"kind": "like", "category": "new"}  # of parts of an address
_IDLE = 30  # seconds that a connection may stay open without a request


def bound_socket(host: str, port: int, tokens: Tokens) -> socket.socket:
    """A listening socket; the port 0 takes a free one. Without tokens, on this machine alone."""
    check_binding(host, tokens)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {reason}; choose another.") from None
    # without this, which asyncio sets on some sockets only, an answer waits 40 ms for its second part
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def application(service: Service) -> Guard:
    """The ASGI application of a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="truepair", version=package_version("truepair") or "", lifespan=lifespan,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        telemetry=cast(Any, dict.fromkeys(_TELEMETRY, False)),
    )  # fmt: skip
    app.state.log = service.log
    routers = [*service.routers, Gorse(service).router()]
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    # an id may hold anything, even a slash, so an address that ends with one comes after all others
    routes.sort(key=lambda route: route.path.endswith("{id:path}"))
    app.router.routes.extend(routes)
    app.router.routes.extend(document_router(app, service.gate, service.served.model.seen).routes)
    for error in (HTTPException, RequestValidationError, TruepairError, RecursionError, Exception):
        app.add_exception_handler(error, refused)
    return Guard(app, service.limits, service.metrics, service.log, service.tokens, service.rates)


def document_router(app: FastAPI, gate: Gate, seen: Interactions) -> CheckedRouter:
    """The routes that describe all routes which the application has so far."""
    user, item = (ids.ids[0].as_py() for ids in (seen.user_ids, seen.item_ids))
    text = json.dumps(app.openapi())
    for name, id in (("USER", user), ("ITEM", item)):
        text = text.replace(f'"{name}"', json.dumps(plain_value(id)))
    document: Json = json.loads(text)
    if gate.tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own form, which no answer has
            operation["responses"]["200"].get("content", {}).pop("", None)
            if not gate.tokens:
                operation.pop("security", None)
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    is_user = parameter["name"] == "user" or path.startswith("/v1/users/")
                    parameter["example"] = _EXAMPLES.get(parameter["name"]) or str(user if is_user else item)
    text, page = escaped(document), rendered("truepair.serving.web", "docs.html", document=document)

    async def openapi() -> Response:
        """All addresses, with schemas and examples."""
        return Response(text, media_type=JSON)

    async def docs() -> Response:
        """The same as a page."""
        return Response(page, media_type="text/html", headers={"content-security-policy": _POLICY})

    router = CheckedRouter(gate)
    router.add("GET", "/openapi.json", openapi, "read", listed=False)
    router.add("GET", "/docs", docs, "read", listed=False)
    return router


def run(service: Service, listening: socket.socket, ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM; then accept nothing new, and finish what is running.

    `ready` is called with the address as soon as requests are accepted.
    """
    gc.collect()
    gc.freeze()  # looking through everything that was loaded would stop all answers for tenths of a second
    server = _Server(configuration(service), lambda: ready(_address(listening)))
    asyncio.run(server.serve(sockets=[listening]))


def configuration(service: Service) -> uvicorn.Config:
    """How uvicorn serves the application."""
    errors = logging.getLogger("uvicorn.error")
    errors.handlers, errors.propagate = [_ToLog(service.log)], False
    return uvicorn.Config(
        application(service),
        http=BoundedProtocol,
        loop="asyncio",  # uvloop is no faster here, and let some of 500 connections wait for seconds
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=_IDLE,
        timeout_graceful_shutdown=int(service.limits.seconds) + 1,
    )


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is ready, and ends normally after a signal."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)


class _ToLog(logging.Handler):
    """uvicorn's warnings as lines of the log."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        self.log.write("server", level=record.levelname, text=record.getMessage()[:300])


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
