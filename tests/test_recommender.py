"""The recommender as its users meet it."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from truepair.data.reading import read_interactions
from truepair.data.simulation import simulate_world
from truepair.data.splitting import split_random, split_random_per_user
from truepair.encoders import LightGCN
from truepair.errors import InputError, StorageError
from truepair.evaluation import evaluate
from truepair.losses import DPL, InfoNCE
from truepair.ranking import top_k
from truepair.recommender import Recommender
from truepair.sampling import DNS
from truepair.training import Settings
from worlds import two_tastes

QUICK = {"dim": 8, "epochs": 8, "patience": 3, "learning_rate": 0.02, "device": "cpu"}


@pytest.fixture(scope="module")
def world():
    return simulate_world(90, 60, tau=0.1, density=0.12, seed=2)


@pytest.fixture(scope="module")
def clicks(world):
    return world.observed.to_table().to_pandas()


@pytest.fixture(scope="module")
def model(clicks):
    return Recommender(**QUICK).fit(clicks)


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
    ("source", "kind"), [(pl.from_pandas, pl.DataFrame), (pa.Table.from_pandas, pa.Table)]
)
def test_the_callers_table_type(source, kind, clicks):
    fitted = Recommender(**QUICK).fit(source(clicks))
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


def test_what_is_recommended_equals_what_is_evaluated(world):
    split = split_random(world.observed, 0.2, valid=0.1)
    fitted = Recommender(**QUICK).fit(split)
    lists = fitted.recommend(k=20).to_pandas()
    held_out = split.test.to_table().to_pandas().merge(lists, on=["user", "item"])
    found = held_out.groupby("user").size()
    sizes = split.test.to_table().to_pandas().groupby("user").size()
    recall = (found.reindex(sizes.index).fillna(0) / sizes).mean()
    ours = evaluate(fitted.users_, fitted.items_, split.test, exclude=[split.train, split.valid], ks=(20,))
    assert recall == pytest.approx(ours.mean("recall@20"))


def test_unknown_users_are_named_or_get_what_is_popular(model, clicks):
    with pytest.raises(InputError, match="unknown user: 'nobody'"):
        model.recommend(["nobody"])
    table = model.recommend(["nobody", "user 0001"], k=3, unknown="popular")
    popular = clicks.item.value_counts()
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


def test_similar_items_and_users(model, clicks):
    table = model.similar_items([clicks.item[0]], k=59)
    assert clicks.item[0] not in set(table.similar)
    assert len(table) == clicks.item.nunique() - 1
    codes = model.seen_.item_ids.codes([clicks.item[0], table.similar[0]])
    vectors = model.items_[torch.from_numpy(codes)]
    assert table.score[0] == pytest.approx(
        torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), abs=1e-6
    )
    assert len(model.similar_users(["user 0001", "user 0002"], k=3)) == 6
    with pytest.raises(InputError, match="unknown item: 'x'"):
        model.similar_items(["x"])


def test_score_is_the_score_of_the_list(model):
    table = model.recommend(["user 0005"], k=4)
    scored = model.score(table[["user", "item"]])
    np.testing.assert_allclose(scored.score, table.score, rtol=1e-5)


# --- habits of scikit-learn ----------------------------------------------------------------------------


def test_parameters(model):
    fresh = Recommender(**QUICK)
    assert fresh.get_params()["dim"] == 8
    assert fresh.set_params(dim=9) is fresh
    assert fresh.dim == 9
    assert "dim=9" in repr(fresh)
    with pytest.raises(InputError, match=r"'dims' is no parameter of Recommender. Did you mean 'dim'"):
        fresh.set_params(dims=3)
    with pytest.raises(TypeError):
        Recommender("dpl")


def test_clone_of_scikit_learn():
    clone = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed").clone
    original = Recommender(loss=DPL(tau=0.2), dim=5)
    assert clone(original).get_params() == original.get_params()


def test_every_setting_is_a_parameter():
    assert {f.name for f in dataclasses.fields(Settings)} <= set(Recommender().get_params())


def test_parts_by_name_or_by_value(clicks):
    by_value = Recommender(
        loss=InfoNCE(temperature=0.5), encoder=LightGCN(dim=4, hops=2), sampler=DNS(pool=12), **QUICK
    ).fit(clicks)
    assert by_value.users_.shape[1] == 4
    with pytest.raises(InputError, match=r"loss = 'dppl' is not known.*Did you mean 'dpl'"):
        Recommender(loss="dppl").fit(clicks)
    with pytest.raises(InputError, match=r"tau = 1.5"):
        Recommender(tau=1.5).fit(clicks)


def test_not_fitted_yet():
    for use in (
        lambda m: m.recommend(),
        lambda m: m.similar_items([1]),
        lambda m: m.save("x"),
        lambda m: m.score({}),
    ):
        with pytest.raises(InputError, match="not fitted yet"):
            use(Recommender())


def test_validation_given_carved_or_none(world):
    split = split_random(world.observed, 0.2)
    given = Recommender(**QUICK).fit(split.train, valid=split.test)
    carved = Recommender(**QUICK).fit(split.train)
    nothing = Recommender(**{**QUICK, "validation": 0}).fit(split.train)
    assert "validation ndcg@20" in given.facts_["metrics"]
    assert "validation ndcg@20" in carved.facts_["metrics"]
    assert nothing.facts_["metrics"] == {}
    assert nothing.result_.epoch == 8
    with pytest.raises(InputError, match=r"validation = 0.1 of 4 pairs is none; use validation=0"):
        Recommender().fit({"user": [1, 1, 2, 2], "item": [1, 2, 1, 3]})


def test_known_items_include_the_validation_part(world):
    fitted = Recommender(**QUICK).fit(world.observed)
    assert len(fitted.seen_) == len(world.observed)


# --- new people ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ["mf", "lightgcn"])
@pytest.mark.parametrize("loss", ["bpr", "dpl"])
def test_new_people_of_a_taste_get_items_of_that_taste(encoder, loss):
    data = two_tastes(n_users=200, n_items=40, each=8)
    fitted = Recommender(loss=loss, encoder=encoder, **{**QUICK, "dim": 4, "epochs": 15}).fit(data)
    rng = np.random.default_rng(5)
    rows = [
        (f"guest {g}", i) for g in range(6) for i in rng.choice(np.arange(g % 2, 40, 2), 6, replace=False)
    ]
    guests = fitted.fold_in(pd.DataFrame(rows, columns=["user", "item"]))
    table = guests.recommend(k=10)
    parity = table.user.str[-1].astype(int) % 2
    assert (table.item % 2 == parity).mean() > 0.9


def test_folding_in_a_training_users_own_history_gives_nearly_their_list(world):
    split = split_random_per_user(world.observed, 0.2)
    fitted = Recommender(**{**QUICK, "epochs": 30}).fit(split)
    guests = fitted.fold_in(split.train)
    theirs, ours = (top_k(m.users_, m.items_, 10, exclude=split.train).items for m in (fitted, guests))
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(theirs, ours, strict=True)])
    assert overlap > 0.5


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
    assert loaded.get_params() == model.get_params()
    assert loaded.facts_["metrics"] == model.facts_["metrics"]
    assert set(loaded.facts_["versions"]) == {"truepair", "torch", "numpy", "pyarrow"}


def test_parts_given_by_value_are_saved_too(clicks, tmp_path):
    n_users = clicks.user.nunique()
    original = Recommender(loss=DPL(tau=[0.1] * n_users), encoder=LightGCN(dim=4), **QUICK).fit(clicks)
    original.save(tmp_path / "m")
    loaded = Recommender.load(tmp_path / "m")
    assert loaded.get_params() == original.get_params()


def test_a_model_that_describes_no_recommender(model, tmp_path):
    broken = Recommender(**QUICK)
    broken._take(dataclasses.replace(_model_of(model), facts={"parameters": {"loss": {"kind": "os.system"}}}))
    broken.output_ = "arrow"
    broken.save(tmp_path / "m")
    with pytest.raises(StorageError, match=r"does not describe a Recommender: .*os\.system"):
        Recommender.load(tmp_path / "m")


def _model_of(fitted):
    from truepair.storage import Model

    return Model(fitted.users_, fitted.items_, fitted.seen_, fitted.facts_)


def test_training_goes_on_from_a_checkpoint(clicks, tmp_path):
    whole = Recommender(**QUICK).fit(clicks)
    Recommender(**{**QUICK, "epochs": 3}).fit(clicks, checkpoint=tmp_path / "c")
    resumed = Recommender(**QUICK).fit(read_interactions(clicks), checkpoint=tmp_path / "c")
    assert torch.equal(whole.users_, resumed.users_)
