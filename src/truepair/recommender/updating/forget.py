"""Forget: expired items, and users who ask for it, leave a model with their interactions."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Mask
from truepair.errors import InputError, check_choice
from truepair.models.scorer import Scorer
from truepair.recommender.fitting import DATA_FACTS, blended, data_facts, scorer_of, solve
from truepair.recommender.known_ids import codes_of
from truepair.recommender.model import Model, with_record


class Kept(NamedTuple):
    """The rows of a model that stay, and the interactions between them."""

    users: Codes
    items: Codes
    seen: Interactions


def forgotten(model: Model, items: Any, users: Any, unknown: str) -> Model:
    """The model without these items and users; `model` itself does not change.

    Vectors of all others stay as they are. A closed form, and EASE in a blend, is solved again for the pairs
    that are left.
    """
    check_choice("unknown", unknown, ["error", "drop"])
    if model.folded:
        raise InputError("these users were folded in, and are not a part of the model; use the model itself.")
    if items is None and users is None:
        raise InputError("nothing to forget is given; name items, users, or both.")
    kept = _kept(model, items, users, unknown)
    if (len(kept.users), len(kept.items)) == (model.seen.n_users, model.seen.n_items):
        return model
    if not len(kept.seen):
        raise InputError("no pair would be left in the model; forget fewer items or users.")
    return _reduced(model, kept)


def _kept(model: Model, items: Any, users: Any, unknown: str) -> Kept:
    seen = model.seen
    users_stay = _stay(seen.user_ids, users, "user", unknown)
    items_stay = _stay(seen.item_ids, items, "item", unknown)
    pairs = seen.take(users_stay[seen.users] & items_stay[seen.items])
    kept_users, kept_items = np.flatnonzero(users_stay), np.flatnonzero(items_stay)
    left = Interactions(
        np.searchsorted(kept_users, pairs.users),
        np.searchsorted(kept_items, pairs.items),
        IdMap(seen.user_ids.outside(kept_users)),
        IdMap(seen.item_ids.outside(kept_items)),
        weight=pairs.weight,
        disliked=seen.recoded_dislikes(_places(users_stay), _places(items_stay), len(kept_items)),
    )
    return Kept(kept_users, kept_items, left)


def _places(stays: Mask) -> Codes:
    """The new code of each that stays; -1 of the others."""
    return np.where(stays, np.cumsum(stays) - 1, -1)


def _stay(ids: IdMap, named: Any, what: str, unknown: str) -> Mask:
    """Whether each of the ids stays."""
    stays = np.ones(len(ids), dtype=bool)
    if named is not None:
        found = codes_of(ids, named, what, unknown, "unknown='drop' ignores unknown ids")
        stays[found[found >= 0]] = False
    return stays


def _reduced(model: Model, kept: Kept) -> Model:
    spec, seen = model.spec, kept.seen
    popularity = np.minimum(model.popularity[kept.items], seen.item_counts)
    added, trained = model.added[kept.items], model.trained[kept.users]
    if spec.closed_form is not None:
        scorer = scorer_of(spec, solve(spec.closed_form, seen, None, model.device), seen)
        popularity, trained = seen.item_counts, seen.user_counts > 0
    else:
        scorer = _trained_parts(model, kept, popularity, added)
        if spec.blend is not None:
            scorer = blended(scorer, spec, seen).on_cpu()
    record = {
        "forgotten users": model.seen.n_users - len(kept.users),
        "forgotten items": model.seen.n_items - len(kept.items),
        "forgotten pairs": len(model.seen) - len(seen),
        "data": seen.hash,
    }
    facts = {name: value for name, value in model.facts.items() if name not in ("split", *DATA_FACTS)}
    facts |= {**data_facts(seen), "data": seen.hash, "metrics": {}}
    tau = model.tau
    return dataclasses.replace(
        model, scorer=scorer, seen=seen, popularity=popularity, trained=trained, added=added,
        tau=tuple(tau[code] for code in kept.users) if isinstance(tau, tuple) else tau,
        start=None if model.start is None else model.start.take(kept.users, kept.items),
        item_map=None if spec.blend is not None else model.item_map,  # a blend's has columns of items
        facts=with_record(facts, record),
    )  # fmt: skip


def _trained_parts(model: Model, kept: Kept, popularity: Codes, added: Mask) -> Scorer:
    """The parts of those who stay; the popularity of an item is that of the users who stay."""
    scorer = model.scorer.take(kept.users, kept.items)
    weight = model.spec.trained.popularity
    if scorer.term is not None and len(kept.users) < model.seen.n_users:
        counts = torch.tensor(popularity, dtype=torch.float64)
        counted = torch.from_numpy(~added)  # added items have what add_items gave them
        scorer.term[counted] = (weight * counts.log1p()).float()[counted]
    return scorer
