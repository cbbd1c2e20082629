"""The blend with EASE, chosen on held-out pairs: whether, with which regularisation, with which weight."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.evaluation.metrics import METRICS, Floats, parse_metric
from truepair.models.closed_forms import EASE
from truepair.models.factor_matrices import dense
from truepair.randomness import random_order, stream_key
from truepair.ranking.prepared_items import tie_order
from truepair.ranking.torch_top_k import best_columns
from truepair.recommender.automatic.work import blend_work

MOST_ITEMS = 10_000  # the weights of a blend are a dense matrix of items x items
POWER = 0.25  # of users and items: between .1 and .35 on every dataset that was searched
_SCORES = 40_000_000  # of the users whose lists judge a blend, for all items
_FIRST_L2, _RATIO = 500.0, 3.0
_LEAST_L2, _MOST_L2 = 5.0, 2e6
FEWEST_SOLVED = 3  # regularisations; where the training is too short beside them, there is no blend
_WEIGHTS = (0.15, 0.3, 0.6, 1.2, 2.4, 4.8)  # in units of 1 / temperature, the scale of the trained scores


def solving_seconds(n_items: int) -> float:
    """About how long EASE takes to solve on two cores: its time grows with the cube of the items."""
    return 2.0 * n_items**3 / 5e10


def regularisation_work(train: Interactions, valid: Interactions) -> float:
    """The counted work of one regularisation with all its weights."""
    rows = (valid.user_counts > 0) & (train.user_counts > 0)
    n_users = min(int(rows.sum()), _SCORES // train.n_items)
    n_pairs = int(train.user_counts[rows].sum()) * n_users // max(int(rows.sum()), 1)
    return blend_work(n_users, train.n_items, n_pairs, len(_WEIGHTS))


class BlendChoice(NamedTuple):
    """The chosen EASE and weight (None: no blend is better), and the scores that decided."""

    ease: EASE | None
    weight: float
    alone: float
    blended: float
    tried: list[dict[str, Any]]


def choose_blend(
    users: Tensor, items: Tensor, train: Interactions, valid: Interactions, metric: str, temperature: float,
    seed: int, device: torch.device, seconds: float = math.inf, most: int | None = None,
) -> BlendChoice:  # fmt: skip
    """The best of EASE's regularisations and weights for these trained matrices.

    Regularisations go by factors of 3 from 500 in the direction that improves, at most `most` of them and as
    long as there are `seconds` for two more. A blend is chosen only if its gain over the trained model is
    larger than the standard error of that gain.
    """
    judge = _Judge.of(train, valid, metric, seed, device)
    own = judge.trained_scores(users, items)
    alone = judge.per_user(own)
    tried: list[dict[str, Any]] = []
    best: tuple[float, float, float, Floats] | None = None
    began = time.perf_counter()
    for l2 in _regularisations(tried):
        passed = time.perf_counter() - began
        if tried and (len(tried) == most or passed + 2 * passed / len(tried) > seconds):
            break
        added = judge.ease_scores(EASE(l2=l2, user_power=POWER, item_power=POWER), train)
        found = []
        for unit in _WEIGHTS:
            each = judge.per_user(own + added * (unit / temperature))
            found.append((float(each.mean()), float(f"{unit / temperature:.4g}"), l2, each))
        top = max(found, key=lambda one: one[0])
        tried.append({"l2": l2, "weight": top[1], "score": round(top[0], 6)})
        if best is None or top[0] > best[0]:
            best = top
    assert best is not None
    gain = best[3] - alone
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    chosen = EASE(l2=best[2], user_power=POWER, item_power=POWER) if gain.mean() > error else None
    return BlendChoice(chosen, best[1], round(float(alone.mean()), 6), round(best[0], 6), tried)


def _regularisations(tried: list[dict[str, Any]]) -> Any:
    """The first regularisation and its neighbours, then further in the direction of the best one."""
    yield _FIRST_L2
    yield float(f"{_FIRST_L2 / _RATIO:.3g}")
    yield _FIRST_L2 * _RATIO
    while True:
        known = {one["l2"]: one["score"] for one in tried}
        best = max(known, key=lambda l2: known[l2])
        further = float(f"{best * _RATIO if best == max(known) else best / _RATIO:.3g}")
        if best not in (max(known), min(known)) or not _LEAST_L2 <= further <= _MOST_L2:
            return
        yield further


@dataclass(frozen=True)
class _Judge:
    """Dense scores of some of the held-out users, and the metric of the lists that they give."""

    rows: np.ndarray[Any, Any]
    history: sp.csr_array  # of these users
    order: Tensor  # column -> item, in scores, `seen` and `target`
    seen: Tensor  # [n, items], what is not listed
    target: Tensor  # [n, items], what is held out
    metric: str

    @staticmethod
    def of(train: Interactions, valid: Interactions, metric: str, seed: int, device: torch.device) -> _Judge:
        rows = np.flatnonzero((valid.user_counts > 0) & (train.user_counts > 0))
        if not len(rows):
            raise InputError("no user has held-out and trained pairs, so that no blend can be chosen.")
        drawn = random_order(stream_key(seed, int.from_bytes(b"blend", "big")), len(rows))[
            : _SCORES // train.n_items
        ]
        rows = np.sort(rows[drawn])
        history, held_out = (
            sp.csr_array(part[rows]) for part in (train.weighted_csr(), valid.csr())
        )  # weights are above 0
        seen, target = (torch.from_numpy(part.toarray()).to(device) > 0 for part in (history, held_out))
        if train.dislikes is not None:
            seen |= torch.from_numpy(train.dislikes.csr()[rows].toarray()).to(device) > 0
        order = torch.tensor(tie_order(train.n_items), device=device)
        return _Judge(rows, history, order, seen[:, order], target[:, order], metric)

    def trained_scores(self, users: Tensor, items: Tensor) -> Tensor:
        device = self.seen.device
        return users[torch.from_numpy(self.rows)].to(device) @ items.to(device)[self.order].T

    def ease_scores(self, ease: EASE, train: Interactions) -> Tensor:
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
