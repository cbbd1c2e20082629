"""The lister gives the lists of the function `top_k`, for every model and with every filter."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import NoItemLeftError
from truepair.models.closed_forms import EASE
from truepair.models.factor_matrices import take_rows
from truepair.ranking.selection import top_k
from truepair.recommender.estimator import Recommender
from truepair.recommender.lister import Lister, known_users
from truepair.recommender.lists import ListOptions, model_lister
from worlds import two_tastes

TRAINED = {"dim": 6, "epochs": 3, "learning_rate": 0.02, "device": "cpu", "auto": False}
MODELS = {
    "mf": TRAINED,
    "mf with popularity": {**TRAINED, "popularity": 0.5},
    "ease": {"encoder": EASE(l2=20)},
    "itemknn": {"encoder": "itemknn"},
    "blend": {**TRAINED, "popularity": 0.5, "blend": EASE(l2=20), "blend_weight": 2.0},
    "popular": {"encoder": "popular"},
}
N_USERS, N_ITEMS = 41, 31


def world(disliking):
    """User 0 and item 1 have no interaction; where they dislike, users dislike two items that they lack."""
    small = two_tastes(n_users=N_USERS - 1, n_items=N_ITEMS - 1, each=6)
    items = np.where(small.items == 0, 0, small.items + 1)
    data = Interactions(small.users + 1, items, IdMap.range(N_USERS), IdMap.range(N_ITEMS))
    if not disliking:
        return data
    keys = [u * N_ITEMS + i for u in range(N_USERS) for i in [i for i in range(20) if not data.has(u, i)][:2]]
    return dataclasses.replace(data, disliked=np.array(keys))


@pytest.fixture(scope="module", params=[False, True], ids=["likes", "likes and dislikes"])
def fitted(request):
    data = world(request.param)
    return {name: Recommender(**options).fit(data) for name, options in MODELS.items()}


def expected_lists(model, codes, k, candidates, hidden):
    """Lists by the function: of known users by their scores, of others by popularity. hidden: [user, item]"""
    users, items = model.scorer.matrices()
    owners, places = np.nonzero(hidden[:, candidates])
    mask = Interactions(owners, places, IdMap.range(len(codes)), IdMap.range(len(candidates)))
    k = min(k, len(candidates))
    by_score = top_k(take_rows(users, np.maximum(codes, 0)), take_rows(items, candidates), k, exclude=mask)
    counts = model.popularity[candidates]
    shares = (counts / max(counts.sum(), 1)).astype(np.float32)[:, None]
    by_popularity = top_k(np.ones((len(codes), 1)), shares, k, exclude=mask)
    popular = (codes < 0) | ~model.trained[np.maximum(codes, 0)]
    best = np.where(popular[:, None], by_popularity.items, by_score.items)
    scores = np.where(popular[:, None], by_popularity.scores, by_score.scores)
    return np.where(best >= 0, candidates[best], -1), scores


ODD = np.arange(N_ITEMS) % 2 == 1
EXCLUDED = {3: np.array([7, 2, 7]), 0: np.array([0]), 17: np.arange(N_ITEMS), 99: np.array([4, 5])}
FILTERS = {
    "nothing": {},
    "what they have": {"exclude_seen": False},
    "some items": {"allowed": ODD},
    "one item": {"allowed": np.arange(N_ITEMS) == 8},
    "items of users": {"excluded": EXCLUDED},
    "some items and items of users": {"excluded": EXCLUDED, "allowed": ODD, "exclude_seen": False},
    "items of nobody": {"never": np.array([2, 1, 5])},
    "all filters": {"excluded": EXCLUDED, "allowed": ODD, "never": np.array([2, 5, 7])},
}
BLOCKS = {
    "one": [5],
    "several": [4, 17, 17, 3, 0],
    "unknown ones": [99, 3],
    "nobody known": [99, 0],
    "everybody": [*range(N_USERS), 99],
    "none": [],
}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("name", MODELS)
def test_lists_of_a_block_are_those_of_the_function(name, filters, block, fitted):
    model, users = fitted[name].model_, np.array(BLOCKS[block], np.int64)
    given = FILTERS[filters]
    exclude_seen, excluded = given.get("exclude_seen", True), given.get("excluded", {})
    allowed, never = given.get("allowed"), given.get("never", np.empty(0, np.int64))
    codes = np.where(users < N_USERS, users, -1)
    hidden = np.zeros((len(users), N_ITEMS), dtype=bool)
    for row, user in enumerate(users.tolist()):
        if user < N_USERS:
            hidden[row, model.seen.items_of(user)] = exclude_seen
            if model.seen.dislikes is not None:
                hidden[row, model.seen.dislikes.items_of(user)] = True
        hidden[row, excluded.get(user, [])] = True
    hidden[:, never] = True
    candidates = np.flatnonzero(model.listed if allowed is None else model.listed & allowed)
    lister = Lister.of(model, allowed)
    listed = known_users(model, pa.array(users), codes, exclude_seen, excluded)
    for k in (1, 4, N_ITEMS):
        found = lister.top_k(listed, k, never)
        items, scores = expected_lists(model, codes, k, candidates, hidden)
        np.testing.assert_array_equal(found.items, items)
        np.testing.assert_array_equal(found.scores, scores)  # to the bit


@pytest.mark.parametrize("name", MODELS)
def test_a_table_has_the_lists_of_top_k_and_parts_change_nothing(name, fitted):
    model = fitted[name].model_
    codes = np.array([3, -1, 0, 12])
    listed = known_users(model, pa.array([3, 99, 0, 12]), codes)
    lister = model_lister(model)
    items, scores = lister.top_k(listed, 6)
    table = lister.table(listed, 6)
    assert table["user"].to_pylist() == np.repeat([3, 99, 0, 12], (items >= 0).sum(axis=1)).tolist()
    assert table["item"].to_pylist() == items[items >= 0].tolist()
    assert table["score"].to_pylist() == scores[items >= 0].tolist()
    some = np.array([True, False, True, True])
    part = lister.top_k(listed.part(some), 6)
    np.testing.assert_array_equal(part.items, items[some])
    np.testing.assert_array_equal(part.scores, scores[some])


@pytest.mark.parametrize("name", MODELS)
def test_folded_users_have_the_lists_of_the_function(name, fitted):
    """Their rows come from `Model.encode`, as in the service."""
    whole = fitted[name]
    guests = whole.fold_in({"user": [7, 7, 8], "item": [3, 4, 9]})
    rows, columns = guests.matrices()
    candidates = np.flatnonzero(whole.model_.listed)
    codes = np.array([1, 0])
    found = Lister.of(guests.model_).top_k(known_users(guests.model_, pa.array([8, 7]), codes), 5)
    mask = Interactions([1, 1, 0], [2, 3, 8], IdMap.range(2), IdMap.range(len(candidates)))  # item 1 is none
    expected = top_k(take_rows(rows, codes), take_rows(columns, candidates), 5, exclude=mask)
    np.testing.assert_array_equal(found.items, candidates[expected.items])
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_a_lister_without_items_is_an_error(fitted):
    with pytest.raises(NoItemLeftError, match="no item is left to recommend; loosen where"):
        Lister.of(fitted["mf"].model_, np.arange(N_ITEMS) == 1)  # nobody has it


def test_a_small_model_is_prepared_once_and_follows_its_updates():
    model = Recommender(**TRAINED).fit(world(False))
    first = ListOptions().lister(model.model_)
    assert ListOptions(exclude_seen=False, unknown="drop").lister(model.model_) is first
    model.update({"user": [0], "item": [1]}, epochs=0)
    second = ListOptions().lister(model.model_)
    assert second is not first
    assert len(second.codes) == len(first.codes) + 1
    assert torch.equal(second.by_scores.items, model.matrices()[1])
