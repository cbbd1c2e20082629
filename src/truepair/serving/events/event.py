"""Events: what users did, and how several events of a user become a history with weights and dislikes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from truepair.data.rows.weighting import Weighting
from truepair.errors import InputError, did_you_mean

_DAY = 86_400.0  # seconds that a clock elsewhere may be ahead


class Event(NamedTuple):
    """One thing that a user did with an item. The ids are texts, as in addresses."""

    user: str
    item: str
    kind: str
    weight: float
    time: int  # µs since 1970
    id: str | None  # of the caller: the same id twice is one event
    value: float = 0.0  # `Value` and `Comment` of Gorse's API
    comment: str = ""


@dataclass(frozen=True)
class Kinds:
    """Which kinds of events there are, and how much each weighs, as `feedback` of `read_interactions`.

    A kind below 0 is a dislike; events of a kind with 0 are stored and change no list. The first kind is the
    default.
    """

    numbers: Mapping[str, float] = field(default_factory=lambda: {"like": 1.0, "dislike": -1.0})

    def __post_init__(self) -> None:
        Weighting(feedback=self.numbers)  # checks them

    @property
    def default(self) -> str:
        """The kind of an event that does not state one."""
        return next(iter(self.numbers))

    def check(self, kind: str) -> str:
        """The kind of an event."""
        if kind in self.numbers:
            return kind
        names, hint = ", ".join(map(repr, self.numbers)), did_you_mean(kind[:60], self.numbers)
        raise InputError(f"kind = {kind!r:.60} is not known; use one of {names}.{hint}")

    def merged(self, rows: Iterable[tuple[str, str, float]]) -> dict[str, float]:
        """Item -> weight, -1 for a dislike, of one user's rows (item, kind, weight), oldest first.

        As for `read_interactions` with feedback: the last row of an item says whether it is liked, and of
        several likes the strongest counts.
        """
        strongest: dict[str, float] = {}
        is_liked: dict[str, bool] = {}
        for item, kind, weight in rows:
            number = self.numbers.get(kind, 0.0) * weight  # a kind that is no longer known changes nothing
            if number:
                is_liked[item] = number > 0
                strongest[item] = max(strongest.get(item, 0.0), number)
        return {item: strongest[item] if liked else -1.0 for item, liked in is_liked.items()}


def microseconds(given: float | str | None) -> int:
    """A time as a number of seconds since 1970 or as text (ISO 8601) in µs; without one, now."""
    now = time.time()
    if given is None:
        return int(now * 1e6)
    seconds = math.nan
    with suppress(ValueError, OverflowError):
        if not isinstance(given, str):
            seconds = float(given)
        elif len(given) <= 40:
            moment = datetime.fromisoformat(given)
            seconds = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    if not 0 <= seconds <= now + _DAY:
        raise InputError(
            f"time = {given!r:.60} cannot be used; give seconds since 1970, such as {now:.0f}, or text "
            "such as '2024-05-31T12:00:00Z', at most a day ahead."
        )
    return round(seconds * 1e6)
