"""Lists that people can use: filters on a table of items, quotas, diversity, explanations."""

import dataclasses
import datetime
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch

from extras import pl
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.simulation import simulate_world
from truepair.errors import InputError
from truepair.models.closed_forms import EASE
from truepair.models.scorer import Scorer
from truepair.recommender.estimator import Recommender
from truepair.recommender.lister import known_users
from truepair.recommender.listing.item_table import expression_of
from truepair.recommender.listing.reranking import POOL
from truepair.recommender.lists import ListOptions
from worlds import distinctive, two_tastes

TRAINED = {"dim": 8, "epochs": 8, "learning_rate": 0.02, "device": "cpu", "auto": False}
MODELS = {
    "mf": {**TRAINED, "popularity": 0.5},
    "blend": {**TRAINED, "popularity": 0.5, "blend": EASE(l2=20), "blend_weight": 2.0},
    "itemknn": {"encoder": "itemknn"},
    "ease": {"encoder": EASE(l2=20)},
    "popular": {"encoder": "popular"},
}


@pytest.fixture(scope="module")
def clicks():
    return simulate_world(50, 60, tau=0.1, density=0.12, seed=2).observed.to_table().to_pandas()


@pytest.fixture(scope="module")
def items(clicks):
    names = sorted(set(clicks.item))
    rng = np.random.default_rng(5)
    prices = rng.integers(1, 30, len(names)).astype(float)
    prices[3] = np.nan
    shops = [None if k % 7 == 0 else f"shop {k % 5}" for k in range(len(names))]
    genres = rng.choice(["tea", "jam", "milk"], len(names))
    table = pd.DataFrame({"item": names, "price": prices, "genre": genres, "shop": shops})
    return table.sample(frac=1, random_state=1).reset_index(drop=True)


@pytest.fixture(scope="module")
def fitted(clicks):
    return {name: Recommender(**options).fit(clicks) for name, options in MODELS.items()}


@pytest.fixture(params=MODELS)
def model(request, fitted):
    return fitted[request.param]


@pytest.fixture
def mf(fitted):
    return fitted["mf"]


# --- filters ---------------------------------------------------------------------------------------------


def sources(items, tmp_path):
    items.to_csv(tmp_path / "items.csv", index=False)
    pq.write_table(pa.Table.from_pandas(items), tmp_path / "items.parquet")
    return [
        pa.Table.from_pandas(items),
        items.astype({"genre": "category"}),
        {name: items[name].tolist() for name in items},
        tmp_path / "items.csv",
        str(tmp_path / "items.parquet"),
        items.rename(columns={"item": "item_id"}).assign(album="x", artist="y"),
    ]


def test_a_filter_leaves_the_order_of_what_it_allows(model, items, tmp_path):
    mask = (items.price < 12) & items.genre.isin(["tea", "jam"])
    allowed = set(items.item[mask])
    assert 5 < len(allowed) < 40
    whole = model.recommend(k=60)
    expected = whole[whole.item.isin(allowed)].groupby("user").head(7).reset_index(drop=True)
    text = "price < 12 and genre in ('tea', 'jam')"
    expression = (pc.field("price") < 12) & pc.field("genre").isin(["tea", "jam"])
    calls = [(source, where) for source in sources(items, tmp_path) for where in (text, expression)]
    masks = [mask, mask.tolist(), mask.to_numpy(), pa.array(mask)]
    first = None
    for source, where in [*calls, *((items, where) for where in masks)]:
        found = model.recommend(k=7, items=source, where=where)
        first = found if first is None else first
        pd.testing.assert_frame_equal(found, first)
    assert set(found.item) <= allowed
    assert found.score.tolist() == expected.score.tolist()  # of equal scores, which comes first may change
    assert found.user.tolist() == expected.user.tolist()
    assert found["rank"].tolist() == (found.groupby("user").cumcount() + 1).tolist()
    if model.encoder in ("mf", EASE(l2=20)):
        assert found.item.tolist() == expected.item.tolist()


def test_a_filter_takes_tables_and_masks_of_polars(model, items):
    text = "price < 12 and genre in ('tea', 'jam')"
    table, mask = pl.from_pandas(items), pl.Series((items.price < 12) & items.genre.isin(["tea", "jam"]))
    expected = model.recommend(k=7, items=items, where=text)
    for source, where in ((table, text), (items, mask), (table, mask)):
        pd.testing.assert_frame_equal(model.recommend(k=7, items=source, where=where), expected)


