"""ServedModel: the lists of a model and a store, equal to those of `Recommender.recommend`."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.ids import Codes, IdMap
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError, StorageError
from truepair.evaluation.metrics import Mask
from truepair.evaluation.task import check_cold
from truepair.models.factor_matrices import dot_rows
from truepair.ranking.approximate.indexed_items import IndexedItems
from truepair.ranking.approximate.indexing import IndexChoice, SampledUsers, index_items
from truepair.ranking.prepared_items import PreparedItems
from truepair.recommender import lists
from truepair.recommender.caller import codes_of
from truepair.recommender.estimator import Recommender
from truepair.recommender.lister import ListedUsers, Lister
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoreReader
from truepair.serving.id_texts import IdTexts, escaped
from truepair.serving.limits import Limits
from truepair.serving.lists.histories import UserHistories
from truepair.serving.lists.item_facts import ItemFacts
from truepair.serving.lists.live_counts import LiveCounts
from truepair.serving.refusals import RefusalError
from truepair.storage.types import Json, Table

_MEASURED = 256  # users by whose lists the recall of an index is measured
MODEL, EVENTS, POPULARITY = "model", "events", "popularity"
"""What a list is based on: the vector of training, one folded in, or none."""


class ListRequest(NamedTuple):
    """A plain request: the best items of a user."""

    user: str
    k: int


class PlainList(NamedTuple):
    """A user's list: codes of items, best first."""

    user: str
    items: Codes
    scores: npt.NDArray[np.float32]
    basis: str
    served: ServedModel
    """The model that made the list: the codes are its own."""

    def json(self) -> str:
        """The list as JSON."""
        ids, scored = self.served.items.values, zip(self.items.tolist(), self.scores.tolist(), strict=True)
        rows = [
            {"item": ids[code], "score": score, "rank": rank} for rank, (code, score) in enumerate(scored, 1)
        ]
        return escaped({"user": self.served.users.value(self.user), "basis": self.basis, "items": rows})

    def table(self) -> pa.Table:
        """The list as a table of user, item, score, rank."""
        n = len(self.items)
        return pa.table(
            {
                "user": self.served.users.typed([self.user] * n),
                "item": self.served.model.seen.item_ids.outside(self.items),
                "score": self.scores,
                "rank": np.arange(1, n + 1),
            }
        )


def read_items(source: Table, ids: IdMap) -> pa.Table:
    """The item table of a path or a table, with ids of the type of the model's."""
    found = IdTable.read(source, ids, "item", "items")
    return found.table.set_column(found.id_column, found.table.column_names[found.id_column], found.ids)


