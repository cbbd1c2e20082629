"""Task: the target of an evaluation, checked once, and the ranking that is measured against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_type
from truepair.evaluation.cold import Cold, History, check_history, check_same_ids, history_of
from truepair.evaluation.metrics import Hits, Mask
from truepair.models.factor_matrices import n_rows
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import Matrix, PreparedItems, TopK, checked_matrices, tie_order
from truepair.ranking.selection import Exclude, as_masks, check_shapes, has_pairs, hidden_from

Ranker = Callable[[int, Codes, Hidden], TopK]
"""The best k items of these users, without those that are hidden from each."""


@dataclass(frozen=True, eq=False)
class Task:
    """A valid target: at least one pair, none of them excluded, of users some of whom were trained on."""

    target: Interactions
    masks: tuple[Interactions, ...]  # excluded from the lists
    train: Interactions  # what the model was trained on
    history: History  # who has a trained pair, and what is popular
    cold: Cold = "popular"  # the policy for users without one

    @staticmethod
    def checked(
        target: Interactions,
        exclude: Exclude | None,
        train: Interactions | None,
        cold: Cold = "popular",
        model: object = None,
    ) -> Task:
        """The task, or an error that says why it is invalid; `train` is by default the first of `exclude`.

        What a Recommender knows about its users replaces what `train` says.
        """
        check_type("target", target, Interactions, "give a Split, or a part such as split.test")
        masks, shape = as_masks(exclude), (target.n_users, target.n_items)
        if train is None and not masks:
            raise InputError("exclude is empty and train is not given; pass the train part as exclude.")
        train = masks[0] if train is None else train
        task = Task(target, masks, train, history_of(model, train), cold)
        check_shapes(shape, masks)
        check_shapes(shape, [train], "train")
        for part in (target, *masks):
            check_same_ids("target or exclude", part, train)
        if len(target) == 0:
            raise InputError(
                "nothing to evaluate: target has no interactions; give the split a larger held-out share."
            )
        is_hidden = np.zeros(len(target), dtype=bool)
        for mask in masks:
            is_hidden |= has_pairs(mask, target.users, target.items)
        if n_hidden := int(is_hidden.sum()):
            raise InputError(
                f"{n_hidden:,} of {len(target):,} target interactions are also in exclude, so no list can "
                "hold them; exclude only what came before the target."
            )
        check_history(cold, task.is_cold, "target")
        return task

    @cached_property
    def users(self) -> Codes:
        """The users with one target item or more, rising (n,)."""
        return np.flatnonzero(self.target.user_counts)

    @cached_property
    def n_target(self) -> Codes:
        """How many target items each of `users` has (n,)."""
        return self.target.user_counts[self.users]

    @cached_property
    def is_cold(self) -> Mask:
        """Which of `users` have no trained pair (n,)."""
        return ~self.history.users[self.users]

    @cached_property
    def hidden(self) -> Hidden:
        """What the lists of `users` must not hold."""
        return hidden_from(self.users, self.masks)

    def ranker(self, users: Matrix, items: Matrix) -> Ranker:
        """That of these matrices, for `listed`."""
        vectors, rows = checked_matrices(users, items)
        check_shapes((n_rows(vectors), n_rows(rows)), [self.target], "target")
        prepared = PreparedItems(rows, tie_order(n_rows(rows)))
        return lambda k, codes, hidden: prepared.top_k(vectors, k, hidden, codes)

    def listed(self, best_items: Ranker, k: int) -> tuple[Codes, Hits]:
        """The listed items (n, k), -1 for none, and which of them are target items (n, k).

        Users without a trained pair get the most popular items, unless the policy is "model".
        """
        popular_only = self.is_cold & (self.cold != "model")
        ranked, others = np.flatnonzero(~popular_only), np.flatnonzero(popular_only)
        listed = np.empty((len(self.users), k), dtype=np.int64)
        listed[ranked] = best_items(k, self.users[ranked], self.hidden.take(ranked)).items
        if len(others):
            popular = self.ranker(np.ones((self.target.n_users, 1)), self.history.popularity[:, None])
            listed[others] = popular(k, self.users[others], self.hidden.take(others)).items
        hits = has_pairs(self.target, np.repeat(self.users, k), listed.ravel())
        return listed, hits.reshape(listed.shape)
