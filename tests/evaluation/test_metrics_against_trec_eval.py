"""The same rankings through ir-measures (trec_eval): every metric agrees, user by user."""

import numpy as np
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.evaluation import METRICS, evaluate

measures = pytest.importorskip("ir_measures")

KS = (1, 5, 10, 20)
N_USERS, N_ITEMS = 60, 45


@pytest.fixture(scope="module")
def world():
    """Matrices, train and target, and the same as the dictionaries that the libraries read."""
    rng = np.random.default_rng(11)
    users, items = (
        rng.normal(size=(N_USERS, 8)).astype(np.float32),
        rng.normal(size=(N_ITEMS, 8)).astype(np.float32),
    )
    chance = rng.random((N_USERS, N_ITEMS))
    train, target = chance < 0.2, (chance > 0.8) & (rng.random((N_USERS, 1)) < 0.9)
    target[:3] = ~train[:3]  # more target items than places
    train[3] = ~target[3]  # fewer candidates than places
    parts = [
        Interactions(*np.nonzero(part), IdMap.range(N_USERS), IdMap.range(N_ITEMS))
        for part in (train, target)
    ]
    scores = users @ items.T
    wanted = {
        str(u): {str(i): 1 for i in np.flatnonzero(target[u])} for u in range(N_USERS) if target[u].any()
    }
    run = {u: {str(i): float(scores[int(u), i]) for i in np.flatnonzero(~train[int(u)])} for u in wanted}
    return users, items, parts, wanted, run


@pytest.fixture(scope="module")
def evaluation(world):
    users, items, (train, target), _, _ = world
    return evaluate((users, items), target, exclude=train, ks=KS)


def test_equals_trec_eval(world, evaluation):
    *_, wanted, run = world
    kinds = dict(zip(METRICS, ("P", "R", "nDCG", "Success", "RR", "AP"), strict=True))
    names = {f"{name}@{k}": getattr(measures, kind) @ k for name, kind in kinds.items() for k in KS}
    theirs = {
        (str(x.measure), x.query_id): x.value for x in measures.iter_calc([*names.values()], wanted, run)
    }
    for ours, measure in names.items():
        expected = [theirs[str(measure), str(u)] for u in evaluation.users]
        np.testing.assert_allclose(evaluation.per_user[ours], expected, atol=1e-12, err_msg=ours)
