"""The recommender as its users meet it."""

import dataclasses
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch

from extras import pl
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.simulation import simulate_world
from truepair.data.split import Split
from truepair.data.split_recipes import split_given, split_random, split_random_per_user
from truepair.errors import InputError, StorageError
from truepair.evaluation import evaluate
from truepair.losses import BPR, DPL, LOSSES, PSL, InfoNCE, Loss, Rows, register_loss
from truepair.models.closed_forms import CLOSED, EASE
from truepair.models.encoders import MF, LightGCN
from truepair.prior import estimate_prior
from truepair.recommender.estimator import Recommender
from truepair.recommender.holdout import split_for_fitting
from truepair.recommender.model_file import KIND, VERSION
from truepair.recommender.reindexing import with_more_users
from truepair.recommender.tuning import tune
from truepair.sampling import BNS, DNS, SAMPLERS, Full
from truepair.spec import Spec
from truepair.spec.defaults import FULL_CATALOGUE, with_defaults
from truepair.spec.parameters import as_json
from truepair.storage.tensor_file import read_tensors, write_tensors
from truepair.training import Settings
from worlds import distinctive, two_tastes

QUICK = {"dim": 8, "epochs": 8, "patience": 3, "validation": 0.1, "learning_rate": 0.02, "device": "cpu"}
QUICK |= {"batch_size": 64, "schedule": "constant"}  # constant so that a run can go on for more epochs
LONGER = {"epochs": 30, "batch_size": 16, "validation": 0.0, "patience": None}
NO_DIM = {name: value for name, value in QUICK.items() if name != "dim"}


@pytest.fixture(scope="module")
def world():
    return simulate_world(90, 60, tau=0.1, density=0.12, seed=2)


@pytest.fixture(scope="module")
def clicks(world):
    return world.observed.to_table().to_pandas()


@pytest.fixture(scope="module", params=["mf", *CLOSED])
def model(clicks, request):
    options = {"device": "cpu"} if request.param in CLOSED else QUICK
    return Recommender(encoder=request.param, **options).fit(clicks)


@contextmanager
def changed_file(path):
    """The tensors and facts of a model file, written again after the block."""
    tensors, facts = read_tensors(path, KIND, VERSION)
    yield tensors, facts
    write_tensors(path, KIND, VERSION, tensors, facts)


# --- recommending --------------------------------------------------------------------------------------


def test_a_table_of_user_item_score_rank_in_the_callers_ids_and_type(model, clicks):
    table = model.recommend(["user 0003", "user 0001"], k=5)
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["user", "item", "score", "rank"]
    assert table.user.tolist() == ["user 0003"] * 5 + ["user 0001"] * 5
    assert table["rank"].tolist() == [1, 2, 3, 4, 5] * 2
    assert set(table.item) <= set(clicks.item)
    assert (table.groupby("user").score.diff().dropna() <= 0).all()


@pytest.mark.parametrize(
    "source", [lambda table: pl.from_pandas(table), pa.Table.from_pandas], ids=["polars", "arrow"]
)
def test_the_callers_table_type(source, clicks):
    table = source(clicks)
    fitted, kind = Recommender(**QUICK).fit(table), type(table)
    assert isinstance(fitted.recommend(k=2), kind)
    assert isinstance(fitted.similar_items([clicks.item[0]], 2), kind)


def test_seen_items_are_left_out_unless_asked_for(model, clicks):
    seen = set(zip(clicks.user, clicks.item, strict=True))
    table = model.recommend(k=60)
    assert not seen & set(zip(table.user, table.item, strict=True))
    counts = clicks.groupby("user").item.nunique()
    n_items = clicks.item.nunique()
    assert table.groupby("user").size().to_dict() == (n_items - counts).to_dict()
    everything = model.recommend(k=60, exclude_seen=False)
    assert (everything.groupby("user").size() == n_items).all()


def test_only_and_excluded_items(model, clicks):
    some = sorted(set(clicks.item))[:12]
    table = model.recommend(k=12, only_items=some, exclude_items=some[:3], exclude_seen=False)
    assert set(table.item) == set(some[3:])
    assert (table.groupby("user").size() == 9).all()
    whole = model.recommend(k=60, exclude_seen=False)
    ranked = whole[whole.item.isin(some[3:])]
    assert ranked.item.tolist() == table.item.tolist()
    with pytest.raises(InputError, match="no item is left to recommend"):
        model.recommend(only_items=some, exclude_items=some)


def test_a_batch_equals_single_calls_and_parts(model):
    together = model.recommend(k=7)
    alone = pd.concat([model.recommend([user], k=7) for user in together.user.unique()], ignore_index=True)
    pd.testing.assert_frame_equal(together, alone)
    parts = pa.concat_tables(model.recommend_in_parts(k=7, part=13)).to_pandas()
    pd.testing.assert_frame_equal(together, parts)


def test_what_is_recommended_equals_what_is_evaluated():
    split = split_random(two_tastes(n_users=120, n_items=50, each=12), 0.2, valid=0.1)
    assert (split.train.item_counts > 0).all()  # an item nobody has is evaluated, but never recommended
    fitted = Recommender(**QUICK).fit(split)
    lists = fitted.recommend(k=20).to_pandas()
    held_out = split.test.to_table().to_pandas().merge(lists, on=["user", "item"])
    found = held_out.groupby("user").size()
    sizes = split.test.to_table().to_pandas().groupby("user").size()
    recall = (found.reindex(sizes.index).fillna(0) / sizes).mean()
    ours = evaluate(fitted, split.test, exclude=[split.train, split.valid], ks=(20,))
    assert recall == pytest.approx(ours.mean("recall@20"))


def test_unknown_users_are_named_or_get_what_is_popular(model, clicks):
    with pytest.raises(InputError, match="unknown user: 'nobody'"):
        model.recommend(["nobody"])
    table = model.recommend(["nobody", "user 0001"], k=3, unknown="popular")
    popular = pd.Series(model.popularity_, model.seen_.item_ids.ids.to_pylist())  # of the train part
    assert popular[table.item[:3]].tolist() == popular.sort_values(ascending=False)[:3].tolist()
    pd.testing.assert_frame_equal(
        table[3:].reset_index(drop=True), model.recommend(["user 0001"], k=3), check_dtype=False
    )


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_k_that_makes_no_sense(model, k):
    with pytest.raises(InputError, match=rf"k = {k} .* ≥ 1"):
        model.recommend(k=k)


def test_no_users_give_an_empty_table(model):
    assert len(model.recommend(pd.Series([], dtype=str))) == 0


def test_similar_items_and_users(clicks):
    model = Recommender(**QUICK).fit(clicks)
    table = model.similar_items([clicks.item[0]], k=59)
    assert clicks.item[0] not in set(table.similar)
    assert len(table) == clicks.item.nunique() - 1
    a, b = model.seen_.item_ids.codes([clicks.item[0], table.similar[0]])
    rows = distinctive(model.matrices()[1], model.popularity_)
    assert table.score[0] == pytest.approx(float(rows[a] @ rows[b]), abs=1e-6)
    assert model.similar_items(clicks.item[0], k=59).equals(table)  # one id
    assert model.similar_users("user 0001", k=3).equals(model.similar_users(["user 0001"], k=3))
    assert len(model.similar_users(["user 0001", "user 0002"], k=3)) == 6
    with pytest.raises(InputError, match="unknown item: 'x'"):
        model.similar_items(["x"])


