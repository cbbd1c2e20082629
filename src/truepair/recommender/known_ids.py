"""Ids of the caller: one or several, known to the model or not, and which users have a trained pair."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes, IdMap, canonical_ids
from truepair.errors import InputError
from truepair.evaluation.cold import History
from truepair.evaluation.metrics import Mask
from truepair.recommender.model_file import Model

Unknown = Literal["error", "drop", "popular"]

ONLY_VALIDATION = "only in validation"  # the fact: codes of users whose known pairs were all held out
WITHOUT_PAIRS = "vectors without pairs"  # the fact: codes of trained users whose pairs were all forgotten

ADDED = "added items"  # the fact: codes of items that have a vector by their features, and no trained pair

_REMEDIES = {
    "item": "unknown='drop' ignores unknown ids",
    "user": "unknown='popular' gives unknown users the most popular items, unknown='drop' leaves them out",
}


def as_ids(values: Any, what: str) -> pa.Array:
    """One id or several, as an Arrow array; a mapping is an error."""
    if isinstance(values, Mapping):
        raise InputError(
            f"{what} ids are given as a mapping, whose keys would be taken for the ids; give a list. Only "
            "exclude_items can be a mapping, of a user's id to a list of items."
        )
    if isinstance(values, str | bytes | int | uuid.UUID | np.generic):
        values = [values]
    return canonical_ids(values, what)


def codes_of(ids: IdMap, values: Any, what: str, unknown: str, remedy: str | None = None) -> Codes:
    """The codes of one id or several; an unknown one is -1, or an error if `unknown` says so."""
    array = as_ids(values, what)
    codes = ids.find(array, what)
    if unknown == "error" and (codes < 0).any():
        try:
            ids.codes(array, what)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; {remedy or _REMEDIES[what]}.") from None
    return codes


def added_items(model: Model) -> Mask:
    """Which items were added by their features."""
    codes, found = model.facts.get(ADDED, []), np.zeros(model.seen.n_items, dtype=bool)
    if not isinstance(codes, list) or not all(type(code) is int and 0 <= code < len(found) for code in codes):
        raise InputError(f"the fact {ADDED!r} is not a list of codes below {len(found)}.")
    found[codes] = True
    return found


def listed_items(model: Model) -> Mask:
    """Which items can be listed: those with a trained pair, and those that were added by their features."""
    return (model.popularity > 0) | added_items(model)


def history_of(model: Model) -> History:
    """Who has a trained pair, and what is popular.

    A split may name people who are only in its test part, or only in its validation part. Files that say
    nothing about the latter are older; their users count as trained if they have a known pair. Users whose
    pairs were all forgotten still have a trained vector.
    """
    trained = model.seen.user_counts > 0
    trained[_codes_in(model, ONLY_VALIDATION)] = False
    trained[_codes_in(model, WITHOUT_PAIRS)] = True
    return History(trained, model.popularity)


def user_lists(trained: Mask, has_pairs: Mask) -> dict[str, list[int]]:
    """The facts from which `history_of` tells who is trained: users where that differs from having a pair."""
    return {
        ONLY_VALIDATION: np.flatnonzero(~trained & has_pairs).tolist(),
        WITHOUT_PAIRS: np.flatnonzero(trained & ~has_pairs).tolist(),
    }


def _codes_in(model: Model, fact: str) -> list[int]:
    """The codes of users that a fact of the model lists."""
    codes, n = model.facts.get(fact, []), model.seen.n_users
    if not isinstance(codes, list) or not all(type(code) is int and 0 <= code < n for code in codes):
        raise InputError(f"the fact {fact!r} is not a list of codes below {n}.")
    return codes
