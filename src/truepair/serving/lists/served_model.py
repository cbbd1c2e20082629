"""ServedModel: the lists of a model and a store, equal to those of `Recommender.recommend`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, take_rows
from truepair.ranking.approximate.indexed_items import IndexedItems
from truepair.ranking.prepared_items import PreparedItems
from truepair.recommender import lists
from truepair.recommender.candidates import Candidates
from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Kinds
from truepair.serving.id_texts import IdTexts
from truepair.serving.limits import Limits
from truepair.serving.lists.histories import Histories, stacked
from truepair.serving.lists.index_choice import IndexChoice
from truepair.serving.lists.item_facts import ItemFacts
from truepair.serving.refusals import RefusalError

MODEL, EVENTS, POPULARITY = "model", "events", "popularity"
"""What a list is based on: the vector of training, one folded in, or none."""


class Asked(NamedTuple):
    """A plain request: the best items of a person."""

    user: str
    k: int


class PlainList(NamedTuple):
    """A person's list: codes of items, best first."""

    user: str
    items: Codes
    scores: npt.NDArray[np.float32]
    basis: str
    served: ServedModel
    """The model that made the list: the codes are its own."""


class _Somebody(NamedTuple):
    """What a plain list needs: a row of training or one folded in, and what must not be listed."""

    code: int
    row: Rows | None
    hidden: Codes  # by the codes of the candidates
    basis: str


def _both(some: Codes, others: Codes) -> Codes:
    return np.concatenate([some, others]) if len(others) else some


def read_items(source: Any, ids: IdMap) -> pa.Table:
    """The item table of a path or a table, with ids of the type of the model's."""
    found = IdTable.read(source, ids, "item", "items")
    return found.table.set_column(found.id_column, found.table.column_names[found.id_column], found.ids)


