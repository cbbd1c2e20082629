"""Lists of a fitted model: recommendations, similar items and users, scores of pairs; in the caller's ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.data.columns import find_columns
from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.sources.in_memory import memory_source
from truepair.errors import InputError, check_choice, check_number, check_whole
from truepair.evaluation.cold import SERVING, check_cold
from truepair.evaluation.metrics import Mask
from truepair.models.blend import trained_part
from truepair.models.closed_forms import ClosedForm, Popular
from truepair.models.factor_matrices import Rows, dense, dot_rows, take_rows, unit_rows
from truepair.ranking.selection import top_k
from truepair.recommender.candidates import Candidates
from truepair.recommender.known_ids import as_ids, codes_of, history_of, listed_items
from truepair.recommender.listing.explanation import MOST, Explanation
from truepair.recommender.listing.item_table import ItemTable
from truepair.recommender.listing.reranking import Reranking, quotas_of
from truepair.recommender.listing.similarity import cosines
from truepair.recommender.model_file import Model
from truepair.recommender.parts import Parameters, as_fitted, blend_of, closed_form_of, parts_of
from truepair.training import Settings


def recommend(
    model: Model,
    parameters: Parameters,
    users: Any,
    k: int,
    *,
    exclude_seen: bool = True,
    exclude_items: Any = None,
    only_items: Any = None,
    items: Any = None,
    where: Any = None,
    quota: Any = None,
    diversify: float = 0.0,
    explain: bool | int = False,
    unknown: str = "error",
    cold: str = "popular",
    part: int,
) -> Iterator[pa.Table]:
    """Tables of user, item, score, rank, for `part` users at a time; see `Recommender.recommend`."""
    device = Settings(device=parameters["device"]).torch_device()
    parameters = as_fitted(parameters, model.facts)
    k = check_whole("k", k, 1)
    diversify = check_number("diversify", diversify, 0, 1, open_high=True)
    check_choice("unknown", unknown, ["error", "popular", "drop"])
    check_choice("cold", cold, SERVING)
    known = model.seen.user_ids
    ids = known.ids if users is None else as_ids(users, "user")
    codes = codes_of(known, ids, "user", unknown)
    is_cold = (codes >= 0) & ~history_of(model).users[codes]
    check_cold(cold, int(is_cold.sum()), len(codes))
    left_out = (codes < 0) & (unknown == "drop") | is_cold & (cold == "separate")
    if left_out.any():
        ids, codes, is_cold = ids.filter(pa.array(~left_out)), codes[~left_out], is_cold[~left_out]
    popular = is_cold | (codes < 0)
    table = _item_table(model, items, where, quota, unknown)
    candidates = Candidates.of(model, exclude_items, only_items, unknown, _allowed(table, where))
    candidates = candidates.on(device, len(codes))
    reranking = _reranking(model, parameters, candidates.codes, table, quota, diversify)
    explanation = _explanation(model, parameters, explain)
    for start in range(0, max(len(codes), 1), part):
        rows = slice(start, start + part)
        people = ids[rows], codes[rows], popular[rows]
        yield candidates.ranked(model.users, *people, k, exclude_seen, reranking, explanation)


def _item_table(model: Model, items: Any, where: Any, quota: Any, unknown: str) -> ItemTable | None:
    if items is None:
        return None
    if where is None and quota is None:
        raise InputError("items has no effect without where or quota; pass one of them, or leave items out.")
    return ItemTable.of(items, model.seen.item_ids, listed_items(model), unknown)


def _allowed(table: ItemTable | None, where: Any) -> Mask | None:
    """Which items of the model the table and the filter allow; None: all."""
    if table is not None:
        return table.has_row() if where is None else table.where(where)
    if where is not None:
        raise InputError("where needs a table of the items with the columns that it names; pass it as items.")
    return None


def _reranking(
    model: Model,
    parameters: Parameters,
    candidates: Codes,
    table: ItemTable | None,
    quota: Any,
    diversify: float,
) -> Reranking | None:
    if quota is None and not diversify:
        return None
    n = model.seen.n_items
    groups, limits = (np.empty((0, n), np.int64), np.empty(0, np.int64))
    if quota is not None:
        groups, limits = quotas_of(quota, table)
    similarity = None
    if diversify:
        closed = closed_form_of(parameters)
        if isinstance(closed, Popular):
            raise InputError(
                "diversify needs vectors of items, and encoder 'popular' has none; use another encoder, such "
                "as 'mf' or 'ease', or limit a category with quota."
            )
        rows = _vectors(model, parameters, model.items) if closed is None else model.items
        similarity = cosines(take_rows(rows, candidates), wide=closed is not None)
    return Reranking(np.ascontiguousarray(groups[:, candidates]), limits, diversify, similarity)


def _explanation(model: Model, parameters: Parameters, explain: bool | int) -> Explanation | None:
    if explain is False:
        return None
    most = MOST if explain is True else check_whole("explain", explain, 1, remedy="Or give True or False.")
    n, ids = model.seen.n_items, model.seen.item_ids
    closed, blend = closed_form_of(parameters), blend_of(parameters)
    nothing = np.zeros(n)
    if isinstance(closed, Popular):
        additions = dense("items", model.items)[:, 0].double().cpu().numpy()
        nobody = model.seen.take(np.zeros(len(model.seen), dtype=bool)).csr()
        return Explanation(nobody, model.items, True, additions, None, True, ids, most)
    if closed is not None:
        assert isinstance(model.users, sp.csr_array)
        return Explanation(model.users, model.items, False, nothing, None, True, ids, most)
    vectors = [_vectors(model, parameters, rows) for rows in (model.users, model.items)]
    additions = nothing
    if parts_of(parameters).encoder.popularity:
        additions = dense("items", model.items)[:, -1].double().cpu().numpy()
    if blend is not None:
        assert isinstance(model.users, sp.csr_array)
        trained = dense("users", vectors[0]).cpu(), dense("items", vectors[1]).cpu()
        weights = dense("items", model.items)[:, :n]
        return Explanation(model.users[:, :n], weights, False, additions, trained, True, ids, most)
    trained_items = model.popularity > 0
    own = model.seen.take(trained_items[model.seen.items]).csr()
    directions = _distinctive(vectors[1], model.popularity)
    return Explanation(own, directions, True, additions, None, False, ids, most)


class Neighbours(NamedTuple):
    """What `similar_items` needs of a model, computed once."""

    model: Model
    closed: ClosedForm | None
    directions: Rows | None  # None for a closed form, whose weights depend on the item
    trained: Mask

    def similar(self, items: Any, k: int) -> pa.Table:
        """A table of item, similar, score, rank."""
        ids = self.model.seen.item_ids
        codes = _trained_codes("item", ids, items, self.trained)
        if self.closed is not None:
            queries, directions = self.closed.alike(self.model.items, codes)
        else:
            assert self.directions is not None
            queries, directions = take_rows(self.directions, codes), self.directions
        return _similar("item", queries, directions, ids, codes, self.trained, k)


def item_neighbours(model: Model, parameters: Parameters) -> Neighbours:
    """The directions of the items that `similar_items` compares."""
    parameters = as_fitted(parameters, model.facts)
    closed, trained = closed_form_of(parameters), listed_items(model)
    if closed is not None:
        return Neighbours(model, closed, None, trained)
    directions = _distinctive(_vectors(model, parameters, model.items), model.popularity)
    return Neighbours(model, None, directions, trained)


def similar_items(model: Model, parameters: Parameters, items: Any, k: int) -> pa.Table:
    """A table of item, similar, score, rank."""
    return item_neighbours(model, parameters).similar(items, k)


def similar_users(model: Model, parameters: Parameters, users: Any, k: int) -> pa.Table:
    """A table of user, similar, score, rank."""
    parameters = as_fitted(parameters, model.facts)
    ids, trained = model.seen.user_ids, history_of(model).users
    codes = _trained_codes("user", ids, users, trained)
    if (closed := closed_form_of(parameters)) is not None:
        directions = closed.alike_users(model.users)
    else:
        directions = unit_rows(_vectors(model, parameters, model.users))
    return _similar("user", take_rows(directions, codes), directions, ids, codes, trained, k)


def _trained_codes(what: str, ids: IdMap, asked: Any, trained: Mask) -> Codes:
    """The codes of these ids; one without a trained pair raises an error."""
    codes = ids.codes(as_ids(asked, what), what)
    if not trained[codes].all():
        names = ids.outside(np.unique(codes[~trained[codes]])).to_pylist()
        shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise InputError(
            f"{what}s without a trained pair: {shown}; the model knows nothing about them. Ask for {what}s "
            "that have a pair in the training data."
        )
    return codes


def _vectors(model: Model, parameters: Parameters, rows: Rows) -> Rows:
    """The trained vectors, without a blend and without the column of popularity."""
    vectors = rows if blend_of(parameters) is None else trained_part(rows, model.seen.n_items)
    return vectors[:, :-1] if parts_of(parameters).encoder.popularity else vectors


def _distinctive(vectors: Rows, popularity: Codes) -> Rows:
    """Unit vectors of the items, without what popular items have in common.

    The mean of the unit vectors and their first principal direction, both weighted by popularity, are
    removed: otherwise the most popular items are the neighbours of every popular one.
    """
    unit = F.normalize(dense("items", vectors).double())
    if unit.shape[1] < 3:  # nothing would be left
        return unit.float()
    weights = torch.from_numpy(popularity / popularity.sum())[:, None]
    centred = unit - (weights * unit).sum(dim=0)
    main = torch.linalg.eigh((weights * centred).T @ centred).eigenvectors[:, -1:]
    return F.normalize(centred - centred @ main @ main.T).float()


def _similar(
    what: str, queries: Rows, matrix: Rows, ids: IdMap, codes: Codes, trained: Mask, k: int
) -> pa.Table:
    """The table of the `k` best among those with a trained pair; queries[i] is of codes[i]."""
    among, place = np.flatnonzero(trained), np.cumsum(trained) - 1
    k, rows = min(check_whole("k", k, 1), len(among) - 1), np.arange(len(codes))
    if k == 0:  # there is no other
        k, rows = 1, rows[:0]
    itself = Interactions(
        np.arange(len(codes)), place[codes], IdMap.range(len(codes)), IdMap.range(len(among))
    )
    matrix = take_rows(matrix, among)
    best = top_k(queries, matrix, k, rows=rows, exclude=itself)
    return pa.table(
        {
            what: ids.outside(np.repeat(codes[rows], k)),
            "similar": ids.outside(among[best.items.ravel()]),
            "score": best.scores.ravel(),
            "rank": np.tile(np.arange(1, k + 1), len(rows)),
        }
    )


def score_pairs(model: Model, pairs: Any) -> pa.Table:
    """A table of user, item, score, in the order of the pairs."""
    raw = memory_source(pairs.to_table() if isinstance(pairs, Interactions) else pairs)
    at = find_columns(raw, {"rating": False, "weight": False, "time": False})
    users, items = raw.read([at["user"], at["item"]])
    user_codes = model.seen.user_ids.codes(users, "user")
    item_codes = model.seen.item_ids.codes(items, "item")
    if len(user_codes) != len(item_codes):
        raise InputError(f"{len(user_codes)} users but {len(item_codes)} items; a pair needs both.")
    scores = dot_rows(model.users, model.items, user_codes, item_codes)
    is_cold = ~history_of(model).users[user_codes]  # as in `recommend`
    scores[is_cold] = (model.popularity / model.popularity.sum())[item_codes[is_cold]]
    return pa.table(
        {
            "user": model.seen.user_ids.outside(user_codes),
            "item": model.seen.item_ids.outside(item_codes),
            "score": scores,
        }
    )
