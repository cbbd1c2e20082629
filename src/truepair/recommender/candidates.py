"""Candidates: the items that may be recommended now, and the lists made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import NoItemLeftError
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, free_bytes, take_rows
from truepair.ranking.selection import top_k
from truepair.recommender.known_ids import as_ids, codes_of, listed_items
from truepair.recommender.listing.explanation import Explanation
from truepair.recommender.listing.reranking import Reranking
from truepair.recommender.model_file import Model

_SCORES = 50_000_000  # that a CPU computes in the time in which a GPU gets the items


@dataclass(frozen=True, eq=False)
class Candidates:
    """Some items of the catalogue, with their own codes, and who has or must not get which of them."""

    items: Rows  # [n, d]
    seen: Interactions
    popularity: Codes  # [n]
    excluded: dict[Any, Codes]  # id of a user -> candidates that this user must not get
    codes: Codes  # [n], the candidates' codes in the model

    @staticmethod
    def of(
        model: Model, exclude_items: Any, only_items: Any, unknown: str, where: Mask | None = None
    ) -> Candidates:
        """All items with a vector, limited by the caller; see `Recommender.recommend`."""
        seen, popularity = model.seen, model.popularity
        ids, allowed = seen.item_ids, listed_items(model)
        if only_items is not None:
            only = np.zeros(seen.n_items, dtype=bool)
            only[_found(ids, only_items, unknown)] = True
            allowed = allowed & only
        by_user = exclude_items if isinstance(exclude_items, Mapping) else {}
        if exclude_items is not None and not isinstance(exclude_items, Mapping):
            allowed[_found(ids, exclude_items, unknown)] = False
        if where is not None:
            allowed = allowed & where
        kept = np.flatnonzero(allowed)
        if not len(kept):
            raise NoItemLeftError("no item is left to recommend; loosen where, only_items or exclude_items.")
        place = np.where(allowed, np.cumsum(allowed) - 1, -1)
        excluded = _by_user(model, by_user, place, unknown)
        if allowed.all():  # nothing is copied, of what may be a billion pairs
            return Candidates(model.items, seen.pairs_only(), popularity, excluded, kept)
        pairs = seen.take(allowed[seen.items])
        disliked = seen.recoded_dislikes(np.arange(seen.n_users), place, len(kept))
        some = IdMap(ids.outside(kept))
        known = Interactions(pairs.users, place[pairs.items], pairs.user_ids, some, disliked=disliked)
        return Candidates(take_rows(model.items, kept), known, popularity[kept], excluded, kept)

    def on(self, device: torch.device, n_users: int) -> Candidates:
        """With dense items on a GPU, if lists of so many users are worth the way there; else as they are."""
        items = self.items
        if device.type == "cpu" or not isinstance(items, torch.Tensor) or items.device == device:
            return self
        if not is_worth_a_gpu(n_users, items.shape[0], items.shape[1], free_bytes(device)):
            return self
        return replace(self, items=items.to(device))

    def ranked(
        self,
        users: Rows,
        ids: pa.Array,
        codes: Codes,
        popular: Mask,
        k: int,
        exclude_seen: bool,
        reranking: Reranking | None = None,
        explanation: Explanation | None = None,
    ) -> pa.Table:
        """The lists of these users as a table; those who are `popular` get the most popular items.

        The code of an unknown user is -1.
        """
        best = top_k if reranking is None else reranking.top_k
        k, n = min(k, self.seen.n_items), len(codes)
        items = np.empty((n, k), dtype=np.int64)
        scores = np.empty((n, k), dtype=np.float32)
        masks = self._masks(ids, codes, exclude_seen)
        if not popular.all():
            vectors = take_rows(users, np.maximum(codes, 0))
            rows = np.flatnonzero(~popular)
            items[rows], scores[rows] = best(vectors, self.items, k, rows=rows, exclude=masks)
        if popular.any():
            total = max(self.popularity.sum(), 1)  # items that nobody has yet share nothing
            shares = (self.popularity / total).astype(np.float32)[:, None]
            rows = np.flatnonzero(popular)
            items[rows], scores[rows] = best(np.ones((n, 1)), shares, k, rows=rows, exclude=masks)
        real = items >= 0
        rows = np.repeat(np.arange(n), real.sum(axis=1))
        columns = {
            "user": ids.take(pa.array(rows)),
            "item": self.seen.item_ids.outside(items[real]),
            "score": scores[real],
            "rank": np.broadcast_to(np.arange(1, k + 1), items.shape)[real],
        }
        if explanation is not None:
            people = np.where(popular, -1, codes)[rows]
            columns |= explanation.columns(people, self.codes[items[real]], scores[real])
        return pa.table(columns)

    def _masks(self, ids: pa.Array, codes: Codes, exclude_seen: bool) -> list[Interactions]:
        """What each row must not list: items that the user has or dislikes, and those excluded for them."""
        nothing, dislikes = np.empty(0, np.int64), self.seen.dislikes
        never = [dislikes.items_of(c) if c >= 0 else nothing for c in codes] if dislikes is not None else []
        has = [self.seen.items_of(code) if code >= 0 else nothing for code in codes] if exclude_seen else []
        not_for = [self.excluded.get(user, nothing) for user in ids.to_pylist()] if self.excluded else []
        return [
            Interactions(
                np.repeat(np.arange(len(codes)), [len(row) for row in rows]),
                np.concatenate([nothing, *rows]),
                IdMap.range(len(codes)),
                self.seen.item_ids,
            )
            for rows in (has, never, not_for)
            if rows
        ]


def is_worth_a_gpu(n_users: int, n_items: int, width: int, free: int | None) -> bool:
    """Whether lists of so many users come sooner by way of a GPU with so many free bytes.

    The items travel there, are copied once more in the order of ties, and a block of scores needs room for
    its sorting too.
    """
    room = 3 * 4 * n_items * width + 64 * 4 * n_items
    return n_users * n_items >= _SCORES and (free is None or room <= free)


def _found(ids: IdMap, values: Any, unknown: str) -> Codes:
    """The codes of the known items among `values`."""
    codes = codes_of(ids, values, "item", unknown)
    return codes[codes >= 0]


def _by_user(model: Model, items: Mapping[Any, Any], place: Codes, unknown: str) -> dict[Any, Codes]:
    """Id of a user -> the candidates among the items of this user in the mapping."""
    if not items:
        return {}
    users = as_ids(list(items), "user")
    codes_of(model.seen.user_ids, users, "user", unknown)  # an unknown user is an error
    values, counts = _joined(list(items.values()))
    found = codes_of(model.seen.item_ids, values, "item", unknown)
    owners, n = np.repeat(np.arange(len(items)), counts), len(place)
    candidates = np.where(found >= 0, place[found], -1)
    pairs = np.unique((owners * n + candidates)[candidates >= 0])
    edges = np.searchsorted(pairs, np.arange(1, len(items)) * n)
    return dict(zip(users.to_pylist(), np.split(pairs % n, edges), strict=True))


def _joined(lists: list[Any]) -> tuple[pa.Array, list[int]]:
    """The ids of all lists in one array, to be looked up at once, and the length of each list."""
    if all(type(some) is list for some in lists):
        return as_ids(list(chain.from_iterable(lists)), "item"), [len(some) for some in lists]
    arrays = [as_ids(some, "item") for some in lists]
    values = [some for some in arrays if len(some)]
    alike = len({some.type for some in values}) == 1
    joined = (
        pa.concat_arrays(values)
        if alike
        else as_ids([one for some in values for one in some.to_pylist()], "item")
    )
    return joined, [len(some) for some in arrays]
