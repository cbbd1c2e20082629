"""Requests to an ASGI application, in the same process."""

import asyncio
import json
from typing import NamedTuple
from urllib.parse import unquote

import pytest

pytest.importorskip("fastapi")  # applications are those of the service
pytest.importorskip("prometheus_client")
pytest.importorskip("uvicorn")
pytest.importorskip("httptools")

from truepair.serving.web.running import application


class Answer(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


async def asked(app, method, path, body=None, headers=None):
    """The answer to one request; `body` is bytes, or anything that JSON can say."""
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"host": "localhost", **({"content-type": "application/json"} if raw is not None else {})}
    sent |= headers or {}
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    messages = []

    async def receive():
        return {"type": "http.request", "body": raw or b"", "more_body": False}

    async def send(message):
        messages.append(message)

    await app(scope, receive, send)
    start = messages[0]
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(message.get("body", b"") for message in messages[1:]))


def schema_of(document, operation):
    """The schema of an operation's answer in JSON, by name or in place."""
    found = operation["responses"]["200"].get("content", {}).get("application/json", {}).get("schema", {})
    return resolved(document, found)


def resolved(document, schema):
    """A schema, or the one that it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema


class Client:
    """A service that answers in this process."""

    def __init__(self, service):
        self.service, self.app = service, application(service)

    def get(self, path, **headers):
        return asyncio.run(asked(self.app, "GET", path, headers=_named(headers)))

    def post(self, path, body, **headers):
        return asyncio.run(asked(self.app, "POST", path, body, _named(headers)))

    def ask(self, method, path, body=None, **headers):
        return asyncio.run(asked(self.app, method, path, body, _named(headers)))

    def together(self, requests):
        """The answers to (method, path) requests that come at once."""

        async def all_of_them():
            return await asyncio.gather(*(asked(self.app, *request) for request in requests))

        return asyncio.run(all_of_them())


def _named(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}
