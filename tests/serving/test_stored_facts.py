"""What a store says about items counts in all lists; and lists go on while PostgreSQL is away."""

import time

import numpy as np
import pytest

import databases
from services import clicks, integer_model, model, serve
from truepair.serving.events.event import Event
from truepair.serving.events.records import ItemRecord, item_table


def items_of(answer):
    assert answer.status == 200, answer.body
    return [row.get("item", row.get("similar")) for row in answer.json["items"]]


@pytest.mark.parametrize("way", ["hidden", "deleted"])
def test_hidden_items_are_in_no_list(serve, model, way):
    client = serve(model)
    first = items_of(client.get("/v1/users/u1/recommendations?k=24"))
    near = items_of(client.get("/v1/items/i1/similar?k=23"))
    hidden = {first[0], first[3], near[0]} - {"i1"}
    store = client.service.store
    if way == "hidden":
        store.put([ItemRecord(item, hidden=True) for item in hidden])
    else:
        for item in hidden:
            store.delete_item(item)
    assert items_of(client.get("/v1/users/u1/recommendations?k=24")) == [i for i in first if i not in hidden]
    left = [item for item in near if item not in hidden]
    answer = client.get("/v1/items/i1/similar?k=5")
    assert items_of(answer) == left[:5]
    assert [row["rank"] for row in answer.json["items"]] == [1, 2, 3, 4, 5]
    wanted = model.recommend(["u1", "u2"], k=20, exclude_items=sorted(hidden)).to_pylist()
    for exclude in (None, [], {"u1": []}, {"u3": ["i4"]}):
        given = {} if exclude is None else {"exclude_items": exclude}
        answer = client.post("/v1/recommendations", {"users": ["u1", "u2"], "k": 20, **given})
        listed = [(one["user"], row["item"]) for one in answer.json["lists"] for row in one["items"]]
        assert listed == [(row["user"], row["item"]) for row in wanted]
    session = client.post("/v1/session/recommendations", {"liked": ["i1"], "k": 24})
    assert not hidden & set(items_of(session))
    store.put([ItemRecord(item) for item in hidden])
    assert items_of(client.get("/v1/users/u1/recommendations?k=24")) == first


def test_conditions_use_the_items_of_the_store(serve, integer_model):
    client = serve(integer_model)
    body = {"users": [1], "k": 16, "where": "price < 3"}
    assert "or store items" in client.post("/v1/recommendations", body).json["error"]
    store = client.service.store
    store.put([ItemRecord(str(n), labels={"price": n, "shop": "a" if n < 8 else "b"}) for n in range(16)])
    store.put([ItemRecord("a item of another model")])
    answer = client.post("/v1/recommendations", body)
    assert answer.status == 200, answer.body
    [found] = answer.json["lists"]
    assert {row["item"] for row in found["items"]} <= {0, 1, 2}
    [found] = client.post("/v1/recommendations", {"users": [1], "k": 16, "quota": {"shop": 2}}).json["lists"]
    assert len(found["items"]) == 4
    store.patch(ItemRecord, "9", labels={"price": 1})
    [found] = client.post("/v1/session/recommendations", {"liked": [3], "where": "price < 3"}).json.values()
    assert 9 in {row["item"] for row in found}


def test_the_item_table_has_a_column_for_each_plain_label():
    labels = [{"a": 1, "b": 1.5, "c": True, "d": "x", "e": [1], "title": "T"}, {"a": 2, "b": 2, "d": 3}, None]
    table = item_table([ItemRecord(str(n), labels=label, comment="c") for n, label in enumerate(labels)])
    assert table.to_pylist()[1] | {"categories": None} == {
        "item": "1", "title": "c", "picture": None, "categories": None, "time": None, "comment": "c",
        "a": 2, "b": 2.0, "c": None, "d": "3",
    }  # fmt: skip
    assert table["title"].to_pylist() == ["T", "c", "c"]
    assert [str(table.schema.field(name).type) for name in "abcd"] == [
        "int64",
        "double",
        "bool",
        "large_string",
    ]


