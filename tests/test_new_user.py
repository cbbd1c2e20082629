"""A new user's way with a messy log, from reading to serving: every remedy that a message names works."""

import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import truepair as tp
from truepair.cli.main import app
from truepair.errors import InputError

QUICK = {"auto": False, "epochs": 2, "dim": 16, "device": "cpu"}
FEEDBACK = {"view": 1, "cart": 3, "purchase": 10, "return": -1}
COLUMNS = {"user": "customer_id", "item": "product"}


def messy_log(n, seed=0, begin="2024-01-01", days=365):
    """Events with missing users, returns, ids in several scripts, ISO dates, in an order of its own."""
    chance = np.random.default_rng(seed)
    n_users, n_items = 5_000, 1_500
    users = chance.integers(0, n_users, n)
    items = chance.zipf(1.3, n) % n_items
    items = np.where(chance.random(n) < 0.7, (items // 8 * 8 + users % 8) % n_items, items)
    names = [f'item {i}, "large"' if i % 3 == 0 else f"Käse № {i} 日本" for i in range(n_items)]
    who = np.array([f"c-{u:05}" for u in range(n_users)], object)[users]
    who[chance.random(n) < 0.01] = None
    seconds = pd.to_timedelta(chance.integers(0, days * 86_400, n), unit="s")
    table = pd.DataFrame(
        {
            "customer_id": who,
            "product": np.array(names, object)[items],
            "event_type": chance.choice(list(FEEDBACK), n, p=[0.7, 0.15, 0.12, 0.03]),
            "time": (pd.Timestamp(begin) + seconds).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    )
    return table.sort_values("time")  # its index is no longer 0, 1, …


@pytest.fixture(scope="module")
def log():
    return messy_log(600_000)


@pytest.fixture(scope="module")
def today():
    return messy_log(5_000, 1, "2025-01-01", 1)


def run(*args, code=0):
    found = CliRunner().invoke(app, [str(arg) for arg in args])
    assert found.exit_code == code, found.output
    return found.output


@pytest.mark.long
def test_in_python(log, today, tmp_path):
    with pytest.raises(InputError, match=r"have no user .* pass missing='drop'"):
        tp.Recommender(**QUICK).fit(log)
    plain = tp.read_interactions(log, missing="drop")
    assert "event_type" in plain.report()  # a note: returns count as likes
    rules = {**COLUMNS, "missing": "drop", "feedback": FEEDBACK, "kind": "event_type"}
    clicks = tp.read_interactions(log, **rules)
    assert clicks.disliked is not None
    split = tp.split_temporal(clicks, at="2024-10-01")
    model = tp.Recommender(**QUICK).fit(split)
    evaluation = model.evaluate(split)
    assert isinstance(evaluation.to_frame(), pd.DataFrame)
    assert 0 < evaluation.mean("ndcg@20") < 1

    model = tp.Recommender(**QUICK).fit(log, **rules)  # on everything
    assert model.reading_["feedback"] == FEEDBACK
    returned = clicks.dislikes.to_table().to_pylist()[0]
    lists = model.recommend([returned["user"]], k=1000)
    assert isinstance(lists, pd.DataFrame)
    assert returned["item"] not in set(lists["item"])
    with pytest.raises(InputError, match=r"read_interactions\(…, \*\*model.reading_\)"):
        model.update(tp.read_interactions(today, missing="drop"))
    model.update(tp.read_interactions(today, **model.reading_), epochs=0)
    model.update(today, epochs=0)
    model.save(tmp_path / "model")
    loaded = tp.load(tmp_path / "model")
    assert loaded.reading_ == model.reading_
    assert loaded.recommend(["c-00001"]).equals(model.recommend(["c-00001"]))
    assert loaded.fold_in({"user": ["guest"], "item": [returned["item"]]}).recommend(["guest"]) is not None

    prices = pd.DataFrame({"product": clicks.item_ids.ids.to_pandas()})
    prices["price"] = np.arange(len(prices)) % 90 + 1.0
    prices["since"] = pd.date_range("2024-01-01", periods=len(prices), freq="h")
    prices = prices.sort_values("price")
    cheap = model.recommend(["c-00001"], items=prices, where="price < 5")["item"]
    assert set(cheap) <= set(prices["product"][prices["price"] < 5])
    hybrid = tp.Recommender(encoder="hybrid", **QUICK).fit(clicks, item_features=prices)
    new = pd.DataFrame({"product": ["neu ✨"], "price": [3.0], "since": [pd.Timestamp("2025-01-01")]})
    assert "neu ✨" in hybrid.add_items(new).seen_.item_ids.ids.to_pylist()


@pytest.mark.long
def test_on_the_command_line_and_in_the_service(log, today, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log.to_csv("log.csv", index=False)
    today.to_csv("today.csv", index=False)
    fit = ["fit", "log.csv", "-o", "m", "--encoder", "ease"]
    assert "--missing drop" in run(*fit, code=1)
    assert "--feedback" in run(*fit, "--missing", "drop")
    kinds = ",".join(f"{kind}={number}" for kind, number in FEEDBACK.items())
    options = ["--missing", "drop", "--kind", "event_type", "--feedback", kinds]
    told = run(*fit, *options, "--test-after", "2024-10-01")
    assert re.search(r"test ndcg@20 0\.\d+", told)
    run(*fit, *options)
    run("update", "m", "today.csv", "-o", "m")
    assert run("recommend", "m", "--users", "c-00001", "-k", "3").count("c-00001") == 3
    image = tmp_path / "picture.png"
    image.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert "not a table" in run("fit", image, "-o", "n", code=1)


@pytest.mark.long
def test_served(log, tmp_path):
    from asking import Client  # it needs the extra "serve"
    from truepair.serving.web.app import Service

    model = tp.Recommender(encoder="ease", device="cpu").fit(
        log, missing="drop", feedback=FEEDBACK, kind="event_type"
    )
    client = Client(Service(model, tmp_path / "events.sqlite"))
    first, second = model.recommend(["c-00001"], k=2)["item"]
    path = "/v1/users/c-00001/recommendations?k=2"
    assert [row["item"] for row in client.get(path).json["items"]] == [first, second]
    told = client.post("/v1/events", {"events": [{"user": "c-00001", "item": first, "kind": "like"}]})
    assert told.status == 422
    assert "use one of 'view', 'cart', 'purchase', 'return'" in told.body.decode()
    event = {"user": "c-00001", "item": first, "kind": "return"}
    assert client.post("/v1/events", {"events": [event]}).status == 200
    assert client.get(path).json["items"][0]["item"] == second
