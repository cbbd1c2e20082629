"""Log: events in the order of user, time and place in the source, with every repeat."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.ids import Codes, IdMap, pair_keys
from truepair.errors import InputError
from truepair.storage.types import Array

Values = npt.NDArray[np.float64] | npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Policy:
    """How the events of a pair become one interaction; the options of `read_interactions` of these names."""

    duplicates: str = "last"
    half_life: str | None = None
    now: object = None
    counts: str | None = None
    reading: Mapping[str, Any] | None = None
    """The options of reading that say what rows mean, as far as they were given; None: nothing was read."""
    table: str = field(default="arrow", compare=False)
    """The type of the table that was read, which lists of a model have, too."""

    @property
    def changes_weights(self) -> bool:
        """Whether the weight of a pair differs from that of its only event."""
        return self.half_life is not None or self.counts is not None

    @property
    def merges_weights(self) -> bool:
        """Whether the weight of a pair follows from all its likes."""
        return self.duplicates in ("strongest", "sum")


class Histories(NamedTuple):
    """The items of each user in the order of the events, with every repeat."""

    indptr: Codes
    items: Codes

    def of(self, user: int) -> Codes:
        """The item codes of one user code, the latest last."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]


@dataclass(frozen=True, eq=False, repr=False)
class Log:
    """Events, sorted by user, then time, then place in the source; a pair may have many.

    `users` and `items` hold codes, of 32 bits where they fit. `weight` is that of the event, before events of
    a pair are merged and before a half-life. `disliked` marks events that are dislikes; None: there are none.
    `policy` says how the events of a pair become one interaction: `interactions_of`.

    >>> from truepair import read_interactions
    >>> read_interactions({"user": [1, 1, 1], "item": [5, 6, 5], "time": [10, 20, 30]}).log
    <Log: 1 users x 2 items, 3 events, time>
    """

    users: Codes
    items: Codes
    user_ids: IdMap
    item_ids: IdMap
    time: Values | None = None
    time_kind: Literal["clock", "order"] = "clock"
    weight: Values | None = None
    rating: Values | None = None
    disliked: Mask | None = None
    policy: Policy = field(default=Policy())

    def __post_init__(self) -> None:
        for name in self._columns:
            getattr(self, name).flags.writeable = False

    @property
    def liked(self) -> Mask:
        """Which events are not dislikes."""
        return np.ones(len(self), dtype=bool) if self.disliked is None else ~self.disliked

    @cached_property
    def keys(self) -> Codes:
        """user·n_items + item of each event."""
        return pair_keys(self.users, self.items, len(self.item_ids))

    @property
    def has_liked_dislikes(self) -> bool:
        """Whether some pair has both likes and dislikes."""
        return self.disliked is not None and bool(
            np.isin(self.keys[self.disliked], self.keys[self.liked]).any()
        )

    @cached_property
    def first_like(self) -> Codes:
        """The row of the first like of each event's pair; the event's own row if the pair has none."""
        order, ordered = stable_order(self.keys)
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        likes = np.where(self.liked[order], order, len(self))
        firsts = np.minimum.reduceat(likes, starts) if len(self) else likes
        first = np.empty(len(self), dtype=np.int64)
        first[order] = np.repeat(firsts, np.diff(starts, append=len(self)))
        return np.where(first == len(self), np.arange(len(self)), first)

    @property
    def is_first_like(self) -> Mask:
        """Which events are the first like of their pair."""
        return np.asarray(self.liked & (self.first_like == np.arange(len(self))))

    @cached_property
    def histories(self) -> Histories:
        """The items of each user's likes, in order."""
        liked = self.liked
        counts = np.bincount(self.users[liked], minlength=len(self.user_ids))
        return Histories(np.concatenate([[0], np.cumsum(counts)]), self.items[liked])

    def take(self, rows: Mask | Codes) -> Log:
        """Only these events. The users, the items and their codes do not change."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self._columns})

    def before(self, moment: float) -> Log:
        """The events before this time, in the unit of the time column."""
        if self.time is None:
            raise InputError("the events have no times; read them with time=….")
        return self.take(self.time < moment)

    def recoded(self, users: Codes, items: Codes, user_ids: IdMap, item_ids: IdMap) -> Log:
        """The events in other codes, which rise with the old ones: `users` and `items` hold the new code of
        each old one, -1 for those that are left out."""
        rows = (users[self.users] >= 0) & (items[self.items] >= 0)
        kept = self if rows.all() else self.take(rows)
        codes = narrow(users[kept.users], len(user_ids)), narrow(items[kept.items], len(item_ids))
        return replace(kept, users=codes[0], items=codes[1], user_ids=user_ids, item_ids=item_ids)

    def without(self, columns: Collection[str]) -> Log:
        """The log without these columns; a policy that needs one of them becomes "last"."""
        policy = self.policy
        if "weight" in columns:
            kept = "last" if policy.merges_weights else policy.duplicates
            policy = Policy(kept, reading=policy.reading, table=policy.table)
        if "rating" in columns and policy.duplicates == "max":
            policy = replace(policy, duplicates="last")
        nothing: dict[str, Any] = dict.fromkeys(columns)
        return replace(self, policy=policy, **nothing)

    def to_table(self) -> pa.Table:
        """An Arrow table in the caller's ids: user, item; rating, weight, time (or order) and disliked where
        present."""
        time = "order" if self.time_kind == "order" else "time"  # positions would pass for times of a clock
        extra = {"rating": self.rating, "weight": self.weight, time: self.time, "disliked": self.disliked}
        ids = {"user": self.user_ids.outside(self.users), "item": self.item_ids.outside(self.items)}
        return pa.table({**ids, **{name: column for name, column in extra.items() if column is not None}})

    @property
    def _columns(self) -> list[str]:
        return [each.name for each in fields(self) if isinstance(getattr(self, each.name), np.ndarray)]

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        extra = "".join(f", {name}" for name in self._columns[2:])
        users, items = len(self.user_ids), len(self.item_ids)
        return f"<Log: {users:,} users x {items:,} items, {len(self):,} events{extra}>"


def sorted_log(log: Log, places: Array | None = None) -> Log:
    """The log of events in any order; `places` are those in the source, by default 0, 1, …"""
    by = [key for key in (places, log.time, log.users) if key is not None]
    order = stable_order(by[0])[0]
    for key in by[1:]:
        order = order[stable_order(key[order])[0]]
    users, items = narrow(log.users, len(log.user_ids)), narrow(log.items, len(log.item_ids))
    return replace(log, users=users, items=items).take(order)


def joined_log(logs: Collection[Log]) -> Log:
    """The events of logs that share their ids, columns and policy, in order; of equal times, those of the
    first log come first."""
    first, *_ = logs
    names = ("users", "items", "time", "weight", "rating")
    found = {name: [getattr(log, name) for log in logs] for name in names}
    joined: dict[str, Any] = {
        name: None if any(column is None for column in columns) else np.concatenate(columns)
        for name, columns in found.items()
    }
    disliked = ~np.concatenate([log.liked for log in logs])
    return sorted_log(replace(first, **joined, disliked=disliked if disliked.any() else None))


def positions(users: Array, *by: Array) -> Codes:
    """The place 0, 1, … of each row among those of its user, by the last of the keys first; users rise."""
    order = np.lexsort((*by, users))  # each user's block stays
    found = np.empty(len(users), dtype=np.int64)
    found[order] = np.arange(len(users)) - first_rows(users)
    return found


def first_rows(users: Array) -> Codes:
    """The first row of each row's user; users rise."""
    firsts = np.flatnonzero(np.diff(users, prepend=-1))
    return np.repeat(firsts, np.diff(firsts, append=len(users)))