def test_facts_without_a_store_are_the_last_ones(serve, model):
    client = serve(model)
    served = client.service.served
    facts = served.facts
    client.service.store.put([ItemRecord("i3", hidden=True), ItemRecord("i4")])
    served.refresh()
    assert set(facts.records()) == {"i3", "i4"}
    served.reader.close()
    served.refresh()
    assert facts.hidden.tolist() == [client.service.served.items.codes["i3"]]
    assert set(facts.records()) == {"i3", "i4"}


# --- PostgreSQL ------------------------------------------------------------------------------------------


@pytest.fixture
def server(postgresql):
    return f"{postgresql}/postgres"


def until(look):
    """Look until it is true."""
    end = time.monotonic() + 10
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def basis(client, user):
    answer = client.get(f"/v1/users/{user}/recommendations")
    assert answer.status == 200
    return answer.json["basis"]


def test_services_share_a_store(serve, model, server):
    one, other = serve(model, server), serve(model, server)
    assert (basis(one, "eve"), basis(other, "eve")) == ("popularity", "popularity")
    event = {"events": [{"user": "eve", "item": "i0"}]}
    assert one.post("/v1/events", event).json == {"stored": 1, "repeated": 0}
    assert basis(one, "eve") == "events"  # at once
    until(lambda: basis(other, "eve") == "events")
    other.service.store.delete_user("eve")
    assert basis(other, "eve") == "popularity"
    until(lambda: basis(one, "eve") == "popularity")


def test_reads_go_on_while_postgresql_is_away(serve, model, server):
    client = serve(model, server)
    event = {"events": [{"user": "u1", "item": "i0", "time": 5}]}
    assert client.post("/v1/events", event).json["stored"] == 1
    moved = client.get("/v1/users/u1/recommendations").body
    assert basis(client, "u1") == "events"
    later = {"events": [{"user": "u2", "item": "i0", "time": 6}]}
    address = server.rpartition("@")[2].partition("/")[0]
    databases.stop(address)
    try:
        assert client.post("/v1/events", later).status == 503
        assert client.get("/health/ready").status == 503
        assert client.get("/v1/users/u1/recommendations").body == moved  # what is in memory
        assert basis(client, "u2") == "model"
        assert client.post("/v1/recommendations", {"users": ["u1", "u3"]}).status == 200
        assert client.get("/v1/items/i1/similar").status == 200
        assert len(client.get("/api/recommend/u4").json) == 10
        assert client.get("/health/live").status == 200
    finally:
        databases.start(address)
    until(lambda: client.get("/health/ready").status == 200)
    assert client.post("/v1/events", later).json["stored"] == 1
    assert basis(client, "u2") == "events"
    assert client.post("/v1/events", event).json["stored"] == 0


def test_events_from_before_the_start_count_for_everybody(serve, model):
    store = serve(model).service.store
    users = [f"u{n}" for n in range(20)]
    store.add([[Event(user, item, "like", 1.0, 5, None) for user in users for item in ("i0", "i1")]])
    client = serve(model)
    assert [user for user in users if basis(client, user) == "model"] == [
        user for user in users if {"i0", "i1"} <= set(seen_of(model, user))
    ]


def seen_of(model, user):
    code = model.seen_.user_ids.ids.to_pylist().index(user)
    return model.seen_.item_ids.outside(model.seen_.items_of(code)).to_pylist()


def test_histories_read_together_are_those_read_alone(serve, model, server):
    client = serve(model, server)
    events = [{"user": f"u{n}", "item": f"i{n + k}", "time": 9 - k} for n in range(6) for k in range(2)]
    client.post("/v1/events", {"events": events})
    people, users = client.service.served.histories, [f"u{n}" for n in range(8)]
    alone = {user: people.of([user])[0] for user in users}
    assert alone["u0"] is not None
    people._known.clear()
    for user, found in zip(users, people.of(users), strict=True):
        if alone[user] is None:
            assert found is None
        else:
            assert np.array_equal(found.items, alone[user].items)
            assert np.array_equal(np.asarray(found.row), np.asarray(alone[user].row))
