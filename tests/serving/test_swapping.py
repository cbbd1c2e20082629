"""The served model is replaced while requests run: none fails, and each list is that of one model."""

import asyncio
import gc
import threading
import weakref

import pytest

import truepair as tp
from asking import asked
from services import clicks, model, serve, table_of
from truepair.errors import StorageError
from truepair.serving.events.reading import StoreReader
from truepair.serving.events.records import ItemRecord
from truepair.serving.lists.served_model import ListRequest
from worlds import two_tastes


@pytest.fixture(scope="session")
def other(clicks):
    """A model with other people, more items and other codes."""
    more = table_of(two_tastes(26, 34, 6, seed=5))
    extra = {"user": ["a0", "a0", "u1"], "item": ["a-item", "i3", "b-item"]}
    both = {name: more[name] + extra[name] for name in more}
    pairs = list(dict.fromkeys(zip(both["user"], both["item"], strict=True)))
    return tp.Recommender(dim=5, epochs=4, auto=False, seed=3).fit(
        {"user": [user for user, _ in pairs], "item": [item for _, item in pairs]}
    )


REQUESTS = [
    *[("GET", f"/v1/users/u{u}/recommendations?k=5") for u in range(20)],
    ("GET", "/v1/users/nobody/recommendations?k=5"),
    ("POST", "/v1/recommendations", {"users": ["u1", "u2", "u3"], "k": 4}),
    ("POST", "/v1/session/recommendations", {"liked": ["i1", "i3"], "disliked": ["i5"], "k": 4}),
    ("GET", "/v1/items/i3/similar?k=4"),
    ("POST", "/v1/scores", {"pairs": [{"user": "u1", "item": "i3"}, {"user": "u4", "item": "i1"}]}),
    ("GET", "/v1/model"),
]


def answers(client):
    return [found.body for found in client.together(REQUESTS)]


def test_every_list_is_that_of_one_model_while_they_are_swapped(serve, model, other):
    client = serve(model)
    expected = [answers(client)]
    client.service.swap(other, 1)
    expected.append(answers(client))
    possible = [set(each) for each in zip(*expected, strict=True)]
    assert all(len(each) == 2 for each in possible)
    rounds, seen, stop = 25, set(), threading.Event()
    swaps = 0

    def swap():
        nonlocal swaps
        while not stop.is_set():
            client.service.swap(*((model, 0) if swaps % 2 else (other, 1)))
            swaps += 1

    async def ask():
        for _ in range(rounds):
            found = await asyncio.gather(*(asked(client.app, *request) for request in REQUESTS))
            for each, answer, allowed in zip(REQUESTS, found, possible, strict=True):
                assert answer.status == 200, (each, answer.body)
                assert answer.body in allowed, (each, answer.body)
            seen.update(one.body for one in found)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        asyncio.run(ask())
    finally:
        stop.set()
        swapping.join()
    assert swaps > 2
    assert len(seen) == 2 * len(REQUESTS)  # both models have answered every request


def test_a_list_is_printed_with_the_ids_of_the_model_that_made_it(serve, model, other):
    """The model is replaced between the product and the printing."""
    client = serve(model)
    expected = client.get("/v1/users/u3/recommendations?k=5").body
    arrow = {"accept": "application/vnd.apache.arrow.stream"}
    table = client.get("/v1/users/u3/recommendations?k=5", **arrow).body
    service, ask = client.service, client.service.lists_together.ask

    async def asked_then_swapped(question):
        found = await ask(question)
        service.swap(other, 1)
        return found

    service.lists_together.ask = asked_then_swapped
    assert client.get("/v1/users/u3/recommendations?k=5").body == expected
    assert service.served.version == 1
    service.swap(model, 0)
    assert client.get("/v1/users/u3/recommendations?k=5", **arrow).body == table


def test_the_former_model_is_released(serve, model, other):
    client = serve(model)
    client.together(REQUESTS)
    gone = [weakref.ref(client.service.served), weakref.ref(client.service.served.histories)]
    readers = [client.service.served.reader]
    gc.collect()
    gc.disable()  # whatever was there at the start is never collected: running.py freezes it
    try:
        client.service.swap(other, 1)
        client.together(REQUESTS)
        assert [one() for one in gone] == [None, None]
        for reader in readers:
            with pytest.raises(StorageError, match="closed"):
                reader.count()
    finally:
        gc.enable()


def test_an_event_that_one_model_heard_of_counts_in_the_other(serve, model, other):
    client = serve(model)
    before = client.service.served
    client.service.swap(other, 1)
    best = client.get("/v1/users/u4/recommendations?k=1").json["items"][0]["item"]
    client.post("/v1/events", {"events": [{"user": "u4", "item": best}]})
    before.refresh()  # a request that still has the former model
    after = client.get("/v1/users/u4/recommendations?k=34").json
    assert after["basis"] == "events"
    assert best not in [row["item"] for row in after["items"]]


def test_an_event_that_a_new_model_heard_of_counts_in_the_former(serve, model, other):
    client = serve(model)
    former = client.service.served
    [before] = former.plain_lists([ListRequest("u4", 24)])
    client.service.swap(other, 1)
    best = model.seen_.item_ids.outside(before.items[:1])[0].as_py()
    client.post("/v1/events", {"events": [{"user": "u4", "item": best}]})
    client.get("/v1/users/u4/recommendations")
    [after] = former.plain_lists([ListRequest("u4", 24)])  # a request that began before
    assert set(after.items.tolist()) == set(before.items.tolist()[1:])


def test_events_of_before_count_for_everybody_after_a_start_and_after_a_swap(serve, model):
    client = serve(model)
    users = model.seen_.user_ids.ids.to_pylist()
    known = {user: {row["item"] for row in client.get(f"/v1/users/{user}/recommendations?k=24").json["items"]}
             for user in users}  # fmt: skip
    events = [{"user": user, "item": min(items)} for user, items in known.items()]
    client.post("/v1/events", {"events": events})
    client.service.close()
    again = serve(model)
    for _ in range(2):
        for user in users:
            found = again.get(f"/v1/users/{user}/recommendations?k=24").json
            assert {row["item"] for row in found["items"]} == known[user] - {min(known[user])}
        again.service.swap(model, 1)


def test_a_model_takes_over_while_the_store_is_down(serve, model, other, monkeypatch):
    client = serve(model)
    item = client.get("/v1/users/u3/recommendations?k=1").json["items"][0]["item"]
    client.service.store.put([ItemRecord(item, hidden=True)])
    assert item not in client.get("/v1/users/u3/recommendations?k=24").body.decode()

    def down(self):
        raise StorageError("it does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(StoreReader, "unlisted_items", down)
        client.service.swap(other, 1)
        assert f'"{item}"' not in client.get("/v1/users/u3/recommendations?k=34").body.decode()
    other_item = client.get("/v1/users/u3/recommendations?k=1").json["items"][0]["item"]
    client.service.store.put([ItemRecord(other_item, hidden=True)])
    left = client.get("/v1/users/u3/recommendations?k=34").body.decode()
    assert f'"{item}"' not in left
    assert f'"{other_item}"' not in left


def test_counts_go_on_after_a_swap(serve, model, other):
    client = serve(model)
    client.post("/v1/events", {"events": [{"user": "new", "item": "i2"}]})
    client.get("/v1/users/new/recommendations")
    client.service.swap(other, 1)
    client.get("/v1/users/new/recommendations")
    assert b"truepair_fold_ins 2.0" in client.get("/metrics").body
    assert client.get("/v1/model").json["version"] == 1
