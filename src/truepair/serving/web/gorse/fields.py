"""Fields of Gorse's API: objects of JSON <-> records and events, cursors, times and durations."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from truepair.errors import InputError, check_number
from truepair.serving.events.event import Event, Kinds
from truepair.serving.events.reading import Feedback
from truepair.serving.events.records import ItemRecord, UserRecord
from truepair.serving.id_texts import IdTexts
from truepair.serving.limits import Limits
from truepair.serving.refusals import RefusalError

_EPOCH = datetime.fromtimestamp(0, UTC)
_NO_TIME = "0001-01-01T00:00:00Z"  # as Gorse prints a time that is not there
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+")


def now() -> int:
    """The time in µs since 1970."""
    return int(time.time() * 1e6)


# --- bodies ----------------------------------------------------------------------------------------------


def read_json(body: bytes) -> Any:
    """The value in a body; a RefusalError if it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusalError(400, f"the body is no JSON: {str(error)[:200]}.") from None


def objects(found: Any, most: int) -> list[dict[str, Any]]:
    """The objects of a list."""
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError("the body is no list of objects; send a list.")
    if len(found) > most:
        raise InputError(f"the body has {len(found):,} objects; at most {most:,} are allowed.")
    return found


def item_record(found: Any, items: IdTexts, limits: Limits) -> ItemRecord:
    """The record of an item: ItemId, IsHidden, Categories, Timestamp, Labels, Comment."""
    fields = _fields(found, ITEM_FIELDS, limits)
    return ItemRecord(items.text(_id(found, "ItemId")), **fields)


def user_record(found: Any, users: IdTexts, limits: Limits) -> UserRecord:
    """The record of a user: UserId, Labels, Comment."""
    return UserRecord(users.text(_id(found, "UserId")), **_fields(found, USER_FIELDS, limits))


def patch(found: Any, of: Mapping[str, tuple[str, Callable[[str, Any, Limits], Any]]], limits: Limits) -> Any:
    """The fields of a change; those that are null stay as they are."""
    return _fields(found, of, limits)


def event(found: Mapping[str, Any], users: IdTexts, items: IdTexts, kinds: Kinds, limits: Limits) -> Event:
    """The event of a feedback: FeedbackType, UserId, ItemId, Value, Timestamp, Comment.

    A kind that is not known is kept; `Value` above 0 is the weight.
    """
    kind = feedback_type(found.get("FeedbackType"))
    value = check_number("Value", _or(found.get("Value"), 0.0), -1e9, 1e9)
    moment = _time("Timestamp", found.get("Timestamp"), limits)
    return Event(
        users.text(_id(found, "UserId")),
        items.text(_id(found, "ItemId")),
        kind,
        value if value > 0 else 1.0,
        now() if moment is None else moment,
        None,
        value,
        _text("Comment", _or(found.get("Comment"), ""), limits),
    )


def feedback_type(found: Any) -> str:
    """The name of a kind."""
    if not isinstance(found, str) or not 0 < len(found) <= 128 or not _is_plain(found):
        raise InputError(f"FeedbackType = {found!r:.60} cannot be used; give 1 to 128 characters of text.")
    return found


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _id(found: Any, name: str) -> Any:
    if not isinstance(found, dict):
        raise InputError(f"the body is no object; send an object with {name}.")
    if name not in found:
        raise InputError(f"an object has no {name}.")
    return found[name]


def _fields(
    found: Any, of: Mapping[str, tuple[str, Callable[[str, Any, Limits], Any]]], limits: Limits
) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InputError("the body is no object; send an object.")
    given = ((name, field, found.get(name)) for name, field in of.items())
    return {field: check(name, value, limits) for name, (field, check), value in given if value is not None}


def _flag(name: str, value: Any, limits: Limits) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} = {value!r:.60} cannot be used; give true or false.")
    return value


def _text(name: str, value: Any, limits: Limits) -> str:
    if not isinstance(value, str) or len(value) > limits.text_length or not _is_plain(value):
        raise InputError(f"{name} cannot be used; give text of at most {limits.text_length:,} characters.")
    return value


def _texts(name: str, value: Any, limits: Limits) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 1000:
        raise InputError(f"{name} cannot be used; give a list of at most 1,000 texts.")
    return tuple(_text(name, one, limits) for one in value)


def _labels(name: str, value: Any, limits: Limits) -> Any:
    try:
        text = json.dumps(value, allow_nan=False)
        text.encode()
    except (ValueError, RecursionError):
        raise InputError(f"{name} cannot be used; give a value of JSON.") from None
    return value


def _time(name: str, value: Any, limits: Limits) -> int | None:
    """µs since 1970 of a time as text; None for the time that Gorse prints where there is none."""
    if value is None or value in ("", _NO_TIME):
        return None
    try:
        if not isinstance(value, str) or len(value) > 64:
            raise ValueError
        text = re.sub(r" UTC$| [A-Z]{3,4}$", "", value.strip()).replace("/", "-")
        moment = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise InputError(
            f"{name} = {value!r:.60} cannot be used; give text such as '2024-05-31T12:00:00Z'."
        ) from None


def _is_plain(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


USER_FIELDS = {"Labels": ("labels", _labels), "Comment": ("comment", _text)}
ITEM_FIELDS = {
    "IsHidden": ("hidden", _flag),
    "Categories": ("categories", _texts),
    "Timestamp": ("time", _time),
    **USER_FIELDS,
}
"""Name in JSON -> field of a record, and its check."""

# --- queries ---------------------------------------------------------------------------------------------


def duration(text: str | None) -> int:
    """A duration such as 1h30m in µs, as Go writes it."""
    if not text:
        return 0
    if len(text) > 40 or not _DURATION.fullmatch(text):
        raise InputError(f"write-back-delay = {text!r:.60} cannot be used; give a duration such as 1h30m.")
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds > 3.2e9:
        raise InputError(f"write-back-delay = {text!r:.60} is too long; give at most 100 years.")
    return int(seconds * 1e6)


def cursor_of(last: str) -> str:
    """The cursor after this id."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def from_cursor(cursor: str) -> str:
    """The id of a cursor."""
    try:
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (ValueError, UnicodeError):
        raise InputError(f"cursor = {cursor!r:.60} is none that was given; start without one.") from None


# --- answers ---------------------------------------------------------------------------------------------


def item_json(record: ItemRecord) -> dict[str, Any]:
    """An item as Gorse prints it."""
    return {
        "ItemId": record.item,
        "IsHidden": record.hidden,
        "Categories": list(record.categories),
        "Timestamp": _printed(record.time),
        "Labels": record.labels,
        "Comment": record.comment,
    }


def user_json(record: UserRecord) -> dict[str, Any]:
    """A user as Gorse prints it."""
    return {"UserId": record.user, "Labels": record.labels, "Comment": record.comment}


def feedback_json(found: Feedback) -> dict[str, Any]:
    """A feedback as Gorse prints it."""
    return {
        "FeedbackType": found.kind,
        "UserId": found.user,
        "ItemId": found.item,
        "Value": found.value,
        "Timestamp": _printed(found.time),
        "Comment": found.comment,
    }


def _printed(moment: int | None) -> str:
    if moment is None:
        return _NO_TIME
    text = (_EPOCH + timedelta(microseconds=moment)).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"
