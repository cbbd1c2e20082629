"""Histories: what a model and the store know about a person, and the vector that follows from it."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import StorageError
from truepair.models.factor_matrices import Rows, take_rows
from truepair.recommender.known_ids import history_of, user_lists
from truepair.recommender.model_file import Model
from truepair.recommender.new_users import fold_in_pairs
from truepair.recommender.parts import Parameters, as_fitted
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoredHistory as History
from truepair.serving.id_texts import IdTexts

_KEPT = 100_000  # people whose vectors stay in memory


class Events(Protocol):
    """Where histories read what people did: a store, or its events until some time."""

    def changed_users(self) -> set[str]:
        """Who did something since the last call."""

    def of_users(self, users: Sequence[str]) -> dict[str, History]:
        """The histories of those of these people of whom something is known."""

    def close(self) -> None:
        """Read no more."""


class Person(NamedTuple):
    """A person whose history is not, or not only, that of training."""

    items: Codes  # what they have, by the codes of the model
    weights: npt.NDArray[np.float64]  # of these items
    disliked: Codes
    row: Rows | None  # [1, d], folded in; None if they have no item that the model knows


class Histories:
    """The people of a model and of a store. Several threads may ask at once."""

    def __init__(
        self, model: Model, parameters: Parameters, users: IdTexts, items: IdTexts, kinds: Kinds
    ) -> None:
        self.model, self.parameters = model, as_fitted(parameters, model.facts)
        self.users, self.items, self.kinds = users, items, kinds
        self.trained = history_of(model).users
        self.reader: Events | None = None
        self.fold_ins = 0
        """How many people were folded in."""
        self.store_failures = 0
        """How often the store could not be read: lists are then those without the newest events."""
        self._known: OrderedDict[str, Person | None] = OrderedDict()
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Forget the vectors of people who did something since the last call."""
        if self.reader is not None:
            with self._lock:
                try:
                    changed = self.reader.changed_users()
                except StorageError:
                    self.store_failures += 1
                    return
                for user in changed:
                    self._known.pop(user, None)

    def person(self, user: str) -> Person | None:
        """A person with events that the model does not know; None for all others."""
        with self._lock:
            if user not in self._known and not self._read([user]):
                return None
            self._known.move_to_end(user)
            return self._known[user]

    def read(self, users: Iterable[str]) -> None:
        """Read what several people did at once, which is quicker than one after the other."""
        with self._lock:
            unread = [user for user in dict.fromkeys(users) if user not in self._known]
            if len(unread) > 1:
                self._read(unread)

    def _read(self, users: Sequence[str]) -> bool:
        """Whether there is a store that could be read."""
        if self.reader is None:
            return False
        try:
            histories = self.reader.of_users(users)
        except StorageError:
            self.store_failures += 1
            return False
        for user in users:
            history = histories.get(user)
            self._known[user] = None if history is None else self._with_events(user, history)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return True

    def _with_events(self, user: str, history: History) -> Person | None:
        code = None if history.is_forgotten else self.users.codes.get(user)
        before = self.history(code) if code is not None else {}
        after = dict(before)
        for item, weight in self.kinds.merged(history.rows).items():
            place = self.items.codes.get(item)
            if place is not None:
                old = before.get(place, 0.0)
                after[place] = weight if weight * old <= 0 else max(weight, old, key=abs)
        return None if after == before and not history.is_forgotten else self.folded(after)

    def history(self, code: int) -> dict[int, float]:
        """Item -> weight in training, below 0 for a dislike."""
        seen = self.model.seen
        pairs = slice(*seen.indptr[code : code + 2])
        weights = np.ones(pairs.stop - pairs.start) if seen.weight is None else seen.weight[pairs]
        found = dict(zip(seen.items[pairs].tolist(), weights.tolist(), strict=True))
        disliked = [] if seen.dislikes is None else seen.dislikes.items_of(code).tolist()
        return found | dict.fromkeys(disliked, -1.0)

    def folded(self, history: dict[int, float]) -> Person:
        """A person with this history (item -> weight, below 0 for a dislike); nothing is retrained."""
        items = np.array(sorted(item for item, weight in history.items() if weight > 0), np.int64)
        weights = np.array([history[item] for item in items.tolist()], np.float64)
        disliked = np.array(sorted(item for item, weight in history.items() if weight < 0), np.int64)
        if not len(items):
            return Person(items, weights, disliked, None)
        self.fold_ins += 1
        nobody = np.zeros(len(items), np.int64)
        ids = IdMap.range(1), self.model.seen.item_ids
        pairs = Interactions(nobody, items, *ids, weight=weights, disliked=disliked)
        return Person(items, weights, disliked, fold_in_pairs(self.model, self.parameters, pairs))

    def model_of(self, users: Iterable[str], guests: dict[str, Person] | None = None) -> Model:
        """The model with these people alone as users, as `fold_in` gives it; unknown people are left out.

        `guests` are people by the histories of a request.
        """
        users = list(dict.fromkeys(users))
        self.read(users)
        people = {user: self.person(user) for user in users} | (guests or {})
        known = [user for user, person in people.items() if person is not None or user in self.users.codes]
        if not known:  # a model has at least one user
            known = [next(iter(self.users.codes))]
        typed = self.users.typed(known)
        ids = IdMap.of(typed, "user")
        known = [known[place] for place in np.argsort(ids.find(typed, "user"))]
        parts = [people.get(user) or self._own(self.users.codes[user]) for user in known]
        seen = _interactions(parts, ids, self.model.seen.item_ids)
        trained = np.array([part.row is not None for part in parts])
        rows = stacked([self._nothing() if part.row is None else part.row for part in parts])
        facts = self.model.facts | user_lists(trained, seen.user_counts > 0)
        return dataclasses.replace(self.model, users=rows, seen=seen, facts=facts, start=None)

    def _own(self, code: int) -> Person:
        """A person of the model, without events."""
        history = self.history(code)
        items = np.array([item for item, weight in history.items() if weight > 0], np.int64)
        weights = np.array([weight for weight in history.values() if weight > 0], np.float64)
        disliked = np.array([item for item, weight in history.items() if weight < 0], np.int64)
        row = take_rows(self.model.users, np.array([code])) if self.trained[code] else None
        return Person(items, weights, disliked, row)

    def _nothing(self) -> Rows:
        """A row of zeros."""
        row = take_rows(self.model.users, np.array([0]))
        return row * 0


def _interactions(parts: Sequence[Person], user_ids: IdMap, item_ids: IdMap) -> Interactions:
    nothing, n_items = np.empty(0, np.int64), len(item_ids)
    owners = np.repeat(np.arange(len(parts)), [len(part.items) for part in parts])
    haters = np.repeat(np.arange(len(parts)), [len(part.disliked) for part in parts])
    disliked = haters * n_items + np.concatenate([nothing, *(part.disliked for part in parts)])
    return Interactions(
        owners,
        np.concatenate([nothing, *(part.items for part in parts)]),
        user_ids,
        item_ids,
        weight=np.concatenate([np.empty(0), *(part.weights for part in parts)]),
        disliked=np.sort(disliked) if len(disliked) else None,
    )


def stacked(rows: Sequence[Rows]) -> Rows:
    """Rows below each other, dense or sparse."""
    if isinstance(rows[0], torch.Tensor):
        return torch.cat([row for row in rows if isinstance(row, torch.Tensor)])
    return sp.csr_array(sp.vstack([row for row in rows if isinstance(row, sp.csr_array)], format="csr"))
