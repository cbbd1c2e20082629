"""Task: the target of an evaluation, checked once, and the lists that are measured against it; Validation.

Users without history, who have no trained pair, are ranked and counted by a policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, Protocol

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice, check_type, settle
from truepair.evaluation.metrics import METRICS, Floats, Hits, Mask, parse_metric
from truepair.models.factor_matrices import n_rows
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import Matrix, PreparedItems, TopK, checked_matrices, tie_order
from truepair.ranking.selection import Exclude, as_masks, check_shapes, has_pairs, hidden_from
from truepair.ranking.sharded_top_k import sharded_top_k
from truepair.storage.types import Array

Ranker = Callable[[int, Hidden, Codes], TopK]
"""The best k items of these users, without those that are hidden from each."""

# --- users without history -----------------------------------------------------------------------------

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
    """Who has a trained pair, and how popular each item is: by default its number of users in training."""

    users: Mask  # (n_users,)
    popularity: Array  # (n_items,)


def history_of(model: object, train: Interactions) -> History:
    """The history that the model knows, if it is a Recommender; else that of `train`.

    It is an error if a Recommender has other ids than `train`: a code would mean another user or item.
    """
    known, seen = getattr(model, "history_", None), getattr(model, "seen_", train)
    if known is None or (len(known.users), len(known.popularity)) != (train.n_users, train.n_items):
        return History(train.user_counts > 0, train.item_counts)
    for what in ("user_ids", "item_ids"):
        trained, given = getattr(seen, what), getattr(train, what)
        if trained != given:
            raise InputError(
                f"the model was fitted on other {what.replace('_', ' ')} than those of target, exclude or "
                f"train: {trained!r}, not {given!r}; fit and evaluate on parts of one split."
            )
    return History(np.asarray(known.users), np.asarray(known.popularity))


def check_cold(cold: str, is_cold: Mask, evaluated: str = "") -> None:
    """Raise if the policy is not known, or if it is "error" and there are users without a trained pair.

    `evaluated` names what is evaluated, if anything is; then some of its users must have a trained pair.
    """
    check_choice("cold", cold, COLD)
    if cold == "error" and is_cold.any():
        raise InputError(
            f"{is_cold.sum():,} of {len(is_cold):,} users have no trained pair, so the model knows nothing "
            "about them; use cold='popular' to give them the most popular items, or cold='separate' to leave "
            "them out."
        )
    if evaluated and is_cold.all():
        raise InputError(
            f"none of the {len(is_cold):,} users of {evaluated} has a training interaction; evaluate users "
            "that the model was trained on, with train and target of one split."
        )


def check_same_ids(what: str, part: Interactions, train: Interactions) -> None:
    """Raise if codes of `part` mean other users or items than those of `train`."""
    if (part.user_ids, part.item_ids) != (train.user_ids, train.item_ids):
        raise InputError(
            f"{what} and train have other ids, so the same code means another user or item; use parts of one "
            "split, or split_given, which merges the ids of separate parts."
        )


# --- the target -----------------------------------------------------------------------------------------


class Task:
    """A valid target: at least one pair, none of them excluded, of users some of whom were trained on.

    `train` is by default the first of `exclude`. What a Recommender knows about its users replaces what
    `train` says. An invalid task is an error that says why.
    """

    def __init__(
        self,
        target: Interactions,
        exclude: Exclude | None,
        train: Interactions | None = None,
        cold: Cold = "popular",
        model: object = None,
    ) -> None:
        check_type("target", target, Interactions, "give a Split, or a part such as split.test")
        self.target, self.masks, self.cold = target, as_masks(exclude), cold
        if train is None and not self.masks:
            raise InputError("exclude is empty and train is not given; pass the train part as exclude.")
        self.train = self.masks[0] if train is None else train
        self.history = history_of(model, self.train)  # who has a trained pair, and what is popular
        shape = (target.n_users, target.n_items)
        check_shapes(shape, self.masks)
        check_shapes(shape, [self.train], "train")
        for part in (target, *self.masks):
            check_same_ids("target or exclude", part, self.train)
        if len(target) == 0:
            raise InputError(
                "nothing to evaluate: target has no interactions; give the split a larger held-out share."
            )
        is_hidden = np.zeros(len(target), dtype=bool)
        for mask in self.masks:
            is_hidden |= has_pairs(mask, target.users, target.items)
        if n_hidden := int(is_hidden.sum()):
            raise InputError(
                f"{n_hidden:,} of {len(target):,} target interactions are also in exclude, so no list can "
                "hold them; exclude only what came before the target."
            )
        self.users = np.flatnonzero(target.user_counts)  # (n,) those with one target item or more, rising
        self.n_target = target.user_counts[self.users]  # (n,) how many target items each of them has
        self.is_cold = ~self.history.users[self.users]  # (n,) which of them have no trained pair
        check_cold(cold, self.is_cold, "target")
        self.hidden = hidden_from(self.users, self.masks)  # what their lists must not hold

    def ranker(self, users: Matrix, items: Matrix) -> Ranker:
        """That of these matrices, for `listed`."""
        vectors, rows = checked_matrices(users, items)
        check_shapes((n_rows(vectors), n_rows(rows)), [self.target], "target")
        prepared = PreparedItems(rows, tie_order(n_rows(rows)))
        return partial(prepared.top_k, vectors)

    def listed(self, best_items: Ranker, k: int) -> tuple[Codes, Hits]:
        """The listed items (n, k), -1 for none, and which of them are target items (n, k).

        Users without a trained pair get the most popular items, unless the policy is "model".
        """
        popular_only = self.is_cold & (self.cold != "model")
        ranked, others = np.flatnonzero(~popular_only), np.flatnonzero(popular_only)
        listed = np.empty((len(self.users), k), dtype=np.int64)
        listed[ranked] = best_items(k, self.hidden.take(ranked), self.users[ranked]).items
        if len(others):
            popular = self.ranker(np.ones((self.target.n_users, 1)), self.history.popularity[:, None])
            listed[others] = popular(k, self.hidden.take(others), self.users[others]).items
        hits = has_pairs(self.target, np.repeat(self.users, k), listed.ravel())
        return listed, hits.reshape(listed.shape)


# --- scores during training --------------------------------------------------------------------------


class HasMatrices(Protocol):
    """Anything with a user matrix and an item matrix: a fitted model, a fit result, a fit in progress."""

    def matrices(self) -> tuple[Matrix, Matrix]:
        """(users (n_users, d), items (n_items, d))."""


@dataclass(frozen=True, eq=False, repr=False)
class Validation:
    """One number for a model in training: the mean of `metric` on `target`. Higher is better.

    It is the mean that `evaluate` finds. Users without a pair in the train part, the first of `exclude`, get
    the most popular items, so that they have no say in the choice of an epoch; see `cold` there.
    """

    target: Interactions
    exclude: Exclude
    metric: str = "ndcg@20"
    cold: Cold = "popular"
    _task: Task = field(init=False)

    def __post_init__(self) -> None:
        _, k = parse_metric(self.metric)
        if k > self.target.n_items:
            raise InputError(
                f"metric = {self.metric!r}, but the catalogue has {self.target.n_items} items; lower K."
            )
        settle(self, _task=Task(self.target, self.exclude, cold=self.cold))

    @cached_property
    def identity(self) -> str:
        """A text that states what is measured on which data."""
        known = ", ".join(part.hash for part in self._task.masks)
        # "popular" adds nothing, like "model", which checkpoints of earlier versions have: these go on
        policy = ", cold=separate" if self.cold == "separate" and self._task.is_cold.any() else ""
        return f"{self.metric} on {self.target.hash} without {known}{policy}"

    def score(self, users: Matrix, items: Matrix) -> float:
        """The mean of the metric for these two matrices."""
        return float(self.values(users, items).mean())

    def values(self, users: Matrix, items: Matrix) -> Floats:
        """The metric of each user who counts."""
        return self._values(self._task.ranker(users, items))

    def _values(self, best_items: Ranker) -> Floats:
        name, k = parse_metric(self.metric)
        _, hits = self._task.listed(best_items, k)
        return METRICS[name](hits, self._task.n_target)[~self._task.is_cold | (self.cold != "separate")]

    def __call__(self, model: HasMatrices) -> float:
        """The score of the matrices that the model has now.

        Matrices that are divided among processes are ranked where they are.
        """
        shards = getattr(model, "shards", None)
        best = self._task.ranker(*model.matrices()) if shards is None else partial(sharded_top_k, shards)
        return float(self._values(best).mean())

    def __repr__(self) -> str:
        return f"<Validation: {self.metric} over {len(self.target):,} interactions>"
