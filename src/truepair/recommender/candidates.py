"""Candidates: the items that may be recommended now, and the lists made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.models.factor_matrices import Rows, take_rows
from truepair.ranking.selection import top_k
from truepair.recommender.model_file import Model


@dataclass(frozen=True, eq=False)
class Candidates:
    """Some items of the catalogue, with their own codes, and who has which of them."""

    items: Rows  # [n, d]
    seen: Interactions
    popularity: Codes  # [n]

    @staticmethod
    def of(model: Model, exclude_items: Any, only_items: Any) -> Candidates:
        """All items that were trained on, limited by the caller's ids."""
        seen, popularity = model.seen, model.popularity
        ids, allowed = seen.item_ids, popularity > 0
        if only_items is not None:
            only = np.zeros(seen.n_items, dtype=bool)
            only[ids.codes(only_items, "item")] = True
            allowed = allowed & only
        if exclude_items is not None:
            allowed[ids.codes(exclude_items, "item")] = False
        kept = np.flatnonzero(allowed)
        if not len(kept):
            raise InputError("no item is left to recommend; loosen only_items or exclude_items.")
        pairs = seen.take(allowed[seen.items])
        place = np.cumsum(allowed) - 1
        known = Interactions(pairs.users, place[pairs.items], pairs.user_ids, IdMap(ids.outside(kept)))
        return Candidates(take_rows(model.items, kept), known, popularity[kept])

    def ranked(self, users: Rows, ids: pa.Array, codes: Codes, k: int, exclude_seen: bool) -> pa.Table:
        """The lists of these users as a table; an unknown user, code -1, gets the most popular items."""
        k, known = min(k, self.seen.n_items), codes >= 0
        items = np.empty((len(codes), k), dtype=np.int64)
        scores = np.empty((len(codes), k), dtype=np.float32)
        exclude = self.seen if exclude_seen else None
        items[known], scores[known] = top_k(users, self.items, k, rows=codes[known], exclude=exclude)
        if not known.all():
            items[~known], scores[~known] = self._popular(k)
        real = items >= 0
        return pa.table(
            {
                "user": ids.take(pa.array(np.repeat(np.arange(len(codes)), real.sum(axis=1)))),
                "item": self.seen.item_ids.outside(items[real]),
                "score": scores[real],
                "rank": np.broadcast_to(np.arange(1, k + 1), items.shape)[real],
            }
        )

    def _popular(self, k: int) -> tuple[Codes, npt.NDArray[np.float32]]:
        best = np.argsort(-self.popularity, kind="stable")[:k]
        return best, (self.popularity[best] / self.popularity.sum()).astype(np.float32)
