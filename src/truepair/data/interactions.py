"""Interactions: (user, item) pairs as frozen arrays in one canonical order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import EllipsisType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.ids import Codes, IdMap, pair_keys
from truepair.data.log import Log, Mask, Policy, sorted_log
from truepair.data.log import Values as Values
from truepair.errors import InputError, check_choice, check_number, check_whole, settle
from truepair.storage.types import Array, Ids

TIME_KINDS = ("clock", "order")
"""Kinds of times: "clock" is comparable among all pairs, "order" is a position among one user's pairs."""

EXTRA = ("rating", "weight", "time")
"""Columns beside the pairs."""

_CHUNK = 1 << 20  # values that are hashed at once: 32-bit codes are widened for it


@dataclass(frozen=True)
class Step:
    """What a step of reading or filtering removed, or a note of what else it did."""

    what: str
    rows: int
    users: int = 0
    items: int = 0
    note: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        if self.note:
            return self.what
        return f"{self.what}: removed {self.rows:,} rows, {self.users:,} users, {self.items:,} items"


class Origin(NamedTuple):
    """The events that pairs were made from."""

    policy: Policy = Policy()
    log: Log | None = None
    """Where it cannot be made from the pairs; it may have events of further pairs."""
    places: npt.NDArray[np.uint32] | None = None
    """The place of each pair in the source, where pairs of a user have equal times."""


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Distinct (user, item) pairs, sorted by user, then item, with optional rating, weight and time.

    `users` and `items` hold codes; `user_ids` and `item_ids` map them to the caller's ids.
    The arrays are read-only copies. Each pair occurs once; `read_interactions` merges repeated rows.
    A weight is above 0. It scales the pair's loss in training, relative to the mean of all weights; without
    weights all pairs weigh the same. Popularity counts users, whatever their weights.
    `disliked` holds known negatives, as keys user·n_items + item, none of them a pair: they are no
    interactions, are never recommended, and training uses them as labelled negatives. None: there are none.
    With `time_kind="order"`, times are positions in each user's history: they compare pairs of one user only,
    and are no part of `hash`, so that results on the same pairs stay comparable.
    `log` has the events that the pairs were made from, in order and with every repeat; it is no part of
    `hash` either.

    >>> Interactions(np.array([1, 0]), np.array([0, 2]), IdMap.of(["ann", "bob"]), IdMap.range(3))
    <Interactions: 2 users x 3 items, 2 pairs, density 33.33%>
    """

    users: Codes
    items: Codes
    user_ids: IdMap
    item_ids: IdMap
    rating: Values | None = None
    weight: Values | None = None
    time: Values | None = None
    history: tuple[Step, ...] = field(default=())
    time_kind: Literal["clock", "order"] = "clock"
    disliked: Codes | None = None
    origin: Origin = field(default=Origin(), init=False)  # as far as events are stored; `made_from` sets it

    def __post_init__(self) -> None:
        check_choice("time_kind", self.time_kind, TIME_KINDS)
        users = _checked_codes("users", self.users, self.n_users)
        items = _checked_codes("items", self.items, self.n_items)
        if len(users) != len(items):
            raise InputError(f"{len(users)} users but {len(items)} items; give one of each for a row.")
        key = pair_keys(users, items, self.n_items)
        order = None if (key[1:] > key[:-1]).all() else np.argsort(key, kind="stable")
        if order is not None and (repeated := int((np.diff(key[order]) == 0).sum())):
            raise InputError(f"{repeated} rows repeat a (user, item) pair; `read_interactions` merges them.")
        extra = {name: _checked_values(name, column) for name, column in self._extra_columns().items()}
        for name, column in {"users": users, "items": items, **extra}.items():
            if len(column) != len(users):
                raise InputError(f"{name} has {len(column)} values for {len(users)} rows; give one for each.")
            if name == "weight":
                checked_weights(column)
            settle(self, **{name: _read_only(column if order is None else column[order])})
        if self.disliked is not None:
            settle(self, disliked=self._checked_dislikes(self.disliked))

    # --- sizes -------------------------------------------------------------------------------------

    @property
    def n_users(self) -> int:
        """The number of users, with or without an interaction."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """The number of items in the catalogue, with or without an interaction."""
        return len(self.item_ids)

    @property
    def density(self) -> float:
        """The share of all (user, item) pairs that is observed."""
        cells = self.n_users * self.n_items
        return len(self) / cells if cells else 0.0

    @cached_property
    def user_counts(self) -> Codes:
        """The number of items of each user."""
        return _read_only(np.bincount(self.users, minlength=self.n_users))

    @cached_property
    def item_counts(self) -> Codes:
        """The number of users of each item: its popularity."""
        return _read_only(np.bincount(self.items, minlength=self.n_items))

    # --- views -------------------------------------------------------------------------------------

    @cached_property
    def indptr(self) -> Codes:
        """Row pointers: the items of user u are `items[indptr[u]:indptr[u + 1]]`, in increasing order."""
        return _read_only(np.concatenate([[0], np.cumsum(self.user_counts)]))

    def items_of(self, user: int) -> Codes:
        """The item codes of one user code, in increasing order."""
        return self.items[self.indptr[user] : self.indptr[user + 1]]

    @cached_property
    def keys(self) -> Codes:
        """user·n_items + item of each pair, in increasing order."""
        return _read_only(pair_keys(self.users, self.items, self.n_items))

    def has(self, users: npt.ArrayLike, items: npt.ArrayLike) -> Mask:
        """Whether each (user, item), given by codes, is an interaction; shapes broadcast."""
        users, items = np.asarray(users), np.asarray(items)
        if not len(self) or not users.size or not items.size:
            return np.zeros(np.broadcast_shapes(users.shape, items.shape), dtype=bool)
        wanted = pair_keys(users, items, self.n_items)
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self) - 1)
        return np.asarray(self.keys[places] == wanted)

    def csr(self) -> sp.csr_array:
        """A users x items matrix of ones."""
        ones = np.ones(len(self), np.float32)
        return sp.csr_array((ones, self.items, self.indptr), (self.n_users, self.n_items))

    @cached_property
    def weight_in_history(self) -> npt.NDArray[np.float32] | None:
        """Each pair's weight relative to the mean weight of its user's pairs; None if none differ."""
        if self.weight is None or not len(self) or self.weight.min() == self.weight.max():
            return None
        weight, starts = self.weight.astype(np.float64), self.indptr[:-1][self.user_counts > 0]
        lowest, highest = (each.reduceat(weight, starts) for each in (np.minimum, np.maximum))
        means = np.add.reduceat(weight / highest.max(), starts) / self.user_counts[self.user_counts > 0]
        means = np.where(lowest == highest, highest, means * highest.max())  # equal weights are exactly 1
        return _read_only((weight / np.repeat(means, np.diff(starts, append=len(self)))).astype(np.float32))

    def weighted_csr(self) -> sp.csr_array:
        """A users x items matrix of weights, relative to the user's mean: ones where they do not differ."""
        matrix = self.csr()
        if self.weight_in_history is not None:
            matrix.data = self.weight_in_history.copy()
        return matrix

    def to_table(self) -> pa.Table:
        """An Arrow table in the caller's ids: user, item; rating, weight, time (or order) where present."""
        return self._pairs_as_log().to_table()

    @cached_property
    def hash(self) -> str:
        """A checksum of ids, pairs and columns: equal on every machine and for every order of the rows."""
        digest = hashlib.blake2b(self.user_ids.digest() + self.item_ids.digest(), digest_size=16)
        extra = self._extra_columns()
        if self.time_kind == "order":
            extra.pop("time", None)
        extra |= {} if self.disliked is None else {"disliked": self.disliked}
        for name, column in {"users": self.users, "items": self.items, **extra}.items():
            kind = np.dtype("<f8" if column.dtype.kind == "f" else "<i8")
            digest.update(name.encode() + kind.str.encode())
            for first in range(0, len(column), _CHUNK):
                digest.update(column[first : first + _CHUNK].astype(kind, copy=False).data)
        return digest.hexdigest()

    # --- events ------------------------------------------------------------------------------------

    @cached_property
    def log(self) -> Log:
        """The events of these pairs and dislikes, by user, then time, then place in the source.

        Without times, each pair is one event, in the order of the pairs. A dislike without a time has the
        earliest one.
        """
        log = self.origin.log
        if log is None:
            return self._log_of_pairs()
        own = self.has(log.users, log.items)
        own |= False if self.disliked is None else np.isin(log.keys, self.disliked)
        return log if own.all() else log.take(own)

    @property
    def stored_log(self) -> Log | None:
        """The log where it says more than the pairs: repeats, times of dislikes, weights before a half-life
        or a function of counts. Otherwise None: each pair is one event."""
        return None if self.origin.log is None else self.log

    def made_from(self, origin: Origin) -> Interactions:
        """The same interactions, which now know their events."""
        made = copy(self)
        settle(made, origin=origin)
        made.__dict__.pop("log", None)
        return made

    def _pairs_as_log(self) -> Log:
        """Each pair as one event, in the order of the pairs, without dislikes."""
        ids, time = (self.user_ids, self.item_ids), (self.time, self.time_kind)
        policy = self.origin.policy
        return Log(self.users, self.items, *ids, *time, weight=self.weight, rating=self.rating, policy=policy)

    def _log_of_pairs(self) -> Log:
        log, places, dislikes = self._pairs_as_log(), self.origin.places, self.dislikes
        if dislikes is None:
            return log if log.time is None else sorted_log(log, places)
        earliest = 0 if self.time is None or not len(self) else self.time.min()
        unknown = {"rating": np.nan, "weight": 1, "time": earliest}
        columns: dict[str, Any] = {
            name: np.append(value, [unknown[name]] * len(dislikes))
            for name, value in self._extra_columns().items()
        }
        users, items = np.append(self.users, dislikes.users), np.append(self.items, dislikes.items)
        columns |= {"users": users, "items": items, "disliked": np.arange(len(users)) >= len(self)}
        places = None if places is None else np.append(places, np.zeros(len(dislikes), np.uint32))
        return sorted_log(replace(log, **columns), places)

    # --- subsets ---------------------------------------------------------------------------------

    def take(self, rows: Mask | Codes) -> Interactions:
        """Only these rows (a mask or positions). The users, the items and their codes do not change."""
        chosen: Array = np.asarray(rows)
        make: Callable[..., Interactions] = trusted_interactions
        if chosen.dtype != bool:
            chosen, make = np.sort(chosen.astype(np.int64)), Interactions
        fields: dict[str, object] = {"history": self.history, "time_kind": self.time_kind}
        fields |= {"disliked": self.disliked, **self._extra_columns(chosen)}
        made = make(self.users[chosen], self.items[chosen], self.user_ids, self.item_ids, **fields)
        places = None if self.origin.places is None else self.origin.places[chosen]
        return made.made_from(self.origin._replace(places=places))

    def pairs_only(self) -> Interactions:
        """The same pairs and dislikes, and nothing else."""
        return without_columns(self, EXTRA, history=())

    def known(self, in_order: bool = False) -> Interactions:
        """What a model keeps: pairs, weights and dislikes; events only where a weight is made of several, or
        `in_order`, where they have times.

        Events without times are enough where a pair was liked before it was disliked: if it is liked again,
        its earlier likes count too.
        """
        made, policy = without_columns(self, ("rating", "time"), history=()), self.origin.policy
        in_order &= self.time is not None
        if self.origin.log is None and not in_order:
            return made
        if policy.changes_weights or in_order:
            return made.made_from(Origin(policy, self.log.without(["rating"])))
        if policy.merges_weights and self.log.has_liked_dislikes:
            return made.made_from(Origin(policy, self.log.without(["rating", "time"])))
        return made

    def with_min_rating(self, least: float) -> Interactions:
        """Only rows with a rating of `least` or more. Users and items without a remaining row are removed."""
        least, rating = check_number("min_rating", least), self._ratings("min_rating", least)
        found = self._subset(rating >= least, f"rating below {least:g}")
        log = found.stored_log
        if log is None or log.rating is None:
            return found
        return found.made_from(Origin(log.policy, log.take(~log.liked | (log.rating >= least))))

    def k_core(self, users: int, items: int | None = None) -> Interactions:
        """Only users with ≥ `users` items and items with ≥ `items` users, repeated until nothing changes."""
        users = check_whole("core of users", users, 1)
        items = check_whole("core of items", users if items is None else items, 1)
        keep = np.ones(len(self), dtype=bool)
        while True:
            per_user = np.bincount(self.users[keep], minlength=self.n_users)
            per_item = np.bincount(self.items[keep], minlength=self.n_items)
            remaining = keep & (per_user[self.users] >= users) & (per_item[self.items] >= items)
            if remaining.sum() == keep.sum():
                break
            keep = remaining
        return self._subset(keep, f"outside the core (users ≥ {users} items, items ≥ {items} users)")

    def with_items(self, catalogue: Ids) -> Interactions:
        """The same pairs among all items of a catalogue (ids), of which some may have no interaction."""
        ids = IdMap.of(catalogue, "item")
        codes = ids.find(self.item_ids.ids, "item")
        if missing := int((codes < 0).sum()):
            raise lacking_items(ids, missing, self.item_ids.ids[int((codes < 0).argmax())].as_py())
        return self.recoded(np.arange(self.n_users), codes, self.user_ids, ids)

    def with_dislikes(self, most: float, least: float | None = None) -> Interactions:
        """Pairs with a rating of `most` or less become dislikes; other pairs below `least` are removed.

        Users and items without a remaining like or dislike are removed.
        """
        most = check_number("max_disliked_rating", most)
        least = None if least is None else check_number("min_rating", least)
        rating, kept = self._ratings("max_disliked_rating", most), self
        check_bounds(least, most)
        if not (rating > (most if least is None else np.nextafter(least, most))).any():
            raise InputError(f"no pair has a rating above {most:g}: nothing is a like; lower the bound.")
        if least is not None:
            judged = (rating <= most) | (rating >= least)
            kept = self._subset(judged, f"rating between {most:g} and {least:g}")
            rating = rating[judged]
        disliked = kept.keys[rating <= most]
        history = (*kept.history, dislikes_note(len(disliked)))
        if kept.disliked is not None:
            disliked = np.union1d(disliked, kept.disliked)
        made = replace(kept.take(rating > most), disliked=disliked, history=history)
        return made.made_from(Origin(Policy(table=self.origin.policy.table)))

    def with_disliked(self, user_ids: Ids, item_ids: Ids) -> Interactions:
        """The same pairs, with these pairs of ids as dislikes; their users and items become known."""
        users = self.user_ids.union(IdMap.of(user_ids, "user"), "user")
        items = self.item_ids.union(IdMap.of(item_ids, "item"), "item")
        found = self.among(users, items)
        keys = pair_keys(users.find(user_ids, "user"), items.find(item_ids, "item"), len(items))
        keys = np.unique(keys if found.disliked is None else np.append(keys, found.disliked))
        made = replace(found, disliked=keys, history=(*self.history, dislikes_note(len(keys))))
        return made.made_from(Origin(Policy(table=self.origin.policy.table)))

    @cached_property
    def dislikes(self) -> Interactions | None:
        """The disliked pairs, as interactions without any further column; None if there are none."""
        if self.disliked is None:
            return None
        users, items = np.divmod(self.disliked, self.n_items)
        return Interactions(users, items, self.user_ids, self.item_ids)

    def recoded_dislikes(self, users: Codes, items: Codes, n_items: int) -> Codes | None:
        """The disliked keys after recoding; `users` and `items` hold the new codes, -1 for those left out."""
        if self.dislikes is None:
            return None
        new_users, new_items = users[self.dislikes.users], items[self.dislikes.items]
        kept = (new_users >= 0) & (new_items >= 0)
        keys = np.sort(new_users[kept] * n_items + new_items[kept])
        return keys if len(keys) else None

    def recoded(self, users: Codes, items: Codes, user_ids: IdMap, item_ids: IdMap) -> Interactions:
        """The pairs, dislikes and events in the codes of other ids, in which they have the same order.

        `users` and `items` hold the new code of each old one, -1 for those that are left out.
        """
        present = (users[self.users] >= 0) & (items[self.items] >= 0)
        kept = self if present.all() else self.take(present)
        fields: dict[str, object] = {"history": self.history, "time_kind": self.time_kind}
        fields |= {"disliked": self.recoded_dislikes(users, items, len(item_ids)), **kept._extra_columns()}
        made = trusted_interactions(users[kept.users], items[kept.items], user_ids, item_ids, **fields)
        log = kept.stored_log
        log = None if log is None else log.recoded(users, items, user_ids, item_ids)
        return made.made_from(kept.origin._replace(log=log))

    def only(self, users: Mask, items: Mask) -> Interactions:
        """What these users and items have; no others are known."""
        new_users, new_items = (np.where(kept, np.cumsum(kept) - 1, -1) for kept in (users, items))
        user_ids = IdMap(self.user_ids.outside(np.flatnonzero(users)))
        item_ids = IdMap(self.item_ids.outside(np.flatnonzero(items)))
        return self.recoded(new_users, new_items, user_ids, item_ids)

    def among(self, user_ids: IdMap, item_ids: IdMap) -> Interactions:
        """The same interactions among users and items that contain the known ones."""
        if self.user_ids is user_ids and self.item_ids is item_ids:
            return self
        users, items = user_ids.find(self.user_ids, "user"), item_ids.find(self.item_ids, "item")
        return self.recoded(users, items, user_ids, item_ids)

    def report(self) -> str:
        """What reading and filtering removed: one line for each step."""
        return "\n".join([*map(str, self.history), repr(self)])

    def _ratings(self, option: str, bound: float) -> Values:
        if self.rating is None:
            raise InputError(f"{option} = {bound:g} needs a rating column, but these interactions have none.")
        return self.rating

    def _subset(self, keep: Mask, what: str) -> Interactions:
        if not keep.any():
            raise InputError(f"no row is left of {len(self):,} ({what}); lower the bound.")
        kept = self.take(keep)
        users, items = kept.user_counts > 0, kept.item_counts > 0
        step = Step(what, len(self) - len(kept), int((~users).sum()), int((~items).sum()))
        if not (step.rows or step.users or step.items):
            return self  # the history lists only steps that removed something
        made = kept.only(users, items)
        settle(made, history=(*self.history, step))
        return made

    def _checked_dislikes(self, disliked: Codes) -> Codes | None:
        keys = _checked_codes("disliked", disliked, self.n_users * self.n_items)
        if not len(keys):
            return None
        if (np.diff(keys) <= 0).any():
            raise InputError("disliked has keys that are not distinct and rising; use np.unique.")
        if both := int(np.isin(keys, self.keys, assume_unique=True).sum()):
            raise InputError(f"{both:,} pairs are both interactions and disliked; a pair can be only one.")
        return _read_only(keys.copy())

    def _extra_columns(self, rows: Array | EllipsisType = ...) -> dict[str, Values]:
        columns: dict[str, Values] = {}
        for name in EXTRA:
            if (column := getattr(self, name)) is not None:
                columns[name] = np.asarray(column)[rows]
        return columns

    def __len__(self) -> int:
        return len(self.users)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Interactions) and self.hash == other.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        shown = {"time": "order"} if self.time_kind == "order" else {}
        extra = "".join(f", {shown.get(name, name)}" for name in self._extra_columns())
        extra += "" if self.disliked is None else f", {len(self.disliked):,} dislikes"
        return (
            f"<Interactions: {self.n_users:,} users x {self.n_items:,} items, {len(self):,} pairs, "
            f"density {self.density:.2%}{extra}>"
        )