def test_lists_of_all_items_copy_no_pairs(mf):
    model = mf.model_
    codes = np.array([3, 0, 7])
    users = known_users(model, model.seen.user_ids.ids.take(codes), codes)
    assert np.shares_memory(users.hidden.items, model.seen.items)
    owners, items = users.hidden.pairs()
    assert [items[owners == at].tolist() for at in range(3)] == [
        model.seen.items_of(code).tolist() for code in codes
    ]
    lister = ListOptions().lister(model)
    assert len(lister.codes) == model.seen.n_items
    assert lister is ListOptions(exclude_items={"user 0001": []}).lister(model)  # it is made once
    some = ListOptions(exclude_items=model.seen.item_ids.ids[:1]).lister(model)
    assert some.codes.tolist() == list(range(1, model.seen.n_items))
    assert some.by_scores.column[0] == -1  # no place for what is left out


def test_a_mask_with_the_index_of_another_order_is_refused(mf, items):
    """pandas would align it; here it would filter other items than meant."""
    mask = items.price < 12
    shuffled = mask.sample(frac=1, random_state=3)
    with pytest.raises(InputError, match=r"index is not that of the table; make it from the same table"):
        mf.recommend(k=5, items=items, where=shuffled)
    sorted_items = items.sort_values("price")
    for table, where in (
        (items, shuffled.sort_index()),
        (sorted_items, sorted_items.price < 12),
        (sorted_items, (sorted_items.price < 12).to_numpy()),
        (pa.Table.from_pandas(items), mask),
    ):
        found = mf.recommend(k=5, items=table, where=where)
        pd.testing.assert_frame_equal(found, mf.recommend(k=5, items=items, where="price < 12"))


def test_items_of_users_may_be_given_in_any_form(mf, items):
    names = sorted(items.item)
    people = [f"user {k:04}" for k in range(1, 7)]
    blocked = dict(zip(people, (names[k : 3 * k] for k in range(6)), strict=True))
    forms = [
        list,
        tuple,
        np.array,
        pd.Series,
        pa.array,
        lambda some: [*some, *some[::-1]],  # the same item twice
        lambda some: some[0] if len(some) == 1 else some,
    ]
    everything = mf.recommend(people, k=60)
    pairs = zip(everything.user, everything.item, strict=True)
    expected = everything[[item not in blocked[user] for user, item in pairs]]
    assert len(expected) < len(everything) - 10
    for form in forms:
        given = {user: form(some) if some else [] for user, some in blocked.items()}
        found = mf.recommend(people, k=60, exclude_items=given)
        assert found[["user", "item"]].values.tolist() == expected[["user", "item"]].values.tolist()
    mixed = {user: form(blocked[user]) for user, form in zip(people[1:], forms[1:], strict=False)}
    found = mf.recommend(people[1:], k=60, exclude_items=mixed)
    assert found.item.tolist() == expected.item[expected.user != people[0]].tolist()
    for wrong in ({people[0]: [names[0]], people[1]: [7]}, {people[0]: np.array([7]), people[1]: [names[0]]}):
        with pytest.raises(InputError, match="item ids"):
            mf.recommend(people, exclude_items=wrong)


@pytest.mark.parametrize("form", [list, tuple, np.array, pd.Series, pa.array, pl.Series])
def test_items_of_all_users_may_be_given_in_any_form(form, mf, items):
    names = sorted(items.item)
    everything = mf.recommend(k=60)
    for excluded in (names[:5], names[:1]):
        found = mf.recommend(k=60, exclude_items=form(excluded))
        assert found.item.tolist() == everything.item[~everything.item.isin(excluded)].tolist()
    only = mf.recommend(k=60, only_items=form(names[:5]))
    assert only.item.tolist() == everything.item[everything.item.isin(names[:5])].tolist()
    assert mf.recommend(k=60, exclude_items={}).equals(everything)