@pytest.mark.parametrize("encoder", ["itemknn", "ease"])
def test_similar_items_and_users_without_training(encoder, clicks):
    model = Recommender(encoder=encoder).fit(clicks)
    item = clicks.item[0]
    table = model.similar_items([item], k=59)
    assert item not in set(table.similar)
    assert len(table) == clicks.item.nunique() - 1
    code, others = model.seen_.item_ids.codes([item])[0], model.seen_.item_ids.codes(table.similar)
    rows = model.model_.scorer.weights
    weights = rows[[code]].toarray()[0] if encoder == "itemknn" else rows[code].numpy()
    np.testing.assert_array_equal(table.score, weights[others])
    assert (np.diff(table.score) <= 0).all()
    alike = model.similar_users(["user 0001", "user 0002"], k=3)
    rows = model.seen_.csr().toarray()
    one, other = rows[model.seen_.user_ids.codes(alike.iloc[0][["user", "similar"]].tolist())]
    assert alike.score[0] == pytest.approx(one @ other / np.sqrt(one.sum() * other.sum()), rel=1e-6)
    with pytest.raises(InputError, match="unknown item: 'x'"):
        model.similar_items(["x"])


def test_popularity_knows_nothing_of_similar_items_and_users(clicks):
    model = Recommender(encoder="popular").fit(clicks)
    with pytest.raises(InputError, match="'popular' has no similarities of items; use 'itemknn'"):
        model.similar_items([clicks.item[0]])
    with pytest.raises(InputError, match="'popular' has no similarities of users; use 'itemknn'"):
        model.similar_users([clicks.user[0]])


def test_score_is_the_score_of_the_list(model):
    table = model.recommend(["user 0005"], k=4)
    scored = model.score(table[["user", "item"]])
    np.testing.assert_allclose(scored.score, table.score, rtol=1e-5)
    assert len(model.score(model.seen_)) == len(model.seen_)


# --- habits of scikit-learn ----------------------------------------------------------------------------


def test_parameters(model):
    fresh = Recommender(**QUICK)
    assert fresh.get_params()["dim"] == 8
    assert fresh.set_params(dim=9) is fresh
    assert fresh.dim == 9
    assert "dim=9" in repr(fresh)
    with pytest.raises(InputError, match=r"'dims' is not a parameter of Recommender. Did you mean 'dim'"):
        fresh.set_params(dims=3)
    with pytest.raises(TypeError):
        Recommender("dpl")


def test_clone_of_scikit_learn():
    clone = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed").clone
    original = Recommender(loss=DPL(tau=0.2), dim=5)
    assert clone(original).get_params() == original.get_params()


def test_a_search_of_scikit_learn_says_what_to_use_instead(clicks):
    sklearn = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    with pytest.raises(InputError, match=r"tp\.tune.*tp\.k_folds"):
        sklearn.GridSearchCV(Recommender(auto=False), {"dim": [4, 8]}).fit(clicks)


def test_every_setting_is_a_parameter():
    assert {f.name for f in dataclasses.fields(Settings)} <= set(Recommender().get_params())


def test_parts_by_name_or_by_value(clicks):
    by_value = Recommender(
        loss=InfoNCE(temperature=0.5), encoder=LightGCN(dim=4, hops=2), sampler=DNS(pool=12), **NO_DIM
    ).fit(clicks)
    assert by_value.matrices()[0].shape[1] == 4
    with pytest.raises(InputError, match=r"loss = 'dppl' is not known.*Did you mean 'dpl'"):
        Recommender(loss="dppl").fit(clicks)
    with pytest.raises(InputError, match=r"tau = 1.5 is out of range"):
        Recommender(loss="dpl", tau=1.5).fit(clicks)


UNUSED = [
    (
        {"tau": 0.1},
        r"tau = 0.1 has no effect: loss = 'infonce' has no prior; losses with a prior: .*dcl, .*dpl",
    ),
    ({"loss": BPR(), "tau": "auto"}, r"tau = auto has no effect: loss = BPR\(\) has no prior"),
    (
        {"loss": DPL(tau=0.2), "tau": [0.1, 0.2]},
        r"tau = one for each user has no effect: loss = DPL\(…\) has its own",
    ),
    ({"encoder": "ease", "loss": "dpl", "tau": 0.1}, r"loss = dpl .*EASE\(l2=500.0.*\) is not trained"),
    ({"encoder": "ease", "tau": 0.1}, r"tau = 0.1 .*EASE\(l2=500.0.*\) is not trained"),
    (
        {"encoder": MF(dim=4), "dim": 8},
        r"dim = 8 has no effect: encoder = MF\(…\) has its own; set it on the object",
    ),
    ({"encoder": MF(dim=4), "scoring": "cosine"}, r"scoring = cosine has no effect"),
    ({"encoder": LightGCN(), "temperature": 0.1}, r"temperature = 0.1 .* encoder = LightGCN"),
    ({"encoder": MF(), "popularity": 0.1}, r"popularity = 0.1 has no effect: encoder = MF\(…\) has its own"),
    (
        {"encoder": "ease", "blend": "ease"},
        r"blend = ease has no effect: encoder = EASE\(.*\) is not trained",
    ),
    ({"blend_weight": 0.5}, r"blend_weight = 0.5 has no effect: there is no blend; .* add blend='ease'"),
    (
        {"n_unlabelled": 8},
        r"n_unlabelled = 8 has no effect: sampler = 'full' compares with all items; leave it out",
    ),
    ({"sampler": Full(), "n_extra": 1}, r"n_extra = 1 has no effect: sampler = Full\(.*compares with all"),
    ({"patience": 3}, r"patience = 3 has no effect: there is no validation part; .*validation=0.1"),
    (
        {"patience": 3, "validation": 0},
        r"patience = 3 has no effect: there is no validation part; leave",
    ),
    (
        {"patience": 3, "validation": 0.0, "sampler": "uniform"},
        r"patience = 3 has no effect: .*; leave it out, or set validation=0\.1",
    ),
]


@pytest.mark.parametrize(("params", "message"), UNUSED, ids=str)
def test_what_is_given_and_not_used_is_an_error(params, message, clicks):
    with pytest.raises(InputError, match=message):
        Recommender(**params, epochs=1).fit(clicks)


def test_the_optimizer_goes_by_the_sampler_and_the_engine_unless_it_is_given():
    def found(disliked=False, **params):
        given = {"loss": "bpr", "device": "cpu", **params}
        settings = Spec.of(Recommender(**given).given(), disliked=disliked).settings
        return settings.optimizer, settings.weight_decay, settings.l2_users, settings.epochs

    full, cpu, others = ("adam", 0.0, 0.0, 40), ("adagrad", 0.0, 0.1, 50), ("adam", 1e-5, 0.0, 200)
    assert found() == found(sampler=Full(step=0)) == full
    assert found(sampler="uniform") == found(sampler=DNS()) == found(sampler="uniform", engine="cpu") == cpu
    assert found(sampler="uniform", optimizer="sgd", l2_users=0.0) == ("sgd", 0.0, 0.0, 50)
    for other in (
        {"optimizer": "adam"},
        {"engine": "reference"},
        {"encoder": "lightgcn"},
        {"loss": "sl"},
        {"loss": DPL(margin=0.1)},
        {"sampler": "bns"},
        {"popularity": 0.5},
        {"disliked": True},
    ):
        assert found(**{"sampler": "uniform", **other}) == others
    assert found(sampler="uniform", weight_decay=0.5) == ("adam", 0.5, 0.0, 200)


