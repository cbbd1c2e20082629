"""The trend, chosen on pairs that were held out in time: what is popular lately, with which half-lives.

The weights are those under which the held-out pairs are most likely: a conditional logit of what each user
took, from all items that they did not have, by the scores of the model and the logs of recent shares as of
the moment of the cut. It has a few numbers to learn from all held-out pairs, and is convex.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.optimize
import torch
from torch import Tensor

from truepair.data.log import Log
from truepair.models.trend import Counts, Trend, lengths_of, tried_half_lives
from truepair.search.blend_choice import Judge

_CELLS = 4_000_000  # scores that weights are learnt from
_LEAST_USERS = 100
_LEAST_SCALE = 0.02  # of the model's scores beside the trend


class TrendChoice(NamedTuple):
    """The chosen trend (None: it is not better), and the scores that decided."""

    trend: Trend | None
    alone: float
    with_trend: float
    doubled: float
    """How many times as likely an item is whose share of recent events is twice that of all time."""


def choose_trend(judge: Judge, scores: Tensor, log: Log, moment: float) -> TrendChoice:
    """The most likely weights for these scores; events of the log at the moment or later are not read.

    A trend is chosen only if its gain in the metric is larger than the standard error of that gain.
    """
    alone = judge.per_user(scores)
    before = log.before(moment)
    half_lives = tried_half_lives(before)
    if not half_lives:
        return TrendChoice(None, float(alone.mean()), float(alone.mean()), 1.0)
    counts = Counts.of(before, moment, lengths_of(half_lives, before))
    features = counts.features()[:, judge.order.cpu().numpy()]
    some = slice(max(_LEAST_USERS, _CELLS // scores.shape[1]))
    scale, weights = _most_likely(scores[some], judge.seen[some], judge.target[some], features)
    rounded = [float(f"{weight:.4g}") for weight in weights / max(scale, _LEAST_SCALE)]
    trend = Trend(half_lives, tuple(rounded[1:]), rounded[0])
    added = torch.tensor(np.array(rounded) @ features, dtype=scores.dtype, device=scores.device)
    found = judge.per_user(scores + added)
    gain = found - alone
    error = float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    doubled = 2 ** (sum(rounded[1:]) * max(scale, _LEAST_SCALE))
    is_better = gain.mean() > error
    means = round(float(alone.mean()), 6), round(float(found.mean()), 6)
    return TrendChoice(trend if is_better else None, *means, doubled)


def _most_likely(
    scores: Tensor, seen: Tensor, target: Tensor, features: npt.NDArray[np.float64]
) -> tuple[float, npt.NDArray[np.float64]]:
    """The scale of the scores and the weights of the features that make each user's pairs most likely; each
    user counts once, and weights are pulled to 0 as by one user more."""
    columns = torch.tensor(features, dtype=scores.dtype, device=scores.device)
    wanted = target.to(scores.dtype)
    wanted /= wanted.sum(dim=1, keepdim=True)
    wanted /= len(scores)
    hidden = scores.masked_fill(seen, 0.0)

    def loss(parameters: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        own = torch.tensor(parameters, dtype=scores.dtype, device=scores.device)
        logits = (own[0] * scores + own[1:] @ columns).masked_fill_(seen, -math.inf)
        log_shares = logits.log_softmax(dim=1)
        value = -float((wanted * log_shares.masked_fill(seen, 0.0)).sum())
        rest = log_shares.exp_().div_(len(scores)).sub_(wanted)  # the gradient by the logits
        by_scale, by_column = (rest * hidden).sum(), columns @ rest.sum(dim=0)
        gradient = torch.cat([by_scale[None], by_column]).double().cpu().numpy()
        pull = parameters[1:] / len(scores)
        gradient[1:] += pull
        return value + float(pull @ parameters[1:]) / 2, gradient

    start = np.zeros(1 + len(features))
    start[0] = 1 / max(float(scores.std()), 1e-6)
    found = scipy.optimize.minimize(loss, start, jac=True, method="L-BFGS-B")
    return float(found.x[0]), found.x[1:]