def test_null_meets_no_condition(mf, items):
    without = set(items.item[items.price.isna()])
    assert len(without) == 1
    for where in ("price < 12", "not price < 12", "price not in (1, 2)", [None] * len(items)):
        if isinstance(where, list):
            with pytest.raises(InputError, match="not boolean"):
                mf.recommend(items=items, where=where)
            where = pa.array(where, pa.bool_())
            with pytest.raises(InputError, match="no item is left to recommend; loosen where"):
                mf.recommend(items=items, where=where)
        else:
            found = mf.recommend(k=60, exclude_seen=False, items=items, where=where)
            assert not without & set(found.item)


def test_filters_work_together_with_the_others_and_for_everybody(model, items, clicks):
    some = sorted(items.item[items.price < 15])
    found = model.recommend(
        ["nobody", "user 0001"],
        k=60,
        items=items,
        where="price < 15",
        exclude_items={"user 0001": some[:3]},
        only_items=some[1:],
        unknown="popular",
    )
    theirs = set(clicks.item[clicks.user == "user 0001"]) | set(some[:3])
    assert set(found.item[found.user == "user 0001"]) == set(some[1:]) - theirs
    assert set(found.item[found.user == "nobody"]) == set(some[1:])


def test_items_that_the_table_misses_and_items_that_it_has_beside(mf, items):
    new = pd.DataFrame({"item": ["new"], "price": [1.0]})
    for more in (pd.concat([items, new]), pd.concat([new, items])):
        pd.testing.assert_frame_equal(
            mf.recommend(k=5, items=items, where="price < 12"),
            mf.recommend(k=5, items=more, where="price < 12"),
        )
    fewer = items[10:]
    with pytest.raises(
        InputError, match=r"no row for 10 of the model's items: .* and 5 more; .* unknown='drop'"
    ):
        mf.recommend(items=fewer, where="price < 12")
    for options in ({"where": "price > 0"}, {"quota": {"genre": 60}}):
        found = mf.recommend(k=60, exclude_seen=False, items=fewer, unknown="drop", **options)
        left = fewer if "quota" in options else fewer[fewer.price > 0]
        assert set(found.item) == set(left.item)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            lambda t: pd.concat([t, t[:2]]),
            {},
            r"the table has several rows for 2 items: '.*', '.*'; keep one row",
        ),
        (
            lambda t: t.rename(columns={"item": "what"}),
            {},
            r"no column that is recognised as the item; its .*'what'",
        ),
        (lambda t: t.assign(item_id=t.item), {}, r"2 columns that are recognised as the item"),
        (lambda t: t.assign(item=t.item.where(t.index != 4)), {}, r"no item id at row 5"),
        (
            lambda t: t.assign(item=range(len(t))),
            {},
            r"item ids are of type int64 here and of type large_string",
        ),
        (lambda t: t[:0].astype({"item": "str"}), {}, r"no row for \d+ of the model's items"),
        (lambda t: t.to_numpy(), {}, r"items is a .*; give a path, a table"),
        (lambda t: 7, {}, r"items is a .*; give a path, a table"),
        (lambda t: "nowhere.csv", {}, r"nowhere.csv does not exist"),
        (lambda t: {"item": ["a", "b"], "price": [1]}, {}, r"the dict is not a table"),
        (lambda t: None, {}, r"where needs a table of the items with its columns"),
        (lambda t: None, {"where": None, "quota": {"genre": 1}}, r"quota needs a table of the items"),
        (lambda t: t, {"where": None}, r"items has no effect without where or quota"),
        (
            lambda t: t,
            {"where": "prise < 3"},
            r"has no column 'prise'; its columns are .* Did you mean 'price'",
        ),
        (lambda t: t, {"where": pc.field("prise") < 3}, r"has no column 'prise'; .* Did you mean 'price'"),
        (lambda t: t, {"where": pc.scalar(True)}, r"where = true names no column of the table; its columns"),
        (lambda t: t, {"where": "1 < 2"}, r"names no column of the table"),
        (lambda t: t, {"where": "price"}, r"cannot be evaluated on the table: .*bool"),
        (lambda t: t, {"where": "price < 'a'"}, r"cannot be evaluated on the table: .*no kernel"),
        (lambda t: t, {"where": "genre in (1, 2)"}, r"cannot be evaluated on the table"),
        (lambda t: t, {"where": lambda row: True}, r"where is a function, .*; give an Arrow expression"),
        (lambda t: t, {"where": True}, r"where is a bool, .*; give an Arrow expression"),
        (lambda t: pl.from_pandas(t).lazy(), {}, r"items is a LazyFrame, .*; give a path, a table"),
        (lambda t: t, {"where": np.ones((60, 1), bool)}, r"where is a ndarray, which is no mask"),
        (lambda t: t, {"where": [True]}, r"where has 1 values for \d+ rows"),
        (lambda t: t, {"where": [1, 0]}, r"where is of type int64, not boolean"),
        (lambda t: t, {"where": "price < 0"}, r"no item is left to recommend; loosen where"),
        (lambda t: t, {"quota": 3}, r"quota is a int, .*; give a mapping"),
        (lambda t: t, {"quota": {}}, r"quota names no column"),
        (lambda t: t, {"quota": {"gnre": 3}}, r"has no column 'gnre'; .* Did you mean 'genre'"),
        (lambda t: t, {"quota": {"genre": 0}}, r"quota of 'genre' = 0 is out of range"),
        (lambda t: t, {"quota": {"genre": 1.5}}, r"quota of 'genre' = 1.5 is out of range"),
        (
            lambda t: t.assign(tags=[["a"]] * len(t)),
            {"quota": {"tags": 1}},
            r"'tags' of the table is of type list",
        ),
        (lambda t: t, {"diversify": 1.0}, r"diversify = 1.0 is out of range"),
        (lambda t: t, {"diversify": -0.1}, r"diversify = -0.1 is out of range"),
        (lambda t: t, {"diversify": float("nan")}, r"diversify = nan is out of range"),
        (lambda t: t, {"explain": 0}, r"explain = 0 is out of range"),
        (lambda t: t, {"explain": "yes"}, r"explain = 'yes' is out of range"),
    ],
)
def test_bad_input_is_a_clear_error_and_changes_nothing(change, options, message, mf, items):
    before = mf.recommend(k=5)
    table = items.copy()
    with pytest.raises(InputError, match=message):
        mf.recommend(**{"items": change(items), "where": "price < 12", **options})
    pd.testing.assert_frame_equal(mf.recommend(k=5), before)
    pd.testing.assert_frame_equal(items, table)


