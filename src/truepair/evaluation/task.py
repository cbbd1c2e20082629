"""Task: the target of an evaluation, checked once, and the ranking that is measured against it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_type
from truepair.evaluation.metrics import Hits
from truepair.models.factor_matrices import n_rows
from truepair.ranking.selection import Exclude, Matrix, as_masks, check_shapes, has_pairs, top_k


@dataclass(frozen=True, eq=False)
class Task:
    """A valid target: at least one pair, none of them excluded, of users who were trained on."""

    target: Interactions
    masks: tuple[Interactions, ...]  # excluded from the lists
    train: Interactions  # what the model was trained on

    @staticmethod
    def checked(target: Interactions, exclude: Exclude, train: Interactions | None) -> Task:
        """The task, or an error that says why it is invalid; `train` is by default the first of `exclude`."""
        check_type("target", target, Interactions, "give a Split, or a part such as split.test")
        masks = as_masks(exclude)
        if train is None and not masks:
            raise InputError("exclude is empty and train is not given; pass the train part as exclude.")
        task = Task(target, masks, masks[0] if train is None else train)
        task._check_codes()
        task._check_target()
        return task

    @cached_property
    def users(self) -> Codes:
        """The users with one target item or more, rising (n,)."""
        return np.flatnonzero(self.target.user_counts)

    @cached_property
    def n_target(self) -> Codes:
        """How many target items each of `users` has (n,)."""
        return self.target.user_counts[self.users]

    def ranked(self, users: Matrix, items: Matrix, k: int) -> tuple[Codes, Hits]:
        """The listed items (n, k), -1 for none, and which of them are target items (n, k)."""
        check_shapes((n_rows(users), n_rows(items)), [self.target], "target")
        listed = top_k(users, items, k, rows=self.users, exclude=self.masks).items
        hits = has_pairs(self.target, np.repeat(self.users, k), listed.ravel())
        return listed, hits.reshape(listed.shape)

    def _check_codes(self) -> None:
        target = self.target
        check_shapes((target.n_users, target.n_items), self.masks)
        check_shapes((target.n_users, target.n_items), [self.train], "train")
        for other in (*self.masks, self.train):
            if (other.user_ids, other.item_ids) != (target.user_ids, target.item_ids):
                raise InputError(
                    "target and exclude or train have other ids, so the same code means another user or "
                    "item; use parts of one split, which share their codes."
                )

    def _check_target(self) -> None:
        if len(self.target) == 0:
            raise InputError(
                "nothing to evaluate: target has no pairs; give the split a larger held-out share."
            )
        hidden = np.zeros(len(self.target), dtype=bool)
        for mask in self.masks:
            hidden |= has_pairs(mask, self.target.users, self.target.items)
        if hidden.any():
            raise InputError(
                f"{hidden.sum():,} of {len(hidden):,} target pairs are also in exclude, so no list can hold "
                "them; exclude only what came before the target."
            )
        if not self.train.user_counts[self.users].any():
            raise InputError(
                f"none of the {len(self.users):,} users of target has a training interaction; "
                "use train and target of one split that keeps each user in both."
            )
