"""Bodies of requests and answers as pydantic models: what is checked, and what OpenAPI says."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from truepair.errors import InputError, check_whole
from truepair.evaluation.task import SERVING
from truepair.serving.events.event import Event, Kinds, microseconds
from truepair.serving.id_texts import IdTexts
from truepair.serving.limits import Limits
from truepair.storage.types import Json

Id = Annotated[Any, WithJsonSchema({"oneOf": [{"type": "string"}, {"type": "integer"}]})]
"""An id; `IdTexts` checks it, by the type of the model's ids."""
Ids = list[Id]
SomeIds = Annotated[Ids, Field(min_length=1)]


_LIMITED = {
    **dict.fromkeys(("only_items", "exclude_items", "liked", "disliked"), "items"),
    **{name: name for name in ("users", "pairs", "events")},
    "where": "text_length",
    "items": "k",
}
"""Field of a body -> the limit of its length."""


class RequestBody(BaseModel):
    """A body without unknown fields, whose values have the types of JSON."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def check(self, limits: Limits) -> None:
        """Raise if a field is longer than the limits allow."""
        for name, limit in _LIMITED.items():
            value, most = getattr(self, name, None), getattr(limits, limit)
            if value is not None and len(value) > most:
                what = "characters" if isinstance(value, str) else "entries"
                raise InputError(f"{name} has {len(value):,} {what}; at most {most:,} are allowed.")

    def given(self, *without: str) -> Json:
        """The fields that the request has."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in without}


class _ListOptions(RequestBody):
    k: int = Field(10, ge=1, description="how many items a list has")
    only_items: SomeIds = Field(default_factory=list, description="recommend these items only")
    where: str = Field("", description="a condition on the item table, such as `price < 10`")
    quota: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        max_length=20,
        description="at most this many items of each value of a column of the item table",
    )
    diversify: float = Field(
        0.0, ge=0, lt=1, description="from 0 up to 1: prefer items unlike those before them in the list"
    )
    explain: bool | Annotated[int, Field(ge=1, le=50)] = Field(
        False, description="add which items of the user contribute most to each recommendation"
    )

    def check(self, limits: Limits) -> None:
        """Raise if a field is longer or larger than the limits allow."""
        super().check(limits)
        check_whole("k", self.k, 1, limits.k)
        for column, number in self.quota.items():
            check_whole(f"quota[{column[:60]!r}]", number, 0, limits.k)


class ListsBody(_ListOptions):
    """A request for the lists of several users."""

    users: SomeIds = Field(description="the ids of the users")
    exclude_seen: bool = Field(True, description="leave out what a user has; the default")
    exclude_items: Ids | dict[str, Ids] = Field(
        default_factory=list, description="items to leave out for all, or an object of users and their items"
    )
    unknown: Literal["popular", "drop", "error"] = Field(
        "popular",
        description="for users without any history: popular items (the default), no list, or an error",
    )
    cold: Literal[SERVING] = Field(  # type: ignore[valid-type]
        SERVING[0], description="the same for users without an item that was trained on"
    )

    def check(self, limits: Limits) -> None:
        """Raise if a field is longer or larger than the limits allow."""
        super().check(limits)
        by_user = self.exclude_items if isinstance(self.exclude_items, dict) else {"": self.exclude_items}
        if len(by_user) > limits.users or sum(map(len, by_user.values())) > limits.items:
            most = f"{limits.items:,} items or {limits.users:,} users"
            raise InputError(f"exclude_items has more than {most}; send several requests.")


class SessionBody(_ListOptions):
    """A request for a list by a history that is not stored."""

    liked: Ids = Field(default_factory=list, description="items that the user likes")
    disliked: Ids = Field(default_factory=list, description="items that the user dislikes")
    exclude_items: Ids = Field(default_factory=list, description="recommend none of these items")
    unknown: Literal["drop", "error"] = Field(
        "drop", description="items that the model does not know: ignored, or an error"
    )


class _Pair(RequestBody):
    user: Id
    item: Id


class ScoresBody(RequestBody):
    """A request for scores."""

    pairs: list[_Pair] = Field(description="pairs of a user and an item")


class EventBody(RequestBody):
    """An event."""

    user: Id
    item: Id
    kind: str = Field("", description="one of the kinds of the service; the first by default")
    weight: float = Field(1.0, gt=0, le=1e9)
    time: float | str | None = Field(
        None, description="seconds since 1970, or text (ISO 8601); now by default"
    )
    id: str | None = Field(None, pattern="^[!-~]{1,128}$", description="1 to 128 ASCII characters, no space")

    def event(self, users: IdTexts, items: IdTexts, kinds: Kinds) -> Event:
        """The event with the ids as texts; InputError if a value cannot be used."""
        kind = kinds.check(self.kind) if "kind" in self.model_fields_set else kinds.default
        return Event(
            users.text(self.user), items.text(self.item), kind, self.weight, microseconds(self.time), self.id
        )


class EventsBody(RequestBody):
    """Events to store."""

    events: list[EventBody] = Field(
        description="what users did; the same id, or the same user, item, kind and time, counts once"
    )


# --- answers -------------------------------------------------------------------------------------------


class ItemRow(BaseModel):
    """An item of a list."""

    item: Id
    score: float
    rank: int


class UserListAnswer(BaseModel):
    """The list of a user; `basis`: the trained vector, one updated from events, or popularity."""

    user: Id
    basis: Literal["model", "events", "popularity"]
    items: list[ItemRow]


class _UserRows(BaseModel):
    user: Id
    items: list[ItemRow]


class ListsAnswer(BaseModel):
    """The lists of several users."""

    lists: list[_UserRows]


class SessionAnswer(BaseModel):
    """The list of a session."""

    items: list[ItemRow]


class _SimilarRow(BaseModel):
    similar: Id
    score: float
    rank: int


class SimilarAnswer(BaseModel):
    """Similar items."""

    item: Id
    items: list[_SimilarRow]


class _ScoreRow(_Pair):
    score: float


class ScoresAnswer(BaseModel):
    """Scores of pairs."""

    scores: list[_ScoreRow]


class EventsAnswer(BaseModel):
    """How many events are new."""

    stored: int
    repeated: int


class StatusAnswer(BaseModel):
    """A check of health."""

    status: Literal["live", "ready"]
