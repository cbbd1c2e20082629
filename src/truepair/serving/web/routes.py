"""ROUTES: every address of the service, who may ask, and what is documented about it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from truepair.serving.web.answers import ARROW, JSON
from truepair.serving.web.requests import EVENTS, LISTS, SCORES, SESSION, Fields, schema_of

_BASES = ["model", "events", "popularity"]
_ID = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_NUMBER = {"type": "number"}
_ROW: dict[str, Any] = {
    "type": "object",
    "properties": {"item": _ID, "score": _NUMBER, "rank": {"type": "integer"}},
    "required": ["item", "score", "rank"],
}
_ROWS = {"type": "array", "items": _ROW}
_SIMILAR = {"type": "object", "properties": {"similar": _ID, "score": _NUMBER, "rank": {"type": "integer"}}}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


class Route(NamedTuple):
    """A route; the function of its name in the object beside it (`Service.parts`) answers it."""

    method: str
    path: str
    name: str
    right: str | None  # read, write; None: everybody
    about: str
    answer: dict[str, Any]  # the schema of the answer
    fields: Fields | None = None  # of the body
    needed: tuple[str, ...] = ()
    example: Any = None  # a body; ids of the model are filled in
    query: dict[str, Any] = {}  # noqa: RUF012, a tuple's field has no factory
    arrow: bool = False
    body: dict[str, Any] | None = None  # the schema of a body that the answering function reads itself
    refused: int = 422  # the status where a value cannot be used
    any_query: bool = False  # parameters that are not known are ignored
    listed: bool = True  # in OpenAPI


_K = {"k": {"type": "integer", "minimum": 1, "default": 10}}
ROUTES = [
    Route(
        "GET", "/v1/users/{id:path}/recommendations", "user_list", "read", "The best items for a person.",
        _object(user=_ID, basis={"enum": _BASES}, items=_ROWS), query=_K, arrow=True,
    ),
    Route(
        "POST", "/v1/recommendations", "lists", "read", "Lists for several people, with all options.",
        _object(lists={"type": "array", "items": _object(user=_ID, items=_ROWS)}),
        LISTS, ("users",), {"users": ["USER"], "k": 3, "exclude_items": ["ITEM"], "diversify": 0.3},
        arrow=True,
    ),
    Route(
        "POST", "/v1/session/recommendations", "session", "read", "A list for somebody with this history.",
        _object(items=_ROWS), SESSION, (), {"liked": ["ITEM"], "disliked": [], "k": 3}, arrow=True,
    ),
    Route(
        "GET", "/v1/items/{id:path}/similar", "similar", "read", "The items that are most like this one.",
        _object(item=_ID, items={"type": "array", "items": _SIMILAR}), query=_K, arrow=True,
    ),
    Route(
        "POST", "/v1/scores", "scores", "read", "Scores of pairs.",
        _object(scores={"type": "array", "items": _object(user=_ID, item=_ID, score=_NUMBER)}),
        SCORES, ("pairs",), {"pairs": [{"user": "USER", "item": "ITEM"}]}, arrow=True,
    ),
    Route(
        "POST", "/v1/events", "events", "write", "Store what people did; it counts in their next list.",
        _object(stored={"type": "integer"}, repeated={"type": "integer"}),
        EVENTS, ("events",), {"events": [{"user": "USER", "item": "ITEM", "id": "order-1"}]},
    ),
    Route("GET", "/v1/model", "model", "read", "Facts about the model.", {"type": "object"}),
    Route("GET", "/health/live", "live", None, "The process runs.", _object(status={"enum": ["live"]})),
    Route(
        "GET", "/health/ready", "ready", None, "Model and store can be used.",
        _object(status={"enum": ["ready"]}),
    ),
    Route("GET", "/metrics", "metrics", "read", "Counters and times for Prometheus.", {"type": "string"}),
]  # fmt: skip

_ERROR = {"application/json": {"schema": _object(error={"type": "string"}, request={"type": "string"})}}

_PARTS = {"kind": "like", "category": "new"}  # of addresses, in examples


def documented(route: Route, user: Any, item: Any) -> dict[str, Any]:
    """What OpenAPI says about a route; examples name a user and an item of the model."""
    content: dict[str, Any] = {JSON: {"schema": route.answer}}
    if route.name == "metrics":
        content = {"text/plain": {"schema": route.answer}}
    if route.arrow:
        content[ARROW] = {"schema": {"type": "string", "format": "binary"}}
    responses: dict[str, Any] = {"200": {"description": route.about, "content": content}}
    responses["4XX"] = {"description": "The request cannot be served; `error` says why.", "content": _ERROR}
    responses["503"] = {
        "description": "The store or the service is too busy now; try again.",
        "content": _ERROR,
    }
    found: dict[str, Any] = {"summary": route.about, "responses": responses}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in route.query.items()
    ]
    for name in re.findall(r"{(\w+)", route.path):
        parameter = {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        is_user = name == "user" or (name == "id" and "/users/" in route.path)
        parameter["example"] = _PARTS.get(name) or str(user if is_user else item)
        parameters.append(parameter)
    if parameters:
        found["parameters"] = parameters
    if route.fields is not None:
        schema, example = schema_of(route.fields, route.needed), _filled(route.example, user, item)
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schema, "example": example}}}
    if route.body is not None:
        content = {"schema": route.body, "example": _filled(route.example, user, item)}
        found["requestBody"] = {"required": True, "content": {JSON: content}}
    if route.right is not None:
        found["security"] = [{"token": []}]
    return found


def _filled(example: Any, user: Any, item: Any) -> Any:
    """The example with the ids of a user and an item."""
    if isinstance(example, dict):
        return {name: _filled(value, user, item) for name, value in example.items()}
    if isinstance(example, list):
        return [_filled(value, user, item) for value in example]
    return {"USER": user, "ITEM": item}.get(example, example) if isinstance(example, str) else example
