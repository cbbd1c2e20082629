"""Reranking: lists chosen item by item from the best of each user, with quotas and diversity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.data.ids import Codes
from truepair.errors import InputError, check_type, check_whole
from truepair.models.factor_matrices import Rows, check_room, dense, n_rows, take_rows, unit_rows
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems, TopK
from truepair.recommender.listing.item_table import ItemTable
from truepair.recommender.model import Model

POOL = 10  # a list of k items is chosen from the best 10 · k
_AT_ONCE = 1 << 22  # numbers of pools that are in memory at a time


class Similarity(NamedTuple):
    """Cosines of items: products of unit vectors, or a table of all cosines."""

    matrix: npt.NDArray[np.float32]  # [n, d] unit vectors; [n, n] cosines if `is_table`
    is_table: bool


@dataclass(frozen=True, eq=False)
class Reranking:
    """At most limits[g] items of each value in groups[g]; and diversity, by greedy MMR.

    The next item of a list is the one with the highest

        (1 - diversify) · score - diversify · (the largest cosine to an item that is already in the list),

    where the scores of the pool are scaled to [0, 1]. Of equal ones the better ranked is taken.
    """

    place: Codes  # [n_items], the place of each candidate among them; -1: none
    groups: Codes  # [g, n], a number for each value of a candidate; -1: no value, so no limit
    limits: Codes  # [g]
    diversify: float = 0.0
    similarity: Similarity | None = None

    def top_k(self, items: PreparedItems, users: Rows, k: int, hidden: Hidden) -> TopK:
        """As `PreparedItems.top_k`, from a pool of 10 · k items.

        Where the quotas leave fewer than k items of a pool, the pool is doubled, until the list is complete
        or the pool holds all candidates.
        """
        n, n_items = n_rows(users), self.groups.shape[1]
        found = TopK(np.full((n, k), -1), np.full((n, k), -np.inf, np.float32))
        left, size = np.arange(n), min(POOL * k, n_items)
        while len(left):
            short = []
            step = max(_AT_ONCE // size, 1)
            for some in np.split(left, range(step, len(left), step)):
                pool = items.top_k(take_rows(users, some), size, hidden.take(some))
                found.items[some], found.scores[some] = chosen = self._chosen(pool, k)
                short.append(some[(chosen.items[:, -1] < 0) & (pool.items[:, -1] >= 0)])
            left = np.concatenate(short) if size < n_items else left[:0]
            size = min(2 * size, n_items)
        return found

    def _chosen(self, pool: TopK, k: int) -> TopK:
        from truepair.ranking.greedy_lists import greedy_places  # not before it is needed: it loads Numba

        vectors, is_table = (None, False) if self.similarity is None else self.similarity
        similar, threads = (vectors, is_table, self.diversify), torch.get_num_threads()
        rows = np.where(pool.items < 0, -1, self.place[pool.items])
        places = greedy_places(rows, pool.scores, k, self.groups, self.limits, *similar, threads)
        items, scores = (np.take_along_axis(each, np.maximum(places, 0), axis=1) for each in pool)
        return TopK(np.where(places < 0, -1, items), np.where(places < 0, np.float32(-np.inf), scores))


def _cosines(rows: Rows, *, wide: bool) -> Similarity:
    """The similarity of items with these rows; `wide` rows (a column for each item) give a table."""
    if not wide:
        return Similarity(F.normalize(dense("items", rows)).cpu().contiguous().numpy(), False)
    n = n_rows(rows)
    device = torch.device("cpu") if isinstance(rows, sp.csr_array) else rows.device
    remedy = "limit the candidates with where= or only_items=, or diversify a trained model"
    check_room(f"The similarity of {n:,} items", 8 * n**2, device, remedy)
    unit = unit_rows(rows)
    table = (unit @ unit.T).toarray() if isinstance(unit, sp.csr_array) else (unit @ unit.T).cpu().numpy()
    return Similarity(np.ascontiguousarray(table, np.float32), True)


def reranking_of(
    model: Model,
    candidates: Codes,
    table: ItemTable | None,
    quota: Mapping[str, int] | None,
    diversify: float,
) -> Reranking:
    """The reranking of these items of a model."""
    none = np.empty((0, model.seen.n_items), np.int64), np.empty(0, np.int64)
    groups, limits = none if quota is None else _quotas(quota, table)
    similarity, scorer = None, model.scorer
    if diversify:
        if scorer.is_popularity:
            raise InputError(
                "diversify needs vectors, and encoder 'popular' has none; use 'mf', or set quota."
            )
        rows = scorer.items if scorer.dim else scorer.weights
        assert rows is not None
        similarity = _cosines(take_rows(rows, candidates), wide=not scorer.dim)
    place = np.full(model.seen.n_items, -1)
    place[candidates] = np.arange(len(candidates))
    return Reranking(place, np.ascontiguousarray(groups[:, candidates]), limits, diversify, similarity)


def _quotas(quota: Mapping[str, int], table: ItemTable | None) -> tuple[Codes, Codes]:
    """(groups, limits) of `Reranking`, over all items of a model; from a mapping of columns to limits."""
    check_type("quota", quota, Mapping, "give a mapping of columns to limits, such as {'category': 3}")
    if not quota:
        raise InputError("quota names no column; give a mapping such as {'category': 3}, or leave it out.")
    if table is None:
        raise InputError("quota needs a table of the items with the columns that it names; pass it as items.")
    limits = [check_whole(f"quota of {column!r}", limit, 1) for column, limit in quota.items()]
    return np.stack([table.values(column) for column in quota]), np.array(limits, np.int64)
