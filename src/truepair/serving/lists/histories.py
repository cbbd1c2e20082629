"""UserHistories: what a model and the store know about users, and the rows that follow from it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import StorageError
from truepair.models.factor_matrices import Rows
from truepair.ranking.hidden import Hidden
from truepair.recommender.lister import ListedUsers, known_users, stacked
from truepair.recommender.lists import ListOptions, excluded_items
from truepair.recommender.model import Model
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoredHistory, StoreReader
from truepair.serving.id_texts import IdTexts

_KEPT = 100_000  # users whose vectors stay in memory
_PLAIN = ListOptions()


class KnownUser(NamedTuple):
    """A user whose history is not, or not only, that of training."""

    items: Codes  # what they have, by the codes of the model
    disliked: Codes
    row: Rows | None  # [1, d], folded in; None if they have no item that the model knows


class UserHistories:
    """The users of a model and of a store. Several threads may ask at once."""

    def __init__(self, model: Model, users: IdTexts, items: IdTexts, kinds: Kinds) -> None:
        self.model, self.users, self.items, self.kinds = model, users, items, kinds
        self.reader: StoreReader | None = None
        self.fold_ins = 0
        """How many users were folded in."""
        self.store_failures = 0
        """How often the store could not be read: lists are then those without the newest events."""
        self._known: OrderedDict[str, KnownUser | None] = OrderedDict()
        self._lock = threading.Lock()

    def forget(self, users: Iterable[str]) -> None:
        """Drop the vectors of users who did something."""
        with self._lock:
            for user in users:
                self._known.pop(user, None)

    def of(self, users: Sequence[str]) -> list[KnownUser | None]:
        """Users with events that the model does not know; None for all others."""
        if self.reader is None:
            return [None] * len(users)
        with self._lock:
            if unread := {user for user in users if user not in self._known}:
                self._read(self.reader, sorted(unread))
            for user in users:
                if user in self._known:
                    self._known.move_to_end(user)
            return list(map(self._known.get, users))

    def _read(self, reader: StoreReader, users: Sequence[str]) -> None:
        try:
            histories = reader.of_users(users)
        except StorageError:
            self.store_failures += 1
            return
        for user in users:
            history = histories.get(user)
            self._known[user] = None if history is None else self.with_events(user, history)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def with_events(self, user: str, history: StoredHistory) -> KnownUser | None:
        """A user with this stored history; None if the model knows all of it."""
        code = None if history.is_forgotten else self.users.codes.get(user)
        before = self.history(code) if code is not None else {}
        after = dict(before)
        for item, weight in self.kinds.merged(history.rows).items():
            place = self.items.codes.get(item)
            if place is not None:
                old = before.get(place, 0.0)
                after.pop(place, None)  # what was done again is the latest
                after[place] = weight if weight * old <= 0 else max(weight, old, key=abs)
        return None if after == before and not history.is_forgotten else self.folded(after)

    def history(self, code: int) -> dict[int, float]:
        """Item -> weight in training, below 0 for a dislike; in the order of events, where it is known."""
        seen = self.model.seen
        pairs = slice(*seen.indptr[code : code + 2])
        weights = np.ones(pairs.stop - pairs.start) if seen.weight is None else seen.weight[pairs]
        found = dict(zip(seen.items[pairs].tolist(), weights.tolist(), strict=True))
        if seen.stored_log is not None:
            ordered = dict.fromkeys(seen.stored_log.histories.of(code).tolist()[::-1])  # each at its latest
            found = {item: found[item] for item in reversed(ordered) if item in found}
        disliked = [] if seen.dislikes is None else seen.dislikes.items_of(code).tolist()
        return found | dict.fromkeys(disliked, -1.0)

    def folded(self, history: dict[int, float]) -> KnownUser:
        """A user with this history in order: item -> weight, below 0 for a dislike; nothing is retrained."""
        liked = [item for item, weight in history.items() if weight > 0]
        order, items = np.argsort(np.array(liked, np.int64)), np.sort(np.array(liked, np.int64))
        weights = np.array([history[item] for item in items.tolist()], np.float64)
        disliked = np.array(sorted(item for item, weight in history.items() if weight < 0), np.int64)
        if not len(items):
            return KnownUser(items, disliked, None)
        self.fold_ins += 1
        ids = IdMap.range(1), self.model.seen.item_ids
        pairs = Interactions(
            np.zeros(len(items), np.int64), items, *ids, weight=weights, disliked=disliked,
            time=order, time_kind="order",
        )  # fmt: skip
        return KnownUser(items, disliked, self.model.encode(pairs))

    def listed(
        self, found: Sequence[KnownUser | None], codes: Codes, ids: pa.Array, own: ListOptions = _PLAIN
    ) -> ListedUsers:
        """Users as a lister takes them: as they were found, or by their codes, -1 for an unknown user."""
        model, explain = self.model, own.explain is not False
        known = np.where(list(map(bool, found)), -1, codes) if any(found) else codes
        excluded = excluded_items(model, own.by_user, own.unknown) if own.exclude_items is not None else None
        block = known_users(model, ids, known, own.exclude_seen, excluded, explain)
        if not any(found):  # nobody has events
            return block
        rows, hidden, seen, popular = [], [], [], block.popular.copy()
        for place, one in enumerate(found):
            never = block.hidden.items[block.hidden.starts[place] : block.hidden.ends[place]]
            if one is None:
                rows.append(block.rows[place : place + 1])
                hidden.append(never)
                seen.append(np.empty(0, np.int64) if known[place] < 0 else model.seen.items_of(known[place]))
            else:
                popular[place] = one.row is None
                rows.append(block.rows[:1] if one.row is None else one.row)
                more = [one.items] if own.exclude_seen else []
                hidden.append(np.concatenate([never, one.disliked, *more]))
                seen.append(one.items)
        items_of = None
        if explain:
            flat, counts = np.concatenate(seen), np.cumsum([0, *map(len, seen)])
            parts = (np.ones(len(flat), np.float32), flat, counts)
            items_of = sp.csr_array(parts, shape=(len(seen), model.seen.n_items))
        return ListedUsers(ids, stacked(rows), popular, Hidden.of(hidden), items_of)
