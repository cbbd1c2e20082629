"""Models of a prepared folder, whose codes have 32 bits, equal those of the same pairs in memory."""

import numpy as np
import pytest

import truepair as tp
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions, trusted_interactions
from truepair.models.closed_forms import CLOSED
from truepair.prior import estimate_prior
from truepair.recommender.holdout import joined, split_for_fitting

QUICK = {"dim": 8, "epochs": 2, "device": "cpu", "auto": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Interactions in memory and the folder of the same ones."""
    pytest.importorskip("duckdb")
    rng = np.random.default_rng(0)
    n = 900
    table = {
        "user": rng.integers(0, 60, n),
        "item": rng.integers(0, 40, n),
        "time": rng.integers(0, 10**9, n),
    }
    table["weight"] = rng.choice([1.0, 2.0], n)
    folder = tmp_path_factory.mktemp("prepared") / "clicks"
    tp.prepare_interactions(table, folder, memory="600MB")
    return tp.read_interactions(table), folder


MODELS = {
    "full": {},
    "dpl": {"loss": "dpl", "sampler": "uniform", "engine": "cpu"},
    "reference": {"loss": "dpl", "sampler": "uniform", "engine": "reference"},
    "full reference": {"engine": "reference"},
    "lightgcn": {"encoder": "lightgcn", "loss": "bpr", "sampler": "dns", "engine": "reference"},
    "full lightgcn": {"encoder": "lightgcn"},
    "blend": {"blend": "ease"},
    "held out": {"validation": 0.2, "hold_out": "last"},
    "ease": {"encoder": "ease"},
    "itemknn": {"encoder": "itemknn"},
    "popular": {"encoder": "popular"},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_folder_is_that_of_the_pairs(data, name):
    pairs, folder = data
    options = MODELS[name] if name in CLOSED else QUICK | MODELS[name]
    one, other = (tp.Recommender(**options).fit(source) for source in (pairs, folder))
    assert one.facts_["data"] == other.facts_["data"]
    lists = [model.recommend(k=5).to_pydict() for model in (one, other)]
    assert lists[0] == lists[1]
    if name != "popular":
        assert one.similar_items([3], k=4).to_pydict() == other.similar_items([3], k=4).to_pydict()


def test_the_engine_of_threads_takes_the_folder(data):
    sgd = {"optimizer": "sgd", "weight_decay": 0, "l2_users": 0.1, "learning_rate": 0.1, "validation": 0}
    model = tp.Recommender(**QUICK, loss="bpr", sampler="uniform", engine="cpu", **sgd).fit(data[1])
    assert model.seen_ == data[0].known()


def test_the_codes_have_32_bits_and_are_not_copied(data):
    pairs, folder = data
    opened = tp.read_interactions(folder)
    assert opened.users.dtype == opened.items.dtype == np.int32
    assert opened == pairs
    made = split_for_fitting(str(folder), None, 0.0, 0)
    assert not made.train.items.flags.owndata
    assert not joined([made.train]).known().items.flags.owndata


def test_saving_updating_and_new_users(data, tmp_path):
    pairs, folder = data
    found = []
    for source in (pairs, folder):
        model = tp.Recommender(**QUICK).fit(source)
        model.save(tmp_path / "model")
        model = tp.load(tmp_path / "model")
        model.update({"user": [1, 2, 99], "item": [1, 39, 3]}, epochs=1)
        people = model.fold_in({"user": ["x", "x"], "item": [3, 4]}).recommend(k=3)
        found.append((model.recommend(k=3).to_pydict(), people.to_pydict()))
    assert found[0] == found[1]


def test_updates_and_history_of_new_users_come_from_a_folder(data):
    pairs, folder = data
    model = tp.Recommender(encoder="ease").fit({"user": [1, 2, 3], "item": [1, 2, 3]})
    model.update(folder)
    assert len(model.seen_) >= len(pairs)
    guests = tp.Recommender(encoder="ease").fit(pairs).fold_in(folder)
    assert len(guests.recommend(k=2))


def test_the_prior_and_evaluation(data):
    pairs, folder = data
    opened = tp.read_interactions(folder)
    one, other = (
        estimate_prior(each, engine="reference", resamples=3, device="cpu") for each in (pairs, opened)
    )
    assert (one.tau, one.low, one.methods) == (other.tau, other.low, other.methods)
    odd = pairs.users % 2 == 1
    model = tp.Recommender(encoder="ease").fit(pairs)
    found = [
        tp.evaluate(model, each.take(odd), exclude=each.take(~odd), ks=(5,)).means for each in (pairs, opened)
    ]
    assert found[0] == found[1]


def test_keys_of_many_users_and_items_do_not_overflow():
    """Products of 32-bit codes would: 70,000 x 60,000 is above 2^31."""
    users, items = np.array([1, 69_999], np.int32), np.array([3, 59_999], np.int32)
    ids = IdMap.range(70_000), IdMap.range(60_000)
    narrow, wide = trusted_interactions(users, items, *ids), Interactions(users, items, *ids)
    assert narrow.hash == wide.hash
    assert narrow.keys.tolist() == wide.keys.tolist() == [60_003, 70_000 * 60_000 - 1]
    assert narrow.has(users, items).all()
    assert not narrow.has(users, items - 1).any()
    first, second = narrow.take(np.array([True, False])), narrow.take(np.array([False, True]))
    assert joined([first, second]) == wide
