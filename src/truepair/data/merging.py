"""Merging: known interactions and new ones as one, with the ids of both."""

from __future__ import annotations

from typing import Any

import numpy as np

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions, Values
from truepair.errors import InputError


def merged(known: Interactions, new: Interactions) -> Interactions:
    """The pairs of both; of a pair that both have, the rating, weight and time of `new` are kept.

    A column that only one of the two has is left out, apart from the weight: a pair without one has 1.
    """
    user_ids = _all_ids("user", known.user_ids, new.user_ids)
    item_ids = _all_ids("item", known.item_ids, new.item_ids)
    users, items = (
        [ids.find(getattr(part, f"{side}_ids"), side)[getattr(part, f"{side}s")] for part in (known, new)]
        for side, ids in (("user", user_ids), ("item", item_ids))
    )
    keys = np.concatenate([u * len(item_ids) + i for u, i in zip(users, items, strict=True)])
    # of equal keys, `np.unique` gives the first place: in the reversed order, that of the new pair
    places = len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]
    columns: dict[str, Any] = {name: column[places] for name, column in _columns(known, new).items()}
    pairs = np.concatenate(users)[places], np.concatenate(items)[places]
    return Interactions(*pairs, user_ids, item_ids, **columns, time_kind=new.time_kind)


def _all_ids(what: str, known: IdMap, new: IdMap) -> IdMap:
    """The ids of both; an error that names the types if they are of two."""
    try:
        return known.union(new, what)
    except InputError:
        raise InputError(
            f"the known {what} ids are of type {known.ids.type}, such as {_example(known)}, and the new ones "
            f"of type {new.ids.type}, such as {_example(new)}; convert the new ones."
        ) from None


def _example(ids: IdMap) -> str:
    return repr(ids.ids[0].as_py())


def _columns(known: Interactions, new: Interactions) -> dict[str, Values]:
    """The columns of the pairs of both, one after the other."""
    found: dict[str, Values] = {}
    for name in ("rating", "weight", "time"):
        both = [getattr(part, name) for part in (known, new)]
        if name == "weight" and any(column is not None for column in both):
            both = [
                np.ones(len(part)) if column is None else column
                for column, part in zip(both, (known, new), strict=True)
            ]
        comparable = name != "time" or known.time_kind == new.time_kind == "clock"
        if comparable and all(column is not None for column in both):
            found[name] = np.concatenate(both)
    return found
