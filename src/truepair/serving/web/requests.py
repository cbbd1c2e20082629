"""Requests: JSON bodies, checked field by field; the OpenAPI document is made from the same fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from truepair.errors import InputError, check_choice, check_number, check_type, check_whole, did_you_mean
from truepair.evaluation.cold import SERVING
from truepair.serving.limits import Limits
from truepair.serving.refusals import RefusalError


class Field(NamedTuple):
    """A field of a body: its check, its schema, and what it means."""

    check: Callable[[str, Any, Limits], Any]
    schema: dict[str, Any]
    about: str


Fields = Mapping[str, Field]


def parsed(body: bytes) -> dict[str, Any]:
    """The object in a body; a RefusalError if there is none."""
    try:
        found = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:  # of broken JSON, broken UTF-8, numbers without an end
        raise RefusalError(400, f"the body is no JSON: {str(error)[:200]}; send an object.") from None
    if not isinstance(found, dict):
        raise RefusalError(400, f"the body is a JSON {type(found).__name__}; send an object.")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def checked(
    body: Mapping[str, Any], fields: Fields, needed: tuple[str, ...], limits: Limits
) -> dict[str, Any]:
    """The values of a body; InputError for one that is unknown, missing or of a wrong type."""
    for name in body:
        if name not in fields:
            allowed = ", ".join(map(repr, fields))
            raise InputError(
                f"{name!r:.60} is no field here; use {allowed}.{did_you_mean(name[:60], fields)}"
            )
    for name in needed:
        if name not in body:
            raise InputError(f"the field {name!r} is missing; it is {fields[name].about}.")
    return {name: fields[name].check(name, value, limits) for name, value in body.items()}


def query_number(text: str | None, name: str, default: int, high: int, low: int = 1) -> int:
    """A whole number in the query of an address."""
    if text is None:
        return default
    plain = text.isascii() and text.isdecimal() and len(text) <= 9
    return check_whole(name, int(text) if plain else text[:60], low, high)


# --- checks ----------------------------------------------------------------------------------------------


def _ids(most: str) -> Callable[[str, Any, Limits], list[Any]]:
    def check(name: str, value: Any, limits: Limits) -> list[Any]:
        check_type(name, value, list, "give a list of ids")
        if not len(value) <= getattr(limits, most):
            raise InputError(f"{name} has {len(value):,} ids; at most {getattr(limits, most):,} are allowed.")
        return list(value)

    return check


def _some_ids(most: str) -> Callable[[str, Any, Limits], list[Any]]:
    def check(name: str, value: Any, limits: Limits) -> list[Any]:
        found = _ids(most)(name, value, limits)
        if not found:
            raise InputError(f"{name} is empty; give at least one id.")
        return found

    return check


def _ids_or_by_user(name: str, value: Any, limits: Limits) -> Any:
    if not isinstance(value, dict):
        return _ids("items")(name, value, limits)
    _check_size(name, value, limits.users)
    if sum(len(_ids("items")(name, items, limits)) for items in value.values()) > limits.items:
        raise InputError(f"{name} has more than {limits.items:,} items; send several requests.")
    return value


def _check_size(name: str, value: Any, most: int) -> None:
    if len(value) > most:
        raise InputError(f"{name} has {len(value):,} entries; at most {most:,} are allowed.")


def _flag(name: str, value: Any, limits: Limits) -> bool:
    check_type(name, value, bool, "give true or false")
    return bool(value)


def _text(name: str, value: Any, limits: Limits) -> str:
    check_type(name, value, str, "give text")
    if len(value) > limits.text_length:
        raise InputError(f"{name} has {len(value):,} characters; at most {limits.text_length:,} are allowed.")
    return str(value)


def _quota(name: str, value: Any, limits: Limits) -> dict[str, int]:
    check_type(name, value, dict, 'give an object such as {"category": 3}')
    _check_size(name, value, 20)
    return {
        column: check_whole(f"{name}[{column[:60]!r}]", limit, 0, limits.k) for column, limit in value.items()
    }


def _objects(most: str) -> Callable[[str, Any, Limits], list[Any]]:
    def check(name: str, value: Any, limits: Limits) -> list[Any]:
        check_type(name, value, list, "give a list of objects")
        _check_size(name, value, getattr(limits, most))
        return list(value)

    return check


def _pairs(name: str, value: Any, limits: Limits) -> list[Any]:
    for pair in _objects("pairs")(name, value, limits):
        if not isinstance(pair, dict) or set(pair) != {"user", "item"}:
            raise InputError(f'{name} has {pair!r:.60}; each pair is an object {{"user": …, "item": …}}.')
    return list(value)


def _choice(*options: str) -> Callable[[str, Any, Limits], str]:
    return lambda name, value, limits: check_choice(name, value if isinstance(value, str) else "…", options)


def _explain(name: str, value: Any, limits: Limits) -> bool | int:
    return value if isinstance(value, bool) else check_whole(name, value, 1, 50)


# --- fields ----------------------------------------------------------------------------------------------

_ID: dict[str, Any] = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
_IDS: dict[str, Any] = {"type": "array", "items": _ID}
_BY_USER: dict[str, Any] = {"type": "object", "additionalProperties": _IDS}

_OPTIONS: dict[str, Field] = {
    "k": Field(
        lambda name, value, limits: check_whole(name, value, 1, limits.k),
        {"type": "integer", "minimum": 1, "default": 10},
        "how many items a list has",
    ),
    "only_items": Field(_some_ids("items"), _IDS, "recommend these items only"),
    "where": Field(_text, {"type": "string"}, "a condition on the item table, such as `price < 10`"),
    "quota": Field(
        _quota,
        {"type": "object", "additionalProperties": {"type": "integer"}},
        "at most so many items of each value of a column of the item table",
    ),
    "diversify": Field(
        lambda name, value, limits: check_number(name, value, 0, 1, open_high=True),
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "from 0 up to 1: prefer items unlike those before them in the list",
    ),
    "explain": Field(
        _explain,
        {"oneOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 50}]},
        "add which items of the person speak for each recommendation",
    ),
}
LISTS: Fields = {
    "users": Field(_some_ids("users"), _IDS, "the ids of the people"),
    **_OPTIONS,
    "exclude_seen": Field(_flag, {"type": "boolean"}, "leave out what a person has; the default"),
    "exclude_items": Field(
        _ids_or_by_user,
        {"oneOf": [_IDS, _BY_USER]},
        "items for nobody, or an object of users and their items",
    ),
    "unknown": Field(
        _choice("popular", "drop", "error"),
        {"enum": ["popular", "drop", "error"]},
        "for people of whom nothing is known: popular items (the default), no list, or an error",
    ),
    "cold": Field(
        _choice(*SERVING), {"enum": list(SERVING)}, "the same for people without an item that was trained on"
    ),
}
SESSION: Fields = {
    "liked": Field(_ids("items"), _IDS, "items that the person likes"),
    "disliked": Field(_ids("items"), _IDS, "items that the person dislikes"),
    **_OPTIONS,
    "exclude_items": Field(_ids("items"), _IDS, "recommend none of these items"),
    "unknown": Field(
        _choice("drop", "error"),
        {"enum": ["drop", "error"]},
        "items that the model does not know: ignored, or an error",
    ),
}
SCORES: Fields = {
    "pairs": Field(
        _pairs,
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"user": _ID, "item": _ID},
                "required": ["user", "item"],
            },
        },
        "pairs of a user and an item",
    )
}
EVENTS: Fields = {
    "events": Field(
        _objects("events"),
        {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["user", "item"],
                "additionalProperties": False,
                "properties": {
                    "user": _ID,
                    "item": _ID,
                    "kind": {"type": "string"},
                    "weight": {"type": "number", "exclusiveMinimum": 0},
                    "time": {"oneOf": [{"type": "number"}, {"type": "string"}]},
                    "id": {"type": "string", "pattern": "^[!-~]{1,128}$"},
                },
            },
        },
        "what people did; the same id, or the same user, item, kind and time, counts once",
    )
}


def schema_of(fields: Fields, needed: tuple[str, ...]) -> dict[str, Any]:
    """The JSON schema of a body with these fields."""
    properties = {name: {**field.schema, "description": field.about} for name, field in fields.items()}
    required = {"required": list(needed)} if needed else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **required}