def test_an_expression_of_polars_is_a_clear_error(mf, items):
    with pytest.raises(InputError, match=r"where is a Expr, which is no mask; give an Arrow"):
        mf.recommend(items=items, where=pl.col("price") < 3)


def test_ids_and_cells_of_text_files_get_the_types_of_the_model(tmp_path):
    data = two_tastes(n_items=12, each=4)
    path = tmp_path / "items.csv"
    lines = [f"{k},{k % 3}.5,{'true' if k % 2 else 'false'},00{k},{'NA' if k == 4 else k}" for k in range(12)]
    path.write_text("\n".join(["item,price,sold,code,stock", *lines]))
    as_text = Interactions(data.users, data.items, data.user_ids, IdMap.of([f"{k:02}" for k in range(12)]))
    path_of_text = tmp_path / "text.csv"
    path_of_text.write_text("\n".join(["item,stock", *(f"{k},{k}" for k in range(10, 22))]))
    model = Recommender(encoder="itemknn").fit(data)
    for where, kept in {
        "price == 1.5 and not sold": {4, 10},
        "code == '007'": {7},
        "stock >= 3 and stock <= 5": {3, 5},
        "stock != -1": set(range(12)) - {4},
    }.items():
        found = model.recommend(k=12, exclude_seen=False, items=path, where=where)
        assert set(found["item"].to_pylist()) == kept
    model = Recommender(encoder="itemknn").fit(as_text)
    found = model.recommend(k=12, exclude_seen=False, items=path_of_text, where="stock >= 11", unknown="drop")
    assert set(found["item"].to_pylist()) == {"11"}


