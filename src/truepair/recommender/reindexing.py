"""Reindexing: the same model for other users and items, and for users who were not in training."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.rows.options import KINDS_REMEDY
from truepair.errors import InputError, check_choice
from truepair.models.factor_matrices import Rows, by_columns, placed_rows
from truepair.models.scorer import Scorer
from truepair.recommender.caller import codes_of
from truepair.recommender.holdout import as_interactions
from truepair.recommender.model import Model
from truepair.storage.types import Json, Source


def reindexed(model: Model, user_ids: IdMap, item_ids: IdMap) -> Model:
    """The model of these users and items. A new one has zeros in all parts, and no trained row."""
    seen, scorer = model.seen, model.scorer
    users, items = seen.user_ids.find(user_ids, "user"), seen.item_ids.find(item_ids, "item")  # -1: new
    new_users, new_items = user_ids.find(seen.user_ids, "user"), item_ids.find(seen.item_ids, "item")
    history, weights = scorer.history, scorer.weights
    if history is not None:
        history = _selection(users, seen.n_users) @ history @ _selection(items, seen.n_items).T
        history.sort_indices()
    if isinstance(weights, Tensor) and not np.array_equal(items, np.arange(seen.n_items)):  # they are many
        weights = by_columns(placed_rows(placed_rows(weights, items).T, items).T)
    vectors, term = placed_rows(scorer.users, users), scorer.term
    term = None if term is None else placed_rows(term, items)
    moved = dataclasses.replace(
        model,
        scorer=Scorer(vectors, placed_rows(scorer.items, items), term, history, weights),
        recent=None,
        seen=seen.recoded(new_users, new_items, user_ids, item_ids),
        popularity=np.where(items >= 0, model.popularity[items], 0),
        trained=(users >= 0) & model.trained[users],
        added=(items >= 0) & model.added[items],
        start=None if model.start is None else model.start.take(users, items),
    )
    return moved.with_recent(None if model.recent is None else model.recent.take(items))


def _selection(rows: Codes, n: int) -> sp.csr_array:
    """The matrix whose product with n rows has these rows of them, and zeros for -1."""
    known = np.flatnonzero(rows >= 0)
    return sp.csr_array((np.ones(len(known), np.float32), (known, rows[known])), shape=(len(rows), n))


def fold_in_users(model: Model, history: Source, unknown: str, options: Json | None = None) -> Model:
    """The same items with the users of `history`; nothing is retrained."""
    check_choice("unknown", unknown, ["error", "drop"])
    new = as_interactions(history, options)
    _check_kinds(model, new)
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
    pairs = new.known(model.spec.reads_order).recoded(place, items, user_ids, item_ids)
    return dataclasses.replace(
        model, scorer=with_users(model.scorer, model.encode(pairs)), seen=pairs.pairs_only(),
        trained=np.ones(len(kept), dtype=bool), start=None, folded=True,
        facts={**model.facts, "folded in": pairs.hash},
    )  # fmt: skip


def _check_kinds(model: Model, history: Interactions) -> None:
    """Raise if the model was fitted with kinds of rows, and those of the history were not read."""
    rules = model.seen.origin.policy.reading or {}
    if "feedback" in rules and any(KINDS_REMEDY in step.what for step in history.history):
        raise InputError(
            f"the history has a column of kinds that was not read, so that returns would count as likes, and "
            f"the model was fitted with feedback = {rules['feedback']}; read it with **model.reading_, or "
            "with kind=False if every row is a like."
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
