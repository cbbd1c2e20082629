"""Forget: items that have expired and people who ask for it leave a model, with their pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Mask
from truepair.errors import InputError, check_choice
from truepair.models.blend import Blend, trained_part
from truepair.models.factor_matrices import Rows, dense, take_rows
from truepair.recommender.fitting import DATA_FACTS, data_facts
from truepair.recommender.known_ids import (
    ADDED,
    added_items,
    codes_of,
    history_of,
    user_lists,
)
from truepair.recommender.model_file import Model
from truepair.recommender.parts import Parameters, as_fitted, blend_of, closed_form_of, parts_of
from truepair.recommender.updating.facts import with_record
from truepair.training import Settings


class Kept(NamedTuple):
    """The rows of a model that stay, and the pairs between them."""

    users: Codes
    items: Codes
    seen: Interactions


def forgotten(model: Model, parameters: Parameters, items: Any, users: Any, unknown: str) -> Model:
    """The model without these items and users; `model` itself does not change.

    Vectors of all others stay as they are. A closed form, and EASE in a blend, is solved again for the pairs
    that are left.
    """
    check_choice("unknown", unknown, ["error", "drop"])
    if "folded in" in model.facts:
        raise InputError("these users were folded in, and are no part of the model; use the model itself.")
    if items is None and users is None:
        raise InputError("nothing to forget is given; name items, users, or both.")
    kept = _kept(model, items, users, unknown)
    if (len(kept.users), len(kept.items)) == (model.seen.n_users, model.seen.n_items):
        return model
    if not len(kept.seen):
        raise InputError("no pair would be left in the model; forget fewer items or users.")
    return _reduced(model, as_fitted(parameters, model.facts), kept)


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
    stays[_named(ids, named, what, unknown)] = False
    return stays


def _named(ids: IdMap, named: Any, what: str, unknown: str) -> Codes:
    """The codes of the ids to forget."""
    if named is None:
        return np.empty(0, dtype=np.int64)
    found = codes_of(ids, named, what, unknown, "unknown='drop' ignores unknown ids")
    return found[found >= 0]


def _reduced(model: Model, parameters: Parameters, kept: Kept) -> Model:
    device = Settings(device=parameters["device"]).torch_device()
    popularity = np.minimum(model.popularity[kept.items], kept.seen.item_counts)
    users: Rows
    items: Rows
    if (closed := closed_form_of(parameters)) is not None:
        users, items = closed.solve(kept.seen, device)
        items = items if isinstance(items, sp.csr_array) else items.cpu()
        popularity = kept.seen.item_counts
    else:
        users, items = _trained_rows(model, parameters, kept, popularity)
        if (ease := blend_of(parameters)) is not None:
            blend = Blend.of(ease, parameters["blend_weight"], kept.seen, device)
            users, items = blend.matrices(dense("users", users), dense("items", items))
            items = items.cpu()
    start = None if model.start is None else model.start.take(kept.users, kept.items)
    facts = _facts(model, kept, closed is None)
    item_map = None if blend_of(parameters) is not None else model.item_map  # a blend's has columns of items
    return Model(users, items, kept.seen, popularity, facts, start, item_map)


def _trained_rows(
    model: Model, parameters: Parameters, kept: Kept, popularity: Codes
) -> tuple[torch.Tensor, torch.Tensor]:
    """The trained vectors of those who stay; the popularity of an item is that of the users who stay."""
    n, is_blend = model.seen.n_items, blend_of(parameters) is not None
    users, items = (
        dense("vectors", take_rows(trained_part(side, n) if is_blend else side, rows)).clone()
        for side, rows in ((model.users, kept.users), (model.items, kept.items))
    )
    weight = parts_of(parameters).encoder.popularity
    if weight and len(kept.users) < model.seen.n_users:
        counts = torch.tensor(popularity, dtype=torch.float64)
        counted = torch.from_numpy(~added_items(model)[kept.items])  # others have what add_items gave them
        items[counted, -1] = (weight * counts.log1p()).float()[counted]
    return users, items


def _facts(model: Model, kept: Kept, is_trained: bool) -> dict[str, Any]:
    """The facts with a record; lists with a value or code for each user are those of the users who stay."""
    record = {
        "forgotten users": model.seen.n_users - len(kept.users),
        "forgotten items": model.seen.n_items - len(kept.items),
        "forgotten pairs": len(model.seen) - len(kept.seen),
        "data": kept.seen.hash,
    }
    facts = {name: value for name, value in model.facts.items() if name not in ("split", *DATA_FACTS)}
    trained, has_pairs = history_of(model).users[kept.users], kept.seen.user_counts > 0
    lists = user_lists(trained if is_trained else has_pairs, has_pairs)
    if ADDED in facts:
        facts[ADDED] = np.flatnonzero(added_items(model)[kept.items]).tolist()
    if isinstance(tau := model.facts["tau"], list):
        facts["tau"] = [tau[code] for code in kept.users]
    facts |= {**lists, **data_facts(kept.seen), "data": kept.seen.hash, "metrics": {}}
    return with_record(facts, record)
