"""New users: the same model for users who were not trained on, with or without interactions."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import IdMap
from truepair.errors import InputError, check_choice
from truepair.models.factor_matrices import Rows
from truepair.models.scorer import Scorer
from truepair.recommender.holdout import as_interactions
from truepair.recommender.known_ids import codes_of
from truepair.recommender.model import Model
from truepair.recommender.reindexing import reindexed
from truepair.storage.types import Source


def fold_in_users(model: Model, history: Source, unknown: str) -> Model:
    """The same items with the users of `history`; nothing is retrained."""
    check_choice("unknown", unknown, ["error", "drop"])
    new = as_interactions(history)
    item_ids = model.seen.item_ids
    items = item_ids.find(new.item_ids, "item")
    codes_of(item_ids, new.item_ids.outside(np.unique(new.items)), "item", unknown)  # may raise
    known = items[new.items] >= 0
    if not known.any():
        raise InputError("the history holds no item that was trained on; use recommend(unknown='popular').")
    kept = np.unique(new.users[known])
    place = np.full(new.n_users, -1)
    place[kept] = np.arange(len(kept))
    user_ids = IdMap(new.user_ids.outside(kept))
    pairs = new.pairs_only(weights=True).recoded(place, items, user_ids, item_ids)
    return dataclasses.replace(
        model,
        scorer=with_users(model.scorer, model.encode(pairs)),
        seen=pairs.pairs_only(),
        trained=np.ones(len(kept), dtype=bool),
        start=None,
        folded=True,
        facts={**model.facts, "folded in": pairs.hash},
    )


def with_users(scorer: Scorer, rows: Rows) -> Scorer:
    """The scorer with these rows, as `Scorer.query` gives them, as its known users."""
    n, dim = len(scorer.items), scorer.dim
    if isinstance(rows, Tensor):
        return dataclasses.replace(scorer, users=rows[:, :dim])
    vectors = torch.from_numpy(rows[:, n : n + dim].toarray()) if dim else torch.zeros(rows.shape[0], 0)
    return dataclasses.replace(scorer, users=vectors, history=sp.csr_array(rows[:, :n]))


def with_more_users(model: Model, ids: IdMap) -> Model:
    """The same model, which knows these users too, by name only: they have no trained row."""
    everyone = model.seen.user_ids.union(ids, "user")
    if len(everyone) == model.seen.n_users:
        return model
    return reindexed(dataclasses.replace(model, start=None), everyone, model.seen.item_ids)
