"""Recommenders whose encoder reads the order of events: from a log to lists, files, updates and new users."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import truepair as tp
from truepair.errors import InputError, StorageError
from truepair.recommender.model_file import KIND, VERSION
from truepair.storage.tensor_file import read_tensors, write_tensors

ENCODERS = ["sasrec", "recurrence"]
N = 20


def walk_table(n_users=80, seed=0):
    """Users who walk around a circle of N items."""
    rng = np.random.default_rng(seed)
    rows = [
        (user, (first + step) % N, 100 + step)
        for user in range(n_users)
        for first, n in [(int(rng.integers(0, N)), int(rng.integers(4, 12)))]
        for step in range(n)
    ]
    return dict(zip(("user", "item", "time"), map(np.array, zip(*rows, strict=True)), strict=True))


def recommender(name, parameters=None, **of_encoder):
    kind = {"sasrec": tp.SASRec, "recurrence": tp.Recurrence}[name]
    encoder = kind(**{"dim": 16, "dropout": 0.0, **of_encoder})
    return tp.Recommender(**{"encoder": encoder, "epochs": 25, "learning_rate": 0.02, **(parameters or {})})


@pytest.fixture(scope="module", params=ENCODERS)
def fitted(request):
    split = tp.split_leave_last_out(tp.read_interactions(walk_table()), valid=1)
    return recommender(request.param).fit(split), split


def best(model, users=None, **options):
    table = model.recommend(users, k=1, **options)
    return dict(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def test_the_next_item_comes_first(fitted):
    model, split = fitted
    assert model.evaluate(split).mean("ndcg@5") > 0.8
    known = tp.read_interactions(walk_table()).log.histories
    found = best(model, [3, 4])  # the last event is the test item
    assert [found[user] for user in (3, 4)] == [known.of(user)[-1] for user in (3, 4)]


def test_the_validation_part_is_not_known_where_it_is_judged(fitted):
    model, split = fitted
    assert model.facts_["metrics"]["validation ndcg@20"] == pytest.approx(model.result_.score)
    valid = model.evaluate(split, "valid")
    assert valid.mean("ndcg@20") == pytest.approx(model.result_.score)
    assert tp.evaluate(model, split, "valid").mean("ndcg@20") == valid.mean("ndcg@20")
    assert torch.equal(model.check_unseen(split, "valid").model_.scorer.users, model.result_.users)
    assert not torch.equal(model.model_.scorer.users, model.result_.users)  # they have read it


def test_users_are_encoded_histories(fitted):
    model, split = fitted
    everything = tp.read_interactions(walk_table())
    known = everything.take(~split.test.has(everything.users, everything.items))
    torch.testing.assert_close(model.model_.user_vectors(known), model.model_.scorer.users)


def test_new_users_cost_one_pass(fitted):
    model, _ = fitted
    folded = model.fold_in({"user": ["a", "a", "a", "b"], "item": [4, 3, 5, 9], "time": [2, 1, 3, 1]})
    assert best(folded) == {"a": 6, "b": 10}
    backwards = model.fold_in({"user": ["a", "a", "a"], "item": [4, 3, 5], "time": [2, 3, 1]})
    assert not torch.equal(folded.model_.scorer.users[0], backwards.model_.scorer.users[0])
    with pytest.raises(InputError, match="the order of the events is not known"):
        model.fold_in({"user": ["a", "a"], "item": [3, 4]})
    assert best(model.fold_in({"user": ["a"], "item": [3]}))["a"] == 4  # one event is in order


def test_seen_items_come_again_where_they_may(fitted):
    model, _ = fitted
    again = {"user": ["a"] * 21, "item": [*range(N), 0], "time": range(21)}
    assert best(model.fold_in(again), exclude_seen=False)["a"] == 1


@pytest.mark.parametrize("encoder", ENCODERS)
def test_repeats_are_events(encoder):
    table = {
        "user": np.repeat(np.arange(40), 8),
        "item": np.tile([0, 1] * 4, 40),
        "time": np.tile(range(8), 40),
    }
    table["item"] = np.where(table["user"] % 2, table["item"] + 2, table["item"])
    model = recommender(encoder).fit(table)
    assert best(model, [0, 1], exclude_seen=False) == {0: 0, 1: 2}
    assert model.result_.job.interactions.log.histories.of(0).tolist() == [0, 1] * 4


@pytest.mark.parametrize("encoder", ENCODERS)
def test_places_in_histories_are_an_order(encoder, tmp_path):
    path = tmp_path / "histories.txt"
    rng = np.random.default_rng(1)
    lines = []
    for user in range(60):
        first = int(rng.integers(0, N))
        lines.append(" ".join(map(str, [user, *((first + k) % N for k in range(6))])))
    path.write_text("\n".join(lines))
    model = recommender(encoder).fit(path, chronological=True)
    last = int(lines[7].split()[-1])
    assert best(model, [7]) == {7: (last + 1) % N}
    model.save(tmp_path / "m")
    loaded = tp.load(tmp_path / "m")
    assert loaded.seen_.log.time_kind == "order"
    for one in (model, loaded):
        one.update({"user": [7, 7], "item": [(last + 4) % N, (last + 5) % N]}, epochs=0, time=False)
        assert one.seen_.log.histories.of(7).tolist()[-2:] == [(last + 4) % N, (last + 5) % N]
        assert best(one, [7]) == {7: (last + 6) % N}


# --- files ------------------------------------------------------------------------------------------------


def test_a_file_has_everything(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "m")
    loaded = tp.load(tmp_path / "m")
    assert loaded.recommend(k=5).equals(model.recommend(k=5))
    history = {"user": ["a", "a"], "item": [3, 4], "time": [1, 2]}
    assert loaded.fold_in(history).recommend(k=3).equals(model.fold_in(history).recommend(k=3))
    assert loaded.spec_ == model.spec_
    for one in (model, loaded):
        assert one.similar_items([3], k=2).num_rows == 2
        assert one.recommend([0], k=2, explain=True).num_rows == 2


def changed(model, folder, change):
    model.save(folder / "m")
    tensors, facts = read_tensors(folder / "m", KIND, VERSION)
    change(tensors, facts)
    write_tensors(folder / "m", KIND, VERSION, tensors, facts)
    return tp.load(folder / "m")


HOSTILE = {
    "without a weight": (lambda t, f: t.pop("network.norms.0.weight"), "norms.0.weight"),
    "another weight": (lambda t, f: t.update({"network.x": torch.zeros(1)}), "network.x"),
    "another shape": (
        lambda t, f: t.update({"network.norms.0.weight": torch.zeros(3)}),
        "network.norms.0.weight is torch.float32 of shape",
    ),
    "infinite": (lambda t, f: t["network.norms.0.weight"].fill_(torch.inf), "hold NaN or infinity"),
    "other layers": (
        lambda t, f: f["model"]["parameters"].update(encoder={"kind": "sasrec", "dim": 16, "layers": 9}),
        "only in one",
    ),
    "too many layers": (
        lambda t, f: f["model"]["parameters"].update(encoder={"kind": "sasrec", "layers": 10**9}),
        "layers = 1000000000",
    ),
    "a network of MF": (
        lambda t, f: f["model"]["parameters"].update(encoder={"kind": "mf", "dim": 16}),
        "only in one",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name, fitted, tmp_path):
    change, message = HOSTILE[name]
    with pytest.raises(StorageError, match=message):
        changed(fitted[0], tmp_path, change)


# --- updates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [0, 3])
def test_an_update_goes_on_from_the_weights(fitted, epochs, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "m")
    updated = tp.load(tmp_path / "m")
    before = dict(updated.model_.network)
    news = {"user": [0, 0, 99, 99], "item": [7, 8, 3, 4], "time": [900, 901, 900, 901]}
    updated.update(news, epochs=epochs)
    assert best(updated, [0, 99], exclude_seen=False) == {0: 9, 99: 5}
    same = all(torch.equal(before[name], updated.model_.network[name]) for name in before)
    assert same == (epochs == 0)
    assert updated.facts_["updates"][0]["new users"] == 1
    updated.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").recommend(k=3).equals(updated.recommend(k=3))


def test_a_new_item_follows_what_came_before_it(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "m")
    updated = tp.load(tmp_path / "m")
    users = np.arange(200, 240)
    news = {
        "user": np.repeat(users, 3),
        "item": np.tile([3, 4, 77], 40),
        "time": np.tile([900, 901, 902], 40),
    }
    updated.update(news, epochs=10)
    folded = updated.fold_in({"user": ["a", "a"], "item": [3, 4], "time": [1, 2]})
    assert best(folded)["a"] == 77


def test_forgetting_leaves_the_rest(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "m")
    forgotten = tp.load(tmp_path / "m").forget(items=[5], users=[1])
    table = forgotten.recommend(k=5)
    assert 5 not in table["item"].to_pylist()
    assert 1 not in table["user"].to_pylist()
    history = {"user": ["a", "a"], "item": [8, 9], "time": [1, 2]}
    assert best(forgotten.fold_in(history)) == {"a": 10}


# --- parameters -------------------------------------------------------------------------------------------


def test_defaults_by_device():
    spec = tp.Recommender(encoder="sasrec", device="cpu").spec
    assert (spec.trained.dim, spec.trained.scoring, spec.settings.schedule) == (64, "dot", "cosine")
    assert not spec.searched
    assert spec.settings_for(1000, 200).batch_size == 12
    assert spec.settings_for(10**6, 10**5).batch_size == 128
    assert tp.Recommender(encoder=tp.SASRec(layers=3), device="cpu").spec.trained.layers == 3
    assert tp.Recommender(encoder="sasrec", scoring="cosine", temperature=0.1).spec.searched == ()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2_users": 1.0}, "l2_users = 1.0 has no effect: encoder = 'sasrec' trains no vectors of users"),
        ({"n_unlabelled": 9}, "n_unlabelled = 9 has no effect"),
        ({"encoder": tp.SASRec(), "dim": 8}, "set it on the object"),
        ({"engine": "full"}, "it does not read the order of events; 'sequences' does. Use sequences"),
        ({"engine": "distributed"}, "it does not read the order of events"),
        ({"sampler": "dns"}, "no sampler DNS"),
        ({"optimizer_state": "half"}, "is for engine 'full'"),
    ],
)
def test_what_is_not_offered(parameters, message):
    with pytest.raises(InputError, match=message):
        tp.Recommender(**{"encoder": "sasrec", **parameters}).fit(walk_table(8))


def test_order_is_needed_to_fit():
    table = walk_table(8)
    del table["time"]
    with pytest.raises(InputError, match="the order of the events is not known"):
        tp.Recommender(encoder="sasrec").fit(table)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_blend_popularity_and_trend_are_added(encoder, tmp_path):
    table = walk_table()
    parts = {"blend": "ease", "trend": tp.Trend((5.0,), (0.5,), 0.1, own=0.2)}
    model = recommender(encoder, parts, popularity=0.3).fit(table)
    assert model.model_.scorer.is_blend
    assert model.model_.scorer.term is not None
    assert model.model_.scorer.trend is not None
    model.save(tmp_path / "m")
    assert tp.load(tmp_path / "m").recommend(k=3).equals(model.recommend(k=3))
    user = {name: column[table["user"] == 5] for name, column in table.items()}
    (mine, theirs) = (m.recommend([5], k=3) for m in (model, model.fold_in(pa.table(user))))
    assert mine["item"].to_pylist() == theirs["item"].to_pylist()
    np.testing.assert_allclose(mine["score"], theirs["score"], rtol=1e-4)
    model.update({"user": [5, 5], "item": [0, 1], "time": [300, 301]}, epochs=1)
    assert model.recommend([5], k=3).num_rows == 3


def test_sampled_training_with_a_prior(tmp_path):
    sampled = {"loss": "dpl", "tau": 0.01, "sampler": "uniform", "n_unlabelled": 8}
    model = recommender("sasrec", sampled).fit(walk_table())
    history = {"user": ["a", "a"], "item": [8, 9], "time": [1, 2]}
    assert 10 in model.fold_in(history).recommend(k=3)["item"].to_pylist()