def without_columns(
    whole: Interactions, columns: Collection[str], history: tuple[Step, ...] | None = None
) -> Interactions:
    """The same pairs and dislikes without these columns, on the same arrays; with this history, if any."""
    made, origin = copy(whole), Origin(whole.origin.policy)
    for name in ("hash", "weight_in_history", "log"):
        made.__dict__.pop(name, None)
    settle(made, **dict.fromkeys(columns), history=whole.history if history is None else history)
    if "time" not in columns:
        log = None if whole.origin.log is None else whole.origin.log.without(columns)
        origin = whole.origin._replace(log=log)
    settle(made, time_kind="clock" if made.time is None else whole.time_kind, origin=origin)
    return made


def trusted_interactions(
    users: Codes, items: Codes, user_ids: IdMap, item_ids: IdMap, **fields: object
) -> Interactions:
    """Interactions of arrays that are known to be right: they are neither checked nor copied, and must not
    change. `users` and `items` may be of 32 bits. `fields` may have values of cached properties."""
    made = object.__new__(Interactions)
    settle(made, users=users, items=items, user_ids=user_ids, item_ids=item_ids, **fields)
    for value in made.__dict__.values():
        if isinstance(value, np.ndarray):
            _read_only(value)
    return made


def lacking_items(catalogue: IdMap, missing: int, first: object) -> InputError:
    """The error of a catalogue without some items of the interactions."""
    return InputError(
        f"the catalogue of {len(catalogue):,} items lacks {missing:,} of the interactions; add {first!r}, …"
    )