def test_a_gpu_trains_sampled_items_by_adam(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    by_device = {
        device: with_defaults({"loss": "bpr", "sampler": "uniform", "device": device})["optimizer"]
        for device in ("auto", "cuda", "cpu")
    }
    assert by_device == {"auto": "adam", "cuda": "adam", "cpu": "adagrad"}


def test_what_is_usual_or_asked_for_is_no_error(clicks):
    usual = {"n_extra": 5, "n_unlabelled": 5, "tau": "density", "dim": None, "epochs": 1, "patience": None}
    data = read_interactions(clicks)
    asked = [
        (Recommender(encoder=MF(dim=4), **usual), clicks),
        (Recommender(encoder="mf", **{**usual, "dim": 4, "validation": 0}), clicks),
        (Recommender(encoder="mf", **{**usual, "dim": 4, "patience": "auto", "validation": 0}), clicks),
        (Recommender(encoder="mf", **{**usual, "dim": 4, "patience": 3, "validation": 0.1}), clicks),
        (Recommender(dim=4, epochs=1, patience=3), split_random(data, 0.2, valid=0.1)),
        (Recommender(encoder="ease", metric="ndcg@5", device="cpu", seed=3), clicks),
    ]
    user = data.user_ids.ids.to_pylist()[0]
    for recommender, source in asked:
        assert len(recommender.fit(source).recommend([user], k=1)) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"loss": "dpl"}, {"loss": BPR()}, {"epochs": 3}, {"dim": 4}, {"n_unlabelled": 8}, {"patience": 3},
        {"sampler": "uniform"}, {"engine": "reference"}, {"validation": 0.1}, {"stop_after": 2},
        {"scoring": "dot"}, {"blend_weight": 2.0}, {"learning_rate": 0.1}, {"blend": "ease"},
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("encoder", [*CLOSED, EASE(l2=3.0)], ids=repr)
def test_what_a_closed_form_does_not_use_is_an_error(encoder, given, clicks):
    with pytest.raises(
        InputError, match=rf"{next(iter(given))} = .* has no effect: .* is not trained; leave it"
    ):
        Recommender(encoder=encoder, **given).fit(clicks)


@pytest.mark.parametrize("loss", ["sl", "bsl", "psl", PSL(temperature=0.2, surrogate="relu")], ids=str)
def test_softmax_losses_are_fitted_folded_in_and_saved(loss, clicks, tmp_path):
    model = Recommender(loss=loss, **QUICK).fit(clicks)
    model.save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.get_params()["loss"] == loss
    rows = loaded.fold_in(clicks.head(40))
    assert rows.matrices()[0].isfinite().all()


def test_not_fitted_yet():
    for use in (
        lambda m: m.recommend(),
        lambda m: m.similar_items([1]),
        lambda m: m.save("x"),
        lambda m: m.score({}),
    ):
        with pytest.raises(InputError, match="not fitted yet"):
            use(Recommender())


def test_validation_given_held_out_or_none(world):
    split = split_random(world.observed, 0.2)
    given = Recommender(**QUICK).fit(split.train, valid=split.test)
    held_out = Recommender(**QUICK).fit(split.train)
    nothing = Recommender(**{**QUICK, "validation": 0, "patience": None}).fit(split.train)
    assert "validation ndcg@20" in given.facts_["metrics"]
    assert "validation ndcg@20" in held_out.facts_["metrics"]
    usual = Recommender(**{**QUICK, "validation": None, "patience": "auto"}).fit(split.train)
    assert nothing.facts_["metrics"] == usual.facts_["metrics"] == {}
    hard = Recommender(**{**QUICK, "sampler": "dns", "validation": None}).fit(split.train)
    assert "validation ndcg@20" in hard.facts_["metrics"]
    assert nothing.result_.epoch == 8
    with pytest.raises(InputError, match=r"validation = 0.1 of 4 pairs is none that can be held out"):
        Recommender(validation=0.1).fit({"user": [1, 1, 2, 2], "item": [1, 2, 1, 3]})
    with pytest.raises(InputError, match=r"there is no validation part; .* make the split with valid=0\.1"):
        Recommender(**QUICK).fit(split)
    with pytest.raises(InputError, match="a Split was given, and valid too"):
        Recommender().fit(split, valid=split.test)
    tables = [part.to_table().to_pandas() for part in (split.train, split.test)]
    assert "validation ndcg@20" in Recommender(**QUICK).fit(tables[0], valid=tables[1]).facts_["metrics"]


def test_nobody_and_nothing_is_held_out_entirely():
    rng = np.random.default_rng(0)
    singles = pd.DataFrame({"user": range(300), "item": rng.integers(0, 40, 300)})
    more = pd.DataFrame({"user": np.repeat(range(300, 340), 5), "item": rng.integers(0, 40, 200)})
    split = split_for_fitting(pd.concat([singles, more]), None, share=0.3, seed=0)
    assert len(split.valid) > 10
    assert (split.train.user_counts > 0).all()
    assert (split.train.item_counts > 0).all()


EASE_ALONE = {
    "encoder": "ease",
    **{name: Recommender().get_params()[name] for name in QUICK if name != "device"},
}


@pytest.mark.parametrize("changes", [{}, {"blend": "ease"}, EASE_ALONE], ids=["mf", "blend", "ease"])
def test_who_and_what_was_not_trained_on(changes, tmp_path):
    train = read_interactions({"user": list("aabbccc"), "item": [1, 2, 1, 3, 1, 2, 5]})
    valid = read_interactions({"user": ["y", "y", "b"], "item": [1, 3, 2]})
    test = read_interactions({"user": ["a", "z"], "item": [3, 4]})
    split = split_given(train, test, valid)
    fitted = Recommender(**{**QUICK, "validation": None, "metric": "ndcg@3", **changes}).fit(split)
    fitted.save(tmp_path / "m")
    for model in (fitted, Recommender.load(tmp_path / "m")):
        lists = model.recommend(k=9).to_pandas().groupby("user").item.agg(list)
        assert sorted(lists.index) == ["a", "b", "c", "y", "z"]
        assert (lists["y"], lists["z"][:2]) == ([2, 5], [1, 2])  # by popularity 3, 2, 1, 1; y has 1 and 3
        assert 4 not in set(lists.sum())
        assert model.recommend("y", k=1, exclude_seen=False)["score"].to_pylist() == pytest.approx([3 / 7])
        scores = model.score({"user": ["z", "y"], "item": [1, 3]})["score"].to_pylist()
        assert scores == pytest.approx([3 / 7, 1 / 7])
        apart = model.recommend(k=9, cold="separate")
        assert set(apart["user"].to_pylist()) == {"a", "b", "c"}
        with pytest.raises(
            InputError, match=r"2 of 5 users have no trained pair.*cold='popular'.*'separate'"
        ):
            model.recommend(cold="error")
        assert model.recommend(["a", "b"], cold="error").num_rows
        assert model.history_.users.tolist() == [True, True, True, False, False]
        # y has known pairs, none of which was trained on
        target = Interactions([0, 3, 4], [2, 1, 1], model.seen_.user_ids, model.seen_.item_ids)
        judged = evaluate(model, target, exclude=model.seen_, ks=(2,))
        assert judged.cold_users.tolist() == [3, 4]
    guests = fitted.fold_in({"user": ["y", "q"], "item": [3, 1]})
    assert guests.history_.users.all()


