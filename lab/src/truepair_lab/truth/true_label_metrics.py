"""Quality: a ranking against true labels, over the judged pairs alone."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from truepair.evaluation.metrics import METRICS, Floats
from truepair_lab.truth.cases import Mask, TruthCase

KS = (5, 20)


def judged_users(case: TruthCase) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Users that can be judged: something learnt from, a judged positive and a judged negative."""
    positive = (case.truth & case.judged).any(axis=1)
    negative = (~case.truth & case.judged).any(axis=1)
    return np.flatnonzero(positive & negative & (case.train.user_counts > 0))


def quality(case: TruthCase, users: Tensor, items: Tensor) -> dict[str, float]:
    """NDCG and recall at 5 and 20, and AUC: means over the users that can be judged.

    A user's list ranks the judged pairs, whose labels are all known; of equal scores the first item.
    """
    rows = judged_users(case)
    positive, judged = (case.truth & case.judged)[rows], case.judged[rows]
    auc = _auc(_judged_scores(case, users, items).double().numpy(), positive, judged)
    return list_quality(case, users, items) | {"auc": float(auc.mean())}


def list_quality(case: TruthCase, users: Tensor, items: Tensor) -> dict[str, float]:
    """The same without the AUC, which takes the longest."""
    rows, scores = judged_users(case), _judged_scores(case, users, items)
    positive = (case.truth & case.judged)[rows]
    listed = scores.topk(min(KS[-1], scores.shape[1]), dim=1).indices.numpy()
    hits, n_positive = np.take_along_axis(positive, listed, axis=1), positive.sum(axis=1)
    return {
        f"{name}@{k}": float(METRICS[name](hits[:, :k], n_positive).mean())
        for name in ("ndcg", "recall")
        for k in KS
    }


def _judged_scores(case: TruthCase, users: Tensor, items: Tensor) -> Tensor:
    """(n, I): the scores of users that can be judged, −∞ for pairs that are not."""
    rows = judged_users(case)
    scores = users[rows] @ items.T
    return scores.masked_fill_(torch.from_numpy(~case.judged[rows]), -torch.inf)


def _auc(scores: Floats, positive: Mask, judged: Mask) -> Floats:
    """Each user's chance that a judged positive scores above a judged negative; a tie counts ½."""
    ranks = rankdata(scores, axis=1) - (~judged).sum(axis=1, keepdims=True)  # what is not judged lies below
    n_positive, n_judged = positive.sum(axis=1), judged.sum(axis=1)
    above = (ranks * positive).sum(axis=1) - n_positive * (n_positive + 1) / 2
    return np.asarray(above / (n_positive * (n_judged - n_positive)))
