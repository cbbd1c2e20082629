"""The trend, chosen on pairs held out in time: what is popular lately, and what each user did lately.

The weights are those under which the held-out pairs are most likely: a conditional logit of what each user
took, from all items that they did not have, by the scores of the model and the logs of recent shares as of
the moment of the cut. It has a few numbers to learn from all held-out pairs, and is convex.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.log import Log
from truepair.models.trend import Counts, Trend, lately, lengths_of, tried_half_lives
from truepair.search.blend_choice import Judge

_CELLS = 4_000_000  # scores that weights are learnt from
_LEAST_USERS = 100
_OWN_HALF_LIVES = (3.0, 10.0, 30.0)  # in events of a user
_LEAST_SCALE = 0.02  # of the model's scores beside the trend


class TrendChoice(NamedTuple):
    """The chosen trend (None: it is not better), and the scores that decided."""

    trend: Trend | None
    alone: float
    with_trend: float
    doubled: float
    """How many times as likely an item is whose share of recent events is twice that of all time."""


def choose_trend(judge: Judge, scores: Tensor, items: Tensor, log: Log, moment: float) -> TrendChoice:
    """The most likely weights for these scores and vectors of items; events of the log at the moment or later
    are not read.

    A trend is chosen only if its gain in the metric is larger than the standard error of that gain.
    """
    alone = judge.per_user(scores)
    before = log.before(moment)
    half_lives = tried_half_lives(before)
    if not half_lives:
        return TrendChoice(None, float(alone.mean()), float(alone.mean()), 1.0)
    counts = Counts.of(before, moment, lengths_of(half_lives, before))
    features = counts.features()[:, judge.order.cpu().numpy()]
    unit = F.normalize(items.to(scores))[judge.order]
    some = slice(max(_LEAST_USERS, _CELLS // scores.shape[1]))
    best: _Weights | None = None
    for own_half_life in _OWN_HALF_LIVES:
        own = lately(items, before, own_half_life, judge.rows).to(scores) @ unit.T
        start = None if best is None else best.all
        tried = _most_likely([scores[some], own[some]], judge.seen[some], judge.target[some], features, start)
        if best is None or tried.loss < best.loss:
            best, chosen_own, chosen_half_life = tried, own, own_half_life
    assert best is not None
    scale = max(best.of_scores[0], _LEAST_SCALE)
    own_weight, *rounded = (
        float(f"{w / scale:.4g}") for w in (max(best.of_scores[1], 0.0), *best.of_features)
    )
    trend = Trend(half_lives, tuple(rounded[1:]), rounded[0], own_weight, chosen_half_life)
    term = torch.tensor(np.array(rounded) @ features, dtype=scores.dtype, device=scores.device)
    found = judge.per_user(scores + own_weight * chosen_own + term)
    gain = found - alone
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    doubled = 2 ** (sum(rounded[1:]) * scale)
    is_better = gain.mean() > error
    means = round(float(alone.mean()), 6), round(float(found.mean()), 6)
    return TrendChoice(trend if is_better else None, *means, doubled)


class _Weights(NamedTuple):
    loss: float
    of_scores: npt.NDArray[np.float64]
    of_features: npt.NDArray[np.float64]

    @property
    def all(self) -> npt.NDArray[np.float64]:
        return np.concatenate([self.of_scores, self.of_features])


def _most_likely(
    scores: Sequence[Tensor], seen: Tensor, target: Tensor, features: npt.NDArray[np.float64],
    start: npt.NDArray[np.float64] | None = None,
) -> _Weights:  # fmt: skip
    """The weights of scores [n, items] and of features [k, items] that make each user's pairs most likely.

    Each user counts once. Weights of features are pulled to 0 as by one user more.
    """
    shown = [each.masked_fill(seen, 0.0) for each in scores]
    columns = torch.tensor(features, dtype=shown[0].dtype, device=seen.device)
    wanted = target.to(columns.dtype)
    wanted /= wanted.sum(dim=1, keepdim=True) * len(target)

    def loss(weights: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        own = torch.tensor(weights, dtype=columns.dtype, device=seen.device)
        logits = sum(own[place] * each for place, each in enumerate(shown)) + own[len(shown) :] @ columns
        log_shares = torch.as_tensor(logits).masked_fill_(seen, -math.inf).log_softmax(dim=1)
        value = -float((wanted * log_shares.masked_fill(seen, 0.0)).sum())
        rest = log_shares.exp_().div_(len(target)).sub_(wanted)  # the gradient by the logits
        by_scores = torch.stack([(rest * each).sum() for each in shown])
        gradient = torch.cat([by_scores, columns @ rest.sum(dim=0)]).double().cpu().numpy()
        pull = weights[len(shown) :] / len(target)
        gradient[len(shown) :] += pull
        return value + float(pull @ weights[len(shown) :]) / 2, gradient

    if start is None:
        start = np.zeros(len(shown) + len(features))
        start[0] = 1 / max(float(shown[0].std()), 1e-6)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-7})
    return _Weights(float(found.fun), found.x[: len(shown)], found.x[len(shown) :])