def dislikes_note(n: int) -> Step:
    """The note on the number of dislikes."""
    return Step(f"{n:,} pairs are dislikes", 0, note=True)


def check_bounds(min_rating: float | None, max_disliked_rating: float | None) -> None:
    """Raise if a rating could be both a like and a dislike."""
    most, least = max_disliked_rating, min_rating
    if most is not None and least is not None and most >= least:
        raise InputError(f"max_disliked_rating = {most:g} is not below min_rating = {least:g}; lower it.")


def checked_weights(weight: Values) -> Values:
    """The weights as floats or integers of 64 bits; an error unless all are finite and above 0."""
    weight = _checked_values("weight", weight)
    if len(weight) and weight.min() <= 0:
        raise InputError(
            f"{int((weight <= 0).sum()):,} weights are not above 0 ({weight.min():g}, …); use weight=False."
        )
    return weight


def _checked_codes(name: str, codes: npt.ArrayLike, n: int) -> Codes:
    array = np.asarray(codes)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InputError(f"{name} must be a 1-D array of integers, not {array.ndim}-D {array.dtype}.")
    array = array.astype(np.int64)
    if len(array) and (array.min() < 0 or array.max() >= n):
        raise InputError(f"{name} has codes from {array.min()} to {array.max()}; allowed are 0 to {n - 1}.")
    return array


def _checked_values(name: str, values: Array) -> Values:
    if values.ndim != 1 or (len(values) and values.dtype.kind not in "iufb"):
        raise InputError(f"{name} must be a 1-D array of numbers, not {values.ndim}-D {values.dtype}.")
    if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
        raise InputError(f"{name} has values up to {values.max()}; allowed are whole numbers below 2**63.")
    column: Values = values.astype(np.float64) if values.dtype.kind == "f" else values.astype(np.int64)
    if bad := int((~np.isfinite(column)).sum()):
        raise InputError(f"{name} has {bad} values that are NaN or infinite; remove those rows.")
    return column


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