def test_the_lists_of_people_without_history_are_those_that_are_evaluated():
    data = two_tastes(n_users=60, n_items=40, each=8)
    new = data.users >= 45  # their pairs are in the test part only
    test = new | (np.random.default_rng(0).random(len(data)) < 0.2)
    assert (np.bincount(data.items[~test]) > 0).all()
    split = Split(data.take(~test), None, data.take(test), "new people")
    fitted = Recommender(**{**QUICK, "validation": 0, "patience": None}).fit(split)
    lists = fitted.recommend(k=5).to_pandas()
    held_out = split.test.to_table().to_pandas()
    hits = held_out.merge(lists, on=["user", "item"]).groupby("user").size()
    precision = hits.reindex(held_out.user.unique()).fillna(0) / 5
    found = fitted.evaluate(split, ks=(5,))
    assert found.mean("precision@5") == pytest.approx(precision.mean())
    assert found.groups["without history"]["precision@5"] == pytest.approx(precision.loc[45:].mean())
    assert found.groups["without history"]["users"] == 15
    apart = fitted.evaluate(split, ks=(5,), cold="separate")
    assert apart.mean("precision@5") == pytest.approx(precision.loc[:44].mean())


@pytest.mark.parametrize("encoder", ["mf", "ease"])
def test_more_users_by_name_change_nothing_for_the_others(encoder):
    train = read_interactions({"user": list("bbcccd"), "item": [1, 2, 1, 3, 2, 4]})
    valid = read_interactions({"user": ["b", "e"], "item": [3, 1]})
    split = split_given(train, train.take([]), valid)
    fitted = Recommender(encoder=encoder, device="cpu", metric="ndcg@2").fit(split)
    before = fitted.recommend(k=4).to_pandas()
    fitted.model_ = with_more_users(fitted.model_, IdMap.of(["a", "bb", "c"]))
    after = fitted.recommend(k=4).to_pandas()
    pd.testing.assert_frame_equal(after[after.user.isin(list("bcde"))].reset_index(drop=True), before)
    assert fitted.history_.users.tolist() == [False, True, False, True, True, False]  # a b bb c d e
    assert after[after.user == "bb"].item.tolist() == after[after.user == "a"].item.tolist()
    assert set(after[after.user == "a"].item[:2]) == {1, 2}
    assert with_more_users(fitted.model_, IdMap.of(["a", "b"])) is fitted.model_


def test_one_id_is_enough(model, clicks):
    pd.testing.assert_frame_equal(model.recommend("user 0001", k=3), model.recommend(["user 0001"], k=3))
    item = clicks.item[0]
    assert set(model.recommend(k=2, only_items=item, exclude_seen=False).item) == {item}
    numbered = Recommender(encoder=model.encoder).fit({"user": [1, 1, 2], "item": [7, 8, 8]})
    for one in (1, np.int64(1)):
        assert numbered.recommend(one, k=3, exclude_seen=False).equals(
            numbered.recommend([1], k=3, exclude_seen=False)
        )


def test_items_excluded_for_some_users(model, clicks):
    items = sorted(set(clicks.item))
    mapping = {"user 0003": items[:20], "user 0001": items[5]}
    table = model.recommend(["user 0001", "user 0002", "user 0003"], k=60, exclude_items=mapping)
    whole = model.recommend(["user 0001", "user 0002", "user 0003"], k=60)
    kept = [
        item not in items[:20] if user == "user 0003" else (user, item) != ("user 0001", items[5])
        for user, item in zip(whole.user, whole.item, strict=True)
    ]
    assert 0 < sum(kept) < len(kept)
    columns = ["user", "item", "score"]
    pd.testing.assert_frame_equal(table[columns], whole[kept][columns].reset_index(drop=True))
    some = {"k": 9, "only_items": items[:9], "exclude_seen": False}
    beside = model.recommend("user 0001", exclude_items={"user 0001": items[20:]}, **some)  # no candidates
    pd.testing.assert_frame_equal(beside, model.recommend("user 0001", **some))
    stranger = model.recommend("x", k=60, exclude_items={"x": items[1:]}, unknown="popular")
    assert stranger.item.tolist() == items[:1]
    with pytest.raises(InputError, match=r"unknown user: 'x'.*unknown='drop'"):
        model.recommend("user 0001", exclude_items={"x": items[1:]})
    with pytest.raises(InputError, match=r"item ids are given as a mapping.*exclude_items"):
        model.recommend("user 0001", only_items={"user 0001": items})
    with pytest.raises(InputError, match="user ids are given as a mapping"):
        model.recommend({"user 0001": items})


def test_unknown_ids_are_errors_or_ignored(model, clicks):
    item = clicks.item[0]
    for name in ("only_items", "exclude_items"):
        with pytest.raises(InputError, match=r"unknown item: 'x'; .*; unknown='drop' ignores unknown ids\."):
            model.recommend("user 0001", **{name: [item, "x"]})
        some, exact = (
            model.recommend("user 0001", **{name: items}, unknown=how)
            for items, how in (([item, "x"], "drop"), ([item], "error"))
        )
        pd.testing.assert_frame_equal(some, exact)
    assert set(model.recommend(["user 0001", "x"], unknown="drop").user) == {"user 0001"}
    with pytest.raises(InputError, match=r"unknown user: 'x'.*unknown='popular'.*unknown='drop'"):
        model.recommend(["user 0001", "x"])
    with pytest.raises(InputError, match=r"unknown item: 'x'.*unknown='drop'"):
        model.fold_in({"user": ["g", "g"], "item": [item, "x"]})


def test_a_history_with_different_weights_is_another_history():
    clicks = {"user": ["g", "g"], "item": [1, 2]}
    fitted = Recommender(encoder="ease", device="cpu").fit(two_tastes())
    expected = fitted.fold_in(clicks).recommend(k=2)
    assert fitted.fold_in({**clicks, "weight": [3.0, 3.0]}).recommend(k=2).equals(expected)
    found = fitted.fold_in({**clicks, "weight": [1.0, 3.0]}).recommend(k=2)
    assert not found.equals(expected)
    ten_times = fitted.fold_in({**clicks, "weight": [10.0, 30.0]}).recommend(k=2)
    assert ten_times.equals(found)  # weights are relative to the mean of the person's own


def test_who_was_trained_is_checked_in_a_file(model, tmp_path):
    n = model.seen_.n_users
    for wrong in (torch.ones(n), torch.ones(n - 1, dtype=torch.bool), torch.ones(n, 1, dtype=torch.bool)):
        model.save(tmp_path / "m")
        with changed_file(tmp_path / "m") as (tensors, _):
            tensors["trained"] = wrong
        with pytest.raises(StorageError, match=f"not bool of .{n},"):
            Recommender.load(tmp_path / "m")


