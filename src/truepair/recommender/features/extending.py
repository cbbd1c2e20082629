"""Extending: the same model with rows for more items; every code in it moves to its place among all."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.models.factor_matrices import Rows, dense
from truepair.models.start import Start
from truepair.recommender.known_ids import ADDED, added_items
from truepair.recommender.model_file import Model


def with_items(model: Model, ids: IdMap, rows: Tensor, *, blended: bool) -> Model:
    """The model with these items, which have no trained pair, and their rows, in the order of `ids`.

    Ids that the model knows already get the new rows. In a blend, the first columns of users and items
    belong to items: `rows` have them for the model's own items, and those of new ones are 0.
    """
    seen, items = model.seen, dense("items", model.items)
    everything = seen.item_ids.union(ids, "item")
    old, new = (everything.find(some, "item") for some in (seen.item_ids, ids))
    moved = _moved_columns(old, len(everything), items.shape[1]) if blended else None
    width = items.shape[1] + (len(everything) - len(old) if blended else 0)
    matrix = items.new_zeros(len(everything), width)
    matrix[torch.from_numpy(old)] = _widened(items, moved, width)
    matrix[torch.from_numpy(new)] = _widened(rows.to(items), moved, width)
    popularity = np.zeros(len(everything), np.int64)
    popularity[old] = model.popularity
    added = np.zeros(len(everything), dtype=bool)
    added[old[added_items(model)]] = True
    added[new] = True
    facts: dict[str, Any] = {**model.facts, ADDED: np.flatnonzero(added).tolist()}
    disliked = seen.recoded_dislikes(np.arange(seen.n_users), old, len(everything))
    known = Interactions(
        seen.users, old[seen.items], seen.user_ids, everything, weight=seen.weight, disliked=disliked
    )
    item_map = model.item_map
    if item_map is not None:
        item_map = dataclasses.replace(item_map, weights=_widened(item_map.weights, moved, width))
    return dataclasses.replace(
        model, users=_moved_users(model.users, moved, width), items=_by_layout(matrix, items), seen=known,
        popularity=popularity, facts=facts, item_map=item_map,
        start=_moved_start(model, old, len(everything)),
    )  # fmt: skip


def _moved_start(model: Model, old: Codes, n_items: int) -> Start | None:
    """The training state with rows for all items; those of new ones are 0, and an update begins them anew."""
    if model.start is None:
        return None
    rows = np.full(n_items, -1)
    rows[old] = np.arange(len(old))
    return model.start.take(np.arange(model.seen.n_users), rows)


def _moved_columns(old: Codes, n_items: int, width: int) -> Codes:
    """Where the columns of a blend move: those of items to the items' new codes, the vectors to the end."""
    return np.concatenate([old, np.arange(len(old), width) + n_items - len(old)])


def _widened(rows: Tensor, moved: Codes | None, width: int) -> Tensor:
    if moved is None:
        return rows
    found = rows.new_zeros(len(rows), width)
    found[:, torch.from_numpy(moved)] = rows
    return found


def _moved_users(users: Rows, moved: Codes | None, width: int) -> Rows:
    if moved is None or not isinstance(users, sp.csr_array):
        return users
    parts = (users.data, moved[users.indices], users.indptr)
    found = sp.csr_array(parts, shape=(users.shape[0], width))
    found.sort_indices()
    return found


def _by_layout(matrix: Tensor, like: Tensor) -> Tensor:
    """In the layout of the other one: a blend's items are stored by columns."""
    return matrix if like.is_contiguous() else matrix.T.contiguous().T