# --- conditions as text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("n == 2", [2]),
        ("n != 2 and 1 <= n < 4", [1, 3]),
        ('not n > 1 or name == "d\'or"', [0, 1, 4]),
        ("n in [1, 3]", [1, 3]),
        ("n not in {1, 3}", [0, 2, 4]),
        ("name in ('a', 'b',)", [0, 1]),
        ("x > -1.5", [2, 3, 4]),
        ("ok", [0, 2, 4]),
        ("not ok", [1, 3]),
        ("ok == False", [1, 3]),
        ("  n < m  ", [0, 1]),
        ("größe == 'ß'", [0]),
        ("n > 1e0", [2, 3, 4]),
    ],
)
def test_conditions_as_text(text, kept):
    table = pa.table(
        {
            "n": range(5),
            "m": [2, 2, 2, 2, 2],
            "x": [-3.0, -2.0, -1.0, 0.0, 1.0],
            "name": ["a", "b", "c", "d", "d'or"],
            "ok": [True, False, True, False, True],
            "größe": ["ß", "s", "s", "s", "s"],
        }
    )
    assert table.filter(expression_of(text))["n"].to_pylist() == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price <",
        "price < 10; import os",
        "__import__('os').system('false')",
        "open('secret')",
        "price.real < 3",
        "price[0] < 3",
        "(lambda: 1)() < price",
        "[p for p in price]",
        "price in names",
        "price in range(3)",
        "price < 10 ** 10",
        "price + 1 < 3",
        "price < f'{1}'",
        "price < b'1'",
        "price < 1j",
        "price is None",
        "price == None",
        "price if price else price",
        "(price := 3) < 4",
        "await price",
        "price < ...",
        "-price < 3",
        "~price",
        "price < " + "9" * 60,
        "price < -'a'",
        "price in (1, 'a')",
        "price in (1, price)",
        "'a'",
        "3",
        "(" * 300 + "price" + ")" * 300,
        "not " * 499 + "(" * 2,
        "-" * 1900 + "1 < price",
        "price < 1" + " and price < 1" * 400,
        "a\0b",
        "price < '\\d\ud800'",
        "*price",
        "price, price",
        "yield price",
    ],
)
def test_hostile_conditions_are_refused(text, monkeypatch):
    monkeypatch.setattr("builtins.eval", None)
    monkeypatch.setattr("builtins.exec", None)
    with pytest.raises(InputError, match="where"):
        expression_of(text)


def test_deep_conditions_do_no_harm(mf, items):
    found = mf.recommend(k=3, items=items, where="not " * 400 + "price < 12")
    assert found.equals(mf.recommend(k=3, items=items, where="price < 12"))


# --- quotas and diversity --------------------------------------------------------------------------------


def vectors_of(model):
    """The vectors whose cosines count, by item id."""
    scorer = model.model_.scorer
    rows = scorer.items if scorer.dim else scorer.weights
    rows = rows.toarray() if isinstance(rows, sp.csr_array) else rows.numpy()
    return dict(zip(model.seen_.item_ids.ids.to_pylist(), rows.astype(float), strict=True))


def cosine(a, b):
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / length if length else 0.0


def greedy(ranking, k, quotas, diversify, vectors):
    """One list, in plain Python: ranking is [(item, score)], quotas [({item: value}, limit)]."""
    size = POOL * k
    while True:
        pool, chosen = ranking[:size], []
        high, low = pool[0][1], pool[-1][1]
        while len(chosen) < k:
            best, highest = None, -np.inf
            for item, score in pool:
                full = any(
                    values[item] is not None
                    and sum(values[other] == values[item] for other in chosen) >= limit
                    for values, limit in quotas
                )
                if item in chosen or full:
                    continue
                value = (1 - diversify) * ((score - low) / (high - low) if high > low else 0.0)
                if chosen and diversify:
                    value -= diversify * max(cosine(vectors[item], vectors[c]) for c in chosen)
                if value > highest:
                    best, highest = item, value
            if best is None:
                break
            chosen.append(best)
        if len(chosen) == k or size >= len(ranking):
            return chosen
        size *= 2


