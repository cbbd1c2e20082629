"""CheckedRouter: FastAPI routes that check token, query and body; answers as JSON or Arrow; error texts."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from itertools import groupby
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from truepair.errors import InputError, StorageError, did_you_mean
from truepair.serving.id_texts import escaped
from truepair.serving.limits import Limits
from truepair.serving.refusals import RefusalError
from truepair.serving.web.bodies import RequestBody
from truepair.serving.web.tokens import Tokens, credentials
from truepair.storage.plain_values import from_json
from truepair.storage.types import Json

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
Found = TypeVar("Found")


class ErrorAnswer(BaseModel):
    """Every answer that is an error."""

    error: str
    request: str


_ERRORS: dict[int | str, Json] = {
    "4XX": {"description": "The request cannot be served; `error` says why.", "model": ErrorAnswer},
    "503": {"description": "The store or the service is too busy now; try again.", "model": ErrorAnswer},
}


class Gate(NamedTuple):
    """What every route checks by."""

    tokens: Tokens
    limits: Limits


class CheckedRoute(APIRoute):
    """A route behind a gate."""

    gate: Gate
    right: str | None = None
    """What the token must allow; None: no token is needed."""
    any_query = False
    """Query parameters that are not known are ignored."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, after the checks."""
        answer = super().get_route_handler()
        query = {field.alias for field in self.dependant.query_params}
        field, request_name = self.body_field, self.dependant.request_param_name
        is_list = query == {"k"} and field is None and request_name

        async def handle(request: Request) -> Response:
            if self.right is not None and self.gate.tokens.kinds:
                self.gate.tokens.check(credentials(request.headers), self.right)
            if not self.any_query:
                for name in request.query_params:
                    if name not in query:
                        raise InputError(f"{name!r:.60} is not a parameter here; use one of {sorted(query)}.")
            k = request.query_params.get("k", "10")
            if is_list and k.isascii() and k.isdecimal() and len(k) < 10:  # a fifth faster than FastAPI's way
                return await self.endpoint(request=request, **request.path_params, k=int(k))  # type: ignore[no-any-return]
            if field is not None:  # where FastAPI looks for what was read before
                request._body = await read_body(request, self.gate.limits)
                request._json = read_json(request._body)
            if field is not None and not query:  # a quarter faster than FastAPI's way, which reports errors
                body, errors = field.validate(request._json, loc=("body",))
                if not errors:
                    if isinstance(body, RequestBody):
                        body.check(self.gate.limits)
                    given = {request_name: request} if request_name else {}
                    return await self.endpoint(body=body, **request.path_params, **given)  # type: ignore[no-any-return]
            return await answer(request)

        return handle


class CheckedRouter(APIRouter):
    """Routes of one part of the service."""

    def __init__(self, gate: Gate, prefix: str = "", any_query: bool = False) -> None:
        super().__init__(prefix=prefix, route_class=CheckedRoute)
        self.gate, self.any_query = gate, any_query

    def add(
        self,
        method: str,
        path: str,
        answer: Callable[..., Response | Awaitable[Response]],
        right: str | None,
        model: object = None,
        *,
        example: object = None,
        arrow: bool = False,
        listed: bool = True,
    ) -> None:
        """Add a route; an answer that is no coroutine is given in a thread.

        `model` is the type of the answer in JSON, for the document alone: answers are not validated. The
        texts "USER" and "ITEM" in the example of a body become ids of the model.
        """
        about = (answer.__doc__ or "").partition("\n")[0]
        found: Json = {"description": about, **({"model": model} if model is not None else {})}
        if arrow:
            found["content"] = {ARROW: {"schema": {"type": "string", "format": "binary"}}}
        extra: Json = {} if right is None else {"security": [{"token": []}]}
        if example is not None:
            extra["requestBody"] = {"content": {JSON: {"example": example}}}
        self.add_api_route(
            path, answer if iscoroutinefunction(answer) else _threaded(answer), methods=[method],
            response_model=None, response_class=Response, summary=about, description="",
            responses={200: found, **_ERRORS}, openapi_extra=extra, include_in_schema=listed,
        )  # fmt: skip
        route = self.routes[-1]
        assert isinstance(route, CheckedRoute)
        route.gate, route.right, route.any_query = self.gate, right, self.any_query


# --- bodies ----------------------------------------------------------------------------------------------


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request in JSON, not larger and not slower than the limits."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        raise RefusalError(415, f"content-type = {kind[:60]!r} is not known; send application/json.")
    size, parts = 0, []
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise RefusalError(
                        413, f"the body has more than {limits.body:,} bytes; send less at once."
                    )
                parts.append(part)
    except ClientDisconnect:
        raise RefusalError(400, "the connection was closed before the body was complete.") from None
    except TimeoutError:
        raise RefusalError(408, f"the body did not arrive within {limits.body_seconds:g} s.") from None
    return b"".join(parts)


