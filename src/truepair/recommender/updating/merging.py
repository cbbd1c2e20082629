"""Merging: known interactions and new ones as one, with the ids of both."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions, Values
from truepair.errors import InputError


def merged(known: Interactions, new: Interactions) -> Interactions:
    """The pairs and dislikes of both; a pair that both have gets the rating, weight and time of `new`.

    What is new counts: a pair that is disliked now is no longer liked, and the other way round. A column that
    only one of the two has is left out, apart from the weight: a pair without one has 1.
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
    disliked = _disliked(known, new, user_ids, item_ids)
    if disliked.new is not None:
        places = places[(places >= len(known)) | ~np.isin(keys[places], disliked.new)]
    columns: dict[str, Any] = {name: column[places] for name, column in _columns(known, new).items()}
    pairs = np.concatenate(users)[places], np.concatenate(items)[places]
    left = disliked.all_of(keys[len(known) :])
    return Interactions(*pairs, user_ids, item_ids, **columns, time_kind=new.time_kind, disliked=left)


class _Disliked(NamedTuple):
    """The keys of the dislikes of both, in the codes of all ids."""

    known: Codes | None
    new: Codes | None

    def all_of(self, liked: Codes) -> Codes | None:
        """All of them but the known ones that are liked now."""
        known = None if self.known is None else np.setdiff1d(self.known, liked)
        found = [keys for keys in (known, self.new) if keys is not None]
        return np.unique(np.concatenate(found)) if found else None


def _disliked(known: Interactions, new: Interactions, user_ids: IdMap, item_ids: IdMap) -> _Disliked:
    both = (
        part.recoded_dislikes(
            user_ids.find(part.user_ids, "user"), item_ids.find(part.item_ids, "item"), len(item_ids)
        )
        for part in (known, new)
    )
    return _Disliked(*both)


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
