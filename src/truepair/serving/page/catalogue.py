"""Catalogue: the items and users of a model as the page shows them: found, described, on a map."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.ids import Codes
from truepair.errors import InputError
from truepair.recommender import lists
from truepair.serving.id_texts import escaped
from truepair.serving.lists.served_model import ServedModel
from truepair.serving.page.layout import Places, layout
from truepair.serving.page.titles import CatalogueSearch, Titles, titles_of
from truepair.storage.types import Json

MAPPED = 5000
"""Items on the map at most: the most popular ones."""
_NEIGHBOURS = 10  # that each item on the map is drawn to
_ASKED = 5000  # users of an audience whose items are counted


class Catalogue:
    """Of one served model; each part is computed when it is asked for first, by one thread.

    It keeps no reference to the served model, so that one which was replaced can be freed.
    """

    def __init__(self, served: ServedModel, table: pa.Table | None) -> None:
        self.table = table
        """The item table, for titles; one that changed needs another catalogue: `with_table`."""
        self.model = served.model
        self.users, self.items = served.users, served.items
        self._lock = threading.RLock()

    @cached_property
    def titles(self) -> Titles:
        """Those of the item table."""
        with self._lock:
            return titles_of(self.table, self.model.seen.item_ids)

    def with_table(self, table: pa.Table | None) -> Catalogue:
        """The same model with another item table; its map and its audiences are kept."""
        other = copy.copy(self)
        other.table = table
        for name in ("titles", "item_search", "map_json"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def item_search(self) -> CatalogueSearch:
        """The items, the most popular first."""
        return CatalogueSearch(
            self.items.names, self.model.popularity, self.titles.texts, heaviest_first=True
        )

    @cached_property
    def user_search(self) -> CatalogueSearch:
        """The users, by id."""
        return CatalogueSearch(self.users.names, self.model.seen.user_counts)

    def find(self, what: str, query: str, limit: int) -> Codes:
        """The codes of `users` or `items` that match."""
        with self._lock:
            search = self.user_search if what == "users" else self.item_search
        return search.find(query, limit)

    def card(self, text: str, **facts: object) -> Json:
        """An item to show: its id as in answers, its title and its picture, and these facts."""
        code, titles = self.items.codes.get(text), self.titles
        title, picture = (None, None) if code is None else (titles.texts[code], titles.pictures[code])
        return {"item": self.items.value(text), "title": title, "picture": picture, **facts}

    def cards(self, codes: Iterable[int]) -> list[Json]:
        """Items by code, with how many users have each."""
        texts, popularity = self.items.names, self.model.popularity
        return [self.card(texts[code], people=int(popularity[code])) for code in codes]

    def user(self, code: int) -> str | int:
        """The id of a user, as in answers."""
        return self.users.value(str(self.model.seen.user_ids.ids[code].as_py()))

    # --- audiences ---------------------------------------------------------------------------------------

    @cached_property
    def _users_of(self) -> sp.csr_array:
        """A row an item, with the users who have it."""
        return sp.csr_array(self.model.seen.csr().T.tocsr())

    def audience(self, code: int, users: int, items: int) -> Json:
        """Who has an item: how many, some of them, and what they have more often than others do."""
        with self._lock:
            owners = self._users_of
        having = owners.indices[owners.indptr[code] : owners.indptr[code + 1]].astype(np.int64)
        random = np.random.default_rng(code)  # the same users each time
        asked = having
        if len(having) > _ASKED:
            asked = np.sort(random.choice(having, _ASKED, replace=False))
        some = random.permutation(asked)[:users]
        return {
            "people": len(having),
            "asked": len(asked),
            "some": [self.user(one) for one in some.tolist()],
            "also": self._also(code, asked, items),
        }

    def _also(self, code: int, users: Codes, most: int) -> list[Json]:
        seen = self.model.seen
        if not len(users):
            return []
        have = seen.csr()[users].indices
        share = np.bincount(have, minlength=seen.n_items) / len(users)
        overall = seen.item_counts / max(seen.n_users, 1)
        share[code] = 0.0
        best = np.argsort(overall - share, kind="stable")[:most]
        best = best[share[best] > overall[best]]
        texts = self.items.names
        return [
            self.card(texts[one], share=round(float(share[one]), 4), overall=round(float(overall[one]), 4))
            for one in best.tolist()
        ]

    # --- the map -----------------------------------------------------------------------------------------

    @cached_property
    def _map(self) -> tuple[Codes, Places]:
        """The most popular items, and their places: alike ones near each other. InputError if none are."""
        with self._lock:
            order = np.argsort(-self.model.popularity, kind="stable")
            codes = order[self.model.listed[order]][:MAPPED]
            among = np.zeros(len(order), bool)
            among[codes] = True
            ids = self.model.seen.item_ids
            table = lists.Neighbours(self.model).items(ids.ids.take(codes), _NEIGHBOURS, among)
            if not table.num_rows:
                raise InputError("a map needs at least two items; the model has one.")
            place = np.full(len(order), -1)
            place[codes] = np.arange(len(codes))
            near = place[ids.find(table["similar"], "item")].reshape(len(codes), -1)
            return codes, layout(near)

    @cached_property
    def map_json(self) -> str:
        """The map as JSON: a column a list, as 5,000 objects would be five times as long."""
        with self._lock:
            codes, places = self._map
            cards = self.cards(codes.tolist())
            return escaped(
                {
                    "items": [card["item"] for card in cards],
                    "titles": [card["title"] for card in cards],
                    "people": [card["people"] for card in cards],
                    "x": np.round(places[:, 0], 4).tolist(),
                    "y": np.round(places[:, 1], 4).tolist(),
                    "of": self.model.seen.n_items,
                }
            )