def read_json(body: bytes) -> object:
    """The value in a body; a RefusalError if it is not JSON."""
    try:
        return from_json(body)
    except (ValueError, RecursionError) as error:  # of broken JSON, broken UTF-8, numbers without an end
        raise RefusalError(400, f"the body is not JSON: {str(error)[:200]}; send an object.") from None


# --- answers ---------------------------------------------------------------------------------------------


def json_response(value: object) -> Response:
    """A value as JSON in which HTML finds no tag, with null for a number that JSON does not have."""
    return Response(escaped(plain_value(value)), media_type=JSON)


def wants_arrow(request: Request) -> bool:
    """Whether the header Accept names Arrow, and not with q=0."""
    for part in request.headers.get("accept", "").lower().split(","):
        kind, _, parameters = part.partition(";")
        if kind.strip() == ARROW:
            return not {"q=0", "q=0.0"} & set(parameters.replace(" ", "").split(";"))
    return False


def table_response(
    request: Request, table: pa.Table, name: str, about: dict[str, object] | None = None
) -> Response:
    """A table as an Arrow stream where the request accepts that; else as JSON: {name: [row, …]}.

    The fields `about` come first, in place of the columns of these names. The rows of `lists` are in the
    lists of their users: [{"user": id, "items": [row, …]}, …]; rows of one user are adjacent.
    """
    if wants_arrow(request):
        return arrow_response(table)
    about = about or {}
    rows: list[Json] = plain_value(table.drop_columns(list(about)).to_pylist())
    if name == "lists":
        groups = groupby(rows, key=methodcaller("pop", "user"))
        rows = [{"user": user, "items": list(group)} for user, group in groups]
    return Response(escaped({**about, name: rows}), media_type=JSON)


def plain_value(value: object) -> Any:
    """A value as JSON can say it: other types, such as UUIDs, as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [plain_value(one) for one in value]
    if isinstance(value, dict):
        return {name: plain_value(one) for name, one in value.items()}
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def arrow_response(table: pa.Table) -> Response:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return Response(bytes(sink.getvalue()), media_type=ARROW)


def _threaded(answer: Callable[..., Found]) -> Callable[..., Awaitable[Found]]:
    @wraps(answer)  # the document has its parameters and its name
    async def answered(**given: object) -> Found:
        return await asyncio.to_thread(answer, **given)

    return answered


async def refused(request: Request, error: Exception) -> Response:
    """The answer to a request that is not served."""
    headers: dict[str, str] = {}
    bad_value = 400 if request.url.path.startswith("/api/") else 422  # Gorse answers with 400
    try:
        if isinstance(error, RefusalError):
            status, text, headers = error.status, str(error), error.headers
        elif isinstance(error, HTTPException):
            status, headers = error.status_code, dict(error.headers or {})
            text = f"{error.detail}; GET /openapi.json lists what there is."
        elif isinstance(error, RequestValidationError):
            body = getattr(request.scope["route"], "body_field", None)
            status, text = bad_value, _validation_text(error, body and body.field_info.annotation)
        elif isinstance(error, InputError):
            status, text = bad_value, str(error)
        elif isinstance(error, StorageError):
            request.app.state.log.failed(request.state.request, error)
            status, text = 503, "the store cannot be used now; try again later."
        elif isinstance(error, RecursionError):
            raise error
        else:  # the guard logs it
            status, text = 500, "the service failed; its log has the reason."
    except RecursionError:
        status, text = 422, "the request is nested too deeply; send it flat."
    content = escaped({"error": text[:1000], "request": request.state.request})
    return Response(content, status, headers, JSON)


def _validation_text(error: RequestValidationError, body: type | None) -> str:
    """The first error of pydantic as a text with the value, what is allowed, and the remedy."""
    found = error.errors()
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
    fields = getattr(body, "model_fields", {})
    names = [str(part)[:60] for part in first["loc"][1:]] or ["the body"]
    name, about = names[0], getattr(fields.get(names[0]), "description", None)
    if first["type"] == "extra_forbidden" and len(names) == 1:
        allowed = ", ".join(map(repr, fields)) or "none"
        return f"{name!r} is not a field here; use {allowed}.{did_you_mean(name, fields)}"
    if first["type"] == "missing":
        return f"the field {names[-1]!r} is missing" + (f"; it is {about}." if about else ".")
    if "error" in first.get("ctx", {}):
        return str(first["ctx"]["error"])
    place = name + "".join(f"[{part}]" for part in names[1:] if part.isdecimal())
    expected = first["msg"][:1].lower() + first["msg"][1:]
    remedy = f"; it is {about}" if about else ""
    return f"{place} = {first['input']!r:.60} cannot be used; {expected}{remedy}."
