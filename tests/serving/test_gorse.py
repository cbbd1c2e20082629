"""Programs written for Gorse run unchanged: its own client does all of its calls over a socket."""

import asyncio
import inspect
import io
import threading
from contextlib import contextmanager

import pytest

from asking import Client
from live import uvicorn
from services import clicks, integer_model, model, serve
from truepair.serving.events.event import Kinds
from truepair.serving.web.app import Service
from truepair.serving.web.gorse import fields
from truepair.serving.web.guard import RequestLog
from truepair.serving.web.running import application, bound_socket
from truepair.serving.web.tokens import Tokens

gorse = pytest.importorskip("gorse")
Gorse, AsyncGorse, GorseException = gorse.Gorse, gorse.AsyncGorse, gorse.GorseException

KEY, READ_KEY = "admin-0123456789abcdef", "read-0123456789abcdef"
KINDS = Kinds({"star": 1.0, "read": 0.0, "hide": -1.0})
WHEN = "2022-02-24T00:00:00Z"


@contextmanager
def running(service):
    """The address of a service that listens on a socket."""
    tokens = service.tokens
    with bound_socket("127.0.0.1", 0, tokens) as listening:
        server = uvicorn.Server(uvicorn.Config(application(service), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path, model):
    store = tmp_path / "store.sqlite"
    if request.param == "postgresql":
        store = f"{request.getfixturevalue('postgresql')}/postgres"
    tokens = Tokens.of({"admin": [KEY], "read": [READ_KEY]})
    service = Service(model, store, kinds=KINDS, tokens=tokens, log=RequestLog(io.StringIO()))
    with running(service) as found:
        yield found


class InOneLoop:
    """The asynchronous client, each call awaited."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return lambda *args, **options: asyncio.run(getattr(self._client, name)(*args, **options))


@pytest.fixture(params=[Gorse, AsyncGorse])
def client(request, address):
    found = request.param(address, KEY)
    return found if request.param is Gorse else InOneLoop(found)


def done(n):
    return {"RowAffected": n}


def test_items(client):
    vue = {
        "ItemId": "i1",
        "IsHidden": False,
        "Labels": {"language": "JavaScript"},
        "Categories": ["framework"],
        "Timestamp": WHEN,
        "Comment": "Vue <b>",
    }
    assert client.insert_item(vue) == done(1)
    assert client.get_item("i1") == vue
    for item in ("i2", "new"):
        client.insert_item({"ItemId": item})
    assert client.get_item("new")["Timestamp"] == "0001-01-01T00:00:00Z"
    items, cursor = client.get_items(2)
    rest, end = client.get_items(2, cursor)
    assert ([one["ItemId"] for one in items + rest], end) == (["i1", "i2", "new"], "")
    assert client.search_items("javascript") == [vue]
    assert client.update_item("i1", is_hidden=True, labels=["x"]) == done(1)
    assert client.get_item("i1") == vue | {"IsHidden": True, "Labels": ["x"]}
    assert client.update_item("i1", categories=["b"], timestamp="2022-02-25", comment="!") == done(1)
    assert client.get_item("i1")["Timestamp"] == "2022-02-25T00:00:00Z"
    assert client.delete_item("i1") == done(1)
    with pytest.raises(GorseException) as caught:
        client.get_item("i1")
    assert caught.value.status_code == 404
    with pytest.raises(GorseException) as caught:
        client.update_item("i1", comment="?")
    assert caught.value.status_code == 404


def test_users(client):
    bob = {"UserId": "bob", "Labels": {"age": 24}, "Comment": "my user"}
    assert client.insert_user(bob) == done(1)
    assert client.insert_users([{"UserId": "ann"}, {"UserId": "cat", "Labels": None}]) == done(2)
    assert client.get_user("bob") == bob
    users, cursor = client.get_users(1)
    rest, end = client.get_users(5, cursor)
    assert ([one["UserId"] for one in users + rest], end) == (["ann", "bob", "cat"], "")
    assert client.delete_user("bob") == done(1)
    with pytest.raises(GorseException) as caught:
        client.get_user("bob")
    assert caught.value.status_code == 404


def test_feedback(client):
    assert client.insert_feedback("star", "u1", "i1", WHEN) == done(1)
    given = {"FeedbackType": "star", "UserId": "u1", "ItemId": "i1", "Timestamp": WHEN}
    [found] = client.list_feedbacks("star", "u1")
    assert found == given | {"Value": 0.0, "Comment": ""}
    more = [given | {"ItemId": item, "FeedbackType": kind} for item, kind in (("i2", "read"), ("x", "star"))]
    assert client.insert_feedbacks(more) == done(2)
    assert client.insert_feedbacks([given | {"Timestamp": "2023-01-01"}]) == done(1)
    assert client.list_feedbacks("star", "u1")[0]["Timestamp"] == WHEN  # what is there stays
    assert client.get_user("u1")["UserId"] == "u1"  # made by its feedback, as x is
    assert client.get_item("x")["ItemId"] == "x"
    feedback, cursor = client.get_feedbacks(2)
    rest, end = client.get_feedbacks(2, cursor)
    assert ([one["ItemId"] for one in feedback + rest], end) == (["i1", "i2", "x"], "")
    assert client.delete_feedback("u1", "i1") == done(1)
    assert client.delete_feedback("u1", "i1") == done(0)
    assert [one["ItemId"] for one in client.list_feedbacks("star", "u1")] == ["x"]


def test_recommendations(client, model):
    first = client.get_recommend("u1", n=6)
    table = model.recommend(["u1"], k=6)
    assert [one.id for one in first] == table["item"].to_pylist()
    assert [one.score for one in first] == table["score"].to_pylist()
    assert [one.id for one in client.get_recommend("u1", n=2, offset=2)] == [one.id for one in first[2:4]]
    neighbours = client.get_neighbors("i1", n=4, offset=1)
    assert [one["Id"] for one in neighbours] == model.similar_items(["i1"], 5)["similar"].to_pylist()[1:]
    assert client.get_neighbors("unknown") == []

    best, second, third = (one.id for one in first[:3])
    client.insert_feedback("read", "u1", best, WHEN)  # of weight 0, and excluded as by Gorse
    assert [one.id for one in client.get_recommend("u1", n=5)] == [one.id for one in first[1:]]
    client.insert_item({"ItemId": second, "IsHidden": True})
    assert client.get_recommend("u1", n=1)[0].id == third
    client.insert_item({"ItemId": third, "Categories": ["a", "b"]})
    assert [one.id for one in client.get_recommend("u1", "a")] == [third]
    assert client.get_recommend("u1", "nothing") == []
    client.delete_item(third)
    assert third not in [one.id for one in client.get_recommend("u1", n=24)]
    client.delete_feedback("u1", best)
    assert client.get_recommend("u1", n=1)[0].id == best
    client.insert_feedback("star", "u1", best, WHEN)
    moved = client.get_recommend("u1", n=24)
    assert best not in [one.id for one in moved]
    assert moved[0].score != pytest.approx(first[3].score)  # the vector has moved

    seen = [one.id for one in client.get_recommend("u2", n=3, write_back_type="read")]
    later = [one.id for one in client.get_recommend("u2", n=3, write_back_type="read", write_back_delay="1h")]
    assert not set(seen) & set(later)
    assert later == [one.id for one in client.get_recommend("u2", n=3)]  # it counts in an hour
    assert len(client.list_feedbacks("read", "u2")) == 3


def test_a_session(client, model):
    star = {"FeedbackType": "star", "UserId": "", "ItemId": "i1", "Timestamp": WHEN}
    found = client.session_recommend([star | {"UserId": "x"}, star | {"UserId": "x", "ItemId": "new"}], n=3)
    assert len(found) == 3
    assert set(found[0]) == {"Id", "Score"}
    assert "i1" not in [one["Id"] for one in found]
    read = client.session_recommend([star | {"UserId": "x", "FeedbackType": "read"}], n=24)
    assert "i1" not in [one["Id"] for one in read]
    assert [one["Id"] for one in read[:3]] != [one["Id"] for one in found]
    assert client.session_recommend([], n=2)


def test_a_deleted_user_is_forgotten(client):
    known = [one.id for one in client.get_recommend("u3", n=24)]
    client.delete_user("u3")
    everything = [one.id for one in client.get_recommend("u3", n=24)]
    assert len(everything) > len(known)  # what they had in training is no longer excluded
    client.insert_feedback("star", "u3", "i5", WHEN)
    assert client.get_user("u3")["UserId"] == "u3"
    assert len(client.get_recommend("u3", n=24)) == len(everything) - 1


def test_every_call_of_the_client_is_tested():
    calls = {name for name, _ in inspect.getmembers(Gorse, inspect.isfunction) if not name.startswith("_")}
    calls |= {name for name, _ in inspect.getmembers(AsyncGorse, inspect.isfunction) if name[0] != "_"}
    text = inspect.getsource(inspect.getmodule(test_items))
    assert [name for name in sorted(calls) if f"client.{name}(" not in text] == []


def test_keys_are_tokens(address):
    assert Gorse(address, READ_KEY).get_recommend("u1", n=1)
    for key, call, status in (
        ("wrong", lambda client: client.get_recommend("u1"), 401),
        (READ_KEY, lambda client: client.insert_user({"UserId": "ann"}), 403),
        (READ_KEY, lambda client: client.get_recommend("u1", write_back_type="read"), 403),
    ):
        with pytest.raises(GorseException) as caught:
            call(Gorse(address, key))
        assert caught.value.status_code == status


# --- what the client does not call -----------------------------------------------------------------------


@pytest.fixture
def asking(serve, model) -> Client:
    return serve(model, kinds=KINDS)


def feedback(**changes):
    return {"FeedbackType": "star", "UserId": "u1", "ItemId": "i1", "Timestamp": WHEN} | changes


def test_feedback_is_replaced_by_put(asking):
    asking.post("/api/feedback", [feedback(Value=3, Comment="a")])
    assert asking.ask("PUT", "/api/feedback", [feedback(Timestamp="2024-01-01", Value=5)]).json == done(1)
    [found] = asking.get("/api/feedback/u1/i1").json
    assert (found["Timestamp"], found["Value"], found["Comment"]) == ("2024-01-01T00:00:00Z", 5.0, "")
    assert asking.get("/api/feedback/star/u1/i1").json == found
    assert asking.get("/api/item/i1/feedback").json == asking.get("/api/item/i1/feedback/").json == [found]
    assert asking.get("/api/item/i1/feedback/read").json == []
    assert asking.get("/api/user/u1/feedback").json == [found]
    assert asking.get("/api/feedback/star?n=1").json["Feedback"] == [found]
    assert asking.get("/api/feedback/read").json == {"Cursor": "", "Feedback": []}
    assert asking.ask("DELETE", "/api/feedback/read/u1/i1").json == done(0)
    assert asking.ask("DELETE", "/api/feedback/star/u1/i1").json == done(1)
    assert asking.get("/api/feedback/star/u1/i1").status == 404


def test_ids_alone_without_a_version(asking, model):
    assert asking.get("/api/recommend/u1?n=3").json == model.recommend(["u1"], k=3)["item"].to_pylist()
    assert asking.get("/api/recommend/u1?n=0").json == []


def test_categories_popularity_and_neighbours(asking, model):
    asking.post(
        "/api/items", [{"ItemId": f"i{n}", "Categories": ["even"] if n % 2 == 0 else []} for n in range(24)]
    )
    assert asking.ask("PUT", "/api/item/i1/category/even").json == done(1)
    assert asking.ask("DELETE", "/api/item/i2/category/even").json == done(1)
    allowed = {"i1", *(f"i{n}" for n in range(0, 24, 2))} - {"i2"}
    addresses = ["/api/popular/even", "/api/item/i3/neighbors/even", "/api/recommend/u1?category=even"]
    for address in addresses:
        found = asking.get(f"{address}{'&' if '?' in address else '?'}n=24").json
        ids = {one if isinstance(one, str) else one["Id"] for one in found}
        assert ids, address
        assert ids <= allowed
    assert {one["Id"] for one in asking.post("/api/session/recommend/even?n=24", []).json} <= allowed
    popular = asking.get("/api/popular?n=3&offset=1").json
    assert [one["Id"] for one in popular] == [one["Id"] for one in asking.get("/api/popular?n=4").json][1:]
    near = asking.get("/api/user/u1/neighbors?n=3").json
    assert [one["Id"] for one in near] == model.similar_users(["u1"], 3)["similar"].to_pylist()
    assert asking.get("/api/user/nobody/neighbors/").json == []


def test_users_and_items_are_patched(asking):
    asking.post("/api/user", {"UserId": "ann", "Labels": {"a": 1}, "Comment": "x"})
    assert asking.ask("PATCH", "/api/user/ann", {"Comment": "y", "Labels": None}).json == done(1)
    assert asking.get("/api/user/ann").json == {"UserId": "ann", "Labels": {"a": 1}, "Comment": "y"}
    assert asking.ask("PATCH", "/api/user/nobody", {}).status == 404
    assert asking.ask("PATCH", "/api/item/nothing", {}).status == 404


def test_health_with_and_without_a_store(asking):
    assert asking.get("/api/health/ready").json["Ready"] is True
    asking.service.reader.close()
    assert asking.get("/api/health/ready").status == 503
    answer = asking.get("/api/health/live")
    assert (answer.status, answer.json["Ready"], answer.json["DataStoreConnected"]) == (200, False, False)
    assert len(asking.get("/api/recommend/u1").json) == 10  # lists go on
    asking.service.store.close()
    assert asking.post("/api/feedback", [feedback()]).status == 503


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/feedback", {"FeedbackType": "star"}),
        ("POST", "/api/feedback", [1]),
        ("POST", "/api/feedback", [feedback(FeedbackType="")]),
        ("POST", "/api/feedback", [feedback(FeedbackType=7)]),
        ("POST", "/api/feedback", [feedback(Timestamp="yesterday")]),
        ("POST", "/api/feedback", [feedback(Timestamp=5)]),
        ("POST", "/api/feedback", [feedback(Value="many")]),
        ("POST", "/api/feedback", [feedback(UserId={})]),
        ("POST", "/api/feedback", [{"FeedbackType": "star", "UserId": "u1"}]),
        ("POST", "/api/feedback", [feedback()] * 1001),
        ("POST", "/api/feedback", b"[" * 100_000),
        ("POST", "/api/item", {"ItemId": "i1", "IsHidden": "no"}),
        ("POST", "/api/item", {"ItemId": "i1", "Categories": "a"}),
        ("POST", "/api/item", {"ItemId": "i1", "Comment": 5}),
        ("POST", "/api/item", []),
        ("POST", "/api/user", {"Labels": {}}),
        ("PATCH", "/api/item/i1", []),
        ("GET", "/api/recommend/u1?n=-1", None),
        ("GET", "/api/recommend/u1?n=many", None),
        ("GET", "/api/recommend/u1?offset=5000", None),
        ("GET", "/api/recommend/u1?write-back-type=read&write-back-delay=soon", None),
        ("GET", "/api/items?cursor=%21", None),
        ("GET", "/api/feedback?cursor=YWJj", None),
    ],
)
def test_what_cannot_be_used_is_a_bad_request(asking, method, path, body):
    answer = asking.ask(method, path, body)
    assert answer.status == 400, answer.body
    assert answer.json["error"]


def test_integer_ids_are_texts(serve, integer_model):
    asking = serve(integer_model)
    found = asking.get("/api/recommend/3?n=2", x_api_version="2").json
    assert all(isinstance(one["Id"], str) and one["Id"].isdecimal() for one in found)
    assert asking.post("/api/item", {"ItemId": 7}).json == done(1)
    assert asking.get("/api/item/7").json["ItemId"] == "7"
    assert asking.get("/api/item/seven").status == 400


def test_times_and_durations():
    for text in (
        "2022-02-24",
        "2022/02/24",
        "2022-02-24 00:00:00 +00:00 UTC",
        "2022-02-24T01:00:00.0000000+01:00",
    ):
        assert fields.moment(text) == 1645660800 * 10**6, text
    assert fields.printed(1_500_000) == "1970-01-01T00:00:01.5Z"
    assert fields.duration("1h30m0.5s") == 5400_500_000
    assert fields.duration("20ms") == 20_000
    assert fields.from_cursor(fields.cursor_of("ä/b")) == "ä/b"