@pytest.mark.parametrize("name", ["mf", "blend", "itemknn", "ease"])
@pytest.mark.parametrize(
    ("k", "diversify", "quota"),
    [
        (4, 0.3, None),
        (2, 0.7, {"genre": 1}),
        (3, 0.0, {"genre": 1}),
        (12, 0.2, {"genre": 3, "shop": 2}),
        (60, 0.5, None),
    ],
)
def test_quotas_and_diversity_equal_the_plain_way(name, k, diversify, quota, fitted, items):
    model = fitted[name]
    people = [f"user {k:04}" for k in (1, 4, 9, 20, 33)]
    whole = model.recommend(people, k=60, items=items, where="price > 4")
    facts = {column: items.set_index("item")[column].to_dict() for column in quota or {}}
    limits = [(facts[column], limit) for column, limit in (quota or {}).items()]
    vectors = vectors_of(model)
    found = model.recommend(people, k=k, items=items, where="price > 4", quota=quota, diversify=diversify)
    scores = whole.set_index(["user", "item"]).score
    lists = found.groupby("user", sort=False)
    for user, ranking in whole.groupby("user", sort=False):
        pairs = list(zip(ranking.item, ranking.score.astype(float), strict=True))
        expected = greedy(pairs, k, limits, diversify, vectors)
        one = lists.get_group(user)
        assert one.item.tolist() == expected
        assert one["rank"].tolist() == list(range(1, len(expected) + 1))
        assert one.score.tolist() == [scores[user, item] for item in expected]


def test_a_list_is_complete_while_candidates_last(model, items):
    genres = items.set_index("item").genre
    found = model.recommend(k=6, items=items, quota={"genre": 2})
    assert (found.groupby("user").size() == 6).all()
    counts = found.assign(genre=found.item.map(genres)).groupby(["user", "genre"]).size()
    assert (counts == 2).all()
    found = model.recommend(k=7, items=items, quota={"genre": 2})
    assert (found.groupby("user").size() == 6).all()  # three genres have no seventh


def test_the_pool_grows_until_the_quotas_let_a_list_be_complete():
    """All the best items are of one shop; others come after 10 · k of them."""
    n = 400
    data = Interactions(np.zeros(n, int), np.arange(n), IdMap.range(2), IdMap.range(n))
    model = Recommender(encoder="popular").fit(data)
    scorer = Scorer(torch.zeros(2, 0), torch.zeros(n, 0), torch.linspace(2, 1, n))
    model.model_ = dataclasses.replace(model.model_, scorer=scorer, popularity=np.arange(n, 0, -1))
    table = {"item": list(range(n)), "shop": ["big"] * (n - 4) + ["small"] * 4}
    found = model.recommend([0], k=5, exclude_seen=False, items=table, quota={"shop": 2})
    assert found["item"].to_pylist() == [0, 1, n - 4, n - 3]
    found = model.recommend([0], k=3, exclude_seen=False, items=table, quota={"shop": 2})
    assert found["item"].to_pylist() == [0, 1, n - 4]


def test_a_pool_that_grows_is_doubled():
    """Scores are scaled by the pool, so its size decides what diversity prefers."""
    n, chance = 300, torch.Generator().manual_seed(4)
    data = two_tastes(n_users=6, n_items=n, each=150)
    model = Recommender(dim=4, epochs=1, auto=False, device="cpu").fit(data)
    users, vectors = (torch.randn(m, 4, generator=chance) for m in (6, n))
    scorer = Scorer(users, vectors)
    model.model_ = dataclasses.replace(model.model_, scorer=scorer, seen=data, popularity=np.ones(n, int))
    for user in range(6):
        whole = model.recommend([user], k=n, exclude_seen=False)
        ranking = list(zip(whole["item"].to_pylist(), whole["score"].to_pylist(), strict=True))
        shops = {item: "big" if rank < 30 else str(rank % 9) for rank, (item, _) in enumerate(ranking)}
        table = {"item": list(shops), "shop": list(shops.values())}
        options = {"exclude_seen": False, "items": table, "quota": {"shop": 1}, "diversify": 0.3}
        found = model.recommend([user], k=2, **options)["item"].to_pylist()
        rows = dict(enumerate(vectors.numpy().astype(float)))
        assert found == greedy(ranking, 2, [(shops, 1)], 0.3, rows)


def test_no_diversity_is_the_plain_list_and_more_of_it_makes_lists_less_alike(mf):
    plain = mf.recommend(k=10)
    pd.testing.assert_frame_equal(mf.recommend(k=10, diversify=0.0), plain)
    vectors = vectors_of(mf)

    def likeness(diversify):
        lists = mf.recommend(k=5, diversify=diversify).groupby("user").item.apply(list)
        return np.mean([cosine(vectors[a], vectors[b]) for one in lists for a in one for b in one if a < b])

    values = [likeness(diversify) for diversify in (0.0, 0.2, 0.5, 0.9)]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[-1] > 0.2


