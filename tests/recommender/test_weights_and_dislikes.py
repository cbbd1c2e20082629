"""Weights and dislikes from reading to lists: closed forms, blends, facts, model files, evaluation."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_random
from truepair.errors import InputError, StorageError
from truepair.models.closed_forms import EASE, ItemKNN, Popular
from truepair.ranking.selection import top_k
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import load_model, save_model
from truepair.recommender.reindexing import with_more_users
from truepair.search.automatic import only_users
from truepair.search.blend_choice import Judge
from worlds import two_tastes

QUICK = {"dim": 4, "epochs": 3, "auto": False, "device": "cpu"}
MODELS = [
    {"encoder": "ease", "device": "cpu"},
    {"encoder": "popular", "device": "cpu"},
    QUICK,
    {**QUICK, "blend": "ease"},
]


def weighted(data, low=1, high=5):
    weights = low + (np.arange(len(data)) * 7 % (high - low + 1)).astype(float)
    return dataclasses.replace(data, weight=weights)


@pytest.fixture(scope="module")
def plain():
    return two_tastes(n_users=30, n_items=20, each=5)


@pytest.fixture(scope="module")
def disliking(plain):
    """Every user dislikes the two first items of the own taste that the user does not have."""
    keys = [
        user * 20 + item
        for user in range(30)
        for item in [i for i in range(user % 2, 20, 2) if not plain.has(user, i)][:2]
    ]
    return dataclasses.replace(plain, disliked=np.array(keys))


# --- closed forms ------------------------------------------------------------------------------------------


def test_ease_of_weights_is_the_solution_for_the_weighted_matrix(plain):
    data = weighted(plain)
    x = np.zeros((30, 20))
    x[data.users, data.items] = data.weight
    gram = x.T @ x
    gram *= len(data) / np.trace(gram)  # the trace of the matrix of ones, so that l2 keeps its meaning
    inverse = np.linalg.inv(gram + 3.0 * np.eye(20))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    users, items = EASE(l2=3.0).solve(data)
    np.testing.assert_allclose(items.T, expected, rtol=1e-3, atol=1e-5)
    rows = users.toarray()
    np.testing.assert_allclose(rows, x / (x.sum(axis=1) / 5)[:, None], rtol=1e-6)


def test_itemknn_of_weights_is_the_cosine_of_weighted_columns(plain):
    data = weighted(plain)
    x = np.zeros((30, 20))
    x[data.users, data.items] = data.weight / data.weight.mean()
    together = x.T @ x
    norms = np.sqrt(np.outer(np.diag(together), np.diag(together)))
    expected = together / (norms + 2.0)
    np.fill_diagonal(expected, 0)
    _, items = ItemKNN(neighbours=20, shrink=2.0).solve(data)
    np.testing.assert_allclose(items.toarray(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "form", [EASE(), EASE(user_power=0.5, item_power=0.3), ItemKNN(), Popular()], ids=str
)
def test_equal_weights_give_the_bits_of_no_weights(form, plain):
    alike = dataclasses.replace(plain, weight=np.full(len(plain), 0.3))
    for one, other in zip(form.solve(plain), form.solve(alike), strict=True):
        one, other = (each.toarray() if hasattr(each, "toarray") else each.numpy() for each in (one, other))
        assert np.array_equal(one, other)


def test_popularity_counts_users_not_weights(plain):
    assert np.array_equal(Popular().solve(weighted(plain))[1], Popular().solve(plain)[1])


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_folding_in_a_trained_history_gives_its_row(options, plain):
    data = weighted(plain)
    fitted = Recommender(**options).fit(data)
    table = data.take(data.users < 3).to_table()
    folded = fitted.fold_in({name: table[name].to_numpy() for name in table.column_names})
    if not options.get("dim"):
        mine, theirs = (
            np.asarray(each[:3].todense() if hasattr(each, "todense") else each[:3])
            for each in (folded.matrices()[0], fitted.matrices()[0])
        )
        np.testing.assert_allclose(mine, theirs)
    else:
        flat = fitted.fold_in({name: table[name].to_numpy() for name in ("user", "item")})
        assert not np.allclose(
            folded.score(table.select(["user", "item"]))["score"],
            flat.score(table.select(["user", "item"]))["score"],
        )
    assert folded.seen_.weight is None


# --- facts -------------------------------------------------------------------------------------------------


def test_a_model_file_says_what_was_done(plain, tmp_path):
    rows = plain.to_table().to_pandas().assign(plays=1 + np.arange(len(plain)))
    data = read_interactions(rows, counts="cap:20")
    Recommender(encoder="ease", device="cpu").fit(data).save(tmp_path / "m")
    facts = Recommender.load(tmp_path / "m").facts_
    assert facts["reading"] == ["weight: count, at most 20"]
    assert facts["weights"] == {"lowest": 1.0, "mean": pytest.approx(data.weight.mean()), "highest": 20.0}
    assert "dislikes" not in facts
    assert {"reading", "weights"}.isdisjoint(Recommender(encoder="ease", device="cpu").fit(plain).facts_)


def test_a_part_of_the_users_keeps_weights_and_dislikes(disliking):
    data = weighted(disliking)
    some = only_users(data, np.array([3, 7, 8]))
    assert np.array_equal(some.weight, data.weight[np.isin(data.users, [3, 7, 8])])
    assert np.array_equal(some.dislikes.items, np.concatenate([data.dislikes.items_of(u) for u in (3, 7, 8)]))


# --- dislikes are never listed -----------------------------------------------------------------------------


def listed(table):
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.mark.parametrize("options", MODELS, ids=str)
@pytest.mark.parametrize(
    "lists", [{}, {"exclude_seen": False}, {"diversify": 0.2}, {"only_items": list(range(12))}], ids=str
)
def test_a_dislike_is_never_recommended(options, lists, disliking, plain, tmp_path):
    if options.get("encoder") == "popular" and "diversify" in lists:
        pytest.skip("popular has no vectors")
    fitted = Recommender(**options).fit(disliking)
    fitted.save(tmp_path / "m")
    never = listed(disliking.dislikes.to_table())
    for model in (fitted, Recommender.load(tmp_path / "m")):
        assert not never & listed(model.recommend(k=18, **lists))
    without = Recommender(**options).fit(plain).recommend(k=18, **lists)
    assert never & listed(without)


def test_a_dislike_of_a_new_person_is_never_recommended(disliking):
    fitted = Recommender(encoder="ease", device="cpu").fit(disliking)
    guest = read_interactions(
        {"user": ["g", "g", "g"], "item": [1, 3, 5], "weight": [1.0, 1.0, -1.0]}, dislikes=True
    )
    assert ("g", 5) not in listed(fitted.fold_in(guest).recommend(k=20))
    assert ("g", 5) in listed(fitted.fold_in({"user": ["g", "g"], "item": [1, 3]}).recommend(k=20))


def test_more_users_keep_dislikes(disliking):
    model = Recommender(encoder="ease", device="cpu").fit(disliking).model_
    more = with_more_users(model, IdMap.of([-5, 3, 99]))
    assert more.seen.n_users == 32
    assert listed(more.seen.dislikes.to_table()) == listed(disliking.dislikes.to_table())


def test_evaluation_and_validation_do_not_list_dislikes(disliking):
    scores = np.ones((30, 1)), np.arange(20.0)[:, None]
    found = top_k(*scores, 15, exclude=disliking).items
    assert not disliking.dislikes.has(np.repeat(np.arange(30), 15), np.maximum(found, 0).ravel())[
        found.ravel() >= 0
    ].any()
    split = split_random(disliking, test=0.2, valid=0.2, seed=0)
    judge = Judge.of(split.train, split.valid, "ndcg@5", 0, torch.device("cpu"))
    hidden = split.train.csr().toarray() + disliking.dislikes.csr().toarray() > 0
    assert np.array_equal(judge.seen.numpy(), hidden[judge.rows][:, judge.order])
    parts = {name: dataclasses.replace(part, disliked=None) for name, part in split.parts.items()}
    plain = dataclasses.replace(split, **parts)
    model = Recommender(encoder="popular", device="cpu").fit(split.train)
    values = [model.evaluate(each).means["ndcg@5"] for each in (split, plain)]
    assert values[0] > values[1]  # places of the lists are free for others


def test_dislike_weight_is_a_parameter(disliking, tmp_path):
    light, heavy = (Recommender(**QUICK, dislike_weight=w).fit(disliking) for w in (1, 30))
    assert not torch.equal(light.matrices()[0], heavy.matrices()[0])
    heavy.save(tmp_path / "m")
    assert Recommender.load(tmp_path / "m").dislike_weight == 30
    with pytest.raises(InputError, match="dislike_weight = 3 has no effect: sampler = 'uniform' draws items"):
        _ = Recommender(sampler="uniform", dislike_weight=3).spec
    with pytest.raises(InputError, match="dislike_weight = -1"):
        _ = Recommender(dislike_weight=-1).spec


# --- files -------------------------------------------------------------------------------------------------


def with_dislikes(model, keys):
    seen = dataclasses.replace(model.seen, disliked=None)
    object.__setattr__(seen, "disliked", keys)
    return dataclasses.replace(model, seen=seen)


@pytest.mark.parametrize(
    "keys",
    [
        np.array([5, 5]),
        np.array([9, 2]),
        np.array([-1]),
        np.array([10**6]),
        np.array([1.5]),
        np.array([[1]]),
        np.array([1], np.int32),
    ],
    ids=str,
)
def test_dislikes_of_a_file_are_checked(keys, disliking, tmp_path):
    model = Recommender(encoder="popular", device="cpu").fit(disliking).model_
    save_model(tmp_path / "m", with_dislikes(model, keys))
    with pytest.raises(StorageError, match="disliked"):
        load_model(tmp_path / "m")


def test_a_dislike_that_is_liked_is_refused_in_a_file(disliking, tmp_path):
    model = Recommender(encoder="popular", device="cpu").fit(disliking).model_
    save_model(tmp_path / "m", with_dislikes(model, model.seen.keys[:1].copy()))
    with pytest.raises(StorageError, match="both interactions and disliked"):
        load_model(tmp_path / "m")


# --- updates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"scoring": "dot", "temperature": 1.0}, {"dislike_weight": 20.0}],
    ids=["cosine", "dot", "heavy dislikes"],
)
def test_new_users_of_an_update_have_their_weights_and_dislikes(options, plain):
    """Their vectors are those of folding in, by weights and dislikes."""
    model = Recommender(**{**QUICK, "dim": 8, **options}).fit(plain)
    rows = {"user": [99] * 5, "item": [0, 2, 4, 1, 3], "weight": [1.0, 1.0, 1.0, 30.0, -1.0]}
    history = read_interactions(rows, dislikes=True)
    folded = model.fold_in(history).matrices()[0]
    updated = Recommender(**{**QUICK, "dim": 8, **options}).fit(plain).update(history, epochs=0)
    row = updated.seen_.user_ids.codes([99], "user")
    torch.testing.assert_close(updated.matrices()[0][row], folded, rtol=1e-4, atol=1e-5)