def stable_order(keys: Array) -> tuple[Codes, Array]:
    """The stable order of the keys, and the keys in this order."""
    bits = max(len(keys) - 1, 0).bit_length()
    if len(keys) and keys.dtype.kind in "iu":
        first, span = int(keys.min()), int(keys.max()) - int(keys.min())
        unit = common_unit(keys, first) if span.bit_length() + bits > 63 > span.bit_length() else 1
        if (span // unit).bit_length() + bits <= 63:
            # sorting numbers is several times faster than sorting their positions, which ride along
            packed = np.subtract(keys, first, dtype=np.int64)
            if unit > 1:
                packed //= unit
            packed <<= bits
            packed |= np.arange(len(keys), dtype=np.int32 if bits < 32 else np.int64)
            packed.sort()
            ordered = packed >> bits
            ordered *= unit
            ordered += first
            packed &= (1 << bits) - 1
            return packed, ordered
    order = np.argsort(keys, kind="stable")
    return order, keys[order]


def common_unit(values: Array, first: int) -> int:
    """The largest number that divides the distances of all values from the first: 10⁶ for dates in
    microseconds that are whole seconds."""
    if int(np.gcd.reduce(values[:1000] - first)) == 1:  # as of most columns: all of it need not be read
        return 1
    return max(1, int(np.gcd.reduce(values - first)))


def narrow(codes: Array, n: int) -> Codes:
    """The codes below n in 32 bits, if that is enough."""
    return codes.astype(np.int32) if n <= 2**31 else codes
