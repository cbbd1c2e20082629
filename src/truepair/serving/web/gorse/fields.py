"""Bodies of Gorse's API, and their records and events; cursors, times and durations as Gorse writes them."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from truepair.errors import InputError
from truepair.serving.events.event import Event
from truepair.serving.events.reading import Feedback
from truepair.serving.events.records import ItemRecord, UserRecord
from truepair.serving.id_texts import IdTexts
from truepair.serving.web.bodies import Id
from truepair.storage.types import Json

_EPOCH = datetime.fromtimestamp(0, UTC)
_NO_TIME = "0001-01-01T00:00:00Z"  # as Gorse prints a time that is not there
_FIELDS = {
    "FeedbackType": "kind",
    "UserId": "user",
    "ItemId": "item",
    "Value": "value",
    "IsHidden": "hidden",
    "Categories": "categories",
    "Timestamp": "time",
    "Labels": "labels",
    "Comment": "comment",
}
"""The fields of records by Gorse's names, in the order in which Gorse prints them."""
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|us|µs|ns))+")


def now() -> int:
    """The time in µs since 1970."""
    return int(time.time() * 1e6)


def _json_value(value: object) -> object:
    json.dumps(value, allow_nan=False)  # raises a ValueError for a number above all floats
    return value


Text = Annotated[str, Field(max_length=2000)]
Kind = Annotated[str, Field(min_length=1, max_length=128)]
JsonValue = Annotated[Any, AfterValidator(_json_value)]


class _Fields(BaseModel):
    """Fields that Gorse does not know are ignored, and null is a field that is not given."""

    model_config = ConfigDict(strict=True)

    def given(self) -> Json:
        """The fields of a record, without its id, that have a value."""
        found = {
            _FIELDS[name]: value for name, value in self if not name.endswith("Id") and value is not None
        }
        if "categories" in found:
            found["categories"] = tuple(found["categories"])
        if "time" in found and (time := moment(found.pop("time"))) is not None:
            found["time"] = time
        return found


class UserPatch(_Fields):
    """A change of a user."""

    Labels: JsonValue = None
    Comment: Text | None = None


class UserBody(UserPatch):
    """A user."""

    UserId: Id

    def record(self, users: IdTexts, items: IdTexts) -> UserRecord:
        """What the store keeps."""
        return UserRecord(users.text(self.UserId), **self.given())


class ItemPatch(UserPatch):
    """A change of an item."""

    IsHidden: bool | None = None
    Categories: Annotated[list[Text], Field(max_length=1000)] | None = None
    Timestamp: str | None = None


class ItemBody(ItemPatch):
    """An item."""

    ItemId: Id

    def record(self, users: IdTexts, items: IdTexts) -> ItemRecord:
        """What the store keeps."""
        return ItemRecord(items.text(self.ItemId), **self.given())


class FeedbackBody(_Fields):
    """A feedback: an event of any kind. `Value` above 0 is the weight."""

    FeedbackType: Kind
    UserId: Id
    ItemId: Id
    Value: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    Timestamp: str | None = None
    Comment: Text | None = None

    def event(self, users: IdTexts, items: IdTexts) -> Event:
        """The event that is stored."""
        value, when = float(self.Value or 0.0), moment(self.Timestamp)
        return Event(
            users.text(self.UserId), items.text(self.ItemId), self.FeedbackType,
            value if value > 0 else 1.0, now() if when is None else when, None, value, self.Comment or "",
        )  # fmt: skip


# --- queries ---------------------------------------------------------------------------------------------


def _default(number: int) -> Callable[[object], object]:
    return lambda text: number if text == "" else text


N = Annotated[int, BeforeValidator(_default(10)), Query(ge=0)]
Offset = Annotated[int, BeforeValidator(_default(0)), Query(ge=0)]


def moment(text: str | None) -> int | None:
    """µs since 1970 of a time as text; None for the time that Gorse prints where there is none."""
    if text is None or text in ("", _NO_TIME):
        return None
    try:
        if len(text) > 64:
            raise ValueError
        plain = re.sub(r" UTC$| [A-Z]{3,4}$", "", text.strip()).replace("/", "-")
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", plain))
        return (found.replace(tzinfo=found.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise InputError(f"Timestamp = {text!r:.60} is no time; give '2024-05-31T12:00:00Z'.") from None


def duration(text: str) -> int:
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


def from_cursor(cursor: str) -> str | None:
    """The id of a cursor; None at the start."""
    try:
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode() or None
    except (ValueError, UnicodeError):
        raise InputError(f"cursor = {cursor!r:.60} was not given by a list; start without one.") from None


# --- answers ---------------------------------------------------------------------------------------------


class Done(BaseModel):
    """How many rows were written."""

    RowAffected: int


class Health(BaseModel):
    """Whether the store can be used."""

    Ready: bool


class Score(BaseModel):
    """An item or a user with its score."""

    Id: str
    Score: float


class _Page(BaseModel):
    Cursor: str


class ItemsPage(_Page):
    """Items, and the cursor of the next page."""

    Items: list[ItemBody]


class UsersPage(_Page):
    """Users, and the cursor of the next page."""

    Users: list[UserBody]


class FeedbackPage(_Page):
    """Feedback, and the cursor of the next page."""

    Feedback: list[FeedbackBody]


def shown(record: ItemRecord | UserRecord | Feedback) -> Json:
    """A record as Gorse prints it."""
    found = {name: getattr(record, field) for name, field in _FIELDS.items() if hasattr(record, field)}
    return found | {"Timestamp": printed(found["Timestamp"])} if "Timestamp" in found else found


def printed(when: int | None) -> str:
    """A time in µs as text."""
    if when is None:
        return _NO_TIME
    text = (_EPOCH + timedelta(microseconds=when)).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"