@pytest.mark.parametrize("fact", ["only in validation", "vectors without pairs", "added items"])
def test_codes_of_a_file_of_version_1_are_checked(fact, tmp_path):
    old = Path(__file__).parent.parent / "compatibility" / "files" / "models" / "default.truepair"
    tensors, facts = read_tensors(old, KIND, 1)
    for wrong in ({"0": 1}, [-1], [10**6], [True], ["0"], [0.5], "all"):
        write_tensors(tmp_path / "m", KIND, 1, tensors, {**facts, fact: wrong})
        with pytest.raises(StorageError, match=f"{fact!r} is not a list of codes"):
            Recommender.load(tmp_path / "m")


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_works_by_name(name, clicks):
    assert len(Recommender(sampler=name, **QUICK).fit(clicks).recommend(k=1)) == clicks.user.nunique()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metric": "ndgc@20"}, "Did you mean 'ndcg'"),
        ({"engine": "fast"}, "engine = 'fast' is not known"),
        ({"validation": "x"}, "validation = 'x'"),
        ({"loss": 3}, "loss is a int, .*infonce, .*bpr"),
        ({"encoder": LightGCN}, "encoder is the class LightGCN"),
        ({"dim": 0}, "dim = 0"),
    ],
    ids=str,
)
def test_bad_parameters_are_told_before_training(params, message, clicks):
    with pytest.raises(InputError, match=message):
        Recommender(**{**QUICK, **params}).fit(clicks)


def test_known_items_include_the_validation_part(world):
    fitted = Recommender(**QUICK).fit(world.observed)
    assert len(fitted.seen_) == len(world.observed)


# --- without training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", CLOSED)
def test_encoders_without_training_learn_from_everything_and_state_what_they_use(encoder, world):
    fitted = Recommender(encoder=encoder).fit(world.observed)
    assert fitted.facts_["data"] == world.observed.hash
    assert fitted.facts_["metrics"] == {}
    assert (fitted.facts_["engine"], fitted.facts_["epoch"]) == ("closed form", None)
    assert (fitted.model_.tau, fitted.facts_["training loss"]) == (None, None)
    assert set(fitted.spec_.parameters()) == {"encoder", "metric", "device", "seed"}
    assert CLOSED[encoder].__name__ in repr(fitted.result_)


@pytest.mark.parametrize("encoder", CLOSED)
def test_a_validation_part_is_judged_by_and_not_learnt_from(encoder, world):
    split = split_random(world.observed, 0.2, valid=0.1)
    fitted = Recommender(encoder=encoder).fit(split)
    users, items = CLOSED[encoder]().solve(split.train)
    expected = evaluate((users, items), split.valid, exclude=split.train, ks=(20,)).mean("ndcg@20")
    assert fitted.facts_["metrics"] == {"validation ndcg@20": expected}
    assert fitted.result_.score == expected
    assert fitted.facts_["data"] == split.train.hash
    assert len(fitted.seen_) == len(split.train) + len(split.valid)
    assert f"validation {expected:.4f}" in repr(fitted.result_)


def test_what_is_not_used_is_checked_all_the_same(clicks):
    with pytest.raises(InputError, match="loss = 'dppl' is not known"):
        Recommender(encoder="ease", loss="dppl").fit(clicks)
    with pytest.raises(InputError, match=r"encoder = 'eaze' is not known.*'ease'. Did you mean 'ease'"):
        Recommender(encoder="eaze").fit(clicks)
    with pytest.raises(
        InputError, match=r"encoder = EASE\(l2=500.0.*\) is not trained; .* one of mf, lightgcn"
    ):
        Recommender(encoder="ease").job(read_interactions(clicks))


@pytest.mark.parametrize("encoder", CLOSED)
def test_people_who_are_folded_in_get_the_lists_of_those_who_were_there(encoder, world):
    fitted = Recommender(encoder=encoder).fit(world.observed)
    options = {"k": 10, "cold": "separate"}  # two people have nothing
    theirs, ours = (m.recommend(**options).to_pandas() for m in (fitted, fitted.fold_in(fitted.seen_)))
    pd.testing.assert_frame_equal(theirs, ours)


@pytest.mark.parametrize("encoder", CLOSED)
@pytest.mark.parametrize(
    "clicks",
    [
        {"user": ["a"], "item": ["x"]},
        {"user": ["a", "b", "c"], "item": ["x"] * 3},
        {"user": ["a", "a", "b", "b"], "item": ["x", "y"] * 2},
        {"user": ["a", "b", "b", "b"], "item": ["x", "x", "y", "z"]},
    ],
    ids=["a pair", "an item", "everybody has all", "a user with one, a user with all"],
)
def test_the_smallest_catalogues_do_no_harm(encoder, clicks, tmp_path):
    fitted = Recommender(encoder=encoder, device="cpu").fit(clicks)
    everything = fitted.recommend(k=5, exclude_seen=False).to_pandas()
    assert len(everything) == len(set(clicks["user"])) * len(set(clicks["item"]))
    assert np.isfinite(everything.score).all()
    assert len(fitted.recommend(k=5)) == len(everything) - len(clicks["user"])
    fitted.save(tmp_path / "m")
    assert Recommender.load(tmp_path / "m").recommend(k=5).equals(fitted.recommend(k=5))


@pytest.mark.parametrize("encoder", CLOSED)
def test_saved_matrices_come_back_bit_for_bit_and_are_those_of_the_encoder(encoder, world, tmp_path):
    split = split_random(world.observed, 0.2, valid=0.1)
    fitted = Recommender(encoder=encoder).fit(split)
    fitted.save(tmp_path / "m")
    loaded = Recommender.load(tmp_path / "m")
    for a, b in zip(loaded.matrices(), fitted.matrices(), strict=True):
        a, b = (x.numpy() if isinstance(x, torch.Tensor) else x.toarray() for x in (a, b))
        np.testing.assert_array_equal(a, b)
    with changed_file(tmp_path / "m") as (_, facts):
        facts["model"]["parameters"]["encoder"] = "mf" if encoder != "popular" else "ease"
    with pytest.raises(StorageError, match=r"a model of .* has '(users|weights)', and the file does not"):
        Recommender.load(tmp_path / "m")


def _dense_weights(tensors):
    parts = [tensors.pop(f"weights.{part}").numpy() for part in ("values", "columns", "starts")]
    tensors["weights"] = torch.from_numpy(sp.csr_array(tuple(parts), shape=(60, 60)).toarray())


def _without_history(tensors):
    tensors["users"] = torch.zeros(90, 60)


@pytest.mark.parametrize(
    ("encoder", "other", "change", "message"),
    [
        ("ease", "itemknn", None, r"a model of ItemKNN.* has 'weights.starts', and the file does not"),
        ("itemknn", "ease", None, r"a model of EASE.* has 'weights', and the file does not"),
        ("itemknn", "itemknn", _dense_weights, r"of ItemKNN.* has 'weights.starts', and the file does not"),
        ("ease", "ease", _without_history, r"a model of EASE.* does not have 'users', and the file does"),
        ("itemknn", "popular", None, r"a model of Popular.* has 'term', and the file does not"),
        ("popular", "mf", None, r"a model of MF.* has 'users', and the file does not"),
        ("ease", "mf", None, r"a model of MF.* has 'users', and the file does not"),
    ],
)
def test_rows_of_another_kind_than_the_encoders_are_refused(encoder, other, change, message, world, tmp_path):
    Recommender(encoder=encoder, device="cpu").fit(world.observed).save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (tensors, facts):
        facts["model"]["parameters"]["encoder"] = other
        if change is not None:
            change(tensors)
    with pytest.raises(StorageError, match=message):
        Recommender.load(tmp_path / "m")


