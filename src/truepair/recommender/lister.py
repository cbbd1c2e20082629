"""Lister: the only way from a model to lists. Prepared once, called many times.

`recommend`, backtests and the service all call `Lister.top_k`: what is served is what is recommended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.errors import NoItemLeftError
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, free_bytes, n_rows, take_rows
from truepair.ranking.approximate.indexed_items import IndexedItems
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems, TopK
from truepair.recommender.listing.explanation import Explanation
from truepair.recommender.listing.reranking import Reranking
from truepair.recommender.model import Model

_SCORES = 50_000_000  # that a CPU computes in the time in which a GPU gets the items
_NOTHING = np.empty(0, np.int64)


class ListedUsers(NamedTuple):
    """Some users who get lists: known ones, or new ones by their histories."""

    ids: pa.Array
    rows: Rows
    """[n, …], `Scorer.query` of each; that of a user who is popular is not used."""
    popular: Mask
    """[n], who gets the most popular items."""
    hidden: Hidden
    """What each must not get, in codes of the model."""
    seen: sp.csr_array | None = None
    """[n, n_items], ones where a user has an item; only explanations need it."""

    def part(self, rows: Mask) -> ListedUsers:
        """Some of them."""
        places = np.flatnonzero(rows)
        vectors, hidden = take_rows(self.rows, places), self.hidden.take(places)
        seen = None if self.seen is None else sp.csr_array(self.seen[places])
        return ListedUsers(self.ids.take(places), vectors, self.popular[places], hidden, seen)


def known_users(
    model: Model,
    ids: pa.Array,
    codes: Codes,
    exclude_seen: bool = True,
    excluded: Mapping[object, Codes] | None = None,
    seen: bool = False,
) -> ListedUsers:
    """Users by their codes in the model, -1 for an unknown one; `excluded`: items of some ids."""
    rows, known = np.maximum(codes, 0), model.seen
    parts = [Hidden.pairs_of(known, codes)] if exclude_seen else []
    if known.dislikes is not None:
        parts.append(Hidden.pairs_of(known.dislikes, codes))
    if excluded:
        parts.append(Hidden.of([excluded.get(one, _NOTHING) for one in ids.to_pylist()]))
    hidden = Hidden.joined(parts, len(codes))
    popular = (codes < 0) | ~model.trained[rows]
    items_of = sp.csr_array(known.csr()[rows]) if seen else None
    return ListedUsers(ids, model.scorer.rows(rows), popular, hidden, items_of)


@dataclass(frozen=True, eq=False)
class Lister:
    """The candidates of a model in the order and layout that ranking needs, and how lists are chosen."""

    model: Model
    codes: Codes
    """[n], the candidates' codes in the model."""
    by_scores: PreparedItems | IndexedItems
    by_popularity: PreparedItems
    reranking: Reranking | None = None
    explanation: Explanation | None = None

    @staticmethod
    def of(
        model: Model,
        allowed: Mask | None = None,
        n_users: int = 1,
        reranking: Reranking | None = None,
        explanation: Explanation | None = None,
    ) -> Lister:
        """Of the items that can be listed, those that are allowed; on a GPU if that is worth it for these
        many users."""
        listed = model.listed if allowed is None else model.listed & allowed
        codes = np.flatnonzero(listed)
        if not len(codes):
            raise NoItemLeftError("no item is left to recommend; loosen where, only_items or exclude_items.")
        items = take_rows(model.scorer.columns, codes)
        if isinstance(items, Tensor) and is_worth_a_gpu(n_users, items, model.device):
            items = items.to(model.device)
        shares = _shares(model, codes)[:, None]
        by_scores, by_popularity = (PreparedItems.of(rows, codes, len(listed)) for rows in (items, shares))
        return Lister(model, codes, by_scores, by_popularity, reranking, explanation)

    def moved(self, model: Model) -> Lister:
        """The same with the model of another moment. What is prepared is changed in place: this one cannot be
        used any more, and nothing may be listed meanwhile."""
        model.scorer.take_columns(self.model.scorer)
        assert model.scorer.addition is not None
        assert isinstance(self.by_scores, PreparedItems)
        self.by_scores.write_last_column(model.scorer.addition.cpu().numpy()[self.codes])
        self.by_popularity.write_last_column(_shares(model, self.codes))
        return replace(self, model=model)

    def top_k(self, users: ListedUsers, k: int, never: Codes = _NOTHING) -> TopK:
        """The best items of each user, in codes of the model; `never` are codes that nobody gets."""
        n, n_popular, k = len(users.popular), np.count_nonzero(users.popular), min(k, len(self.codes))
        if not n or 0 < n_popular < n:
            found = TopK(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
            for some in (users.popular, ~users.popular):
                if some.any():
                    found.items[some], found.scores[some] = self.top_k(users.part(some), k, never)
            return found
        prepared, rows = (self.by_popularity, torch.ones(n, 1)) if n_popular else (self.by_scores, users.rows)
        if isinstance(prepared, IndexedItems):
            return prepared.top_k(rows, k, users.hidden, never)
        hidden = users.hidden.with_all(never) if len(never) else users.hidden
        if self.reranking is not None:
            return self.reranking.top_k(prepared, rows, k, hidden)
        return prepared.top_k(rows, k, hidden)

    def table(self, users: ListedUsers, k: int, never: Codes = _NOTHING) -> pa.Table:
        """A table of user, item, score, rank, and the columns of the explanation."""
        items, scores = self.top_k(users, k, never)
        rows, ranks = np.nonzero(items >= 0)
        codes, own = items[rows, ranks], scores[rows, ranks]
        ids = users.ids.take(pa.array(rows)), self.model.seen.item_ids.outside(codes)
        columns = {"user": ids[0], "item": ids[1], "score": own, "rank": ranks + 1}
        if self.explanation is not None:
            place = np.where(users.popular, -1, np.arange(len(items)))[rows]
            columns |= self.explanation.columns(users.rows, users.seen, place, codes, own)
        return pa.table(columns)


def _shares(model: Model, codes: Codes) -> npt.NDArray[np.float32]:
    """How much users without a trained row get each of these items, in total 1."""
    appeal = model.appeal[codes]
    return np.asarray(appeal / (appeal.sum() or 1), np.float32)


def stacked(rows: Sequence[Rows]) -> Rows:
    """Rows below each other, dense or sparse."""
    if isinstance(rows[0], Tensor):
        return torch.cat([row for row in rows if isinstance(row, Tensor)])
    return sp.csr_array(sp.vstack([row for row in rows if isinstance(row, sp.csr_array)], format="csr"))


def is_worth_a_gpu(n_users: int, items: Tensor, device: torch.device) -> bool:
    """Whether lists of these many users come sooner by way of a GPU.

    The items travel there, are copied once more in the order of ties, and a block of scores needs room for
    its sorting too.
    """
    if device.type == "cpu" or items.device == device or n_users * n_rows(items) < _SCORES:
        return False
    free = free_bytes(device)
    return free is None or 3 * 4 * items.numel() + 64 * 4 * n_rows(items) <= free
