"""GORSE_ROUTES: the addresses of Gorse's API that are answered."""

from __future__ import annotations

from typing import Any

from truepair.serving.web.routes import Route

_TEXT: dict[str, Any] = {"type": "string"}
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
_DONE: dict[str, Any] = {"type": "object", "properties": {"RowAffected": _WHOLE}, "required": ["RowAffected"]}
_ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ItemId": _TEXT,
        "IsHidden": {"type": "boolean"},
        "Categories": {"type": "array", "items": _TEXT},
        "Timestamp": _TEXT,
        "Labels": {},
        "Comment": _TEXT,
    },
    "required": ["ItemId"],
}
_USER: dict[str, Any] = {
    "type": "object",
    "properties": {"UserId": _TEXT, "Labels": {}, "Comment": _TEXT},
    "required": ["UserId"],
}
_FEEDBACK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "FeedbackType": _TEXT,
        "UserId": _TEXT,
        "ItemId": _TEXT,
        "Value": {"type": "number"},
        "Timestamp": _TEXT,
        "Comment": _TEXT,
    },
    "required": ["FeedbackType", "UserId", "ItemId"],
}
_SCORES = {"type": "array", "items": {"type": "object", "properties": {"Id": _TEXT, "Score": {}}}}
_IDS_OR_SCORES = {"type": "array", "items": {"oneOf": [_TEXT, _SCORES["items"]]}}
_HEALTH = {"type": "object", "properties": {"Ready": {"type": "boolean"}}, "required": ["Ready"]}
_PAGE = {"n": _WHOLE, "offset": _WHOLE}
_CURSOR = {"n": _WHOLE, "cursor": _TEXT}
_RECOMMEND = {**_PAGE, "category": _TEXT, "write-back-type": _TEXT, "write-back-delay": _TEXT}
_EXAMPLE = {"FeedbackType": "like", "UserId": "USER", "ItemId": "ITEM", "Timestamp": "2024-05-31T12:00:00Z"}
_EXAMPLE_ITEM = {"ItemId": "ITEM", "Categories": ["new"], "Labels": {"title": "A title"}}
_EXAMPLE_USER = {"UserId": "USER", "Labels": {"age": 30}}


def _many(one: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": one}


def _patch(one: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: {} for name in one["properties"] if not name.endswith("Id")}
    return {"type": "object", "properties": fields}


def _pages(name: str, one: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"Cursor": _TEXT, name: _many(one)},
        "required": ["Cursor", name],
    }


def _route(
    method: str, path: str, name: str, right: str | None, about: str, answer: Any, **more: Any
) -> Route:
    return Route(
        method, f"/api/{path}", f"gorse_{name}", right, about, answer, refused=400, any_query=True, **more
    )


