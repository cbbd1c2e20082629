"""Weights, dislikes and items added by features, in models that are updated, reduced and loaded."""

import numpy as np
import pytest

import truepair as tp
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError, StorageError
from truepair.recommender.estimator import Recommender
from truepair.recommender.model_file import KIND, VERSION
from truepair.recommender.reindexing import with_more_users
from truepair.storage.tensor_file import read_tensors, write_tensors

SMALL = {"auto": False, "dim": 8, "epochs": 6, "device": "cpu"}


def weighted(n=40, seed=0):
    """Pairs of two tastes with weights, and a dislike of every user."""
    chance = np.random.default_rng(seed)
    rows = [chance.choice(np.arange(u % 2, 20, 2), 4, replace=False) for u in range(n)]
    users, items = np.repeat(np.arange(n), 4), np.concatenate(rows)
    names = [IdMap.of([f"{what}{k:02}" for k in range(size)]) for what, size in (("u", n), ("i", 20))]
    disliked = np.array([u * 20 + (u + 1) % 2 for u in range(n)])
    return Interactions(users, items, *names, weight=chance.uniform(1, 5, len(users)), disliked=disliked)


@pytest.fixture(scope="module")
def model():
    return Recommender(**SMALL).fit(weighted())


def reloaded(model, tmp_path):
    model.save(tmp_path / "model.truepair")
    return tp.load(tmp_path / "model.truepair")


def test_a_file_keeps_weights_and_dislikes(model, tmp_path):
    data, loaded = weighted(), reloaded(model, tmp_path)
    assert loaded.seen_.weight.tolist() == data.weight.tolist()
    assert loaded.seen_.disliked.tolist() == data.disliked.tolist()


@pytest.mark.parametrize("broken", ["short", "negative", "type"])
def test_a_file_with_broken_weights_is_refused(model, tmp_path, broken):
    path = tmp_path / "model.truepair"
    model.save(path)
    tensors, facts = read_tensors(path, KIND, VERSION)
    found = tensors["seen.weights"]
    changed = {"short": found[:-1], "negative": -found, "type": found.float()}[broken]
    write_tensors(path, KIND, VERSION, {**tensors, "seen.weights": changed}, facts)
    with pytest.raises(StorageError, match="weight"):
        tp.load(path)


def test_an_update_learns_from_old_and_new_weights(model, tmp_path):
    new = {"user": ["u00", "new"], "item": ["i19", "i00"], "weight": [7.0, 2.0]}
    found = reloaded(model, tmp_path).update(new, epochs=1)
    table = found.seen_.to_table().to_pylist()
    weights = {(row["user"], row["item"]): row["weight"] for row in table}
    assert (weights["u00", "i19"], weights["new", "i00"]) == (7.0, 2.0)
    old = {(row["user"], row["item"]): row["weight"] for row in weighted().to_table().to_pylist()}
    assert {pair: weights[pair] for pair in old} == old
    even = Recommender(**SMALL).fit(weighted())
    even.model_.seen.weight.flags.writeable = True
    even.model_.seen.weight[:] = 1.0
    other = even.update({**new, "weight": [1.0, 1.0]}, epochs=1)
    assert not np.allclose(found.matrices()[1], other.matrices()[1])


def test_dislikes_stay_excluded_after_an_update_and_new_ones_are_added(model, tmp_path):
    new = tp.read_interactions(
        {"user": ["u00", "u01"], "item": ["i19", "i03"], "weight": [1.0, -1.0]}, dislikes=True
    )
    found = reloaded(model, tmp_path).update(new, epochs=1)
    lists = found.recommend(["u00", "u01"], k=20).to_pylist()
    pairs = {(row["user"], row["item"]) for row in lists}
    assert not pairs & {("u00", "i01"), ("u01", "i00"), ("u01", "i03")}
    assert pairs


