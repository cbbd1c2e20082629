"""Extending: the same model with rows for more items; every code in it moves to its place among all."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.models.factor_matrices import by_columns
from truepair.models.scorer import Scorer
from truepair.models.start import Start
from truepair.recommender.model import Model


class NewItems(NamedTuple):
    """The parts of the scores of new items."""

    vectors: Tensor
    term: Tensor | None
    weights: Tensor | None
    """[n, items of the model], in a blend; the weights of new items among each other are 0."""


def with_items(model: Model, ids: IdMap, parts: NewItems) -> Model:
    """The model with these items, which have no trained interaction, in the order of `ids`.

    Ids that the model knows already get the new parts.
    """
    seen, scorer = model.seen, model.scorer
    everything = seen.item_ids.union(ids, "item")
    old, new = (everything.find(some, "item") for some in (seen.item_ids, ids))
    n = len(everything)
    popularity, added = np.zeros(n, np.int64), np.zeros(n, dtype=bool)
    popularity[old], added[old] = model.popularity, model.added
    added[new] = True
    disliked = seen.recoded_dislikes(np.arange(seen.n_users), old, n)
    known = Interactions(
        seen.users, old[seen.items], seen.user_ids, everything, weight=seen.weight, disliked=disliked
    )
    extended = Scorer(
        scorer.users,
        _placed(scorer.items, old, parts.vectors, new, n),
        None if scorer.term is None else _placed(scorer.term, old, parts.term, new, n),
        None if scorer.history is None else _moved(scorer.history, old, n),
        None if parts.weights is None else by_columns(_weights(scorer, old, parts.weights, new, n)),
    )
    item_map = model.item_map
    if item_map is not None and parts.weights is not None:  # its first columns belong to items
        own = item_map.weights.new_zeros(len(item_map.weights), n)
        own[:, torch.from_numpy(old)] = item_map.weights[:, : len(old)]
        whole = torch.cat([own, item_map.weights[:, len(old) :]], dim=1)
        item_map = dataclasses.replace(item_map, weights=whole)
    return dataclasses.replace(
        model, scorer=extended, seen=known, popularity=popularity, added=added, item_map=item_map,
        start=_moved_start(model, old, n),
    )  # fmt: skip


def _placed(known: Tensor, old: Codes, rows: Tensor | None, new: Codes, n: int) -> Tensor:
    assert rows is not None
    found = known.new_zeros(n, *known.shape[1:])
    found[torch.from_numpy(old)] = known
    found[torch.from_numpy(new)] = rows.to(known)
    return found


def _weights(scorer: Scorer, old: Codes, rows: Tensor, new: Codes, n: int) -> Tensor:
    assert isinstance(scorer.weights, Tensor)
    known = scorer.weights.new_zeros(len(old), n)
    known[:, torch.from_numpy(old)] = scorer.weights
    wider = rows.new_zeros(len(new), n)
    wider[:, torch.from_numpy(old)] = rows
    return _placed(known, old, wider, new, n)


def _moved(history: sp.csr_array, old: Codes, n: int) -> sp.csr_array:
    parts = (history.data, old[history.indices], history.indptr)
    found = sp.csr_array(parts, shape=(history.shape[0], n))
    found.sort_indices()
    return found


def _moved_start(model: Model, old: Codes, n_items: int) -> Start | None:
    """The training state with rows for all items; those of new ones are 0, and an update begins them anew."""
    if model.start is None:
        return None
    rows = np.full(n_items, -1)
    rows[old] = np.arange(len(old))
    return model.start.take(np.arange(model.seen.n_users), rows)
