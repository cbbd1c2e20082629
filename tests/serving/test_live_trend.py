"""What trends now is in the lists of now: counts of the store, moved on without retraining."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

import truepair as tp
from retraining_worlds import Shop
from services import serve
from truepair.errors import InputError
from truepair.models.trend import Counts, Trend
from truepair.ranking.approximate.indexing import IndexChoice
from truepair.serving.events.store import open_store
from truepair.serving.page.browsing import add_page
from truepair.serving.retraining.rounds import retrain
from truepair.serving.retraining.versions import Versions
from worlds import two_tastes

DAY = 86_400
START = 1_700_000_000  # the last event of the data
NOW = START + 3 * DAY
TREND = Trend(("1d", "7d"), (1.0, 0.5), 0.3)
MODELS = {
    "mf": {"dim": 4, "epochs": 2, "auto": False},
    "popularity": {"dim": 4, "epochs": 2, "auto": False, "popularity": 0.7, "temperature": 0.2},
    "popular": {"encoder": "popular"},
    "ease": {"encoder": "ease"},
    "itemknn": {"encoder": "itemknn"},
    "blend": {"dim": 4, "epochs": 2, "auto": False, "blend": "ease"},
}


def timed(unit=1):
    """20 users and 24 items; the last events are of the time START."""
    pairs = two_tastes(20, 24, 5)
    random = np.random.default_rng(0)
    days = np.append(random.uniform(0, 30, len(pairs) - 1), 0.0)
    return {
        "user": [f"u{u}" for u in pairs.users.tolist()],
        "item": [f"i{i}" for i in pairs.items.tolist()],
        "time": [int((START - round(day * DAY)) * unit) for day in days],
    }


@pytest.fixture(scope="module")
def models():
    """A function: a fitted model by its name, each fitted once."""
    made = {}

    def fitted(name, unit=1):
        if (name, unit) not in made:
            made[name, unit] = tp.Recommender(**MODELS[name], trend=TREND).fit(timed(unit))
        return made[name, unit]

    return fitted


class Clock:
    """A clock that stands still."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The clock of a service, and of the times of its events."""
    found = Clock()
    monkeypatch.setattr("truepair.serving.events.event.time", SimpleNamespace(time=found))
    return found


def like(item, user="somebody", at=NOW - 60, kind="like"):
    return {"user": user, "item": item, "time": at, "kind": kind}


def store(client, *events):
    answer = client.post("/v1/events", {"events": list(events)})
    assert answer.status == 200, answer.body
    client.service.follow()


def counted(model, events, now, unit=1):
    """The model at a moment, with more (item, time) in its counts."""
    counts = model.model_.recent.at(now * unit)
    items = model.seen_.item_ids.codes([item for item, _ in events])
    counts.add(items, np.array([at * unit for _, at in events], np.float64))
    return model.model_.with_recent(counts)


def library(model, live, user, **options):
    """The rows of `recommend` of the model at that moment."""
    other = copy.copy(model)
    other.model_ = live
    return other.recommend([user], unknown="popular", **options).to_pylist()


def served(client, user, **options):
    found = client.post("/v1/recommendations", {"users": [user], **options}).json["lists"]
    return [{"user": user, **row} for one in found for row in one["items"]]


def same(found, expected):
    assert [row["item"] for row in found] == [row["item"] for row in expected]
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)


BURST = [("i3", NOW - 60 - k) for k in range(40)] + [("i7", NOW - 3600 - k) for k in range(15)]


@pytest.mark.parametrize("name", MODELS)
def test_served_is_recommended_at_the_same_moment(serve, models, clock, name):
    model = models(name)
    client = serve(model, clock=clock)
    before = served(client, "u1", k=24)
    same(before, library(model, model.model_.at(NOW), "u1", k=24))
    store(client, *(like(item, f"new{k}", at) for k, (item, at) in enumerate(BURST)))
    for later in (0, 3600, 40 * DAY):
        clock.now = NOW + later
        client.service.follow()
        live = counted(model, BURST, clock.now)
        for user in ("u1", "u7", "nobody"):
            expected = library(model, live, user, k=24)
            found = client.get(f"/v1/users/{user}/recommendations?k=24").json["items"]
            same(found, expected)
            same(served(client, user, k=24), expected)
            options = {"exclude_items": ["i1"], "explain": name != "popular"}
            same(served(client, user, k=24, **options), library(model, live, user, k=24, **options))
        pairs = {"pairs": [{"user": "u1", "item": row["item"]} for row in library(model, live, "u1", k=3)]}
        scores = [row["score"] for row in client.post("/v1/scores", pairs).json["scores"]]
        assert scores == pytest.approx([row["score"] for row in library(model, live, "u1", k=3)], abs=1e-5)
    assert before == served(serve(model, "other.sqlite", clock=Clock()), "u1", k=24)  # the model is unchanged


