"""BNS where scores are equal: F is the share of unlabelled items that score no more, not less."""

import math

import pytest
import torch

from truepair.sampling import BNS, Batch, Draws
from worlds import interactions_of

DATA = interactions_of([[0, 1], [2, 3], [0, 4], [1, 5]], 16)
SCORES = torch.tensor([[float(item % 3)] for item in range(16)])  # every score belongs to five items or six


def risk(user, anchor, item, others, weight):
    """info·(1 − (1 + λ)·unbias), by the definition."""
    score = [float(s) for s in SCORES[:, 0]]
    unlabelled = [i for i in others if i not in DATA.items_of(user)]
    f = sum(score[other] <= score[item] for other in unlabelled) / len(unlabelled)
    p = int(DATA.item_counts[item]) / len(DATA)
    negative, positive = (1 - f) * (1 - p), f * p
    unbias = negative / (negative + positive) if negative + positive > 0 else 0.5
    return (1 - 1 / (1 + math.exp(score[item] - score[anchor]))) * (1 - (1 + weight) * unbias)


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.5, 5.0])
def test_items_of_equal_score_count(in_batch, weight):
    sampler = BNS(pool=5, weight=weight, in_batch=in_batch)
    draws = Draws(DATA, sampler)
    users, pos = draws.users, draws.items
    rows = [[i for i in range(16) if i not in DATA.items_of(int(u))] for u in users]
    candidates = torch.tensor([row[b % 4 : b % 4 + 5] for b, row in enumerate(rows)])
    batch = Batch(users, pos, torch.zeros(len(users), 0, dtype=torch.int64), candidates)
    chosen = sampler.choose(draws, batch, 1, (torch.ones(4, 1), SCORES))
    others = candidates[:, 0].tolist() if in_batch else range(16)
    for b, (user, anchor) in enumerate(zip(users.tolist(), pos.tolist(), strict=True)):
        risks = [risk(user, anchor, item, others, weight) for item in candidates[b].tolist()]
        found = risks[candidates[b].tolist().index(int(chosen[b, 0]))]
        assert found == pytest.approx(min(risks), abs=1e-6)