# --- new people ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
@pytest.mark.parametrize("loss", ["bpr", "dpl"])
def test_new_people_of_a_taste_get_items_of_that_taste(encoder, loss):
    data = two_tastes(n_users=100, n_items=40, each=8)
    changes = {"dim": 4, "epochs": 15, "batch_size": 16}
    fitted = Recommender(loss=loss, encoder=encoder, **{**QUICK, **changes}).fit(data)
    rng = np.random.default_rng(5)
    rows = [
        (f"guest {g}", i) for g in range(6) for i in rng.choice(np.arange(g % 2, 40, 2), 6, replace=False)
    ]
    guests = fitted.fold_in(pd.DataFrame(rows, columns=["user", "item"]))
    table = guests.recommend(k=10)
    parity = table.user.str[-1].astype(int) % 2
    assert (table.item % 2 == parity).mean() > 0.9


@pytest.mark.parametrize(
    "changes", [{}, {"sampler": "uniform", "batch_size": 64}, {"encoder": "lightgcn"}], ids=str
)
def test_popularity_stays_as_it_is_in_fold_in_and_is_not_what_makes_alike(changes, world, tmp_path):
    fitted = Recommender(**{**QUICK, **LONGER, "popularity": 0.5, **changes}).fit(world.observed)
    assert fitted.matrices()[0].shape[1] == fitted.matrices()[1].shape[1] == 9
    guests = fitted.fold_in(fitted.seen_)
    assert (guests.matrices()[0][:, -1] == 1).all()
    theirs, ours = (m.recommend(k=10).to_pandas() for m in (fitted, guests))
    assert len(theirs.merge(ours, on=["user", "item"])) / len(theirs) > 0.75
    for rows, table in (
        (
            distinctive(fitted.model_.scorer.items, fitted.popularity_),
            fitted.similar_items([fitted.seen_.item_ids.ids[4].as_py()], k=5),
        ),
        (fitted.model_.scorer.users, fitted.similar_users([fitted.seen_.user_ids.ids[4].as_py()], k=5)),
    ):
        cosines = torch.nn.functional.cosine_similarity(rows[4:5], rows)
        cosines[4] = -2
        np.testing.assert_allclose(table.column("score"), cosines.topk(5)[0], atol=1e-6)
    fitted.save(tmp_path / "m")
    loaded = Recommender.load(tmp_path / "m")
    assert torch.equal(loaded.fold_in(fitted.seen_).matrices()[0], guests.matrices()[0])
    with changed_file(tmp_path / "m") as (_, facts):
        facts["model"]["parameters"]["popularity"] = 0.0
    with pytest.raises(StorageError, match=r"a model of .* does not have 'term', and the file does"):
        Recommender.load(tmp_path / "m")


def test_who_has_fitted_may_change_the_dimension(clicks):
    fitted = Recommender(**QUICK).fit(clicks)
    expected = fitted.fold_in(clicks).matrices()[0]
    alike = fitted.similar_items(clicks.item[:1], k=5)
    fitted.set_params(dim=3)
    assert torch.equal(fitted.fold_in(clicks).matrices()[0], expected)
    assert fitted.similar_items(clicks.item[:1], k=5).equals(alike)


def test_folding_in_a_training_users_own_history_gives_nearly_their_list(world):
    split = split_random_per_user(world.observed, 0.2)
    sampled = {"sampler": "uniform", "loss": "dpl", "learning_rate": None, "validation": 0, "patience": None}
    for changes, least in ((sampled, 0.6), ({"validation": 0, "patience": None}, 0.8)):
        fitted = Recommender(**{**QUICK, "epochs": 30, **changes}).fit(split.train)
        theirs, ours = (m.recommend(k=10).to_pandas() for m in (fitted, fitted.fold_in(fitted.seen_)))
        assert len(theirs.merge(ours, on=["user", "item"])) / len(theirs) > least


def test_only_people_with_a_history_are_folded_in(model, world, clicks):
    few = world.observed.take(world.observed.users < 3)
    assert (
        model.fold_in(few).recommend(k=1)["user"].to_pylist() == few.user_ids.outside([0, 1, 2]).to_pylist()
    )
    half = pd.DataFrame({"user": ["a", "a", "b"], "item": [clicks.item[0], "x", "x"]})
    guests = model.fold_in(half, unknown="drop")
    assert guests.recommend(k=1).user.tolist() == ["a"]
    popular = model.recommend(["b"], k=2, unknown="popular")
    pd.testing.assert_frame_equal(guests.recommend(["b"], k=2, unknown="popular"), popular)


def test_people_with_everything_and_alone_are_no_trouble(model, clicks):
    everything = pd.DataFrame({"user": "z", "item": clicks.item.unique()})
    guest = model.fold_in(everything)
    assert len(guest.recommend(k=3)) == 0
    if model.encoder != "popular":
        assert len(guest.similar_users(["z"])) == 0


@pytest.mark.parametrize("sampler", ["uniform", "popularity", "dns"])
def test_folding_in_does_not_depend_on_who_comes_along(sampler, clicks):
    model = Recommender(sampler=sampler, **QUICK).fit(clicks)
    one = clicks[clicks.user == "user 0004"]
    more = clicks[clicks.user.isin(["user 0001", "user 0004", "user 0009"])]
    alone, together = (model.fold_in(h).recommend(["user 0004"], k=10) for h in (one, more))
    pd.testing.assert_frame_equal(alone, together, rtol=1e-3)


def test_history_with_unknown_items(model):
    history = {"user": ["g", "g"], "item": ["The Secret Nothing", "x"]}
    with pytest.raises(InputError, match="unknown item"):
        model.fold_in(history)
    with pytest.raises(InputError, match="holds no item that was trained on"):
        model.fold_in(history, unknown="drop")


# --- saving --------------------------------------------------------------------------------------------


def test_saved_and_loaded_recommends_the_same(model, tmp_path):
    model.save(tmp_path / "m.truepair")
    loaded = Recommender.load(tmp_path / "m.truepair")
    pd.testing.assert_frame_equal(loaded.recommend(k=9), model.recommend(k=9))
    assert loaded.spec_ == loaded.spec == model.spec_
    given = {name: value for name, value in model.spec_.parameters().items() if value is not None}
    assert {name: loaded.get_params()[name] for name in given} == given
    if model.spec_.is_trained:
        assert {name: loaded.get_params()[name] for name in QUICK} == QUICK
    assert loaded.facts_["metrics"] == model.facts_["metrics"]
    assert set(loaded.facts_["versions"]) == {"truepair", "torch", "numpy", "pyarrow"}


def test_parts_given_by_value_are_saved_too(clicks, tmp_path):
    n_users = clicks.user.nunique()
    original = Recommender(loss=DPL(tau=[0.1] * n_users), encoder=LightGCN(dim=4), **NO_DIM).fit(clicks)
    original.save(tmp_path / "m")
    loaded = Recommender.load(tmp_path / "m")
    for parts in (loaded.spec, loaded.spec_):
        assert (parts.loss, parts.encoder) == (DPL(tau=(0.1,) * n_users), LightGCN(dim=4))
        assert parts.sampler == original.spec_.sampler
    assert loaded.get_params()["encoder"] == "lightgcn"  # the name and these fields say all of it
    assert (loaded.dim, loaded.scoring, loaded.temperature) == (4, "dot", 1.0)