def test_the_first_is_always_the_best(mf):
    plain, diverse = mf.recommend(k=1), mf.recommend(k=8, diversify=0.95)
    assert diverse[diverse["rank"] == 1].item.tolist() == plain.item.tolist()


def test_popularity_has_nothing_to_diversify_by(fitted):
    with pytest.raises(InputError, match="encoder 'popular' has none; use 'mf'"):
        fitted["popular"].recommend(diversify=0.2)


def test_popular_lists_are_filtered_limited_and_diverse_too(mf, items):
    lists = mf.recommend(["x", "y"], k=6, unknown="popular", items=items, quota={"genre": 2}, diversify=0.3)
    assert lists.item[:6].tolist() == lists.item[6:].tolist()
    plain = mf.recommend(["x"], k=60, unknown="popular")
    pairs = list(zip(plain.item, plain.score.astype(float), strict=True))
    genres = items.set_index("item").genre.to_dict()
    assert lists.item[:6].tolist() == greedy(pairs, 6, [(genres, 2)], 0.3, vectors_of(mf))


def test_batches_parts_and_threads_change_nothing(model, items, monkeypatch):
    options = {"items": items, "where": "price > 3", "quota": {"genre": 2}, "explain": 2}
    if model.encoder != "popular":
        options["diversify"] = 0.3
    together = model.recommend(k=5, **options)
    parts = pa.concat_tables(model.recommend_in_parts(k=5, part=7, **options)).to_pandas()
    alone = [model.recommend([user], k=5, **options) for user in together.user.unique()]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr("truepair.recommender.listing.reranking._AT_ONCE", 200)
    for other in (parts, pd.concat(alone, ignore_index=True), model.recommend(k=5, **options)):
        pd.testing.assert_frame_equal(together, other)


def test_no_users_and_users_without_candidates(mf, items, clicks):
    options = {"items": items, "quota": {"genre": 2}, "diversify": 0.2, "explain": True}
    assert len(mf.recommend([], **options)) == 0
    theirs = clicks.item[clicks.user == "user 0001"].tolist()
    assert len(mf.recommend(["user 0001"], only_items=theirs, **options)) == 0


# --- explanations ----------------------------------------------------------------------------------------


def test_weights_rest_and_popularity_add_up_to_the_score(model, clicks):
    for most in (True, 2, 100):
        table = model.recommend(k=9, explain=most)
        assert list(table.columns) == ["user", "item", "score", "rank", "because", "rest", "popularity"]
        pd.testing.assert_frame_equal(table[["user", "item", "score", "rank"]], model.recommend(k=9))
        weights = table.because.map(lambda because: sum(entry["weight"] for entry in because))
        if model.encoder == "mf" and model.blend is None:
            assert table.rest.isna().all()
            continue
        assert not table.rest.isna().any()
        np.testing.assert_allclose(weights + table.rest + table.popularity, table.score, rtol=1e-4, atol=1e-5)
        assert (table.because.map(len) <= (5 if most is True else most)).all()


@pytest.mark.parametrize("name", ["ease", "blend", "itemknn"])
def test_weights_are_those_of_the_closed_form(name, fitted, clicks):
    """weight = what the score loses without the item, in the part of the closed form."""
    model = fitted[name]
    ids = model.seen_.item_ids.ids.to_pylist()
    scorer = model.model_.scorer
    rows = scorer.weights.toarray() if name == "itemknn" else scorer.weights.numpy()
    has = clicks.groupby("user").item.apply(set)
    table = model.recommend(k=6, explain=100)
    assert table.because.map(len).max() > 3
    for line in table.itertuples():
        expected = {i: rows[ids.index(line.item), ids.index(i)] for i in has[line.user]}
        speaks = {i: w for i, w in expected.items() if w > 0}
        assert {entry["item"]: entry["weight"] for entry in line.because} == pytest.approx(speaks, abs=1e-6)
        found = [entry["weight"] for entry in line.because]
        assert found == sorted(found, reverse=True)
        against = sum(w for w in expected.values() if w < 0)
        user = model.seen_.user_ids.codes([line.user])[0]
        trained = 0.0
        if name == "blend":
            trained = float(scorer.items[ids.index(line.item)] @ scorer.users[user])
            assert line.popularity == pytest.approx(float(scorer.term[ids.index(line.item)]))
        assert line.rest == pytest.approx(against + trained, abs=1e-4)


