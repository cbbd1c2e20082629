"""Lists of a fitted model: recommendations, similar items and users, scores of pairs; in the caller's ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses

from truepair.data.columns import find_columns
from truepair.data.ids import Codes, IdMap
from truepair.data.in_memory import memory_source
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice, check_whole
from truepair.evaluation.cold import SERVING, check_cold
from truepair.evaluation.metrics import Mask
from truepair.models.blend import trained_part
from truepair.models.factor_matrices import Rows, dense, dot_rows, take_rows, unit_rows
from truepair.ranking.selection import top_k
from truepair.recommender.candidates import Candidates
from truepair.recommender.known_ids import as_ids, codes_of, history_of
from truepair.recommender.model_file import Model
from truepair.recommender.parts import Parameters, blend_of, closed_form_of, parts_of


def recommend(
    model: Model,
    users: Any,
    k: int,
    *,
    exclude_seen: bool,
    exclude_items: Any,
    only_items: Any,
    unknown: str,
    cold: str,
    part: int,
) -> Iterator[pa.Table]:
    """Tables of user, item, score, rank, for `part` users at a time."""
    k = check_whole("k", k, 1)
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
    candidates = Candidates.of(model, exclude_items, only_items, unknown)
    for start in range(0, max(len(codes), 1), part):
        rows = slice(start, start + part)
        yield candidates.ranked(model.users, ids[rows], codes[rows], popular[rows], k, exclude_seen)


def similar_items(model: Model, parameters: Parameters, items: Any, k: int) -> pa.Table:
    """A table of item, similar, score, rank."""
    ids, trained = model.seen.item_ids, model.popularity > 0
    codes = _trained_codes("item", ids, items, trained)
    if (closed := closed_form_of(parameters)) is not None:
        queries, directions = closed.alike(model.items, codes)
    else:
        directions = _distinctive(_vectors(model, parameters, model.items), model.popularity)
        queries = take_rows(directions, codes)
    return _similar("item", queries, directions, ids, codes, trained, k)


def similar_users(model: Model, parameters: Parameters, users: Any, k: int) -> pa.Table:
    """A table of user, similar, score, rank."""
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
