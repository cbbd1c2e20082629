"""Tables of results have the type of the caller's, on every route; and what notebooks show."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import truepair as tp
from extras import pl
from worlds import two_tastes


@pytest.fixture(scope="module")
def table():
    """Clicks with times, ratings and repeats."""
    clicks = two_tastes().to_table()
    clicks = pa.concat_tables([clicks, clicks.slice(0, 20)])
    n = len(clicks)
    return clicks.append_column("time", pa.array(np.arange(n))).append_column(
        "rating", pa.array(np.arange(n) % 5)
    )


READ = {
    "plain": lambda read: read,
    "k-core": lambda read: read.k_core(2),
    "least rating": lambda read: read.with_min_rating(1),
    "dislikes": lambda read: read.with_dislikes(0),
    "disliked": lambda read: read.with_disliked([0], [1]),
    "catalogue": lambda read: read.with_items(range(40)),
    "random": tp.split_random,
    "per user": lambda read: tp.split_random_per_user(read, valid=0.2),
    "last": lambda read: tp.split_leave_last_out(read, valid=1),
    "temporal": lambda read: tp.split_temporal(read, valid=0.1),
    "folds": lambda read: tp.k_folds(read)[1],
    "given": lambda read: tp.split_given(
        *(getattr(tp.split_random(read), name) for name in ("train", "test"))
    ),
}


@pytest.mark.parametrize("route", READ)
def test_what_was_read_from_pandas_gives_pandas(route, table):
    data = READ[route](tp.read_interactions(table.to_pandas()))
    model = tp.Recommender(encoder="ease", device="cpu").fit(data)
    assert isinstance(model.recommend(k=2), pd.DataFrame)
    if isinstance(data, tp.Split):
        assert isinstance(model.score(data.test), pd.DataFrame)
        assert isinstance(model.fold_in(data.train).recommend(k=2), pd.DataFrame)


def test_one_model_on_every_further_route(table, tmp_path):
    frame = table.to_pandas()
    model = tp.Recommender(auto=False, dim=4, epochs=2, hold_out="last", validation=0.1, device="cpu").fit(
        frame
    )
    model.update(table.slice(0, 5)).save(tmp_path / "model.truepair")
    for fitted in (model, tp.load(tmp_path / "model.truepair")):
        pair = {"user": [0], "item": [1]}
        tables = [fitted.vectors(), fitted.similar_items([0]), fitted.similar_users([0]), fitted.score(pair)]
        tables += [fitted.fold_in(pair).recommend(k=2), fitted.forget(items=[0]).recommend(k=2)]
        assert {type(one) for one in tables} == {pd.DataFrame}
    assert isinstance(model.score(pa.table(pair)), pa.Table)
    assert isinstance(model.fold_in(pa.table(pair)).recommend(k=2), pa.Table)


def test_what_was_read_from_polars_gives_polars_and_else_arrow(table, tmp_path):
    table.to_pandas().to_csv(tmp_path / "clicks.csv", index=False)
    clicks = tp.read_interactions(tmp_path / "clicks.csv")
    plain = tp.Recommender(encoder="popular", device="cpu")
    assert isinstance(plain.fit(clicks).recommend(k=2), pa.Table)
    if pl is not None:
        data = tp.split_temporal(tp.read_interactions(pl.from_arrow(table)))
        assert isinstance(plain.fit(data).recommend(k=2), pl.DataFrame)


def test_evaluations_are_dicts_tables_and_html(table):
    split = tp.split_random(tp.read_interactions(table))
    found = tp.Recommender(encoder="popular", device="cpu").fit(split).evaluate(split, ks=(3, 5))
    numbers, frame = found.to_dict(), found.to_frame()
    assert numbers == {name: found.mean(name) for name in numbers}
    assert {"ndcg@3", "coverage@5"} < set(numbers)
    assert list(frame.columns) == ["metric", "k", "value"]
    row = frame[(frame.metric == "recall") & (frame.k == 5)]
    assert row.value.tolist() == [numbers["recall@5"]]
    html = found._repr_html_()
    assert f"<th>ndcg</th><td>{numbers['ndcg@3']:.4f}</td>" in html
    assert f"{found.n_users} users evaluated" in html
    judged = tp.evaluate(
        tp.Recommender(encoder="popular", device="cpu").fit(split),
        candidates={"user": [0, 0], "item": [0, 1], "label": [1, 0]},
    )
    assert judged.to_frame().k.isna().sum() == 1  # auc
    assert "<th>auc</th>" in judged._repr_html_()


def test_users_without_history_are_a_table_of_their_own():
    clicks = tp.read_interactions({"user": [1, 1, 2, 2], "item": [1, 2, 1, 2]})
    split = tp.split_given(clicks, tp.read_interactions({"user": [1, 3], "item": [3, 2]}))
    html = tp.Recommender(encoder="popular", device="cpu").fit(split).evaluate(split, ks=(2,))._repr_html_()
    assert "<th>without history</th><td>1</td>" in html


def test_splits_and_recommenders_are_html(table):
    split = tp.split_random(tp.read_interactions(table))
    users, items = (len(np.unique(codes)) for codes in (split.test.users, split.test.items))
    assert f"<th>test</th><td>{users}</td><td>{items}</td><td>{len(split.test)}</td>" in split._repr_html_()
    model = tp.Recommender(dim=4, epochs=2, device="cpu")
    assert "not fitted</p>" in model._repr_html_()
    assert "<th>dim</th><td>4</td>" in model.fit(split)._repr_html_()
    assert "fitted on &lt;Interactions" in model._repr_html_()


def test_the_repr_of_a_plain_fit(table):
    assert repr(tp.Recommender()) == "Recommender()"
    model = tp.Recommender(encoder="popular").fit(table)
    model.encoder = "mf"
    assert repr(model) == f"Recommender(fitted on {model.seen_})"
