"""Explanations in compiled code equal the plain definition, pair by pair."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from truepair.data.ids import IdMap
from truepair.data.simulation import simulate_world
from truepair.models.closed_forms import EASE
from truepair.models.scorer import Scorer
from truepair.ranking import reasons as compiled
from truepair.recommender import lists
from truepair.recommender.estimator import Recommender
from truepair.recommender.listing.explanation import Explanation

TRAINED = {"dim": 6, "epochs": 3, "learning_rate": 0.02, "device": "cpu", "auto": False}
MODELS = {
    "mf": TRAINED,
    "mf with popularity": {**TRAINED, "popularity": 0.5},
    "lightgcn": {**TRAINED, "encoder": "lightgcn"},
    "blend": {**TRAINED, "popularity": 0.5, "blend": EASE(l2=20), "blend_weight": 2.0},
    "itemknn": {"encoder": "itemknn"},
    "ease": {"encoder": EASE(l2=20)},
    "popular": {"encoder": "popular"},
}


def plain(explanation, seen, users, items, scores):
    """(because, rest, popularity) of each pair, by the definition: one pair at a time, one full sort each."""
    scorer, names = explanation.scorer, explanation.item_ids.ids.to_pylist()
    if scorer.weights is not None:
        matrix, own = dense(scorer.weights), scorer.history.toarray()
    elif explanation.directions is not None:
        matrix, own = dense(explanation.directions), seen.toarray() * explanation.known
    else:
        matrix, own = np.zeros((len(names), len(names)), np.float32), np.zeros(seen.shape, np.float32)
    because, rest, popularity = [], [], []
    for user, item, score in zip(users, items, scores, strict=True):
        if user < 0:
            because.append([])
            rest.append(0.0)
            popularity.append(float(score))
            continue
        theirs = np.flatnonzero(own[user])
        are_vectors = explanation.directions is not None
        weights = matrix[theirs] @ matrix[item] if are_vectors else matrix[item][theirs]
        parts = weights * own[user, theirs]
        order = [at for at in np.argsort(-parts, kind="stable")[: explanation.most] if parts[at] > 0]
        because.append([{"item": names[theirs[at]], "weight": float(parts[at])} for at in order])
        value = float(parts.sum(dtype=np.float64) - parts[order].sum(dtype=np.float64))
        if scorer.weights is not None:
            value += float(scorer.users[user].double() @ scorer.items[item].double())
        rest.append(None if are_vectors else value)
        popularity.append(0.0 if scorer.term is None else float(scorer.term[item]))
    return because, rest, popularity


def dense(rows):
    return rows.toarray() if isinstance(rows, sp.csr_array) else rows.numpy()


def check(explanation, seen, users, items, scores, exact):
    """Users have codes of the scorer; the explanation gets their rows in another order."""
    order = np.random.default_rng(9).permutation(seen.shape[0])
    place = np.append(np.argsort(order), -1)  # of each code; -1 stays -1
    rows = explanation.scorer.rows(order)
    found = explanation.columns(rows, sp.csr_array(seen[order]), place[users], items, scores)
    because, rest, popularity = plain(explanation, seen, users, items, scores)
    assert found["popularity"].to_pylist() == popularity
    assert [value is None for value in found["rest"].to_pylist()] == [value is None for value in rest]
    ours = np.array([value or 0 for value in found["rest"].to_pylist()])
    np.testing.assert_allclose(ours, [value or 0 for value in rest], rtol=0, atol=1e-5)
    for got, expected in zip(found["because"].to_pylist(), because, strict=True):
        np.testing.assert_allclose(
            [reason["weight"] for reason in got], [reason["weight"] for reason in expected], atol=1e-6
        )
        if exact:  # products of vectors may be rounded differently, and then equal ones change places
            assert got == expected


@pytest.fixture(scope="module")
def fitted():
    clicks = simulate_world(40, 70, tau=0.1, density=0.12, seed=4).observed.to_table().to_pandas()
    return {name: Recommender(**options).fit(clicks) for name, options in MODELS.items()}


@pytest.mark.parametrize("most", [1, 3, 1000])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_explained_as_the_definition_says(name, most, fitted, monkeypatch):
    model = fitted[name]
    monkeypatch.setattr(compiled, "_BLOCK", 7)  # a user's pairs are in several blocks
    monkeypatch.setattr(compiled, "_AT_ONCE", 60)
    explanation = lists.explanation_of(model.model_, most)
    rng = np.random.default_rng(0)
    users = np.repeat(rng.permutation(np.append(np.arange(40), [-1, -1])), 5)
    items = rng.integers(0, model.seen_.n_items, len(users))
    scores, are_weights = rng.random(len(users), np.float32), explanation.directions is None
    check(explanation, model.seen_.csr(), users, items, scores, exact=are_weights)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("most", [1, 2, 4, 50])
def test_ties_factors_and_people_without_items(sparse, most):
    """Few distinct weights, so that many are equal; the factors of a user's items count."""
    rng = np.random.default_rng(1)
    own = sp.random_array((9, 12), density=0.5, format="csr", rng=rng, dtype=np.float32)
    own.data[:] = rng.choice(np.array([0.5, 1.0, 2.0], np.float32), len(own.data))
    own = sp.csr_array(sp.vstack([own, sp.csr_array((2, 12), dtype=np.float32)], format="csr"))
    table = rng.choice(np.array([-1.0, 0.0, 0.5, 1.0], np.float32), (12, 12))
    weights = sp.csr_array(table) if sparse else torch.from_numpy(table)
    scorer = Scorer(torch.zeros(11, 0), torch.zeros(12, 0), history=own, weights=weights)
    explanation = Explanation(scorer, None, np.ones(12, bool), IdMap.range(12), most)
    users = np.repeat(np.array([10, 3, -1, 0, 1, 2, 9, 4, 5, 6, 7, 8]), 12)
    items = np.tile(np.arange(12), 12)
    check(explanation, own, users, items, np.ones(len(users), np.float32), exact=True)


def test_nobody_and_no_pairs(fitted):
    for model in fitted.values():
        explanation = lists.explanation_of(model.model_, True)
        rows, seen = model.model_.scorer.rows(np.array([0, 1])), model.seen_.csr()[[0, 1]]
        nothing = np.empty(0, np.int64)
        for users in (nothing, np.array([-1, -1])):
            items = np.zeros(len(users), np.int64)
            found = explanation.columns(
                rows, sp.csr_array(seen), users, items, np.ones(len(users), np.float32)
            )
            assert found["because"].to_pylist() == [[]] * len(users)
            assert found["rest"].to_pylist() == [0.0] * len(users)


def test_an_explanation_does_not_depend_on_threads(fitted, monkeypatch):
    for model in fitted.values():
        expected = model.recommend(k=8, explain=3)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
        monkeypatch.setattr(compiled, "_BLOCK", 5)
        pd.testing.assert_frame_equal(model.recommend(k=8, explain=3), expected)