class ServedModel:
    """A model ready to be asked: its ids as text, its items in order, and its people with their events."""

    def __init__(
        self,
        recommender: Recommender,
        limits: Limits,
        kinds: Kinds,
        items: pa.Table | None = None,
        index: IndexChoice | None = None,
    ) -> None:
        model = recommender.model_
        self.recommender, self.model, self.parameters = recommender, model, recommender.get_params()
        self.limits, self.item_table = limits, items
        self.version = 0
        """Which version of the model file this is: `fresh.versions`."""
        self.users = IdTexts.of(model.seen.user_ids, "user", limits.id_length)
        self.items = IdTexts.of(model.seen.item_ids, "item", limits.id_length)
        self.people = Histories(model, self.parameters, self.users, self.items, kinds)
        self.facts = ItemFacts(self.items)
        self._candidates = Candidates.of(model, None, None, "popular")
        self._place = np.full(model.seen.n_items, -1)
        self._place[self._candidates.codes] = np.arange(len(self._candidates.codes))
        exact = PreparedItems.of(self._candidates.items)
        self.indexing = (index or IndexChoice()).applied(
            exact, model.users, self.people.trained, self._candidates.seen
        )
        """The items, with an index or without, and a sentence about it."""
        self._by_vectors = self.indexing.items
        total = max(self._candidates.popularity.sum(), 1)
        shares = (self._candidates.popularity / total).astype(np.float32)[:, None]
        self._by_popularity = PreparedItems.of(torch.from_numpy(shares))
        self._slow = threading.Lock()  # one large request at a time
        self._warm_up()

    def _refresh(self) -> None:
        self.people.refresh()
        self.facts.refresh()

    def _warm_up(self) -> None:
        """Ask for a list of each sort: the first one ever compiles for some seconds."""
        user = next(iter(self.users.codes))
        self.plain_lists([Asked(user, 1)])
        with suppress(InputError):  # a model without vectors cannot diversify
            self.recommend([user], {"k": 1, "diversify": 0.5, "explain": True})

    # --- plain lists: many requests, one product ---------------------------------------------------------

    def plain_lists(self, asked: Sequence[Asked]) -> list[PlainList]:
        """The lists of several requests, each the same as alone, from one product."""
        self._refresh()
        self.people.read(user for user, _ in asked)
        hidden = self._place[self.facts.hidden]
        hidden = hidden[hidden >= 0]
        people = [self._person(user) for user, _ in asked]
        found: list[PlainList | None] = [None] * len(asked)
        for is_popular, prepared in ((False, self._by_vectors), (True, self._by_popularity)):
            places = [place for place, one in enumerate(people) if (one.basis == POPULARITY) == is_popular]
            if not places:
                continue
            k = min(max(asked[place].k for place in places), len(self._candidates.codes))
            some = [people[place] for place in places]
            vectors = torch.ones(len(some), 1) if is_popular else self._vectors(some)
            if isinstance(prepared, IndexedItems):
                best = prepared.top_k(vectors, k, [one.hidden for one in some], self._allowed(hidden))
            else:
                best = prepared.top_k(vectors, k, [_both(one.hidden, hidden) for one in some])
            lengths = (best.items >= 0).sum(axis=1).tolist()
            codes = self._candidates.codes[best.items]
            for row, place in enumerate(places):
                length = min(asked[place].k, lengths[row])
                found[place] = PlainList(
                    asked[place].user,
                    codes[row, :length],
                    best.scores[row, :length],
                    people[place].basis,
                    self,
                )
        return found  # type: ignore[return-value]

    def _allowed(self, hidden: Codes) -> Mask | None:
        """Which candidates may be listed at all; None: all."""
        if not len(hidden):
            return None
        found = np.ones(len(self._candidates.codes), dtype=bool)
        found[hidden] = False
        return found

    def _person(self, user: str) -> _Somebody:
        person, code = self.people.person(user), self.users.codes.get(user)
        if person is not None:
            known = self._place[np.concatenate([person.items, person.disliked])]
            basis = POPULARITY if person.row is None else EVENTS
            return _Somebody(-1, person.row, known[known >= 0], basis)
        if code is None:
            return _Somebody(-1, None, np.empty(0, np.int64), POPULARITY)
        seen = self._candidates.seen
        hidden = seen.items_of(code)
        if seen.dislikes is not None:
            hidden = np.concatenate([hidden, seen.dislikes.items_of(code)])
        return _Somebody(code, None, hidden, MODEL if self.people.trained[code] else POPULARITY)

    def _vectors(self, people: Sequence[_Somebody]) -> Rows:
        """The rows of these people: of training, or folded in."""
        rows = take_rows(self.model.users, np.array([max(one.code, 0) for one in people]))
        if all(one.row is None for one in people):
            return rows
        return stacked(
            [rows[place : place + 1] if one.row is None else one.row for place, one in enumerate(people)]
        )

    # --- lists with options ------------------------------------------------------------------------------

    def recommend(self, users: Sequence[object], options: dict[str, Any]) -> pa.Table:
        """The table of `Recommender.recommend` with these options, with what the people did since.

        Somebody who is named twice gets one list.
        """
        texts = list(dict.fromkeys(self.users.texts(users)))
        self._refresh()
        with self._slow:
            return self._listed(self.people.model_of(texts), texts, {"unknown": "popular", **options})

    def session(
        self, liked: Sequence[object], disliked: Sequence[object], options: dict[str, Any]
    ) -> pa.Table:
        """The list of a person with this history, folded in; without a known liked item, popular ones."""
        if options.pop("unknown", "drop") == "error":
            self._known_items([*liked, *disliked])
        self.facts.refresh()
        history = dict.fromkeys(self._codes(liked), 1.0) | dict.fromkeys(self._codes(disliked), -1.0)
        with self._slow:
            person = self.people.folded(history)
            guest = next(iter(self.users.codes))  # any id of the right type; it is left out of the answer
            model = self.people.model_of([], {guest: person})
            return self._listed(model, [guest], {"unknown": "popular", **options}).drop_columns(["user"])

    def _codes(self, items: Sequence[object]) -> list[int]:
        found = (self.items.codes.get(text) for text in self.items.texts(items))
        return [code for code in found if code is not None]

    def _listed(self, model: Any, users: list[str], options: dict[str, Any]) -> pa.Table:
        options = dict(options)
        k = options.pop("k", 10)
        for name in ("only_items", "exclude_items"):
            if options.get(name) is not None:
                options[name] = self._typed_items(options[name])
        self._hide(options, users)
        if options.get("where") is not None or options.get("quota"):
            options["items"] = self.item_table if self.item_table is not None else self.facts.table()
            if options["items"] is None:
                raise InputError(
                    "where and quota need a table of the items; start the service with --items TABLE, or "
                    "store items."
                )
        options["quota"] = options.get("quota") or None
        parts = lists.recommend(model, self.parameters, self.users.typed(users), k, part=8192, **options)
        return pa.concat_tables(parts)

    def _hide(self, options: dict[str, Any], users: list[str]) -> None:
        """Exclude the items that the store hides."""
        if not len(self.facts.hidden):
            return
        hidden = self.model.seen.item_ids.outside(self.facts.hidden).to_pylist()
        given = options.get("exclude_items")
        if isinstance(given, dict):
            people = [*given, *(user for user in self.users.typed(users).to_pylist() if user not in given)]
            options["exclude_items"] = {user: [*given.get(user, ()), *hidden] for user in people}
        else:
            listed = [] if given is None else given.to_pylist()
            options["exclude_items"] = pa.array([*listed, *hidden], self.items.kind)

    def _typed_items(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return self.items.typed(self.items.texts(given))
        users = self.users.typed(self.users.texts(list(given))).to_pylist()
        ids = (self.items.typed(self.items.texts(items)).to_pylist() for items in given.values())
        return dict(zip(users, ids, strict=True))

    # --- neighbours and scores ---------------------------------------------------------------------------

    @cached_property
    def _neighbours(self) -> lists.Neighbours:
        return lists.item_neighbours(self.model, self.parameters)

    def similar(self, item: object, k: int) -> pa.Table:
        """The table of `Recommender.similar_items` for one item."""
        [text] = self._known_items([item])
        self.facts.refresh()
        hidden = self.facts.hidden
        found = self._neighbours.similar(self.items.typed([text]), k + len(hidden))
        if not len(hidden):
            return found
        codes = self.model.seen.item_ids.find(found["similar"], "item")
        found = found.filter(pa.array(~np.isin(codes, hidden))).slice(0, k)
        return found.set_column(3, "rank", pa.array(np.arange(1, len(found) + 1)))

    def scores(self, pairs: Sequence[dict[str, object]]) -> pa.Table:
        """The table of `Recommender.score`, with what the people did since."""
        users = self.users.texts([pair["user"] for pair in pairs])
        items = self._known_items([pair["item"] for pair in pairs])
        self._refresh()
        with self._slow:
            for user in users:
                if user not in self.users.codes and self.people.person(user) is None:
                    raise RefusalError(
                        404, f"unknown user: {user!r:.60}; the model and the store know nothing about them."
                    )
            columns = {"user": self.users.typed(users), "item": self.items.typed(items)}
            return lists.score_pairs(self.people.model_of(users), pa.table(columns))

    def _known_items(self, values: Sequence[object]) -> list[str]:
        texts = self.items.texts(values)
        for text in texts:
            if text not in self.items.codes:
                raise RefusalError(404, f"unknown item: {text!r:.60}; ask for an item of the training data.")
        return texts
