"""The hold-out: which pairs a recommender learns from, and which choose the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from truepair.data.interactions import Interactions, refuse_weights
from truepair.data.reading import read_interactions
from truepair.data.split import Split
from truepair.data.split_recipes import split_given, split_random
from truepair.errors import InputError


def split_for_fitting(interactions: Any, valid: Any, share: float, seed: int) -> Split:
    """A Split as it is; else the train part and the given validation part, or a random share held out."""
    if isinstance(interactions, Split):
        if valid is not None:
            raise InputError("a Split was given, and valid too; put the validation part into the split.")
        refuse_weights(interactions.train)
        return interactions
    everything = as_interactions(interactions)
    refuse_weights(everything)
    nothing = everything.take(np.zeros(len(everything), dtype=bool))
    if valid is not None or not share:
        return split_given(everything, nothing, None if valid is None else as_interactions(valid))
    chosen = split_random(everything, share, seed=seed).test
    held_out = _without_isolated(everything, chosen.has(everything.users, everything.items))
    if not held_out.any():
        raise InputError(
            f"validation = {share} of {len(everything)} pairs is none that can be held out; use validation=0."
        )
    recipe = f"validation={share}, seed={seed}"
    return Split(everything.take(~held_out), everything.take(held_out), nothing, recipe)


def as_interactions(source: Any) -> Interactions:
    """`source`, read unless it is Interactions already."""
    return source if isinstance(source, Interactions) else read_interactions(source)


def joined(parts: Sequence[Interactions]) -> Interactions:
    """The pairs of all parts, which share their ids."""
    users, items = (np.concatenate([getattr(part, name) for part in parts]) for name in ("users", "items"))
    return Interactions(users, items, parts[0].user_ids, parts[0].item_ids)


def _without_isolated(everything: Interactions, held_out: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """`held_out` without the pairs whose user or item would have no pair left in the train part."""
    users = np.bincount(everything.users[~held_out], minlength=everything.n_users)
    items = np.bincount(everything.items[~held_out], minlength=everything.n_items)
    return held_out & (users[everything.users] > 0) & (items[everything.items] > 0)