def test_of_a_trained_model_the_weights_are_similarities_and_popularity_stands_apart(mf, clicks):
    ids = mf.seen_.item_ids.ids.to_pylist()
    alike = distinctive(mf.model_.scorer.items, mf.popularity_).numpy()
    table, has = mf.recommend(k=4, explain=3), clicks.groupby("user").item.apply(set)
    for line in table.itertuples():
        at = ids.index(line.item)
        expected = sorted((alike[at] @ alike[ids.index(i)] for i in has[line.user]), reverse=True)[:3]
        found = [entry["weight"] for entry in line.because]
        assert found == pytest.approx([w for w in expected if w > 0], abs=1e-4)
        assert {entry["item"] for entry in line.because} <= has[line.user]
        assert line.popularity == pytest.approx(float(mf.model_.scorer.term[at]))


def test_popular_items_need_no_reason_but_popularity(model, fitted):
    table = model.recommend(["nobody"], k=3, unknown="popular", explain=True)
    assert table.because.map(len).tolist() == [0, 0, 0]
    assert table.popularity.tolist() == table.score.tolist()
    assert table.rest.tolist() == [0, 0, 0]


def test_explanations_of_people_who_are_folded_in(model, clicks):
    theirs = clicks[clicks.user == "user 0003"].assign(user="zoe")
    table = model.fold_in(theirs).recommend(k=3, explain=True)
    named = {entry["item"] for because in table.because for entry in because}
    assert named <= set(theirs.item)
    if model.encoder != "popular":
        assert named


@pytest.mark.parametrize("kind", [pa.int64(), pa.uuid(), pa.large_binary()])
def test_reasons_have_ids_of_every_type(kind):
    data = two_tastes(n_items=10, each=4)
    names = {
        pa.int64(): list(range(100, 110)),
        pa.large_binary(): [bytes([k]) for k in range(10)],
        pa.uuid(): [uuid.UUID(int=k).bytes for k in range(10)],
    }[kind]
    ids = IdMap.of(pa.array(names, kind))
    model = Recommender(encoder="itemknn").fit(Interactions(data.users, data.items, data.user_ids, ids))
    table = model.recommend(
        k=2, explain=True, items=pa.table({"item": ids.ids, "n": range(10)}), where="n > 0"
    )
    assert table.schema.field("because").type.value_type.field("item").type == kind
    assert set(pc.list_flatten(table["because"]).combine_chunks().field("item").to_pylist()) <= set(
        ids.ids.to_pylist()
    )


@pytest.mark.parametrize(
    "kind", [lambda table: pl.from_pandas(table), pa.Table.from_pandas], ids=["polars", "arrow"]
)
def test_reasons_in_the_callers_table_type(kind, clicks):
    table = Recommender(encoder="itemknn").fit(kind(clicks)).recommend(k=2, explain=True)
    because = table["because"].to_pylist() if isinstance(table, pa.Table) else table["because"].to_list()
    assert set(because[0][0]) == {"item", "weight"}


def test_dates_in_a_table(mf, items):
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k) for k in range(len(items))]
    table = pa.Table.from_pandas(items).append_column("released", pa.array(days))
    where = pc.field("released") >= datetime.date(2024, 2, 1)
    found = mf.recommend(k=60, exclude_seen=False, items=table, where=where, quota={"released": 1})
    assert set(found.item) == set(items.item[31:])


@pytest.mark.parametrize("name", ["mf", "blend"])
def test_settings_that_were_chosen_automatically_are_known_after_fitting(name, fitted, clicks):
    """They are in the spec of the model, not among the parameters, until the model is saved and loaded."""
    model, plain = fitted[name], Recommender(device="cpu")
    plain.model_, plain.output_ = model.model_, model.output_
    history = clicks[clicks.user == "user 0003"].assign(user="zoe")
    some = clicks.item[:3]
    for call in (
        lambda m: m.recommend(k=5, diversify=0.4, explain=True),
        lambda m: m.similar_items(some, 4),
        lambda m: m.similar_users(["user 0003"], 4),
        lambda m: m.fold_in(history).recommend(k=5).drop(columns="score"),
    ):
        pd.testing.assert_frame_equal(call(plain), call(model))
