"""Forget: expired items, and users who ask for it, leave a model with their interactions."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from truepair.data.ids import Codes, IdMap
from truepair.errors import InputError, check_choice
from truepair.recommender.caller import codes_of
from truepair.recommender.fitting import blended, recorded, scorer_of, solve
from truepair.recommender.model import Model
from truepair.recommender.reindexing import reindexed
from truepair.storage.types import Ids


def forgotten(model: Model, items: Ids, users: Ids, unknown: str) -> Model:
    """The model without these items and users; `model` itself does not change.

    Vectors of all others stay as they are. A closed form, and EASE in a blend, is solved again for the pairs
    that are left.
    """
    check_choice("unknown", unknown, ["error", "drop"])
    if model.folded:
        raise InputError("these users were folded in, and are not a part of the model; use the model itself.")
    if items is None and users is None:
        raise InputError("nothing to forget is given; name items, users, or both.")
    seen = model.seen
    kept_users = _kept(seen.user_ids, users, "user", unknown)
    kept_items = _kept(seen.item_ids, items, "item", unknown)
    is_same = (len(kept_users), len(kept_items)) == (seen.n_users, seen.n_items)
    return model if is_same else _reduced(model, kept_users, kept_items)


def _kept(ids: IdMap, named: Ids, what: str, unknown: str) -> Codes:
    """The codes of the ids that are not named."""
    stays = np.ones(len(ids), dtype=bool)
    if named is not None:
        found = codes_of(ids, named, what, unknown, "unknown='drop' ignores unknown ids")
        stays[found[found >= 0]] = False
    return np.flatnonzero(stays)


def _reduced(model: Model, users: Codes, items: Codes) -> Model:
    spec, before, tau = model.spec, model.seen, model.tau
    trained_parts = dataclasses.replace(model.scorer, history=None, weights=None)  # others are solved again
    user_ids, item_ids = IdMap(before.user_ids.outside(users)), IdMap(before.item_ids.outside(items))
    kept = reindexed(dataclasses.replace(model, scorer=trained_parts), user_ids, item_ids)
    seen = kept.seen
    if not len(seen):
        raise InputError("no pair would be left in the model; forget fewer items or users.")
    if spec.closed_form is not None:
        scorer = scorer_of(spec, solve(spec.closed_form, seen, None, model.device), seen)
        popularity, trained = seen.item_counts, seen.user_counts > 0
    else:
        popularity, trained = np.minimum(kept.popularity, seen.item_counts), kept.trained
        scorer = kept.scorer
        if scorer.term is not None and len(users) < before.n_users:  # the popularity among users who stay
            counts = torch.tensor(popularity, dtype=torch.float64)
            term = (spec.trained.popularity * counts.log1p()).float()
            term = torch.where(torch.from_numpy(kept.added), scorer.term, term)  # added items keep theirs
            scorer = dataclasses.replace(scorer, term=term)
        if spec.blend is not None:
            scorer = blended(scorer, spec, seen).on_cpu()
    record = {
        "forgotten users": before.n_users - len(users),
        "forgotten items": before.n_items - len(items),
        "forgotten pairs": len(before) - len(seen),
        "data": seen.hash,
    }
    recent = kept.recent
    if recent is not None:  # without the share of users who leave: whose events they were is not known
        recent = recent.scaled(seen.item_counts / np.maximum(before.item_counts[items], 1))
    return dataclasses.replace(
        recorded(kept, seen, record), scorer=scorer, popularity=popularity, trained=trained,
        tau=tuple(tau[code] for code in users) if isinstance(tau, tuple) else tau,
        item_map=None if spec.blend is not None else model.item_map,  # a blend's has columns of items
    ).with_recent(recent)  # fmt: skip
