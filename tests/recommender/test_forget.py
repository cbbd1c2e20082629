"""Forgetting items that have expired, and people who ask for it."""

import numpy as np
import pytest
import torch

import truepair as tp
from truepair.errors import InputError
from truepair.recommender.estimator import Recommender
from worlds import two_tastes

SMALL = {"auto": False, "dim": 8, "epochs": 3, "device": "cpu", "popularity": 0.4}
DATA = two_tastes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    made = {
        "mf": SMALL,
        "lightgcn": {**SMALL, "encoder": "lightgcn"},
        "blend": {**SMALL, "blend": "ease"},
        "held out": {**SMALL, "validation": 0.2},
        "ease": {"encoder": "ease"},
        "itemknn": {"encoder": "itemknn"},
        "popular": {"encoder": "popular"},
    }
    for name, parameters in made.items():
        Recommender(**parameters).fit(DATA).save(folder / name)
    return folder


@pytest.mark.parametrize("name", ["mf", "lightgcn", "blend", "held out", "ease", "itemknn", "popular"])
def test_a_forgotten_item_is_nowhere(name, saved, tmp_path):
    model = tp.load(saved / name).forget(items=[3, 29])
    assert 3 not in model.recommend(k=40, exclude_seen=False).column("item").to_pylist()
    assert model.seen_.n_items == model.matrices()[1].shape[0] == len(model.popularity_) == 28
    assert len(model.seen_) == len(DATA) - DATA.item_counts[[3, 29]].sum()
    with pytest.raises(InputError, match="unknown item"):
        model.score({"user": [0], "item": [3]})
    model.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").recommend(k=5).equals(model.recommend(k=5))
    record = {"forgotten users": 0, "forgotten items": 2, "forgotten pairs": len(DATA) - len(model.seen_)}
    assert model.facts_["updates"] == [{**record, "data": model.seen_.hash}]


@pytest.mark.parametrize("name", ["mf", "lightgcn"])
def test_all_other_vectors_stay(name, saved):
    before, after = tp.load(saved / name), tp.load(saved / name).forget(items=[3])
    kept = np.delete(np.arange(30), 3)
    new, known = after.model_.scorer, before.model_.scorer
    assert torch.equal(new.users, known.users)
    assert torch.equal(new.items, known.items[kept])
    assert torch.equal(new.term, known.term[kept])
    start, old = after.model_.start, before.model_.start
    assert torch.equal(start.items.second, old.items.second[kept])
    assert torch.equal(start.users.first, old.users.first)
    assert start.steps == old.steps


def test_a_forgotten_user_is_nowhere(saved):
    before, model = tp.load(saved / "mf"), tp.load(saved / "mf").forget(users=[7])
    kept = np.delete(np.arange(40), 7)
    scorer, known = model.model_.scorer, before.model_.scorer
    assert torch.equal(scorer.users, known.users[kept])
    assert torch.equal(scorer.items, known.items)
    counts = np.bincount(DATA.items[DATA.users != 7], minlength=30)
    assert (model.popularity_ == counts).all()
    torch.testing.assert_close(scorer.term, 0.4 * torch.tensor(counts).float().log1p())
    with pytest.raises(InputError, match="unknown user"):
        model.recommend([7])


@pytest.mark.parametrize("name", ["ease", "itemknn", "popular"])
def test_closed_forms_equal_a_fit_on_what_is_left(name, saved):
    model = tp.load(saved / name).forget(items=[3], users=[7, 8])
    left = DATA.take((DATA.items != 3) & ~np.isin(DATA.users, [7, 8])).to_table()
    again = Recommender(encoder=name).fit(left)
    for one, other in zip(model.matrices(), again.matrices(), strict=True):
        assert abs(one - other).max() == 0


def test_ease_of_a_blend_is_solved_again(saved):
    before, model = tp.load(saved / "blend"), tp.load(saved / "blend").forget(items=[3])
    left = DATA.take(DATA.items != 3).to_table()
    ease = Recommender(encoder="ease").fit(left)
    scorer, known = model.model_.scorer, before.model_.scorer
    kept = np.delete(np.arange(30), 3)
    torch.testing.assert_close(scorer.weights, ease.model_.scorer.weights)
    assert abs(scorer.history - ease.model_.scorer.history).max() == 0
    assert torch.equal(scorer.items, known.items[kept])
    assert torch.equal(scorer.term, known.term[kept])


def test_users_without_a_pair_keep_their_vectors(saved, tmp_path):
    items = DATA.items_of(4).tolist()
    before, model = tp.load(saved / "mf"), tp.load(saved / "mf").forget(items=items)
    assert model.seen_.user_counts[4] == 0
    left = np.delete(np.arange(30), items)
    known = before.model_.scorer
    scores = known.users[4] @ known.items[left].T + known.term[left]
    best = left[int(scores.argmax())]
    assert model.recommend([4], k=1).column("item").to_pylist() == [best]  # not the most popular one
    model.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").recommend([4]).equals(model.recommend([4]))
    vector = model.model_.scorer.users[4].clone()
    model.update({"user": [5], "item": [int(left[0])]}, epochs=0)  # the user is known, and no newcomer
    assert torch.equal(model.model_.scorer.users[4], vector)
    assert model.recommend([4], k=1).column("item").to_pylist() == [best]


def test_held_out_pairs(saved):
    model = tp.load(saved / "held out").forget(users=[0])
    assert (model.popularity_ <= model.seen_.item_counts).all()


def test_forgotten_and_learnt_again():
    model = Recommender(**{**SMALL, "epochs": 40}).fit(DATA).forget(items=[3])
    model.update({"user": [1, 3, 5, 7, 9], "item": [3] * 5}, epochs=2)
    assert model.facts_["updates"][1]["new items"] == 1
    scores = model.score({"user": list(range(11, 39)), "item": [3] * 28}).column("score").to_pylist()
    assert sum(scores[::2]) > sum(scores[1::2])  # odd users like odd items


def test_priors_of_users_are_those_of_the_users_who_stay():
    prior = tuple(np.linspace(0.01, 0.1, 40).tolist())
    model = Recommender(**{**SMALL, "loss": "dpl", "epochs": 1}, tau=prior).fit(DATA).forget(users=[0, 39])
    assert model.model_.tau == pytest.approx(prior[1:39])


def test_unknown_ids(saved):
    model = tp.load(saved / "mf")
    before = model.model_
    for named in ({"items": [99]}, {"users": [99]}):
        with pytest.raises(InputError, match=r"unknown (item|user): 99.*unknown='drop'"):
            model.forget(**named)
        assert model.forget(**named, unknown="drop").model_ is before
    assert model.forget(items=[99, 3], unknown="drop").seen_.n_items == 29


def test_refusals_leave_the_model_unchanged(saved):
    model = tp.load(saved / "mf")
    before = model.model_
    for named, message in (
        ({}, "nothing to forget"),
        ({"items": list(range(30))}, "no pair would be left"),
        ({"users": list(range(40))}, "no pair would be left"),
        ({"items": ["a"]}, "item ids are of type"),
        ({"items": [1], "unknown": "popular"}, "unknown"),
    ):
        with pytest.raises(InputError, match=message):
            model.forget(**named)
        assert model.model_ is before
    with pytest.raises(InputError, match="folded in"):
        model.fold_in({"user": [1], "item": [2]}).forget(items=[2])
