"""Bayesian personalised ranking, with implicit's interface."""

from __future__ import annotations

from truepair.adapters.implicit.model import PairwiseModel
from truepair.losses import BPR, Loss


class BayesianPersonalizedRanking(PairwiseModel):
    """BPR: ranks the items of a user above the others; see `PairwiseModel` for the parameters.

    >>> import scipy.sparse as sp
    >>> user_items = sp.csr_matrix([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    >>> model = BayesianPersonalizedRanking(factors=4, iterations=20, random_state=0)
    >>> model.fit(user_items, show_progress=False)
    >>> ids, scores = model.recommend(0, user_items[0], N=2)
    >>> sorted(ids.tolist())
    [2, 3]
    """

    _kind = "implicit.bpr"

    def _loss(self) -> Loss:
        return BPR()
