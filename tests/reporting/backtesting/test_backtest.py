"""Backtests: what models may see, the numbers against fits and evaluations by hand, and resuming."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import truepair as tp
from truepair.errors import InputError, StorageError
from truepair.evaluation.statistics import bootstrap_interval
from truepair.reporting.backtesting import STRATEGIES
from truepair.reporting.backtesting.periods import Timeline
from truepair.reporting.backtesting.strategies import judge

METRIC = "ndcg@5"
MODEL = tp.Recommender(dim=4, epochs=2, batch_size=32, auto=False, metric=METRIC)


@pytest.fixture(scope="module")
def world():
    return tp.simulate_drift(60, 40, periods=4, pairs=20, seed=2)


@pytest.fixture(scope="module")
def found(world):
    return tp.backtest(world, MODEL, every="1w")


def without_seconds(found):
    cells = [dataclasses.replace(cell, seconds=0.0) for cell in found.cells]
    return found.periods, cells, {**found.facts}


def test_every_period_and_strategy_has_a_cell(found):
    assert [(cell.period, cell.strategy) for cell in found.cells] == [
        (period, name) for period in (1, 2, 3) for name in STRATEGIES
    ]
    assert found.strategies == list(STRATEGIES)
    assert found.metric == METRIC


def ids_of(pairs):
    table = pairs.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def test_no_model_sees_the_period_that_judges_it(world, monkeypatch):
    """A spy on everything that `fit` and `update` are given."""
    line = Timeline(world, every="1w")
    fit, update, given = tp.Recommender.fit, tp.Recommender.update, []

    def spy(method):
        def called(self, pairs, *args, **kwargs):
            given.append((method.__name__, pairs))
            return method(self, pairs, *args, **kwargs)

        return called

    monkeypatch.setattr(tp.Recommender, "fit", spy(fit))
    monkeypatch.setattr(tp.Recommender, "update", spy(update))
    seen = []  # what a model knew, its period's pairs, and how much had been given, when it was judged

    def judging(model, target, *rest):
        seen.append((ids_of(model.seen_), target, len(given)))
        return judge(model, target, *rest)

    monkeypatch.setattr("truepair.reporting.backtesting.running.judge", judging)
    tp.backtest(world, MODEL, every="1w")
    # fits: once for the first period, then retrain; both popularities each time; updates after the first
    assert [name for name, _ in given].count("fit") == 3 + 3 + 3
    assert [name for name, _ in given].count("update") == 2
    for at, (known, target, n) in enumerate(seen):
        period = line.periods[at // len(STRATEGIES)]
        assert target == line.target(period)
        assert all(pairs.time.max() < period.start for _, pairs in given[:n])
        assert not known & ids_of(target)


def test_a_pair_that_was_known_is_not_judged_when_it_is_bought_again():
    week, start = 7 * 86_400, 1_700_000_000
    rows = [(9, i, start) for i in range(5)]  # so that every item is known
    rows += [(u, i, start + week * i + u) for u in range(5) for i in range(5)]
    again = [(u, 0, start + week * at + u) for u in range(5) for at in (2, 3)]

    def judged(events):
        line = Timeline(tp.read_interactions(pd.DataFrame(events, columns=["user", "item", "time"])), "1w")
        return [(period.date, ids_of(line.target(period))) for period in line.periods]

    assert judged(rows + again) == judged(rows)


def values_by_hand(model, line, period):
    """The metric of each judged user, from the lists that `recommend` gives, with the past excluded."""
    target, before = line.target(period), line.before(period)
    taken = before.to_table().to_pandas().groupby("user")["item"].apply(list).to_dict()
    wanted = target.to_table().to_pandas().groupby("user")["item"].apply(set).to_dict()
    values = []
    for user, items in sorted(wanted.items()):
        rows = model.recommend(
            [user], 5, exclude_seen=False, exclude_items={user: _known(taken.get(user, []), model)},
            unknown="popular",
        ).to_pylist()  # fmt: skip
        gains = [1 / np.log2(rank + 2) for rank, row in enumerate(rows) if row["item"] in items]
        ideal = sum(1 / np.log2(rank + 2) for rank in range(min(5, len(items))))
        values.append(sum(gains) / ideal)
    return np.array(values)


def _known(items, model):
    known = set(model.seen_.item_ids.ids.to_pylist())
    return [item for item in items if item in known]


@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_cells_are_those_of_models_made_by_hand(world, found, strategy):
    line = Timeline(world, every="1w")
    model = tp.Recommender(**MODEL.get_params()).fit(line.train(line.periods[0]))
    for before, period in zip([None, *line.periods], line.periods, strict=False):
        if strategy == "retrain":
            model = tp.Recommender(**MODEL.get_params()).fit(line.train(period))
        if strategy == "update" and before is not None:
            model.update(line.since(before, period))
        if strategy == "timeless":
            model = tp.Recommender(**{**MODEL.get_params(), "trend": "none"}).fit(line.train(period))
        if strategy in ("popularity", "recent"):
            encoder = tp.Popular(None if strategy == "popularity" else "auto")
            model = tp.Recommender(encoder=encoder, metric=METRIC).fit(line.train(period))
        values = values_by_hand(model, line, period)
        cell = found.of(strategy)[period.number - 1]
        assert cell.value == pytest.approx(values.mean(), abs=1e-12)
        assert (cell.low, cell.high) == pytest.approx(bootstrap_interval(values))
        assert cell.users == len(values) == period.users


def test_a_period_without_new_people_is_that_of_evaluate(world):
    """`evaluate` with a split of the same users and items."""
    line = Timeline(world, every="1w")
    period = line.periods[-1]
    train = line.train(period)
    model = tp.Recommender(**MODEL.get_params()).fit(train)
    target, before = line.target(period), line.before(period)
    users = np.isin(target.users, np.flatnonzero(before.user_counts))
    ids = (train.user_ids, train.item_ids)
    known = target.take(users)
    own = tp.Interactions(
        ids[0].codes(known.user_ids.outside(known.users)),
        ids[1].codes(known.item_ids.outside(known.items)),
        *ids,
    )
    expected = tp.evaluate(model, own, exclude=train, ks=(5,))
    assert judge(model, known, before, METRIC).mean(METRIC) == pytest.approx(expected.mean(METRIC), abs=1e-12)


def test_groups_of_people(found):
    for cell in found.cells:
        assert cell.known_users + (cell.new is not None) <= cell.users
        parts = [(cell.known, cell.known_users), (cell.new, cell.users - cell.known_users)]
        assert cell.value == pytest.approx(sum(v * n for v, n in parts if n) / cell.users)
    retrain, nothing = found.of("retrain")[-1], found.of("nothing")[-1]
    assert retrain.trained_users == retrain.known_users
    assert nothing.trained_users < nothing.known_users == retrain.known_users
    assert retrain.unknown_pairs == 0 < nothing.unknown_pairs


def test_the_model_of_the_first_period_is_shared_and_not_changed(found):
    first = [dataclasses.replace(found.of(way)[0], strategy="") for way in ("retrain", "update", "nothing")]
    assert first[0] == first[1] == first[2]
    assert [cell.train_pairs for cell in found.of("nothing")] == [found.of("retrain")[0].train_pairs] * 3
    assert [cell.train_pairs for cell in found.of("update")] == [
        cell.train_pairs for cell in found.of("retrain")
    ]
    assert [cell.seconds for cell in found.of("nothing")[1:]] == [0, 0]


def test_the_same_call_gives_the_same_numbers(world, found):
    assert without_seconds(tp.backtest(world, MODEL, every="1w")) == without_seconds(found)


def test_metric_and_seed_override_those_of_the_model(world):
    options = {"every": "1w", "strategies": ["retrain"], "periods": 2}
    other = tp.backtest(world, MODEL, **options, metric="recall@3", seed=7)
    assert other.metric == "recall@3"
    assert other.facts["parameters"]["seed"] == 7
    assert MODEL.seed == 0
    assert other.cells != tp.backtest(world, MODEL, **options).cells


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("after", [1, 2, 5, 6, 11])
def test_an_interrupted_backtest_continues(world, found, after, tmp_path, monkeypatch):
    path, n = tmp_path / "cells.jsonl", 0

    def stopping(*args):
        nonlocal n
        n += 1
        if n > after:
            raise StoppedError
        return judge(*args)

    with monkeypatch.context() as patch:
        patch.setattr("truepair.reporting.backtesting.running.judge", stopping)
        with pytest.raises(StoppedError):
            tp.backtest(world, MODEL, every="1w", checkpoint=path)
    with path.open("ab") as file:
        file.write(b'{"cell": {"period": 3, "strat')  # a process that was killed leaves half a line
    judged = []
    monkeypatch.setattr(
        "truepair.reporting.backtesting.running.judge", lambda *args: (judged.append(1), judge(*args))[1]
    )
    resumed = tp.backtest(world, MODEL, every="1w", checkpoint=path)
    assert len(judged) == 3 * len(STRATEGIES) - after
    assert without_seconds(resumed) == without_seconds(found)
    again = tp.backtest(world, MODEL, every="1w", checkpoint=path)
    assert (len(judged), again.cells) == (3 * len(STRATEGIES) - after, resumed.cells)


def test_automatic_settings_are_chosen_once_and_kept(monkeypatch, tmp_path):
    """With settings="each", retraining chooses anew."""
    monkeypatch.setattr("truepair.search.automatic._LEAST_USERS", 10)
    monkeypatch.setattr("truepair.search.automatic._LEAST_IN_TIME", 10)
    monkeypatch.setattr("truepair.search.automatic._LEAST_PAIRS", 100)
    from truepair.recommender import estimator

    chosen_settings, calls = estimator.chosen_settings, []

    def counted(spec, *args):
        if spec.searched and spec.is_trained:
            calls.append(spec)
        return chosen_settings(spec, *args)

    monkeypatch.setattr(estimator, "chosen_settings", counted)
    world = tp.simulate_drift(80, 40, periods=4, pairs=30, seed=2)
    model = tp.Recommender(epochs=2, dim=4, metric=METRIC)
    path = tmp_path / "cells"
    options = {"every": "1w", "strategies": ["retrain", "nothing"]}
    first = tp.backtest(world, model, **options, checkpoint=path)
    assert len(calls) == 1
    assert {"temperature", "popularity"} <= set(first.facts["chosen"])
    kept = [line for line in path.read_text().splitlines() if "cell" not in line or '"period": 1' in line]
    path.write_text("\n".join(kept) + "\n")  # as if it had been interrupted after the first period
    assert without_seconds(tp.backtest(world, model, **options, checkpoint=path)) == without_seconds(first)
    assert len(calls) == 1
    each = tp.backtest(world, model, **options, settings="each")
    assert len(calls) == 1 + 3
    assert each.of("retrain")[0].value == first.of("retrain")[0].value


def test_text_json_figure_and_page(found, tmp_path):
    pytest.importorskip("matplotlib")
    table = found.table()
    assert all(text in table for text in ("retrain", "not judged", found.periods[0].date))
    assert json.loads(found.to_json()) == json.loads(json.dumps(found.to_dict()))
    assert len(found.to_dict()["periods"]) == 3
    summary = {line.strategy: line for line in found.summary()}
    later = found.of("update")[1:]
    assert summary["update"].value == pytest.approx(np.mean([cell.value for cell in later]))
    assert summary["retrain"].to_retrain == summary["retrain"].time_to_retrain == 1
    assert summary["nothing"].time_to_retrain == 0
    found.plot(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    found.page(tmp_path / "page.html", "A <world>")
    page = (tmp_path / "page.html").read_text()
    assert all(text in page for text in ("A &lt;world&gt;", "<svg", "no model could recommend"))
    with pytest.raises(InputError, match=r"end the name in .svg"):
        found.plot(tmp_path / "figure.gif")
    assert repr(found).startswith("<Backtest: 3 periods, ndcg@5 after the first: retrain ")


def test_without_retraining_there_is_no_share_of_it(world):
    only = tp.backtest(world, MODEL, every="1w", strategies="popularity")
    assert only.summary()[0].to_retrain is None
    assert "popularity" in only.table()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"strategies": []}, "must be one or more different names"),
        ({"strategies": ["update", "update"]}, "must be one or more different names"),
        ({"strategies": ["retrian"]}, "Did you mean 'retrain'"),
        ({"settings": "never"}, "settings = 'never' is not known"),
        ({"metric": "ndcg"}, "is not of the form name@K"),
        ({"metric": "ndcg@100"}, "larger than the catalogue"),
        ({"model": "ease"}, "model is a str"),
        ({"model": tp.Recommender(dim=-1)}, "dim"),
    ],
)
def test_wrong_arguments_are_errors(world, options, says):
    with pytest.raises(InputError, match=says):
        tp.backtest(world, **{"model": MODEL, "every": "1w", **options})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"user,item\n1,2\n", "no checkpoint of a backtest"),
        (b"\xff\xfe\n", "no checkpoint of a backtest"),
        (b"[1]\n", "no checkpoint of a backtest"),
        (b"[" * 100_000 + b"\n", "no checkpoint of a backtest"),
        (b'{"backtest": "other"}\n', "with other data, periods or parameters"),
        (b'KEY\n{"cell": {"period": 1}}\n', "line 2 of .* is no result"),
        (b'KEY\n7\n', "line 2 of .* is no result"),
        (b'KEY\n{"settings": {"loss": {"kind": "os.system"}}}\n', "line 2 of .* is no result"),
        (b'KEY\n{"settings": [1]}\n', "line 2 of .* is no result"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_checkpoint_of_this_backtest_is_refused(world, content, says, tmp_path):
    path = tmp_path / "cells.jsonl"
    options = {"every": "1w", "strategies": ["popularity"], "checkpoint": path}
    tp.backtest(world, MODEL, **options)
    header = path.read_bytes().splitlines()[0]
    path.write_bytes(content.replace(b"KEY", header))
    with pytest.raises(StorageError, match=says):
        tp.backtest(world, MODEL, **options)
    assert path.read_bytes() == content.replace(b"KEY", header)


@pytest.mark.parametrize(
    ("name", "value"),
    [("period", 1.5), ("value", "high"), ("strategy", "luck"), ("users", -1), ("low", None)],
)
def test_a_cell_with_a_wrong_value_is_refused(world, name, value, tmp_path):
    path = tmp_path / "cells.jsonl"
    options = {"every": "1w", "strategies": ["popularity"], "checkpoint": path}
    tp.backtest(world, MODEL, **options)
    header, cell, *_ = map(json.loads, path.read_text().splitlines())
    cell["cell"][name] = value
    path.write_text(f"{json.dumps(header)}\n{json.dumps(cell)}\n")
    with pytest.raises(StorageError, match=f"line 2 of .*{name}"):
        tp.backtest(world, MODEL, **options)


KINDS = {"view": 1, "buy": 10, "return": -1}


@pytest.fixture(scope="module")
def shop(world):
    """A table of events, some of which are returns of what was bought before."""
    chance, table = np.random.default_rng(0), world.to_table().to_pandas()
    table["event_type"] = chance.choice(["view", "buy"], len(table))
    back = table.sample(frac=0.2, random_state=1).assign(event_type="return")
    back["time"] += chance.integers(1, 2 * 7 * 86_400, len(back))
    return pd.concat([table, back]).query("time <= @table.time.max()").reset_index(drop=True)


def test_a_source_is_read_as_the_data_of_a_fitted_model_were(shop):
    model = tp.Recommender(encoder="ease", metric=METRIC).fit(shop, feedback=KINDS)
    read = tp.read_interactions(shop, **model.reading_)
    found = tp.backtest(shop, model, every="1w")
    assert found.facts["data"] == read.hash
    assert found.facts["data"] == tp.backtest(read, model, every="1w").facts["data"]
    with pytest.raises(InputError, match=r"read with feedback = None, .*\*\*model.reading_"):
        tp.backtest(tp.read_interactions(shop), model, every="1w")
    assert (
        tp.backtest(shop, tp.Recommender(encoder="ease", metric=METRIC), every="1w").facts["data"]
        != read.hash
    )


def test_a_return_is_known_from_its_time_on(shop):
    pairs = tp.read_interactions(shop, feedback=KINDS)
    line = Timeline(pairs, every="1w")
    for period in line.periods:
        known = tp.read_interactions(shop[shop["time"] < period.start], feedback=KINDS)
        assert ids_of(line.train(period)) == ids_of(known)
        assert ids_of(line.train(period).dislikes) == ids_of(known.dislikes)
    found = tp.backtest(pairs, tp.Recommender(encoder="ease", metric=METRIC), every="1w")
    values = {name: [c.value for c in found.cells if c.strategy == name] for name in ("retrain", "update")}
    np.testing.assert_allclose(values["update"], values["retrain"])  # an update of a closed form is a fit


def test_dislikes_without_times_are_refused(world):
    pairs = world.with_disliked(world.user_ids.ids[:1], world.item_ids.ids[:1])
    with pytest.raises(InputError, match="dislikes, which have no times"):
        tp.backtest(pairs, MODEL, every="1w")
