"""Judged candidates: pairs whose labels are known, ranked among themselves."""

from __future__ import annotations

import numpy as np
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.errors import InputError, check_type
from truepair.evaluation.metrics import Floats, Hits, Mask
from truepair.evaluation.task import Cold, check_cold, check_same_ids, history_of
from truepair.models.factor_matrices import dot_rows, n_rows
from truepair.ranking.prepared_items import Matrix, checked_matrices, tie_order
from truepair.ranking.selection import check_shapes
from truepair.storage.types import Table


class Judged:
    """Candidates with labels. A user who can be evaluated has a positive and a negative among them.

    They are those of a table with labels, or those of two Interactions, where the pairs of `target` are
    positive. `train` is by default what a Recommender knows. Invalid candidates are an error.
    """

    def __init__(
        self, table: Table, target: Interactions | None, train: Interactions | None, cold: Cold, model: object
    ) -> None:
        train = getattr(model, "seen_", None) if train is None else train
        if train is None:
            raise InputError(
                "with candidates, train is needed: give the interactions that the model was trained on."
            )
        self.train, self.cold, self.history = train, cold, history_of(model, train)
        if target is None:  # users may be unknown to the model: code -1; the items are those of the model
            self.candidates, self.positive = _labelled(table, train.item_ids)
            self.codes = train.user_ids.find(self.candidates.user_ids, "user")[self.candidates.users]
        else:
            self.candidates, self.positive = _of_target(table, target, train)
            self.codes = self.candidates.users
        pairs = self.candidates
        self.n_positive = np.bincount(pairs.users[self.positive], minlength=pairs.n_users)
        # (n,) codes of `candidates`, rising
        self.users = np.flatnonzero((self.n_positive > 0) & (self.n_positive < pairs.user_counts))
        if not len(self.users):
            raise InputError(
                f"no user has a positive and a negative one among the {len(pairs):,} candidates, so no order "
                "can be judged; give candidates with both labels."
            )
        self.n_target = self.n_positive[self.users]  # (n,) how many positive candidates each of them has
        first = self.codes[pairs.indptr[self.users]]
        self.is_cold = (first < 0) | ~self.history.users[first]  # (n,) which of them have no trained pair
        check_cold(cold, self.is_cold, "the candidates")
        known = self.codes >= 0
        if seen := int(train.has(self.codes[known], pairs.items[known]).sum()):
            raise InputError(
                f"{seen:,} of {len(pairs):,} candidates are also in train, so the model would be evaluated "
                "on what it has learnt; remove them from the candidates."
            )

    def ranked(self, users: Matrix, items: Matrix, k: int) -> tuple[Hits, Floats]:
        """Which of the best k candidates are positive (n, k), and the AUC (n,); for each of `users`.

        Equal scores are ordered as in `top_k`. Positions after the last candidate are no hits.
        """
        pairs, scores = self.candidates, self._scores(users, items)
        rank = np.argsort(tie_order(pairs.n_items))[pairs.items]
        order = np.lexsort((rank, -scores, pairs.users))
        place = np.arange(len(pairs)) - pairs.indptr[pairs.users]  # in the user's list
        listed = (place < k) & self.positive[order]
        hits = np.zeros((pairs.n_users, k), dtype=bool)
        hits[pairs.users[listed], place[listed]] = True
        return hits[self.users], self._auc(scores, order)[self.users]

    def _scores(self, users: Matrix, items: Matrix) -> Floats:
        """Scores of the candidates; for users without a trained pair, the popularity of the item."""
        matrices = checked_matrices(users, items)
        check_shapes((n_rows(matrices[0]), n_rows(matrices[1])), [self.train], "train")
        scores = self.history.popularity[self.candidates.items].astype(np.float64)
        known = self.codes >= 0
        if self.cold != "model":
            known &= self.history.users[self.codes]
        rows, columns = (m.cpu() if isinstance(m, torch.Tensor) else m for m in matrices)
        scores[known] = dot_rows(rows, columns, self.codes[known], self.candidates.items[known])
        return scores

    def _auc(self, scores: Floats, order: Codes) -> Floats:
        """The share of each user's (positive, negative) pairs whose positive scores higher; a tie is ½."""
        pairs = self.candidates
        ordered, users = scores[order], pairs.users
        starts = np.flatnonzero((np.diff(users, prepend=-1) != 0) | (np.diff(ordered, prepend=np.nan) != 0))
        sizes = np.diff(starts, append=len(ordered))
        # the mean rank from the end, where 1 is last
        behind = pairs.indptr[users[starts] + 1] - starts - (sizes - 1) / 2
        ranks = np.repeat(behind, sizes)
        sums = np.bincount(users, ranks * self.positive[order], pairs.n_users)
        n, m = self.n_positive, pairs.user_counts - self.n_positive
        return np.asarray((sums - n * (n + 1) / 2) / np.maximum(n * m, 1))


def _labelled(table: Table, item_ids: IdMap) -> tuple[Interactions, Mask]:
    """The pairs of a table with a column `label`, with the items of the model."""
    found = table
    if not isinstance(table, Interactions):
        found = read_interactions(table, rating="label", weight=False, time=False, duplicates="error")
    if found.rating is None or not np.isin(found.rating, (0, 1)).all():
        raise InputError(
            "candidates must have the column label, which is 1 for a positive pair and 0 for a negative one; "
            "make it from ratings, such as label = rating >= 4."
        )
    items = item_ids.codes(found.item_ids, "item")[found.items]
    pairs = Interactions(found.users, items, found.user_ids, item_ids, rating=found.rating)
    assert pairs.rating is not None
    return pairs, pairs.rating == 1


def _of_target(candidates: Table, target: Interactions, train: Interactions) -> tuple[Interactions, Mask]:
    check_type(
        "candidates", candidates, Interactions, "with a target, give the candidates as Interactions too"
    )
    for what, part in (("candidates", candidates), ("target", target)):
        check_same_ids(what, part, train)
    missing = int((~candidates.has(target.users, target.items)).sum())
    if missing:
        raise InputError(
            f"{missing:,} of {len(target):,} target interactions are not among the candidates; give all "
            "judged pairs as candidates, positive and negative."
        )
    return candidates, target.has(candidates.users, candidates.items)