class ServedModel:
    """A model ready to answer: its ids as text, its items in order, and its users with their events."""

    def __init__(
        self,
        recommender: Recommender,
        limits: Limits,
        kinds: Kinds,
        items: pa.Table | None = None,
        index: IndexChoice | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        model = recommender.model_
        self.recommender, self.limits, self.item_table = recommender, limits, items
        self.version = 0
        """Which version of the model file this is: `retraining.versions`."""
        self.users = IdTexts.of(model.seen.user_ids, "user")
        self.items = IdTexts.of(model.seen.item_ids, "item")
        self.live = LiveCounts(model.recent, self.items, kinds, clock)
        self.model = model.with_recent(model.recent)
        """With the trend of the last `follow`. Its columns are its own: they are changed in place."""
        self.histories = UserHistories(model, self.users, self.items, kinds)
        self.facts = ItemFacts(self.items)
        self.neighbours = lists.Neighbours(model)
        self.exact = Lister.of(dataclasses.replace(self.model, spec=model.spec.varied(device="cpu")))
        assert isinstance(self.exact.by_scores, PreparedItems)
        codes = np.flatnonzero(model.trained)
        codes = np.sort(np.random.default_rng(0).permutation(codes)[:_MEASURED])
        measured = SampledUsers(model.scorer.rows(codes), list(map(model.seen.items_of, codes.tolist())))
        self.indexing = index_items(self.exact.by_scores, measured, index or IndexChoice())
        """The items, with an index or without, and a sentence about it."""
        self.lister = dataclasses.replace(self.exact, by_scores=self.indexing.items)
        self._slow, self._listing = threading.Lock(), threading.Lock()  # one large request at a time
        self._noticing, self._moving = threading.Lock(), threading.Lock()
        self.reader: StoreReader | None = None
        self._warm_up()

    def attach(self, reader: StoreReader, former: ServedModel | None = None) -> None:
        """Count what this store says; while it does not answer, what the model before knew of items."""
        self.facts.attach(reader, None if former is None else former.facts)
        self.reader = self.histories.reader = reader
        self.follow()

    def refresh(self) -> None:
        """Notice what changed in the store since the last call. If it does not answer, lists go on."""
        if self.reader is None:
            return
        with self._noticing:
            try:
                changed = self.reader.changed()
                if changed["user"]:
                    self.histories.forget(changed["user"])
                if changed["item"] or self.facts.is_behind:
                    self.facts.update(self.reader, changed["item"])
            except StorageError:
                self.histories.store_failures += 1

    def follow(self) -> None:
        """Move the trend on to now, with the new events of the store.

        The term of all items is computed beside the requests, which then wait while it is written.
        """
        if self.reader is None:
            return
        with self._moving, suppress(StorageError):  # without the store, the trend stays as it is
            if (counts := self.live.moved(self.reader)) is not None:
                model, items = self.model.with_recent(counts), self.lister.by_scores
                if isinstance(items, IndexedItems) and model.scorer.addition is not None:
                    items = items.moved(model.scorer.addition.cpu().numpy()[self.exact.codes])
                with self._slow, self._listing:
                    self.exact = self.exact.moved(dataclasses.replace(model, spec=self.exact.model.spec))
                    self.lister = dataclasses.replace(self.exact, by_scores=items)
                    self.model = model

    def close(self) -> None:
        """Read the store no more."""
        if self.reader is not None:
            self.reader.close()

    def table(self) -> pa.Table | None:
        """The table of the items: that of the start, or else that of the store's records, if it has any."""
        if self.item_table is not None:
            return self.item_table
        self.refresh()
        return self.facts.table()

    def in_categories(self, categories: Iterable[str]) -> set[str]:
        """The items that have all of these categories, without hidden ones."""
        self.refresh()
        wanted, hidden = set(categories), {self.items.names[code] for code in self.facts.hidden.tolist()}
        records = self.facts.records()
        return {item for item, one in records.items() if wanted <= set(one.categories)} - hidden

    def _warm_up(self) -> None:
        """Ask for a list of each sort: the first one ever compiles for some seconds."""
        user = next(iter(self.users.codes))
        self.plain_lists([ListRequest(user, 1)])
        with suppress(InputError):  # a model without vectors cannot diversify
            self.recommend([user], {"k": 1, "diversify": 0.5, "explain": True})

    def trending(self, k: int) -> tuple[str | float | None, list[tuple[int, float]]]:
        """The half-life with the largest weight, and the items whose share of the events has grown most by
        it: their codes, and how many times as likely they are as over all time. None without a trend."""
        trend, recent = self.model.spec.trend, self.model.recent
        if trend is None or recent is None:
            return None, []
        which = int(np.argmax(trend.weights))
        shares, times = np.exp(recent.features()[[0, 1 + which]])
        times[~self.model.listed] = times[self.facts.hidden] = 0
        best = np.argsort(shares * (1 - times), kind="stable")[:k]
        return trend.half_lives[which], [
            (code, float(times[code])) for code in best.tolist() if times[code] > 1
        ]

    # --- plain lists: many requests, one product ---------------------------------------------------------

    def plain_lists(self, asked: Sequence[ListRequest]) -> list[PlainList]:
        """The lists of several requests, each the same as alone, from one product."""
        self.refresh()
        users, lengths = zip(*asked, strict=True)
        known = self.histories.of(users)
        block = self.histories.listed(known, self.users.find(users), pa.nulls(len(users)))
        with self._listing:
            best = self.lister.top_k(block, max(lengths), self.facts.hidden)
        found = []
        for row, (user, k) in enumerate(asked):
            basis = POPULARITY if block.popular[row] else EVENTS if known[row] else MODEL
            length = min(k, np.count_nonzero(best.items[row] >= 0))
            found.append(PlainList(user, best.items[row, :length], best.scores[row, :length], basis, self))
        return found

    # --- lists with options ------------------------------------------------------------------------------

    def recommend(self, users: Sequence[object], options: Json) -> pa.Table:
        """The table of `Recommender.recommend` with these options, with what the users did since.

        A user who is named twice gets one list.
        """
        texts = list(dict.fromkeys(self.users.texts(users)))
        with self._slow:
            given, ids, codes = self._options(options), self.users.typed(texts), self.users.find(texts)
            self.refresh()
            found = self.histories.of(texts)
            known = (codes >= 0) | np.fromiter(map(bool, found), bool, len(found))
            if given.unknown == "error" and not known.all():
                codes_of(self.model.seen.user_ids, ids.filter(pa.array(~known)), "user", "error")
            block = self.histories.listed(found, codes, ids, given)
            return self._table(block, known, given, options.get("k", 10))

    def session(self, liked: Sequence[object], disliked: Sequence[object], options: Json) -> pa.Table:
        """The list of a user with this history, folded in; without a known liked item, popular ones."""
        if options.pop("unknown", "drop") == "error":
            self._known_items([*liked, *disliked])
        self.refresh()
        history: dict[int, float] = {}
        for items, weight in ((liked, 1.0), (disliked, -1.0)):
            codes = self.items.find(self.items.texts(items))
            latest = dict.fromkeys(codes[codes >= 0].tolist()[::-1], weight)  # each item at its latest place
            history |= dict(reversed(latest.items()))
        with self._slow:
            given = self._options(options)
            user = [self.histories.folded(history)]
            block = self.histories.listed(user, np.array([-1]), pa.nulls(1), given)
            found = self._table(block, np.ones(1, dtype=bool), given, options.get("k", 10))
            return found.drop_columns(["user"])

    def _table(self, block: ListedUsers, known: Mask, given: lists.ListOptions, k: int) -> pa.Table:
        is_cold = known & block.popular
        if is_cold.any():
            check_cold(given.cold, is_cold)
        left_out = ~known & (given.unknown == "drop") | is_cold & (given.cold == "separate")
        block = block.part(~left_out) if left_out.any() else block
        lister = self.exact if given.is_plain else given.lister(self.model, len(known))
        return lister.table(block, k, self.facts.hidden)

    def _options(self, options: Json) -> lists.ListOptions:
        """The options of a request as `recommend` takes them."""
        given = {"unknown": "popular", **options}
        given.pop("k", None)
        for name in ("only_items", "exclude_items"):
            if name in given:
                given[name] = self._typed_items(given[name])
        given["quota"] = given.get("quota") or None
        if "where" in given or given["quota"]:
            given["items"] = self.table()
            if given["items"] is None:
                raise InputError("where and quota need a table of the items; give --items, or store items.")
        return lists.ListOptions(**given)

    def _typed_items(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return self.items.typed(self.items.texts(given))
        users = self.users.typed(self.users.texts(list(given))).to_pylist()
        ids = (self.items.typed(self.items.texts(items)).to_pylist() for items in given.values())
        return dict(zip(users, ids, strict=True))

    # --- neighbours and scores ---------------------------------------------------------------------------

    def similar(self, item: object, k: int) -> pa.Table:
        """The table of `Recommender.similar_items` for one item."""
        [text] = self._known_items([item])
        self.refresh()
        among = self.model.listed.copy()
        among[np.setdiff1d(self.facts.hidden, self.items.find([text]))] = False
        return self.neighbours.items(self.items.typed([text]), k, among)

    def scores(self, pairs: Sequence[dict[str, object]]) -> pa.Table:
        """The table of `Recommender.score`, with what the users did since."""
        users = self.users.texts([pair["user"] for pair in pairs])
        items = self._known_items([pair["item"] for pair in pairs])
        with self._slow:
            self.refresh()
            found, places = self.histories.of(users), self.users.find(users)
            for user, one, place in zip(users, found, places, strict=True):
                if one is None and place < 0:
                    raise RefusalError(404, f"unknown user: {user!r:.60}; store an event of them first.")
            block = self.histories.listed(found, places, self.users.typed(users))
            codes = self.items.find(items)
            scores = dot_rows(block.rows, self.model.scorer.columns, np.arange(len(users)), codes)
            shares = self.model.appeal / self.model.appeal.sum()
            scores[block.popular] = shares[codes[block.popular]]  # as in `recommend`
            return pa.table({"user": block.ids, "item": self.items.typed(items), "score": scores})

    def _known_items(self, values: Sequence[object]) -> list[str]:
        texts = self.items.texts(values)
        for text in texts:
            if text not in self.items.codes:
                raise RefusalError(404, f"unknown item: {text!r:.60}; ask for an item of the training data.")
        return texts
