"""Users without history: who has no trained pair, and what an evaluation does with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice
from truepair.evaluation.metrics import Mask

Cold = Literal["popular", "separate", "error", "model"]

COLD: dict[str, str] = {
    "popular": "they get the most popular items, and count in the mean",
    "separate": "they get the most popular items, and are left out of the mean",
    "error": "raise an error that says how many they are",
    "model": "the matrices rank for them too, and they count in the mean",
}
"""Policies for users without a trained pair."""

SERVING = ("popular", "separate", "error")
"""Those of commands and of `recommend`, where no list comes from an untrained vector."""


@dataclass(frozen=True, eq=False)
class History:
    """Who has a trained pair, and how many users each item has in training."""

    users: Mask  # (n_users,)
    popularity: Codes  # (n_items,)

    @staticmethod
    def of(train: Interactions) -> History:
        """That of the pairs that a model was trained on."""
        return History(train.user_counts > 0, train.item_counts)


def history_of(model: object, train: Interactions) -> History:
    """The history that the model knows, if it is a Recommender; else that of `train`.

    It is an error if a Recommender has other ids than `train`: a code would mean another user or item.
    """
    known, seen = getattr(model, "history_", None), getattr(model, "seen_", train)
    if known is None or (len(known.users), len(known.popularity)) != (train.n_users, train.n_items):
        return History.of(train)
    for what in ("user_ids", "item_ids"):
        trained, given = getattr(seen, what), getattr(train, what)
        if trained != given:
            raise InputError(
                f"the model was fitted on other {what.replace('_', ' ')} than those of target, exclude or "
                f"train: {trained!r}, not {given!r}; fit and evaluate on parts of one split."
            )
    return History(np.asarray(known.users), np.asarray(known.popularity))


def check_cold(cold: str, n_cold: int, n_users: int) -> None:
    """Raise if the policy is not known, or if it is "error" and there are users without a trained pair."""
    check_choice("cold", cold, COLD)
    if cold == "error" and n_cold:
        raise InputError(
            f"{n_cold:,} of {n_users:,} users have no trained pair, so the model knows nothing about them; "
            "use cold='popular' to give them the most popular items, or cold='separate' to leave them out."
        )


def counted(cold: str, is_cold: Mask) -> Mask:
    """Who counts in the means: with "separate", only users with a trained pair."""
    return ~is_cold if cold == "separate" else np.ones(len(is_cold), dtype=bool)


def check_history(cold: str, is_cold: Mask, what: str) -> None:
    """`check_cold` of the users of `what`; it is an error, too, if none of them has a trained pair."""
    check_cold(cold, int(is_cold.sum()), len(is_cold))
    if is_cold.all():
        raise InputError(
            f"none of the {len(is_cold):,} users of {what} has a training interaction; evaluate users that "
            "the model was trained on, with train and target of one split."
        )


def check_same_ids(what: str, part: Interactions, train: Interactions) -> None:
    """Raise if codes of `part` mean other users or items than those of `train`."""
    if (part.user_ids, part.item_ids) != (train.user_ids, train.item_ids):
        raise InputError(
            f"{what} and train have other ids, so the same code means another user or item; use parts of one "
            "split, or split_given, which merges the ids of separate parts."
        )
