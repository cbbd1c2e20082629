"""New users: a model for people who were not trained on, with or without interactions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice
from truepair.models.blend import trained_part, with_vectors
from truepair.models.factor_matrices import Rows, dense
from truepair.recommender.holdout import as_interactions
from truepair.recommender.known_ids import codes_of, history_of, user_lists
from truepair.recommender.model_file import Model, mean_prior
from truepair.recommender.parts import Parameters, as_fitted, blend_of, closed_form_of, parts_of
from truepair.training import fold_in


def fold_in_users(model: Model, parameters: Parameters, history: Any, unknown: str) -> Model:
    """The same items with the people of `history` as users; nothing is retrained."""
    check_choice("unknown", unknown, ["error", "drop"])
    people = as_interactions(history)
    item_ids = model.seen.item_ids
    items = item_ids.find(people.item_ids, "item")
    codes_of(item_ids, people.item_ids.outside(np.unique(people.items)), "item", unknown)  # may raise
    known = items[people.items] >= 0
    if not known.any():
        raise InputError("the history holds no item that was trained on; use recommend(unknown='popular').")
    guests, users = np.unique(people.users[known], return_inverse=True)
    pairs = Interactions(
        users,
        items[people.items[known]],
        IdMap(people.user_ids.outside(guests)),
        item_ids,
        weight=None if people.weight is None else people.weight[known],
        disliked=_known_dislikes(people, guests, items, len(item_ids)),
    )
    everyone = np.ones(len(guests), dtype=bool)
    facts = {**model.facts, "folded in": pairs.hash, **user_lists(everyone, everyone)}
    rows = fold_in_pairs(model, as_fitted(parameters, model.facts), pairs)
    return dataclasses.replace(model, users=rows, seen=pairs.pairs_only(), facts=facts, start=None)


def _known_dislikes(people: Interactions, guests: Codes, items: Codes, n_items: int) -> Codes | None:
    """The dislikes of these users, by the codes of the model's items."""
    users = np.full(people.n_users, -1)
    users[guests] = np.arange(len(guests))
    return people.recoded_dislikes(users, items, n_items)


def fold_in_pairs(model: Model, parameters: Parameters, pairs: Interactions) -> Rows:
    """The rows of the users of `pairs`, whose items are those of the model; `parameters` as fitted."""
    if (closed := closed_form_of(parameters)) is not None:
        return closed.rows(pairs)
    encoder, loss, sampler, settings = parts_of(parameters, len(pairs))
    loss = loss.with_prior(mean_prior(model.facts["tau"]))  # the prior that was trained with
    blended = blend_of(parameters) is not None
    items = dense("items", trained_part(model.items, model.seen.n_items) if blended else model.items)
    vectors = fold_in(items, encoder, loss, sampler, pairs, settings, model.popularity)
    return with_vectors(pairs.weighted_csr(), vectors) if blended else vectors


def with_more_users(model: Model, ids: IdMap) -> Model:
    """The same model, which knows these users too, by name only: they have no trained pair."""
    seen = model.seen
    everyone = seen.user_ids.union(ids, "user")
    if len(everyone) == seen.n_users:
        return model
    codes = everyone.find(seen.user_ids, "user")  # of the old users among all
    place = (np.ones(len(codes), np.float32), (codes, np.arange(len(codes))))
    rows = sp.csr_array(place, shape=(len(everyone), len(codes)))
    users: Rows
    if isinstance(model.users, sp.csr_array):
        users = sp.csr_array(rows @ model.users)
    else:
        users = model.users.new_zeros(len(everyone), model.users.shape[1])
        users[torch.from_numpy(codes)] = model.users
    disliked = seen.recoded_dislikes(codes, np.arange(seen.n_items), seen.n_items)
    known = Interactions(
        codes[seen.users], seen.items, everyone, seen.item_ids, weight=seen.weight, disliked=disliked
    )
    trained = np.zeros(len(everyone), dtype=bool)
    trained[codes] = history_of(model).users
    facts = {**model.facts, **user_lists(trained, known.user_counts > 0)}
    return dataclasses.replace(model, users=users, seen=known, facts=facts, start=None)
