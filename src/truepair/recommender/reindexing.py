"""Reindexing: the same model for other users and items; new ones have zeros in all its parts."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.models.factor_matrices import by_columns, placed_rows
from truepair.recommender.model import Model


def reindexed(model: Model, user_ids: IdMap, item_ids: IdMap) -> Model:
    """The model of these users and items. A new one has zeros in all parts, and no trained row."""
    seen, scorer = model.seen, model.scorer
    users, items = seen.user_ids.find(user_ids, "user"), seen.item_ids.find(item_ids, "item")  # -1: new
    new_users, new_items = user_ids.find(seen.user_ids, "user"), item_ids.find(seen.item_ids, "item")
    history, weights = scorer.history, scorer.weights
    if history is not None:
        history = _selection(users, seen.n_users) @ history @ _selection(items, seen.n_items).T
        history.sort_indices()
    if isinstance(weights, Tensor) and not _is_same(items, seen.n_items):
        weights = by_columns(placed_rows(placed_rows(weights, items).T, items).T)
    return dataclasses.replace(
        model,
        scorer=dataclasses.replace(
            scorer,
            users=_moved(scorer.users, users),
            items=_moved(scorer.items, items),
            term=None if scorer.term is None else _moved(scorer.term, items),
            history=history,
            weights=weights,
        ),
        seen=seen.recoded(new_users, new_items, user_ids, item_ids),
        popularity=np.where(items >= 0, model.popularity[items], 0),
        trained=np.where(users >= 0, model.trained[users], False),
        added=np.where(items >= 0, model.added[items], False),
        start=None if model.start is None else model.start.take(users, items),
    )


def _moved(matrix: Tensor, rows: Codes) -> Tensor:
    return matrix if _is_same(rows, len(matrix)) else placed_rows(matrix, rows)


def _is_same(rows: Codes, n: int) -> bool:
    return len(rows) == n and bool((rows == np.arange(n)).all())


def _selection(rows: Codes, n: int) -> sp.csr_array:
    """The matrix whose product with n rows has these rows of them, and zeros for -1."""
    known = np.flatnonzero(rows >= 0)
    return sp.csr_array((np.ones(len(known), np.float32), (known, rows[known])), shape=(len(rows), n))