def first(client, user="nobody"):
    return client.get(f"/v1/users/{user}/recommendations?k=1").json["items"][0]["item"]


def test_an_item_that_trends_is_first_for_unknown_users_and_among_popular_items(serve, models, clock):
    client = serve(models("mf"), clock=clock)
    assert first(client) != "i3"
    store(client, *(like("i3", f"new{k}") for k in range(60)))
    assert first(client) == "i3"
    [popular] = client.get("/api/popular?n=1").json
    assert popular["Id"] == "i3"
    clock.now += 60 * DAY
    client.service.follow()
    assert client.get("/api/popular?n=1").json[0]["Score"] < popular["Score"] / 2  # it is over


@pytest.mark.parametrize("unit", [1, 1000, 10**6])
def test_times_in_any_unit_of_a_clock(serve, models, clock, unit):
    model = models("mf", unit)
    client = serve(model, clock=clock)
    store(client, *(like(item, f"new{k}", at) for k, (item, at) in enumerate(BURST)))
    live = counted(model, BURST, NOW, unit)
    same(served(client, "u1", k=24), library(model, live, "u1", k=24))


def total(client):
    """How many events of the store count, by item."""
    found = client.service.served.model.recent.total - client.service.served.live._known.total
    names = client.service.served.items.names
    return {names[code]: int(found[code]) for code in np.flatnonzero(found)}


def test_what_counts(serve, models, clock):
    client = serve(models("mf"), clock=clock)
    store(
        client,
        like("i1"),
        like("i1", at=NOW - 61),  # a repeat counts
        like("i2", kind="dislike"),
        like("i3", at=START - 5),  # the model's log goes to START
        like("i4", at=START),
        like("i5", at=START + 1),
        like("not an item"),
    )
    assert total(client) == {"i1": 2, "i5": 1}
    store(client, like("i1"), like("i1", at=NOW - 61))  # the same events once more
    assert total(client) == {"i1": 2, "i5": 1}


def test_an_event_of_the_future_counts_from_its_time_on(serve, models, clock):
    client = serve(models("mf"), clock=clock)
    store(client, like("i1", at=NOW + 100), like("i2"))
    assert total(client) == {"i2": 1}
    clock.now += 99
    client.service.follow()
    assert total(client) == {"i2": 1}
    clock.now += 1
    client.service.follow()
    assert total(client) == {"i1": 1, "i2": 1}


DELETIONS = {
    "feedback": lambda client: client.ask("DELETE", "/api/feedback/like/a/i1"),
    "item": lambda client: client.ask("DELETE", "/api/item/i1"),
    "user": lambda client: client.ask("DELETE", "/api/user/a"),
    "replaced": lambda client: client.ask(
        "PUT",
        "/api/feedback",
        [{"FeedbackType": "like", "UserId": "a", "ItemId": "i1", "Timestamp": "2001-01-01"}],
    ),
}


@pytest.mark.parametrize("way", DELETIONS)
def test_deleted_events_do_not_count(serve, models, clock, way):
    client = serve(models("mf"), clock=clock)
    store(client, like("i1", "a"), like("i2", "b"))
    assert total(client) == {"i1": 1, "i2": 1}
    assert DELETIONS[way](client).status == 200
    client.service.follow()
    assert total(client) == {"i2": 1}


def test_counts_after_a_restart_and_of_another_process(serve, models, clock, tmp_path):
    model = models("mf")
    client = serve(model, clock=clock)
    store(client, *(like("i3", f"new{k}") for k in range(60)))
    again = serve(model, clock=clock)
    assert served(again, "u1") == served(client, "u1")
    other = open_store(tmp_path / "events.sqlite")  # as another process has it
    other.delete_user("new0")
    other.close()
    for one in (client, again):
        one.service.follow()
        assert total(one) == {"i3": 59}


def test_a_swapped_model_and_one_beside_follow_too(serve, models, clock):
    client = serve(models("mf"), clock=clock)
    beside = client.service.prepared(models("ease"))
    store(client, like("i3"))
    client.service.swap(models("popular"), 1)
    assert total(client) == {"i3": 1}
    store(client, like("i4"))
    assert total(client) == {"i3": 1, "i4": 1}
    assert beside.model.recent.total.sum() == beside.live._known.total.sum() + 2
    beside.close()


def test_without_a_change_nothing_is_computed(serve, models, clock):
    client = serve(models("mf"), clock=clock)
    store(client, like("i3"))
    model = client.service.served.model
    clock.now += 50  # a thousandth of the shortest half-life is 86 s
    client.service.follow()
    assert client.service.served.model is model
    clock.now += 50
    client.service.follow()
    assert client.service.served.model is not model


