"""Sums with EASE: the scores by hand, as the recommender gives them, saved, folded in, and refused."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from truepair.models.blend import Blend, trained_part, with_vectors

from truepair.data.split_recipes import split_random
from truepair.errors import InputError, StorageError
from truepair.evaluation import evaluate
from truepair.models import factor_matrices
from truepair.models.closed_forms import EASE
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import load_model, save_model
from truepair.storage.tensor_file import read_tensors, write_tensors
from worlds import distinctive, interactions_of, two_tastes

QUICK = {"dim": 6, "epochs": 4, "learning_rate": 0.05, "device": "cpu", "seed": 1}
PLUS = {"blend": EASE(l2=20, user_power=0.2, item_power=0.3), "blend_weight": 0.7}
WORLD = two_tastes(n_users=40, n_items=30, each=6)


def made(**changes):
    return Recommender(**{**QUICK, **PLUS, **changes}).fit(WORLD)


@pytest.fixture(scope="module")
def fitted():
    return made()


def scores_of(model):
    """Of all users and items, in float64."""
    users, items = (x.toarray() if sp.issparse(x) else x.numpy() for x in (model.users_, model.items_))
    return users.astype(np.float64) @ items.T.astype(np.float64)


def ease_of(data, l2, user_power=0.0, item_power=0.0):
    """x_u B by hand: see `EASE`."""
    x = data.csr().toarray().astype(np.float64)
    by_item = np.maximum(x.sum(axis=0), 1) ** -item_power
    weighted = np.maximum(x.sum(axis=1), 1)[:, None] ** -user_power * x * by_item
    weighted *= np.sqrt(x.sum() / (weighted**2).sum())
    p = np.linalg.inv(weighted.T @ weighted + l2 * np.eye(x.shape[1]))
    b = -p / np.diag(p)
    np.fill_diagonal(b, 0)
    return x @ (by_item[:, None] * b / by_item)


# --- the scores ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
@pytest.mark.parametrize("popularity", [0.0, 0.2])
def test_scores_are_the_trained_ones_and_those_of_ease_times_the_weight(encoder, popularity):
    alone = Recommender(**QUICK, encoder=encoder, popularity=popularity).fit(WORLD)
    summed = made(encoder=encoder, popularity=popularity)
    expected = scores_of(alone) + 0.7 * ease_of(WORLD, 20, 0.2, 0.3)
    np.testing.assert_allclose(scores_of(summed), expected, atol=5e-6)
    pairs = summed.seen_
    users, items = pairs.users[::7], pairs.items[::7]
    ids = pairs.user_ids.ids.take(users.tolist()), pairs.item_ids.ids.take(items.tolist())
    told = summed.score({"user": ids[0], "item": ids[1]})
    np.testing.assert_allclose(np.asarray(told.column("score")), expected[users, items], atol=1e-5)
    # what was trained is the same, and a sum's vectors are its last columns
    n = WORLD.n_items
    assert torch.equal(trained_part(summed.users_, n), alone.users_)
    assert torch.equal(trained_part(summed.items_, n), alone.items_)


def test_the_name_means_ease_as_it_is_by_itself():
    by_name, by_value = made(blend="ease"), made(blend=EASE(l2=500.0))
    np.testing.assert_array_equal(scores_of(by_name), scores_of(by_value))
    assert (made(blend=None, blend_weight=1.0).users_ == trained_part(by_name.users_, WORLD.n_items)).all()


def test_lists_are_the_best_scores_without_what_is_known(fitted):
    scores = scores_of(fitted)
    scores[WORLD.users, WORLD.items] = -np.inf
    table = fitted.recommend(k=5)
    found = np.asarray(table.column("item")).reshape(-1, 5)
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, :5])


def test_nothing_is_added_with_a_weight_of_zero():
    np.testing.assert_allclose(
        scores_of(made(blend_weight=0.0)), scores_of(Recommender(**QUICK).fit(WORLD)), atol=1e-6
    )


def test_ease_learns_from_the_training_part_and_the_sum_is_judged():
    split = split_random(WORLD, 0.2, valid=0.2, seed=3)
    summed = Recommender(**QUICK, **PLUS).fit(split)
    alone = Recommender(**QUICK).fit(split)
    expected = scores_of(alone) + 0.7 * ease_of(split.train, 20, 0.2, 0.3)
    np.testing.assert_allclose(scores_of(summed), expected, atol=5e-6)
    by_hand = evaluate((torch.from_numpy(expected).float(), torch.eye(30)), split.valid, exclude=split.train)
    told = summed.facts_["metrics"]["validation ndcg@20"]
    assert told == pytest.approx(by_hand.mean("ndcg@20"), abs=1e-6)
    assert summed.result_.score == alone.result_.score  # of the epoch, which what is trained chose
    assert told != summed.result_.score


def test_similar_ones_are_those_of_what_was_trained(fitted):
    alone = Recommender(**QUICK).fit(WORLD)
    for each in (fitted, fitted.fold_in(WORLD)):
        assert each.similar_items([0, 7], k=5).equals(alone.similar_items([0, 7], k=5))
    assert fitted.similar_users([0, 7], k=5).equals(alone.similar_users([0, 7], k=5))
    popular = made(popularity=2.0, epochs=1)
    directions = distinctive(popular.items_[:, WORLD.n_items : -1], popular.popularity_)
    expected = directions @ directions[0]
    expected[0] = -1
    found = popular.similar_items([0], k=29)
    np.testing.assert_allclose(
        np.asarray(found.column("score")), expected.sort(descending=True)[0][:29], atol=1e-6
    )


# --- saving and folding in -----------------------------------------------------------------------------


@pytest.mark.parametrize("popularity", [0.0, 0.2])
def test_saved_and_loaded_gives_the_same_bits(popularity, tmp_path):
    before = made(popularity=popularity)
    before.save(tmp_path / "m")
    after = Recommender.load(tmp_path / "m")
    assert after.blend == PLUS["blend"]
    assert after.blend_weight == 0.7
    assert (after.users_ != before.users_).nnz == 0
    assert torch.equal(after.items_, before.items_)
    assert after.items_.T.is_contiguous()  # so that products with sparse users need no copy
    assert after.recommend(k=7).equals(before.recommend(k=7))
    people = interactions_of([[0, 2, 4], [1, 3]], 30)
    assert after.fold_in(people).recommend(k=7).equals(before.fold_in(people).recommend(k=7))
    again = after.fold_in(people)
    again.save(tmp_path / "m")
    assert Recommender.load(tmp_path / "m").recommend(k=7).equals(again.recommend(k=7))


@pytest.mark.parametrize(
    "changes",
    [{}, {"popularity": 0.2}, {"sampler": "uniform", "validation": 0.0, "engine": "reference"}],
    ids=str,
)
def test_who_has_the_history_of_somebody_gets_the_same_from_ease(changes):
    fitted, n = made(**changes), WORLD.n_items
    guests = fitted.fold_in(WORLD)
    assert (guests.users_[:, :n] != fitted.users_[:, :n]).nnz == 0
    by_ease = [m.users_[:, :n] @ m.items_.numpy().T[:n] for m in (fitted, guests)]
    np.testing.assert_array_equal(*by_ease)
    alone = Recommender(**{**QUICK, **changes}).fit(WORLD).fold_in(WORLD)
    assert torch.equal(trained_part(guests.users_, n), alone.users_)


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blend": "eas"}, r"blend = 'eas' is not known; choose one of 'ease'. Did you mean 'ease'"),
        ({"blend": 3}, r"blend is a int, .*; give 'ease', an object such as EASE\(l2=500\), or None"),
        ({"blend_weight": -1.0}, "blend_weight = -1.0 .* ≥ 0"),
        ({"blend_weight": "x"}, "blend_weight = 'x'"),
        ({"blend_weight": float("nan")}, "blend_weight = nan"),
        ({"encoder": "itemknn"}, r"has no effect: encoder = ItemKNN.* is not trained"),
    ],
)
def test_wrong_values_are_told_before_training(changes, message):
    with pytest.raises(InputError, match=message):
        made(**changes)


def test_what_does_not_fit_into_memory_is_told_before_it_is_made(monkeypatch):
    parts = Blend.of(EASE(), 1.0, WORLD)
    vectors = torch.ones(40, 6), torch.ones(30, 6)
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 4 * 30 * 36 - 1)
    with pytest.raises(
        InputError, match=r"A blend with EASE over 30 items needs .* GB, .*; train without blend='ease'"
    ):
        parts.matrices(*vectors)
    monkeypatch.setattr(factor_matrices, "free_bytes", lambda device: 4 * 30 * 36)
    assert parts.matrices(*vectors)[1].shape == (30, 36)


def saved(fitted, path, **changes):
    fitted.save(path)
    stored = load_model(path)
    stored.facts["parameters"] |= changes.pop("parameters", {})
    save_model(path, dataclasses.replace(stored, **changes))


OTHERS = {
    "no sum": ({"blend": None}, r"users of MF.* are dense rows of 6 numbers, and these are sparse"),
    "another dimension": ({"dim": 7}, r"users of MF.* with EASE are sparse rows of 37 .*shape \(40, 36\)"),
    "popularity": ({"popularity": 0.1}, r"are sparse rows of 37 numbers, .*shape \(40, 36\)"),
    "EASE alone": ({"encoder": "ease", "blend": None}, r"users of EASE.* are sparse rows of 30 numbers"),
    "an unknown sum": ({"blend": {"kind": "mf"}}, "blend = 'mf' is not known"),
    "a weight below zero": ({"blend_weight": -2.0}, "blend_weight = -2.0"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_other_parameters_than_its_matrices_is_refused(name, fitted, tmp_path):
    parameters, message = OTHERS[name]
    saved(fitted, tmp_path / "m", parameters=parameters)
    with pytest.raises(StorageError, match=message):
        Recommender.load(tmp_path / "m")


@pytest.mark.parametrize("width", [35, 37])
def test_matrices_of_two_widths_are_refused(width, fitted, tmp_path):
    fitted.save(tmp_path / "m")
    kind = "truepair model", 1
    tensors, facts = read_tensors(tmp_path / "m", *kind)
    write_tensors(tmp_path / "m", *kind, {**tensors, "items": torch.ones(30, width)}, facts)
    with pytest.raises(StorageError, match=r"columns that are not among 35|rows of 36 .*shape \(40, 37\)"):
        Recommender.load(tmp_path / "m")


def test_vectors_of_which_a_file_has_only_a_part_are_refused(fitted, tmp_path):
    """Made dense they would take more room than the file: it could name any number of dimensions."""
    rows = sp.csr_array(fitted.users_[:, :30])
    hollow = with_vectors(rows, torch.ones(40, 6)).tolil()
    hollow[3, 33] = 0
    saved(fitted, tmp_path / "m", users=sp.csr_array(hollow))
    with pytest.raises(StorageError, match="vectors of 40 users have 239 numbers instead of 240"):
        Recommender.load(tmp_path / "m")


def test_a_vector_of_zeros_is_whole(fitted, tmp_path):
    vectors = torch.zeros(40, 6)
    saved(fitted, tmp_path / "m", users=with_vectors(fitted.users_[:, :30], vectors))
    assert torch.equal(trained_part(Recommender.load(tmp_path / "m").users_, 30), vectors)