def test_forget_keeps_the_weights_and_dislikes_of_those_who_stay(model, tmp_path):
    data, found = weighted(), reloaded(model, tmp_path).forget(items=["i02", "i07"], users=["u03"])
    kept = {
        (row["user"], row["item"]): row["weight"]
        for row in data.to_table().to_pylist()
        if row["user"] != "u03" and row["item"] not in ("i02", "i07")
    }
    assert {(r["user"], r["item"]): r["weight"] for r in found.seen_.to_table().to_pylist()} == kept
    codes = np.divmod(found.seen_.disliked, found.seen_.n_items)
    names = found.seen_.user_ids.outside(codes[0]), found.seen_.item_ids.outside(codes[1])
    users = [u for u in range(40) if u != 3]
    wanted = {(f"u{u:02}", f"i{(u + 1) % 2:02}") for u in users}
    assert set(zip(*(each.to_pylist() for each in names), strict=True)) == wanted


# --- items that nobody has yet -----------------------------------------------------------------------------

KINDS = {
    "item": [f"i{k:02}" for k in range(20)] + ["n0", "n1"],
    "kind": ["even" if k % 2 == 0 else "odd" for k in range(20)] + ["even", "odd"],
}


@pytest.fixture(params=["alone", "blend"])
def wider(request):
    blend = {"blend": "ease", "blend_weight": 0.5} if request.param == "blend" else {}
    return Recommender(**SMALL, **blend).fit(weighted().pairs_only()).add_items(KINDS)


def scores_of(model):
    return {row["item"]: row["score"] for row in model.recommend(["u00"], k=22).to_pylist()}


def tolerance(model):
    """Nobody has the item, so that its vector is as it was. EASE is solved again, and has nothing for it."""
    return 1e-5 if model.blend is None else 0.05


def test_an_update_keeps_items_that_nobody_has_yet(wider):
    before = scores_of(wider)
    wider.update({"user": ["u01", "u02"], "item": ["n1", "i03"]}, epochs=0)
    after = scores_of(wider)
    assert {"n0", "n1"} <= set(after)
    assert after["n0"] == pytest.approx(before["n0"], abs=tolerance(wider))
    codes = np.flatnonzero(wider.model_.added)
    assert wider.seen_.item_ids.outside(codes).to_pylist() == ["n0"]


def test_forgetting_moves_the_codes_of_added_items(wider, tmp_path):
    before = scores_of(wider)
    found = reloaded(wider.forget(items=["i00", "n1"]), tmp_path)
    after = scores_of(found)
    assert "n1" not in after
    assert after["n0"] == pytest.approx(before["n0"], abs=tolerance(wider))


def test_a_model_with_features_is_not_updated_without_them():
    hybrid = Recommender(**SMALL, encoder="hybrid").fit(weighted().pairs_only(), item_features=KINDS)
    before = hybrid.matrices()[1].clone()
    with pytest.raises(InputError, match="'hybrid' cannot be updated"):
        hybrid.update({"user": ["u01"], "item": ["i03"]})
    assert before.equal(hybrid.matrices()[1])
    assert hybrid.model_.start is None


def test_popular_lists_of_items_that_nobody_has_yet(wider):
    found = wider.recommend(["somebody"], only_items=["n0", "n1"], unknown="popular")
    assert set(found.column("item").to_pylist()) == {"n0", "n1"}
    assert found.column("score").to_pylist() == [0, 0]


def test_forgetting_a_user_leaves_the_popularity_that_added_items_were_given():
    model = Recommender(**SMALL, popularity=0.4).fit(weighted().pairs_only()).add_items(KINDS, popularity=9)
    model.forget(users=["u03"])
    rows = model.seen_.item_ids.find(["n0", "n1"], "item")
    assert model.model_.scorer.term[rows].tolist() == pytest.approx([0.4 * np.log1p(9)] * 2)


# --- users whose pairs were forgotten ----------------------------------------------------------------------


@pytest.fixture
def without_pairs():
    """A model in which u07 has a vector and no pair."""
    model = Recommender(**SMALL).fit(weighted())
    return model.forget(items=[f"i{k:02}" for k in weighted().items_of(7)])


def test_folding_in_after_forgetting(without_pairs):
    item = without_pairs.seen_.item_ids.ids[0].as_py()
    found = without_pairs.fold_in({"user": ["guest"], "item": [item]})
    assert found.history_.users.tolist() == [True]
    assert set(found.recommend(k=2).column("user").to_pylist()) == {"guest"}


