"""The blend with EASE, chosen on held-out pairs: whether, with which regularisation, with which weight."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.evaluation.metrics import METRICS, Floats, parse_metric
from truepair.models.closed_forms import EASE
from truepair.models.factor_matrices import dense
from truepair.randomness import random_order, stream_key
from truepair.ranking.prepared_items import tie_order
from truepair.ranking.torch_top_k import best_columns

MOST_ITEMS = 10_000  # the weights of a blend are a dense matrix of items x items
POWER = 0.25  # of users and items: between .1 and .35 on every dataset that was searched
FEWEST_SOLVED = 3  # regularisations; where the training is too short beside them, there is no blend
_SCORES = 40_000_000  # of the users whose lists judge a blend, for all items
_FIRST_L2, _RATIO = 500.0, 3.0
_LEAST_L2, _MOST_L2 = 5.0, 2e6
_WEIGHTS = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)  # in units of 1 / temperature, the scale of the trained scores
_LISTED = 60  # counted work of a score that is masked and ranked
_SOLVED = 0.7  # counted work of EASE's inverse, for each cube of items


def ranking_work(n_users: int, n_items: int, dim: int) -> float:
    """The counted work of lists for these users; the unit is that of `step_work`."""
    return float(n_users * n_items * (_LISTED + dim))


def regularisation_work(train: Interactions, valid: Interactions) -> float:
    """The counted work of one regularisation of EASE: solved, and judged with all weights."""
    rows, n_items = (valid.user_counts > 0) & (train.user_counts > 0), train.n_items
    n_rows = int(rows.sum())
    n_users = min(n_rows, _SCORES // n_items)
    n_scores = int(train.user_counts[rows].sum()) * n_users // max(n_rows, 1) * n_items
    return _SOLVED * n_items**3 + n_scores + ranking_work(n_users, n_items, (len(_WEIGHTS) - 1) * _LISTED)


class BlendChoice(NamedTuple):
    """The chosen EASE and weight (None: no blend is better), and the scores that decided."""

    ease: EASE | None
    weight: float
    scores: Tensor
    """[n, items] of the judge, with the blend if it is chosen."""
    alone: float
    blended: float
    tried: list[dict[str, float]]
    """Regularisations: `l2`, the best `weight`, and its `score`."""


def choose_blend(
    judge: Judge, own: Tensor, train: Interactions, temperature: float, seconds: float = math.inf,
    most: int | None = None,
) -> BlendChoice:  # fmt: skip
    """The best of EASE's regularisations and weights beside a trained model's own scores.

    Regularisations go by factors of 3 from 500 in the direction that improves, at most `most` of them and as
    long as there are `seconds` for two more. A blend is chosen only if its gain over the trained model is
    larger than the standard error of that gain.
    """
    alone = judge.per_user(own)
    best_scores = own
    tried, scores = list[dict[str, float]](), dict[float, float]()
    chosen, weight, blended, best = EASE(), 0.0, -math.inf, alone
    began = time.perf_counter()
    for l2 in _regularisations(scores):
        passed = time.perf_counter() - began
        if tried and (len(tried) == most or passed + 2 * passed / len(tried) > seconds):
            break
        ease = EASE(l2=l2, user_power=POWER, item_power=POWER)
        added, top, top_weight = judge.ease_scores(ease, train), -math.inf, 0.0
        for unit in _WEIGHTS:
            scores_of_both = own + added * (unit / temperature)
            each = judge.per_user(scores_of_both)
            if (mean := float(each.mean())) > top:
                top, top_weight = mean, float(f"{unit / temperature:.4g}")
            if mean > blended:
                chosen, weight, blended, best, best_scores = ease, top_weight, mean, each, scores_of_both
        scores[l2] = round(top, 6)
        tried.append({"l2": l2, "weight": top_weight, "score": scores[l2]})
    is_better = is_clear(best - alone)
    return BlendChoice(
        chosen if is_better else None,
        weight,
        best_scores if is_better else own,
        round(float(alone.mean()), 6),
        round(blended, 6),
        tried,
    )


def is_clear(gain: Floats) -> bool:
    """Whether the mean of the gains of users is larger than its standard error."""
    return len(gain) > 1 and float(gain.mean()) > float(gain.std(ddof=1)) / math.sqrt(len(gain))


def _regularisations(scores: Mapping[float, float]) -> Iterator[float]:
    """The first regularisation and its neighbours, then further in the direction of the best one."""
    yield _FIRST_L2
    yield float(f"{_FIRST_L2 / _RATIO:.3g}")
    yield _FIRST_L2 * _RATIO
    while True:
        low, high, best = min(scores), max(scores), max(scores, key=scores.__getitem__)
        further = float(f"{best * _RATIO if best == high else best / _RATIO:.3g}")
        if low < best < high or not _LEAST_L2 <= further <= _MOST_L2:
            return
        yield further


@dataclass(frozen=True)
class Judge:
    """Dense scores of some of the held-out users, and the metric of the lists that they give."""

    rows: Codes
    history: sp.csr_array  # of these users
    order: Tensor  # column -> item, in scores, `seen` and `target`
    seen: Tensor  # [n, items], what is not listed: what users have, and untrained items
    target: Tensor  # [n, items], what is held out
    new_users: Floats  # [items], what users without history took, of trained items; each of them counts once
    metric: str

    @staticmethod
    def of(train: Interactions, valid: Interactions, metric: str, seed: int, device: torch.device) -> Judge:
        """Some of the users with held-out and trained pairs, as many as fit."""
        rows = np.flatnonzero((valid.user_counts > 0) & (train.user_counts > 0))
        if not len(rows):
            raise InputError("no user has held-out and trained pairs, so that no blend can be chosen.")
        sampled = random_order(stream_key(seed, int.from_bytes(b"blend", "big")), len(rows))
        rows = np.sort(rows[sampled[: _SCORES // train.n_items]])
        history = sp.csr_array(train.weighted_csr()[rows])  # weights are above 0
        seen = torch.from_numpy(history.toarray()).to(device) > 0
        if train.dislikes is not None:
            seen |= torch.from_numpy(train.dislikes.csr()[rows].toarray()).to(device) > 0
        untrained = train.item_counts == 0
        seen |= torch.from_numpy(untrained).to(device)
        target = torch.from_numpy(valid.csr()[rows].toarray()).to(device) > 0
        of_new = (train.user_counts[valid.users] == 0) & ~untrained[valid.items]
        users, items = valid.users[of_new], valid.items[of_new]
        once: Floats = 1 / np.bincount(users)[users]
        new_users = np.bincount(items, once, minlength=train.n_items).astype(np.float64)
        order = torch.tensor(tie_order(train.n_items), device=device)
        return Judge(rows, history, order, seen[:, order], target[:, order], new_users, metric)

    def some(self, n: int) -> Judge:
        """With the first n of the users."""
        parts = {name: getattr(self, name)[:n] for name in ("rows", "history", "seen", "target")}
        return replace(self, **parts)

    def trained_scores(self, users: Tensor, items: Tensor) -> Tensor:
        """Those of trained matrices. [n, items]"""
        device = self.seen.device
        return users[torch.from_numpy(self.rows)].to(device) @ items.to(device)[self.order].T

    def ease_scores(self, ease: EASE, train: Interactions) -> Tensor:
        """Those of EASE, solved for these interactions. [n, items]"""
        device = self.seen.device
        weights = dense("items", ease.solve(train, device)[1])
        if device.type == "cpu":  # a user has few of the items
            scores = torch.from_numpy(self.history.astype(np.float32) @ weights.numpy().T)
        else:
            scores = torch.from_numpy(self.history.toarray()).to(device, torch.float32) @ weights.T
        return scores[:, self.order]

    def per_user(self, scores: Tensor) -> Floats:
        """The metric of each user's list, in which ties are broken as in all lists."""
        name, k = parse_metric(self.metric)
        values, columns = best_columns(scores.masked_fill(self.seen, -math.inf), min(k, scores.shape[1]))
        hits = self.target.gather(1, columns) & values.isfinite()
        found: Floats = METRICS[name](hits.cpu().numpy(), self.target.sum(1).cpu().numpy())
        return found