def test_positions_have_no_live_trend(serve, clock):
    table = timed()
    table["time"] = np.argsort(np.argsort(table["time"])).tolist()
    model = tp.Recommender(**MODELS["mf"], trend=Trend((20.0,), (1.0,))).fit(table)
    client = serve(model, clock=clock)
    store(client, *(like("i3", f"new{k}") for k in range(60)))
    assert client.service.served.model.recent is model.model_.recent
    found = client.get("/v1/users/u1/recommendations?k=24").json["items"]
    same(found, model.recommend(["u1"], k=24).to_pylist())


def test_while_the_store_is_away_the_trend_stays(serve, models, clock, monkeypatch):
    client = serve(models("mf"), clock=clock)
    store(client, like("i3"))
    reader = client.service.served.reader

    def away(query, values=()):
        raise tp.errors.StorageError("away")

    with monkeypatch.context() as patch:
        patch.setattr(reader, "rows", away)
        client.service.follow()
    assert total(client) == {"i3": 1}
    store(client, like("i4"))
    assert total(client) == {"i3": 1, "i4": 1}


def test_counts_hold_a_number_for_each_half_life_and_item(serve, models, clock):
    live = serve(models("mf"), clock=clock).service.served.model.recent
    assert isinstance(live, Counts)
    assert live.total.nbytes + live.faded.nbytes == 24 * 3 * 8


def test_what_trends_is_shown_with_how_many_times(serve, models, clock):
    client = serve(models("mf"), clock=clock, prepare=add_page)
    store(client, *(like("i3", f"new{k}") for k in range(60)), *(like("i4", f"new{k}") for k in range(30)))
    found = client.get("/v1/trending?k=5").json
    assert found["half_life"] == "1d"
    assert [card["item"] for card in found["items"]][:2] == ["i3", "i4"]
    counts = client.service.served.model.recent
    code = client.service.served.items.codes["i3"]
    share = (counts.total + 0.5)[code] / (counts.total + 0.5).sum()
    recent = (counts.faded[0, code] + 20 * share) / (counts.faded[0].sum() + 20)
    assert found["items"][0]["times"] == pytest.approx(recent / share, abs=0.01)
    client.ask("POST", "/api/item", {"ItemId": "i3", "IsHidden": True})
    client.get("/v1/users/u1/recommendations")
    assert client.get("/v1/trending?k=1").json["items"][0]["item"] == "i4"


def test_without_a_trend_nothing_trends(serve, clock):
    model = tp.Recommender(**MODELS["mf"], trend="none").fit(timed())
    client = serve(model, clock=clock, prepare=add_page)
    assert client.get("/v1/trending").json == {"half_life": None, "items": []}


def test_processes_with_a_store_in_postgresql_count_the_same(serve, models, clock, postgresql):
    pytest.importorskip("psycopg")
    place = f"{postgresql}/postgres"
    one, other = (serve(models("mf"), place, clock=clock) for _ in range(2))
    store(one, like("i1", "a"), like("i2", "b"))
    store(other, like("i3", "c"))
    one.service.follow()
    assert total(one) == total(other) == {"i1": 1, "i2": 1, "i3": 1}
    assert other.ask("DELETE", "/api/user/a").status == 200
    for client in (one, other):
        client.service.follow()
        assert total(client) == {"i2": 1, "i3": 1}
    assert served(one, "u1") == served(other, "u1")


@pytest.mark.parametrize(("by", "expected"), [("auto", "promoted"), ("fit", "use --retrain-by update")])
def test_a_model_with_a_trend_is_retrained_by_updates(tmp_path, by, expected):
    shop = Shop(tmp_path, trend=Trend(("1d",), (1.0,)))
    shop.time = START * 1_000_000
    shop.add_visits()
    if by == "fit":
        with pytest.raises(InputError, match=expected):
            retrain(shop.plan(by=by))
        return
    decision = retrain(shop.plan(by=by))
    assert (decision.decision, decision.by) == (expected, "update")
    candidate = tp.Recommender.load(Versions(shop.path).path(decision.version)).model_
    assert candidate.recent.moment == shop.model.model_.recent.moment  # the events stay new to its counts


def test_the_lists_of_an_index_are_those_of_now(serve, models, clock):
    pytest.importorskip("faiss")
    client = serve(models("mf"), clock=clock, index=IndexChoice("ivf", 0.99))
    assert client.service.served.indexing.kind == "ivf"
    for item in ("i3", "i4"):
        store(client, *(like(item, f"new{k}") for k in range(60 if item == "i3" else 200)))
        for user in ("u1", "u7", "nobody"):
            found = client.get(f"/v1/users/{user}/recommendations?k=5").json["items"]
            exact = {row["item"]: row["score"] for row in served(client, user, k=24)}
            assert found[0]["item"] == next(iter(exact))
            same(found, [{"item": row["item"], "score": exact[row["item"]]} for row in found])