GORSE_ROUTES = [
    _route("GET", "health/live", "live", None, "The process runs.", _HEALTH),
    _route("GET", "health/ready", "ready", None, "The store can be used.", _HEALTH),
    _route(
        "GET", "recommend/{user}", "recommend", "read", "Items for a user.", _IDS_OR_SCORES,
        query=_RECOMMEND,
    ),
    _route(
        "GET", "recommend/{user}/{category:path}", "recommend_in", "read", "Items of a category for a user.",
        _IDS_OR_SCORES, query=_RECOMMEND,
    ),
    _route(
        "POST", "session/recommend", "session", "read", "Items by the feedback of a session.", _SCORES,
        body=_many(_FEEDBACK), example=[_EXAMPLE], query=_PAGE,
    ),
    _route(
        "POST", "session/recommend/{category}", "session_in", "read", "The same, of a category.", _SCORES,
        body=_many(_FEEDBACK), example=[_EXAMPLE], query=_PAGE,
    ),
    _route("GET", "popular", "popular", "read", "Popular items.", _SCORES, query=_PAGE),
    _route(
        "GET", "popular/{category}", "popular_in", "read", "Popular items of a category.", _SCORES,
        query=_PAGE,
    ),
    _route("GET", "item/{item}/neighbors", "neighbors", "read", "Similar items.", _SCORES, query=_PAGE),
    _route(
        "GET", "item/{item}/neighbors/{category:path}", "neighbors_in", "read",
        "Similar items of a category.", _SCORES, query=_PAGE,
    ),
    _route("GET", "user/{user}/neighbors", "user_neighbors", "read", "Similar users.", _SCORES, query=_PAGE),
    _route("GET", "user/{user}/neighbors/", "user_neighbors", "read", "Similar users.", _SCORES, query=_PAGE),
    # items
    _route("POST", "item", "put_item", "write", "Store an item.", _DONE, body=_ITEM, example=_EXAMPLE_ITEM),
    _route(
        "POST", "items", "put_items", "write", "Store items.", _DONE,
        body=_many(_ITEM), example=[_EXAMPLE_ITEM],
    ),
    _route(
        "GET", "items", "items", "read", "Items, page by page; with `q`, those that have this text.",
        _pages("Items", _ITEM), query={**_CURSOR, "q": _TEXT},
    ),
    _route("GET", "item/{item}", "item", "read", "An item.", _ITEM),
    _route(
        "PATCH", "item/{item}", "patch_item", "write", "Change some fields of an item.", _DONE,
        body=_patch(_ITEM), example={"IsHidden": False},
    ),
    _route("DELETE", "item/{item}", "delete_item", "write", "Delete an item and its feedback.", _DONE),
    _route("PUT", "item/{item}/category/{category}", "put_category", "write", "Add a category.", _DONE),
    _route(
        "DELETE", "item/{item}/category/{category}", "delete_category", "write", "Remove a category.",
        _DONE,
    ),
    # users
    _route("POST", "user", "put_user", "write", "Store a user.", _DONE, body=_USER, example=_EXAMPLE_USER),
    _route(
        "POST", "users", "put_users", "write", "Store users.", _DONE,
        body=_many(_USER), example=[_EXAMPLE_USER],
    ),
    _route("GET", "users", "users", "read", "Users, page by page.", _pages("Users", _USER), query=_CURSOR),
    _route("GET", "user/{user}", "user", "read", "A user.", _USER),
    _route(
        "PATCH", "user/{user}", "patch_user", "write", "Change some fields of a user.", _DONE,
        body=_patch(_USER), example={"Comment": "a comment"},
    ),
    _route("DELETE", "user/{user}", "delete_user", "write", "Delete a user and their feedback.", _DONE),
    # feedback
    _route(
        "POST", "feedback", "post_feedback", "write", "Store feedback; what is there stays.", _DONE,
        body=_many(_FEEDBACK), example=[_EXAMPLE],
    ),
    _route(
        "PUT", "feedback", "put_feedback", "write", "Store feedback; what is there is replaced.", _DONE,
        body=_many(_FEEDBACK), example=[_EXAMPLE],
    ),
    _route(
        "GET", "feedback", "feedback", "read", "Feedback, page by page.", _pages("Feedback", _FEEDBACK),
        query=_CURSOR,
    ),
    _route(
        "GET", "feedback/{kind}", "feedback_of_kind", "read", "Feedback of a type, page by page.",
        _pages("Feedback", _FEEDBACK), query=_CURSOR,
    ),
    _route(
        "GET", "feedback/{user}/{item}", "pair", "read", "Feedback of a user with an item.",
        _many(_FEEDBACK),
    ),
    _route("DELETE", "feedback/{user}/{item}", "delete_pair", "write", "Delete it.", _DONE),
    _route("GET", "feedback/{kind}/{user}/{item}", "typed_pair", "read", "One feedback.", _FEEDBACK),
    _route("DELETE", "feedback/{kind}/{user}/{item}", "delete_typed_pair", "write", "Delete it.", _DONE),
    _route("GET", "user/{user}/feedback", "of_user", "read", "Feedback of a user.", _many(_FEEDBACK)),
    _route("GET", "user/{user}/feedback/{kind:path}", "of_user", "read", "Of one type.", _many(_FEEDBACK)),
    _route("GET", "item/{item}/feedback", "of_item", "read", "Feedback of an item.", _many(_FEEDBACK)),
    _route("GET", "item/{item}/feedback/{kind:path}", "of_item", "read", "Of one type.", _many(_FEEDBACK)),
]  # fmt: skip
"""Writing needs a write token, reading a read token: a program that does both sends an admin token."""