OTHER_PARAMETERS = {
    "loss": "hcl",
    "encoder": "lightgcn",
    "sampler": BNS(pool=9, in_batch=True),
    "dim": np.int64(5),
    "scoring": "cosine",
    "temperature": np.float32(0.5),
    "popularity": np.float32(0.25),
    "blend": EASE(l2=50.0, user_power=0.25),
    "blend_weight": np.float64(0.5),
    "tau": np.float32(0.25),
    "validation": 0.2,
    "hold_out": "random",
    "metric": "recall@5",
    "engine": "reference",
    "epochs": np.int32(2),
    "stop_after": np.int64(1),
    "batch_size": 100,
    "n_extra": 2,
    "n_unlabelled": 3,
    "optimizer": "sgd",
    "optimizer_state": "device",  # the others need many users
    "learning_rate": np.float64(0.5),
    "schedule": "cosine",
    "decay_epoch": 3,
    "decay": 0.5,
    "weight_decay": 0.001,
    "l2_users": 0.01,
    "l2_items": 0.02,
    "dislike_weight": 1.0,  # any other has no effect with a sampler that draws
    "patience": None,
    "validate_every": 2,
    "seed": np.int64(7),
    "device": "cpu",
    "auto": False,
}


def test_every_parameter_survives_saving(clicks, tmp_path):
    original = Recommender(**OTHER_PARAMETERS).fit(clicks)
    assert {*OTHER_PARAMETERS, "trend"} == set(original.get_params())  # it needs times: test_trends.py
    original.save(tmp_path / "m")
    loaded = Recommender.load(tmp_path / "m")
    assert loaded.get_params() == original.get_params()
    assert loaded.spec == loaded.spec_ == original.spec_
    array = Recommender(loss="dpl", tau=np.full(clicks.user.nunique(), 0.1), **QUICK).fit(clicks)
    array.save(tmp_path / "m")
    assert Recommender.load(tmp_path / "m").tau == (0.1,) * clicks.user.nunique()
    assert "tau=array" in repr(array)


_NONE = ("patience", "blend", "trend", "stop_after")  # parameters for which None is a value, not a default


def test_a_file_does_not_depend_on_what_is_usual_today(clicks, tmp_path, monkeypatch):
    fitted = Recommender(epochs=2).fit(clicks)
    fitted.save(tmp_path / "m")
    people = clicks.head(40)
    expected = fitted.fold_in(people).matrices()[0]
    parameters = read_tensors(tmp_path / "m", KIND, VERSION)[1]["model"]["parameters"]
    assert None not in [value for name, value in parameters.items() if name not in _NONE]
    assert {name: parameters[name] for name in FULL_CATALOGUE} == {**FULL_CATALOGUE, "epochs": 2}
    changed = {"scoring": "dot", "temperature": 0.7, "dim": 3, "schedule": "step", "weight_decay": 1.0}
    for name, value in changed.items():
        monkeypatch.setitem(FULL_CATALOGUE, name, value)
    loaded = Recommender.load(tmp_path / "m")
    assert torch.equal(loaded.fold_in(people).matrices()[0], expected)
    assert torch.equal(loaded.fit(clicks).matrices()[0], fitted.matrices()[0])
    assert torch.equal(fitted.fold_in(people).matrices()[0], expected)  # its own values


def _former(tmp_path, fitted, **parameters):
    """The model from a file as it was before scoring and temperature were parameters."""
    fitted.save(tmp_path / "m")
    usual = {"dim": 64, "tau": "density", "validation": 0.1, "batch_size": None, "patience": 10}
    with changed_file(tmp_path / "m") as (_, facts):
        stored = facts["model"]["parameters"]
        stored |= {**usual, **parameters}
        for name in ("scoring", "temperature", "popularity", "blend", "blend_weight"):
            stored.pop(name, None)
    return Recommender.load(tmp_path / "m")


def test_former_files_fold_in_as_they_were_trained(clicks, tmp_path, monkeypatch):
    people = clicks.head(40)
    exact = Recommender(scoring="dot", temperature=1.0, **QUICK).fit(clicks)
    with monkeypatch.context() as patched:
        patched.setitem(FULL_CATALOGUE, "popularity", 0.3)  # should it be usual one day
        loaded = _former(tmp_path, exact, dim=8, n_unlabelled=9)
        assert loaded.spec_.encoder == MF(dim=8, scoring="dot", temperature=1.0)
        assert loaded.spec == loaded.spec_  # what has no effect is dropped
        assert loaded.n_unlabelled == 5
    assert torch.equal(loaded.fold_in(people).matrices()[0], exact.fold_in(people).matrices()[0])
    bpr = Recommender(loss="bpr", sampler="uniform", **QUICK).fit(clicks)
    loaded = _former(tmp_path, bpr, dim=8, tau=0.2)
    assert torch.equal(loaded.fold_in(people).matrices()[0], bpr.fold_in(people).matrices()[0])
    encoder, loss = MF(dim=4, scoring="cosine"), DPL(tau=0.2)
    by_value = Recommender(encoder=encoder, loss=loss, **NO_DIM).fit(clicks)
    loaded = _former(tmp_path, by_value, encoder=as_json(encoder), loss=as_json(loss), tau=0.1)
    assert (loaded.spec_.encoder, loaded.spec_.loss) == (encoder, loss)
    assert torch.equal(loaded.fold_in(people).matrices()[0], by_value.fold_in(people).matrices()[0])
    assert _former(tmp_path, Recommender(encoder="ease").fit(clicks), tau=0.3).tau == "density"


def test_weights_must_be_above_0_and_can_be_left_out(clicks):
    plays = clicks.assign(plays=np.arange(len(clicks)))
    for fit in (Recommender(**QUICK).fit, Recommender(encoder="ease").fit, partial(tune, trials=1)):
        with pytest.raises(InputError, match=r"weight 0 at row 1 .* weight=False"):
            fit(plays)
    assert len(Recommender(**QUICK).fit(read_interactions(plays, weight=False)).recommend(k=1))


def test_the_prior_does_not_depend_on_weights(clicks):
    plays = read_interactions(clicks.assign(plays=1 + np.arange(len(clicks))))
    plays = dataclasses.replace(plays, disliked=np.setdiff1d(np.arange(99), plays.keys))
    found = [
        estimate_prior(each, engine="reference", resamples=5) for each in (plays, read_interactions(clicks))
    ]
    assert found[0].tau == found[1].tau


def test_a_loss_of_ones_own_trains_but_says_that_it_cannot_be_saved(clicks, tmp_path):
    class Mine(BPR):
        pass

    fitted = Recommender(loss=Mine(), **QUICK).fit(clicks)
    assert len(fitted.recommend(k=1))
    with pytest.raises(
        InputError, match=r"loss = .*Mine.* cannot be saved: .*register_loss\('name', Class\)"
    ):
        fitted.save(tmp_path / "m")