def test_more_users_after_forgetting(without_pairs):
    found = with_more_users(without_pairs.model_, IdMap.of(["a", "b"]))
    trained = dict(zip(found.seen.user_ids.ids.to_pylist(), found.trained.tolist(), strict=True))
    assert trained == {"a": False, "b": False, **{f"u{k:02}": True for k in range(40)}}


# --- what an update records --------------------------------------------------------------------------------


def test_facts_of_weights_and_dislikes_are_those_of_all_pairs():
    model = Recommender(**SMALL).fit(weighted())
    model.update({"user": ["u00"], "item": ["i19"], "weight": [70.0]}, epochs=0)
    assert model.facts_["weights"]["highest"] == 70
    assert model.facts_["weights"]["mean"] == pytest.approx(model.seen_.weight.mean())
    model.forget(items=["i00", "i19"])
    assert model.facts_["weights"]["highest"] == model.seen_.weight.max() < 70
    assert model.facts_["dislikes"] == len(model.seen_.disliked) == 20


def changed_mind(encoder):
    """A model after u00, who had a and nothing else, disliked a, and u01 had b."""
    clicks = {"user": ["u00", "u01", "u02", "u02"], "item": ["a", "a", "b", "c"]}
    options = {"dim": 4, "epochs": 2} if encoder == "mf" else {}
    model = Recommender(encoder=encoder, auto=False, device="cpu", **options).fit(clicks)
    new = {"user": ["u00", "u01"], "item": ["a", "b"], "weight": [-1, 1]}
    return model.update(tp.read_interactions(new, dislikes=True))


def test_new_pairs_are_counted_without_those_that_are_disliked_now():
    assert changed_mind("mf").facts_["updates"][0]["new pairs"] == 1


@pytest.mark.parametrize("encoder", ["ease", "itemknn"])
def test_a_user_of_a_closed_form_without_a_pair_left_gets_popular_items(encoder):
    found = changed_mind(encoder).recommend(["u00"]).to_pylist()
    assert [row["item"] for row in found] == ["b", "c"]
    assert [row["score"] for row in found] == pytest.approx([0.5, 0.25])


def test_people_are_folded_in_after_others_lost_all_their_pairs():
    """Found by fuzzing: the codes of users without pairs were taken for codes of the guests."""
    model = Recommender(**SMALL).fit(weighted())
    model.forget(items=model.seen_.item_ids.outside(model.seen_.items_of(39)), unknown="drop")
    assert model.model_.trained[39]
    assert not model.seen_.user_counts[39]
    item = model.seen_.item_ids.ids[3].as_py()
    guests = model.fold_in({"user": ["guest"], "item": [item]})
    assert guests.recommend(k=2).column("user").to_pylist() == ["guest"] * 2


@pytest.mark.parametrize("blend", ["none", "ease"])
def test_an_update_without_epochs_of_dot_products_gives_plain_numbers(blend):
    """Found by fuzzing: the matrices were still parameters of an encoder."""
    model = Recommender(**SMALL, scoring="dot", blend=blend).fit(weighted())
    model.update({"user": ["new"], "item": ["i03"]}, epochs=0)
    assert model.recommend(["new"], k=2).num_rows == 2
    assert not any(rows.requires_grad for rows in (model.model_.scorer.users, model.model_.scorer.items))
    assert not getattr(model.model_.scorer.columns, "requires_grad", False)


def test_a_file_with_a_prior_for_other_users_is_refused(tmp_path):
    """Updates and `forget` look up the prior of each user."""
    path = tmp_path / "model.truepair"
    Recommender(**SMALL, loss="dpl", tau=tuple([0.1] * 40)).fit(weighted()).save(path)
    tensors, facts = read_tensors(path, KIND, VERSION)
    write_tensors(path, KIND, VERSION, {**tensors, "tau": tensors["tau"][1:].clone()}, facts)
    with pytest.raises(StorageError, match="tau has 39 numbers for 40 users"):
        tp.load(path)
