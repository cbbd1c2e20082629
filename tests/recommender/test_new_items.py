"""Items that nobody has yet: vectors by features, lists, files; and what must not work."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

import truepair as tp
from truepair.data.simulation import simulate_world
from truepair.errors import InputError, StorageError
from truepair.recommender.features.new_items import NewItems, with_items
from truepair.recommender.model_file import KIND, VERSION
from truepair.storage.tensor_file import read_tensors, write_tensors

FIXED = {"auto": False, "dim": 8, "epochs": 15, "device": "cpu"}


@pytest.fixture(scope="module")
def world():
    """Interactions without every tenth item, a table of all, and the ids of those that are left out."""
    world = simulate_world(150, 80, density=0.15, tau=0.2, noise=0.5, seed=1)
    data, traits = world.observed, world.traits
    assert (data.item_counts > 0).all()
    names = data.item_ids.ids.to_pylist()
    genres = [[f"g{at}" for at in np.argsort(-row)[:2]] for row in traits]
    table = {"item": names, "genres": genres, "first": traits[:, 0].tolist()}
    cold = names[::10]
    pairs = data.to_table()
    warm = pairs.filter(pc.invert(pc.is_in(pairs["item"], pa.array(cold))))
    return warm, table, cold, world


def only(table, names):
    """The rows of these items."""
    kept = [at for at, name in enumerate(table["item"]) if name in set(names)]
    return {column: [values[at] for at in kept] for column, values in table.items()}


@pytest.fixture(scope="module")
def hybrid(world):
    warm, table, _, _ = world
    return tp.Recommender(encoder="hybrid", popularity=0.5, **FIXED).fit(warm, item_features=table)


MODELS = {
    "hybrid": {"encoder": "hybrid"},
    "blend": {"encoder": "hybrid", "blend": "ease", "popularity": 0.4},
    "mf": {"encoder": "mf"},
    "blend of mf": {"encoder": "mf", "blend": "ease"},
    "lightgcn": {"encoder": "lightgcn", "popularity": 0.3},
    "sampled": {"encoder": "hybrid", "sampler": "uniform", "loss": "bpr", "validation": 0.0, "epochs": 3},
}


@pytest.mark.parametrize("name", MODELS)
def test_new_items_join_and_all_else_stays(world, name, tmp_path):
    warm, table, cold, _ = world
    options = {**FIXED, **MODELS[name]}
    if name == "sampled":
        del options["auto"]
    is_hybrid = options["encoder"] == "hybrid"
    model = tp.Recommender(**options).fit(warm, **({"item_features": table} if is_hybrid else {}))
    before = model.score(warm)
    more = model.add_items(only(table, cold) if is_hybrid else table)
    assert not set(cold) & set(model.seen_.item_ids.ids.to_pylist())  # the model itself is as it was
    assert more.seen_.n_items == 80
    assert len(more.seen_) == len(model.seen_)
    after = more.score(warm)
    assert after["item"].equals(before["item"])
    np.testing.assert_allclose(after["score"].to_numpy(), before["score"].to_numpy(), rtol=1e-5, atol=1e-6)
    whole = more.recommend(k=80)
    assert set(cold) <= set(whole["item"].to_pylist())
    known = whole.filter(pc.invert(pc.is_in(whole["item"], pa.array(cold))))
    assert known["item"].equals(model.recommend(k=72)["item"])  # in the same order among themselves
    near = more.similar_items(cold[:2], k=3)
    assert len(near) == 6
    more.save(tmp_path / "model")
    again = tp.Recommender.load(tmp_path / "model")
    assert again.recommend(k=80).equals(whole)
    assert again.similar_items(cold[:2], k=3).equals(near)
    guest = again.fold_in({"user": ["x", "x"], "item": [cold[0], table["item"][1]]})
    assert len(guest.recommend(k=5)) == 5


def test_features_rank_cold_items_better_than_chance(world, hybrid):
    _, table, cold, world = world
    more = hybrid.add_items(only(table, cold))
    codes = world.observed.item_ids.codes(cold)
    users = world.observed.user_ids.codes(more.seen_.user_ids.ids)
    pairs = {"user": np.repeat(more.seen_.user_ids.ids.to_pylist(), len(cold)), "item": cold * len(users)}
    scores = more.score(pairs)["score"].to_numpy().reshape(len(users), -1)
    truth = world.truth[np.ix_(users, codes)]
    wins = [
        (mine[likes][:, None] > mine[~likes]).mean()
        for mine, likes in zip(scores, truth, strict=True)
        if 0 < likes.sum() < len(likes)
    ]
    assert np.mean(wins) > 0.6


def test_items_can_be_added_again_and_from_the_file(world, hybrid, tmp_path):
    _, table, cold, _ = world
    once = hybrid.add_items(only(table, cold))
    hybrid.add_items(only(table, cold[:3])).save(tmp_path / "part")
    twice = tp.Recommender.load(tmp_path / "part").add_items(only(table, cold))
    assert torch.equal(once.matrices()[1], twice.matrices()[1])
    assert np.array_equal(once.model_.added, twice.model_.added)
    assert once.model_.added.sum() == len(cold)


def test_an_id_of_the_split_without_a_trained_pair_gets_its_vector(world):
    _warm, table, cold, world = world
    data = world.observed
    train = data.take(~np.isin(data.items, data.item_ids.codes(cold)))  # the ids of all items
    model = tp.Recommender(encoder="hybrid", **FIXED).fit(train, item_features=table)
    assert model.model_.listed.sum() == 72
    more = model.add_items(only(table, cold))
    assert more.seen_.n_items == 80
    assert more.model_.listed.all()


def test_popularity_moves_new_items_up_and_down(world, hybrid):
    _, table, cold, _ = world
    ranks = []
    for count in (0, None, 1e6):
        lists = hybrid.add_items(only(table, cold), popularity=count).recommend(k=80)
        new = pc.is_in(lists["item"], pa.array(cold))
        ranks.append(lists.filter(new)["rank"].to_numpy().mean())
    assert ranks[0] > ranks[1] > ranks[2]
    counts = hybrid.popularity_
    term = hybrid.add_items(only(table, cold)).model_.scorer.term
    np.testing.assert_allclose(term[0], 0.5 * np.log1p(counts).mean(), rtol=1e-5)


def test_people_without_a_pair_get_new_items_last(world, hybrid):
    _, table, cold, _ = world
    lists = hybrid.add_items(only(table, cold)).recommend(["nobody"], k=80, unknown="popular")
    assert set(lists["item"].to_pylist()[-8:]) == set(cold)


def test_user_features_are_used(world):
    warm, _, _, world = world
    users = world.observed.user_ids.ids.to_pylist()
    tastes = [f"t{at}" for at in world.tastes.argmax(axis=1)]
    fitted = [
        tp.Recommender(encoder="hybrid", **FIXED).fit(warm, user_features={"user": users, "taste": some})
        for some in (tastes, sorted(tastes))
    ]
    assert not torch.equal(fitted[0].matrices()[0], fitted[1].matrices()[0])
    assert fitted[0].model_.item_map is None


def test_automatic_settings_know_the_features(monkeypatch):
    world = simulate_world(200, 60, density=0.2, noise=2.0, seed=2)
    table = {"item": world.observed.item_ids.ids, "trait": world.traits[:, 0]}
    seen = []
    from truepair.search import plan

    def few(jobs, *args, **options):
        seen.extend(job.encoder.item_features for job in jobs)
        return original(jobs, *args, **options)

    original = plan.fit_many
    monkeypatch.setattr(plan, "fit_many", few)
    model = tp.Recommender(encoder="hybrid", dim=4, epochs=2, device="cpu", blend="none")
    model.fit(world.observed, item_features=table)
    assert len(seen) > 1
    assert all(features is not None for features in seen)
    assert {"temperature", "popularity"} <= set(model.facts_["automatic"]["chosen"])


# --- what must not work --------------------------------------------------------------------------------


def test_bad_tables_are_errors_and_the_model_is_unchanged(world, hybrid):
    _, table, cold, _ = world
    before, facts = hybrid.model_, dict(hybrid.facts_)
    new = only(table, cold)
    bad = [
        ({**new, "item": [cold[0]] * 8}, "several rows for 1 items"),
        ({"item": cold, "genres": new["genres"]}, "no column 'first'"),
        (only(table, table["item"][1:4]), "has no new item: all 3 are known"),
        ({**new, "first": [np.inf] * 8}, f"'first' holds NaN or infinity for item {cold[0]!r}"),
        ({**new, "genres": [["?"]] * 8, "first": [None] * 8}, "8 new items have no feature that was trained"),
        ({**new, "item": list(range(8))}, "convert one of them"),
        (3, "items is a int, not a table; give a path, a table or a dict"),
    ]
    for source, message in bad:
        with pytest.raises(InputError, match=re.escape(message)):
            hybrid.add_items(source)
    with pytest.raises(InputError, match="popularity = -1"):
        hybrid.add_items(new, popularity=-1)
    assert hybrid.model_ is before
    assert hybrid.facts_ == facts


def test_a_model_without_features_needs_rows_of_all_trained_items(world):
    warm, table, cold, _ = world
    model = tp.Recommender(**FIXED).fit(warm)
    with pytest.raises(InputError, match="no row for 72 items of the interactions"):
        model.add_items(only(table, cold))
    with pytest.raises(InputError, match="popularity = 3 has no effect"):
        model.add_items(table, popularity=3)


@pytest.mark.parametrize("encoder", ["popular", "itemknn", "ease"])
def test_closed_forms_have_no_vectors_to_map_to(world, encoder):
    warm, table, _, _ = world
    with pytest.raises(InputError, match="has no vectors of items; use one that is trained"):
        tp.Recommender(encoder=encoder).fit(warm).add_items(table)


def test_features_need_an_encoder_that_learns_from_them_and_the_reverse(world):
    warm, table, _, _ = world
    with pytest.raises(InputError, match="needs features: pass item_features"):
        tp.Recommender(encoder="hybrid", **FIXED).fit(warm)
    for encoder in ("mf", "ease"):
        with pytest.raises(InputError, match="item_features has no effect"):
            tp.Recommender(encoder=encoder).fit(warm, item_features=table)
    with pytest.raises(InputError, match="encoder = 'hybrid' cannot be searched"):
        tp.tune(warm, encoder="hybrid", trials=1)


def test_a_failed_fit_leaves_the_model_unchanged(world, hybrid):
    warm, table, cold, _ = world
    before = hybrid.model_
    with pytest.raises(InputError, match="no row for 72 items"):
        hybrid.fit(warm, item_features=only(table, cold))
    assert hybrid.model_ is before


def test_what_a_file_says_about_features_is_checked(world, hybrid, tmp_path):
    _, table, cold, _ = world
    path = tmp_path / "model"
    more = hybrid.add_items(only(table, cold))
    more.save(path)
    for wrong in (torch.ones(79, dtype=torch.bool), torch.ones(80), torch.ones(80, 1, dtype=torch.bool)):
        tensors, facts = read_tensors(path, KIND, VERSION)
        write_tensors(tmp_path / "broken", KIND, VERSION, {**tensors, "added": wrong}, facts)
        with pytest.raises(StorageError, match=r"added is .*, not bool of .80,"):
            tp.Recommender.load(tmp_path / "broken")
    for break_it in (
        lambda tensors, facts: tensors.pop("features.map"),
        lambda tensors, facts: facts["model"].pop("features"),
        lambda tensors, facts: facts["model"]["features"].pop("l2"),
        lambda tensors, facts: facts["model"]["features"]["columns"].pop(),
        lambda tensors, facts: facts["model"]["features"].update(cosine="x"),
        lambda tensors, facts: facts["model"].update(features=3),
        lambda tensors, facts: tensors.update({"features.map": tensors["features.map"][:, 1:].contiguous()}),
    ):
        tensors, facts = read_tensors(path, KIND, VERSION)
        break_it(tensors, facts)
        write_tensors(tmp_path / "broken", KIND, VERSION, tensors, facts)
        with pytest.raises(StorageError, match="not a sound model"):
            tp.Recommender.load(tmp_path / "broken")


def test_extending_moves_every_code(world, hybrid):
    from truepair.data.ids import IdMap

    model = hybrid.model_
    new = NewItems(torch.ones(2, model.scorer.dim), torch.full((2,), 3.0), None)
    found = with_items(model, IdMap.of(["", "~~"]), new)
    assert found.seen.item_ids.ids.to_pylist()[0] == ""
    assert np.flatnonzero(found.added).tolist() == [0, 73]
    assert found.popularity[[0, 73]].tolist() == [0, 0]
    assert torch.equal(found.scorer.items[1:73], model.scorer.items)
    assert torch.equal(found.scorer.term[1:73], model.scorer.term)
    assert (found.scorer.items[[0, 73]] == 1).all()
    assert (found.scorer.term[[0, 73]] == 3).all()
    np.testing.assert_array_equal(found.seen.items, model.seen.items + 1)


def test_new_items_get_their_own_vectors_in_any_order(world, hybrid):
    _, table, cold, _ = world
    new = only(table, cold)
    backwards = {column: values[::-1] for column, values in new.items()}
    assert torch.equal(hybrid.add_items(new).matrices()[1], hybrid.add_items(backwards).matrices()[1])


@pytest.mark.parametrize("sampler", [{}, {"sampler": "uniform", "loss": "bpr", "validation": 0.0}])
def test_features_of_items_without_a_training_pair_change_nothing(world, sampler):
    warm, table, cold, _ = world
    catalogue = tp.read_interactions(warm).with_items(table["item"])
    other = [
        ["g0", "g1"] if name in cold else genres
        for name, genres in zip(*list(table.values())[:2], strict=True)
    ]
    one, two = (
        tp.Recommender(encoder="hybrid", **FIXED | {"epochs": 2} | sampler).fit(catalogue, item_features=some)
        for some in (table, {**table, "genres": other})
    )
    for side in (0, 1):
        assert torch.equal(one.matrices()[side], two.matrices()[side])
    assert set(cold) <= set(one.add_items(table).recommend(k=80).column("item").to_pylist())