def test_a_registered_loss_is_saved_loaded_and_chosen_by_name(clicks, tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Slope(Loss):
        slope: float = 1.0

        def _rows(self, pos, extra, unlabelled, users):
            gap = self.slope * (unlabelled - pos[:, None])
            return Rows(torch.nn.functional.softplus(gap).mean(dim=1), None)

    register_loss("slope", Slope)
    try:
        register_loss("slope", Slope)  # twice is no error
        fitted = Recommender(loss=Slope(2.0), sampler="uniform", **QUICK).fit(clicks)
        fitted.save(tmp_path / "m")
        loaded = Recommender.load(tmp_path / "m")
        assert loaded.loss == Slope(2.0)
        assert loaded.recommend(k=3).equals(fitted.recommend(k=3))
        named = Recommender.of({"loss": "slope", "loss.slope": 2.0, "sampler": "uniform", **QUICK}).fit(
            clicks
        )
        assert torch.equal(named.matrices()[0], fitted.matrices()[0])
        with pytest.raises(InputError, match="'bpr' is BPR already; choose another name"):
            register_loss("slope", BPR)
        with pytest.raises(InputError, match="'slope' is Slope already"):
            register_loss("other", Slope)
    finally:
        del LOSSES["slope"]
    with pytest.raises(StorageError, match=r"loss = 'slope' is not known"):  # in a program that did not
        Recommender.load(tmp_path / "m")


def test_what_cannot_be_registered():
    @dataclasses.dataclass(frozen=True)
    class Bare(BPR):
        slope: float = dataclasses.field(kw_only=True)

    @dataclasses.dataclass
    class Loose:
        pass

    for name, kind, message in (
        ("Mine", BPR, "must be lower-case letters"),
        ("bpr", InfoNCE, "'infonce' is InfoNCE already|'bpr' is BPR already"),
        ("mine", BPR, "'bpr' is BPR already"),
        ("mine", BPR(), "give the class itself"),
        ("mine", Loose, "must be a @dataclass"),
        ("mine", Bare, "has fields without a default: slope"),
    ):
        with pytest.raises(InputError, match=message):
            register_loss(name, kind)
    assert "mine" not in LOSSES


def test_trained_on_a_gpu_served_without_one(model, tmp_path, monkeypatch):
    model.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (_, facts):
        facts["model"]["parameters"]["device"] = "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Recommender.load(tmp_path / "m").device == "auto"


WRONG = {
    "no flag of the prior": (lambda said, tensors: said.pop("tau of each user"), r"'tau of each user'"),
    "an empty prior": (
        lambda said, tensors: tensors.update(tau=torch.zeros(0).double()),
        "has 0 numbers",
    ),
    "a prior above 1": (lambda said, tensors: tensors.update(tau=torch.tensor([7.0]).double()), "tau = 7"),
    "a prior of text": (lambda said, tensors: tensors.update(tau=torch.zeros(1).int()), "tau is torch.int32"),
    "another output": (lambda said, tensors: said.update(output="excel"), "output = 'excel' is not known"),
    "no parameters": (lambda said, tensors: said.pop("parameters"), "'parameters'"),
    "no metric": (lambda said, tensors: said["parameters"].update(metric=5), "metric"),
    "a loss that is a list": (lambda said, tensors: said["parameters"].update(loss=["a"]), "loss"),
    "a share of text": (lambda said, tensors: said["parameters"].update(validation="x"), "validation = 'x'"),
    "an unknown one": (
        lambda said, tensors: said["parameters"].update(surprise=1),
        "'surprise' is not a par",
    ),
    "no code": (
        lambda said, tensors: said.update(parameters={"loss": {"kind": "os.system"}}),
        r"loss = 'os\.system' is not known here",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_make_no_sense(name, model, tmp_path):
    change, message = WRONG[name]
    model.save(tmp_path / "m")
    with changed_file(tmp_path / "m") as (tensors, facts):
        tensors["tau"] = torch.zeros(1).double()
        change(facts["model"], tensors)
    with pytest.raises(StorageError, match=f"is not a sound model: .*{message}"):
        Recommender.load(tmp_path / "m")


def test_training_goes_on_from_a_checkpoint(clicks, tmp_path):
    whole = Recommender(**QUICK).fit(clicks)
    Recommender(**{**QUICK, "epochs": 3}).fit(clicks, checkpoint=tmp_path / "c")
    resumed = Recommender(**QUICK).fit(read_interactions(clicks), checkpoint=tmp_path / "c")
    assert torch.equal(whole.matrices()[0], resumed.matrices()[0])


def test_a_model_is_not_evaluated_on_pairs_that_it_has_learnt_from(world):
    split = split_random(world.observed, test=0.2, valid=0.1, seed=0)
    honest = Recommender(dim=4, epochs=2).fit(split)
    assert honest.evaluate(split).mean("ndcg@20") == evaluate(honest, split).mean("ndcg@20")
    assert honest.evaluate(split, "valid").mean("ndcg@20") > 0
    everything = Recommender(dim=4, epochs=2).fit(world.observed)
    for call in (everything.evaluate, partial(evaluate, everything)):
        for on in ("test", "valid"):
            with pytest.raises(InputError, match=rf"\d+ pairs of the {on} part were in the data"):
                call(split, on)


# --- vectors for other programs -------------------------------------------------------------------------


@pytest.mark.parametrize("parameters", [{}, {"popularity": 0.4}, {"encoder": "lightgcn"}])
def test_products_of_vectors_are_scores(parameters):
    clicks = simulate_world(40, 30, density=0.1, seed=2).observed.to_table()
    fitted = Recommender(dim=8, epochs=2, auto=False, **parameters).fit(clicks)
    users, items = fitted.vectors("users"), fitted.vectors()
    lengths = {table.column("vector").type.list_size for table in (users, items)}
    assert lengths == {8 + ("popularity" in parameters)}
    assert set(items["item"].to_pylist()) == set(clicks["item"].to_pylist())
    assert set(users["user"].to_pylist()) == set(clicks["user"].to_pylist())
    pairs = {"user": users["user"].to_pylist()[:9], "item": items["item"].to_pylist()[:9]}
    vectors = (np.stack(table["vector"].to_pylist())[:9] for table in (users, items))
    scores = fitted.score(pairs)["score"].to_numpy()
    np.testing.assert_allclose(np.einsum("nd, nd -> n", *vectors), scores, rtol=1e-5, atol=1e-6)


def test_vectors_are_of_trained_users_and_listed_items_in_the_callers_table_type():
    clicks = pd.DataFrame({"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "milk", "tea", "jam"]})
    fitted = Recommender(dim=4, epochs=2).fit(clicks)
    assert fitted.vectors("users").user.tolist() == ["ann", "bob"]
    with_unknown = split_given(
        read_interactions(clicks), read_interactions({"user": ["cat", "ann"], "item": ["tea", "roll"]})
    )
    fitted = Recommender(dim=4, epochs=2).fit(with_unknown)
    assert fitted.vectors("users").user.tolist() == ["ann", "bob"]
    assert fitted.vectors().item.tolist() == ["jam", "milk", "tea"]


@pytest.mark.parametrize("parameters", [{"encoder": "ease"}, {"encoder": "popular"}, {"blend": "ease"}])
def test_models_without_short_vectors_say_so(parameters):
    clicks = {"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "milk", "tea", "jam"]}
    trained = {} if "encoder" in parameters else {"dim": 4, "epochs": 2}
    fitted = Recommender(**parameters, **trained).fit(clicks)
    with pytest.raises(InputError, match="blend='none'"):
        fitted.vectors()
    with pytest.raises(InputError, match="of = 'user'"):
        fitted.vectors("user")
