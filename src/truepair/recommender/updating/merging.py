"""Merging: known interactions and new ones as one, with the ids of both."""

from __future__ import annotations

import numpy as np

from truepair.data.ids import Codes, IdMap, pair_keys
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.storage.types import Array


def merged(known: Interactions, new: Interactions) -> Interactions:
    """The pairs and dislikes of both; a pair that both have gets the rating, weight and time of `new`.

    What is new counts: a pair that is disliked now is no longer liked, and the other way round. A column that
    only one of the two has is left out, apart from the weight: a pair without one has 1.
    """
    user_ids = _all_ids("user", known.user_ids, new.user_ids)
    item_ids = _all_ids("item", known.item_ids, new.item_ids)
    parts = old, late = known.among(user_ids, item_ids), new.among(user_ids, item_ids)
    keys = np.concatenate([pair_keys(part.users, part.items, len(item_ids)) for part in parts])
    # of equal keys, `np.unique` gives the first place: in the reversed order, that of the new pair
    places = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    disliked = None if old.disliked is None else np.setdiff1d(old.disliked, keys[len(old) :])
    if late.disliked is not None:
        places = places[(places >= len(old)) | ~np.isin(keys[places], late.disliked)]
        disliked = late.disliked if disliked is None else np.union1d(disliked, late.disliked)
    weights: list[Array] = [np.ones(len(part)) if part.weight is None else part.weight for part in parts]
    has_weights = any(part.weight is not None for part in parts)
    are_clocks = old.time_kind == late.time_kind == "clock"
    return Interactions(
        *np.divmod(keys[places], len(item_ids)), user_ids, item_ids,
        rating=_both(old.rating, late.rating, places),
        weight=np.concatenate(weights)[places] if has_weights else None,
        time=_both(old.time, late.time, places) if are_clocks else None,
        time_kind=late.time_kind, disliked=disliked,
    )  # fmt: skip


def _both(old: Array | None, late: Array | None, places: Codes) -> Array | None:
    """A column of both at these places; None if one of them does not have it."""
    return None if old is None or late is None else np.concatenate([old, late])[places]


def _all_ids(what: str, known: IdMap, new: IdMap) -> IdMap:
    """The ids of both; an error that names the types if they are of two."""
    try:
        return known.union(new, what)
    except InputError:
        raise InputError(
            f"the known {what} ids are of type {known.ids.type}, such as {known.ids[0].as_py()!r}, and the "
            f"new ones of type {new.ids.type}, such as {new.ids[0].as_py()!r}; convert the new ones."
        ) from None
