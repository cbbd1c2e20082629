"""What is served is what the library gives."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

import truepair as tp
from asking import schema_of
from services import clicks, integer_model, model, serve
from truepair.serving.events.event import Kinds
from truepair.serving.lists.served_model import ListRequest, read_items
from truepair.serving.web.app import Service

ARROW = "application/vnd.apache.arrow.stream"
ITEMS = {"item": [f"i{i}" for i in range(24)], "price": list(range(24)), "shelf": [i % 3 for i in range(24)]}


def table(answer):
    assert answer.status == 200, answer.body
    return pa.ipc.open_stream(answer.body).read_all()


def rows(found):
    """A table as rows, whatever its text type."""
    return found.to_pylist()


def same(found, expected):
    """The same rows; scores that were folded in with others may differ in the last bits."""
    found, expected = rows(found), rows(expected)
    assert [row["item"] for row in found] == [row["item"] for row in expected]
    assert [row["rank"] for row in found] == [row["rank"] for row in expected]
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)


def test_the_list_of_a_person_is_that_of_the_library(serve, model):
    client = serve(model)
    for user in model.seen_.user_ids.ids.to_pylist():
        found = client.get(f"/v1/users/{user}/recommendations?k=4").json
        expected = rows(model.recommend([user], k=4))
        assert found["user"] == user
        assert found["basis"] == "model"
        assert found["items"] == [{name: row[name] for name in ("item", "score", "rank")} for row in expected]


@pytest.mark.parametrize("kind", [tp.SASRec, tp.Recurrence])
def test_a_session_and_new_events_are_read_in_order(serve, kind):
    """Users walk along a circle of items: the last one says which is next."""
    starts, steps = np.arange(60)[:, None] % 20, np.arange(6)
    walks = [f"i{i}" for i in ((starts + steps) % 20).ravel()]
    users, times = [f"u{u}" for u in np.repeat(np.arange(60), 6)], np.tile(steps, 60)
    model = tp.Recommender(encoder=kind(dim=16, dropout=0.0), epochs=30, learning_rate=0.02)
    client = serve(model.fit({"user": users, "item": walks, "time": times}))
    for liked, expected in ((["i3", "i4", "i5"], "i6"), (["i5", "i4", "i3", "i4"], None)):
        found = client.post("/v1/session/recommendations", {"liked": liked, "k": 24}).json["items"]
        times = range(len(set(liked)))
        history = {"user": ["a"] * len(times), "item": list(dict.fromkeys(liked[::-1]))[::-1], "time": times}
        wanted = rows(model.fold_in(history).recommend(k=24))
        assert [row["item"] for row in found] == [row["item"] for row in wanted]
        assert expected in (found[0]["item"], None)
    event = {"user": "u0", "item": "i12", "kind": "like"}
    assert client.post("/v1/events", {"events": [event]}).status in (200, 201, 202)
    assert client.get("/v1/users/u0/recommendations?k=1").json["items"][0]["item"] == "i13"


def test_a_list_as_an_arrow_stream(serve, model):
    found = table(serve(model).get("/v1/users/u3/recommendations?k=4", accept=ARROW))
    assert found.equals(model.recommend(["u3"], k=4))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 3},
        {"exclude_seen": False},
        {"exclude_items": ["i1", "i2"]},
        {"exclude_items": {"u1": ["i3", "i5"]}},
        {"only_items": ["i1", "i2", "i3"]},
        {"where": "price < 15"},
        {"quota": {"shelf": 1}, "k": 3},
        {"where": "price > 3", "quota": {"shelf": 2}, "diversify": 0.4},
        {"diversify": 0.5, "k": 6},
        {"explain": True},
        {"explain": 2, "k": 2},
        {"unknown": "drop"},
        {"cold": "separate"},
    ],
    ids=str,
)
def test_every_option_is_that_of_the_library(serve, model, options):
    client = serve(model, items=read_items(ITEMS, model.seen_.item_ids))
    users = ["u1", "u7", "nobody", "u2"]
    found = client.post("/v1/recommendations", {"users": users, **options}, accept=ARROW)
    given = {"unknown": "popular", **options}
    if "where" in options or "quota" in options:
        given["items"] = ITEMS
    expected = model.recommend(users, **given)
    assert rows(table(found)) == rows(expected)
    as_json = client.post("/v1/recommendations", {"users": users, **options}).json["lists"]
    flat = [{"user": one["user"], **row} for one in as_json for row in one["items"]]
    assert flat == rows(expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder": "ease"},
        {"encoder": "popular"},
        {"encoder": "itemknn"},
        {"dim": 4, "epochs": 2, "auto": False, "blend": "ease"},
        {"dim": 4, "epochs": 2, "auto": False, "scoring": "cosine", "temperature": 0.2, "popularity": 0.5},
        {"dim": 4, "epochs": 2, "loss": "bpr", "sampler": "uniform", "validation": 0},
    ],
    ids=str,
)
def test_every_encoder_is_served(serve, clicks, settings):
    model = tp.Recommender(**settings).fit(clicks)
    client = serve(model)
    for user in ("u1", "u2", "nobody"):
        same(table(client.get(f"/v1/users/{user}/recommendations?k=24", accept=ARROW)),
             model.recommend([user], k=24, unknown="popular"))  # fmt: skip
    client.post("/v1/events", {"events": [{"user": "u1", "item": "i0"}, {"user": "new", "item": "i3"}]})
    history = {"user": ["u1"] * 6 + ["new"], "item": [*items_of(model, "u1"), "i0", "i3"]}
    folded = model.fold_in(history)
    for user in ("u1", "new"):
        same(
            table(client.get(f"/v1/users/{user}/recommendations?k=5", accept=ARROW)),
            folded.recommend([user], k=5),
        )


def items_of(model, user):
    seen = model.seen_
    code = int(seen.user_ids.find([user])[0])
    return seen.item_ids.outside(seen.items_of(code)).to_pylist()


def new_items(model, user, n):
    return [item for item in model.seen_.item_ids.ids.to_pylist() if item not in items_of(model, user)][:n]


def test_what_somebody_just_did_is_excluded_and_moves_their_vector(serve, model):
    client = serve(model)
    before = client.get("/v1/users/u4/recommendations?k=3").json
    best = before["items"][0]["item"]
    assert client.post("/v1/events", {"events": [{"user": "u4", "item": best}]}).json == {
        "stored": 1,
        "repeated": 0,
    }
    after = client.get("/v1/users/u4/recommendations?k=3").json
    assert after["basis"] == "events"
    assert best not in [row["item"] for row in after["items"]]
    history = {"user": ["u4"] * 6, "item": [*items_of(model, "u4"), best]}
    expected = model.fold_in(history).recommend(["u4"], k=3)
    same(table(client.get("/v1/users/u4/recommendations?k=3", accept=ARROW)), expected)
    same(table(client.post("/v1/recommendations", {"users": ["u4"], "k": 3}, accept=ARROW)), expected)
    score = client.post("/v1/scores", {"pairs": [{"user": "u4", "item": "i1"}]}).json["scores"][0]["score"]
    folded = model.fold_in(history).score({"user": ["u4"], "item": ["i1"]})
    assert score == pytest.approx(folded["score"][0].as_py(), abs=1e-5)


def test_no_pairs_have_no_scores(serve, model):
    assert serve(model).post("/v1/scores", {"pairs": []}).json == {"scores": []}


def test_events_of_unknown_people_fold_them_in(serve, model):
    client = serve(model)
    assert client.get("/v1/users/new/recommendations").json["basis"] == "popularity"
    client.post("/v1/events", {"events": [{"user": "new", "item": "not in the model"}]})
    assert client.get("/v1/users/new/recommendations").json["basis"] == "popularity"
    client.post("/v1/events", {"events": [{"user": "new", "item": "i2"}, {"user": "new", "item": "i4"}]})
    expected = model.fold_in({"user": ["new"] * 2, "item": ["i2", "i4"]}).recommend(["new"], k=5)
    same(table(client.get("/v1/users/new/recommendations?k=5", accept=ARROW)), expected)
    first = expected["item"][0].as_py()  # what is excluded for a user whom only the store knows
    body = {"users": ["new"], "k": 4, "unknown": "error", "exclude_items": {"new": [first]}}
    (found,) = client.post("/v1/recommendations", body).json["lists"]
    assert [row["item"] for row in found["items"]] == expected["item"].to_pylist()[1:]


def test_a_disliked_item_is_never_listed_and_can_replace_a_like(serve, model):
    client = serve(model)
    own = items_of(model, "u6")[0]
    events = [
        {"user": "u6", "item": own, "kind": "dislike"},
        {"user": "guest", "item": "i7", "kind": "dislike"},
    ]
    client.post("/v1/events", {"events": events})
    found = client.post("/v1/recommendations", {"users": ["u6"], "exclude_seen": False, "k": 24}).json
    assert own not in [row["item"] for row in found["lists"][0]["items"]]
    likes = items_of(model, "u6")[1:]
    history = tp.read_interactions(
        {"user": ["u6"] * 5, "item": [*likes, own], "weight": [1.0] * 4 + [-1.0]}, dislikes=True
    )
    same(
        table(client.get("/v1/users/u6/recommendations?k=6", accept=ARROW)),
        model.fold_in(history).recommend(["u6"], k=6),
    )
    popular = client.get("/v1/users/guest/recommendations?k=24").json
    assert popular["basis"] == "popularity"
    assert "i7" not in [row["item"] for row in popular["items"]]


def test_an_event_that_training_knew_changes_nothing(serve, model):
    client = serve(model)
    client.post("/v1/events", {"events": [{"user": "u2", "item": items_of(model, "u2")[0]}]})
    assert client.get("/v1/users/u2/recommendations").json["basis"] == "model"
    assert client.service.served.histories.fold_ins == 0


def test_kinds_weigh_as_in_the_library(serve, model):
    numbers = {"view": 1, "buy": 5, "hide": -1, "open": 0}
    client = serve(model, kinds=Kinds(numbers))
    log = [("new", "i2", "view"), ("new", "i4", "buy"), ("new", "i4", "view"), ("new", "i6", "hide"),
           ("new", "i8", "hide"), ("new", "i8", "view"), ("new", "i10", "open")]  # fmt: skip
    events = [{"user": u, "item": i, "kind": k, "time": 1000 + t} for t, (u, i, k) in enumerate(log)]
    client.post("/v1/events", {"events": events})
    columns = dict(zip(("user", "item", "kind"), map(list, zip(*log, strict=True)), strict=True))
    history = tp.read_interactions({**columns, "time": list(range(1000, 1007))}, feedback=numbers)
    expected = model.fold_in(history).recommend(["new"], k=8)
    same(table(client.get("/v1/users/new/recommendations?k=8", accept=ARROW)), expected)
    assert "i6" not in [row["item"] for row in rows(expected)]


def test_a_session_is_folded_in(serve, model):
    client = serve(model, items=read_items(ITEMS, model.seen_.item_ids))
    body = {"liked": ["i1", "i3", "unknown"], "disliked": ["i5"], "k": 4, "where": "price < 20"}
    found = client.post("/v1/session/recommendations", body, accept=ARROW)
    history = tp.read_interactions(
        {"user": ["me"] * 3, "item": ["i1", "i3", "i5"], "weight": [1.0, 1.0, -1.0]}, dislikes=True
    )
    same(table(found), model.fold_in(history).recommend(["me"], k=4, items=ITEMS, where="price < 20"))
    nothing = client.post("/v1/session/recommendations", {"k": 3}).json["items"]
    popular = rows(model.recommend(["nobody"], k=3, unknown="popular"))
    assert [row["item"] for row in nothing] == [row["item"] for row in popular]
    assert (
        client.post("/v1/session/recommendations", {"liked": ["unknown"], "unknown": "error"}).status == 404
    )


def test_neighbours_and_scores(serve, model):
    client = serve(model)
    expected = model.similar_items(["i3"], k=5)
    assert table(client.get("/v1/items/i3/similar?k=5", accept=ARROW)).equals(expected)
    as_json = client.get("/v1/items/i3/similar?k=5").json
    assert as_json["item"] == "i3"
    assert [row["similar"] for row in as_json["items"]] == expected["similar"].to_pylist()
    assert client.get("/v1/items/no/similar").status == 404
    pairs = [{"user": "u1", "item": "i3"}, {"user": "u9", "item": "i4"}]
    expected = model.score({"user": ["u1", "u9"], "item": ["i3", "i4"]})
    assert client.post("/v1/scores", {"pairs": pairs}).json["scores"] == rows(expected)
    assert client.post("/v1/scores", {"pairs": [{"user": "nobody", "item": "i3"}]}).status == 404


def test_integer_ids_are_found_by_text_and_by_number(serve, integer_model):
    client = serve(integer_model)
    found = client.get("/v1/users/3/recommendations?k=3").json
    assert found["user"] == 3
    assert [row["item"] for row in found["items"]] == integer_model.recommend([3], k=3)["item"].to_pylist()
    for ids in ([3], ["3"], ["+3"]):
        assert client.post("/v1/recommendations", {"users": ids, "k": 3}).json["lists"][0]["user"] == 3
    wrong = client.get("/v1/users/ann/recommendations")
    assert wrong.status == 422
    assert "user ids are integers" in wrong.json["error"]
    client.post("/v1/events", {"events": [{"user": "3", "item": found["items"][0]["item"]}]})
    assert client.get("/v1/users/3/recommendations").json["basis"] == "events"


def test_many_at_once_are_the_same_as_each_alone(model, serve):
    client = serve(model)
    client.post("/v1/events", {"events": [{"user": "u1", "item": "i0"}, {"user": "new", "item": "i3"}]})
    users = [*(f"u{n}" for n in range(20)), "new", "nobody"]
    asked = [ListRequest(user, 1 + place % 7) for place, user in enumerate(users)]
    served = client.service.served
    together, alone = served.plain_lists(asked), [served.plain_lists([one])[0] for one in asked]
    for one, other in zip(together, alone, strict=True):
        assert (one.user, one.basis) == (other.user, other.basis)
        assert np.array_equal(one.items, other.items)
        assert np.array_equal(one.scores, other.scores)
    answers = client.together([("GET", f"/v1/users/{user}/recommendations?k={k}") for user, k in asked])
    assert [answer.body for answer in answers] == [
        client.get(f"/v1/users/{user}/recommendations?k={k}").body for user, k in asked
    ]


def test_two_services_of_one_store_see_each_others_events(serve, model):
    one, other = serve(model), serve(model)
    item = other.get("/v1/users/u5/recommendations").json["items"][0]["item"]
    one.post("/v1/events", {"events": [{"user": "u5", "item": item}]})
    assert item not in [row["item"] for row in other.get("/v1/users/u5/recommendations").json["items"]]


def test_ids_are_escaped(serve, clicks):
    bad = '<script>alert("1")</script>&/é\u2028'
    model = tp.Recommender(encoder="ease").fit(
        {"user": [*clicks["user"], bad], "item": [*clicks["item"], "i1"]}
    )
    answer = serve(model).get(
        "/v1/users/%3Cscript%3Ealert(%221%22)%3C%2Fscript%3E%26%2F%C3%A9%E2%80%A8/recommendations"
    )
    assert answer.status == 200
    assert answer.json["user"] == bad
    assert answer.json["basis"] == "model"
    assert b"<" not in answer.body
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_model_health_and_metrics(serve, model):
    client = serve(model)
    facts = client.get("/v1/model").json
    assert (facts["users"], facts["items"], facts["pairs"]) == (20, 24, 100)
    assert client.get("/health/live").json == {"status": "live"}
    assert client.get("/health/ready").json == {"status": "ready"}
    client.get("/v1/users/u1/recommendations")
    client.post("/v1/events", {"events": [{"user": "u1", "item": "i1", "id": "a"}] * 2})
    text = client.get("/metrics").body.decode()
    route = 'route="/v1/users/{id}/recommendations"'
    assert f'truepair_requests_total{{method="GET",{route},status="200"}} 1.0' in text
    assert 'truepair_events_total{result="stored"} 1.0' in text
    assert 'truepair_events_total{result="repeated"} 1.0' in text
    assert "truepair_gathered_requests_count 1.0" in text


def test_the_examples_of_the_document_are_served(serve, model):
    client = serve(model)
    document = client.get("/openapi.json").json
    assert len(document["paths"]) >= 10
    order = ["post", "put", "patch", "get", "delete"]  # what is read was stored before, and is deleted last
    asking = [(path, method) for path, methods in document["paths"].items() for method in methods]
    for path, method in sorted(asking, key=lambda one: (order.index(one[1]), -len(one[0]))):
        about = document["paths"][path][method]
        values = {p["name"]: p["example"] for p in about.get("parameters", ()) if p["in"] == "path"}
        content = about.get("requestBody", {}).get("content", {})
        example = content.get("application/json", {}).get("example")
        answer = client.ask(method.upper(), path.format(**values), example)
        assert answer.status == 200, (path, answer.body)
        for name in schema_of(document, about).get("required", ()):
            assert name in answer.json
    assert json.dumps(document).count("USER") == 0


def test_a_page_describes_every_address_and_loads_nothing(serve, model):
    client = serve(model)
    answer = client.get("/docs")
    page = answer.body.decode()
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<link|<img|src=|https?://", page)
    for path in client.get("/openapi.json").json["paths"]:
        assert f" {path}</code>" in page


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/recommendations", {"user": ["u1"]}, "'user' is not a field here; use .* Did you mean 'users'?"),
        ("/v1/recommendations", {"k": 3}, "the field 'users' is missing; it is the ids of the users"),
        ("/v1/recommendations", {"users": []}, "users = \\[\\] cannot be used; .*at least 1 item"),
        (
            "/v1/recommendations",
            {"users": ["u1"], "k": "3"},
            "k = '3' cannot be used; .*integer; it is how many",
        ),
        ("/v1/recommendations", {"users": ["u1"], "k": 1001}, "k = 1001 is out of range; .* from 1 to 1000"),
        (
            "/v1/recommendations",
            {"users": ["u1"] * 1001},
            "users has 1,001 entries; at most 1,000 are allowed",
        ),
        (
            "/v1/recommendations",
            {"users": ["u1"], "cold": "no"},
            "cold = 'no' .*'popular', 'separate' or 'error'",
        ),
        ("/v1/recommendations", b"{", "the body is not JSON: .*; send an object"),
        ("/v1/events", {"events": [{"user": "u1"}]}, "the field 'item' is missing"),
        ("/v1/events", {"events": [{"user": "u1", "item": "i1", "kind": "lik"}]}, "Did you mean 'like'?"),
    ],
)
def test_a_refusal_states_the_value_and_what_is_allowed(serve, model, path, body, text):
    answer = serve(model).post(path, body)
    assert answer.status == (400 if isinstance(body, bytes) else 422)
    assert re.search(text, answer.json["error"]), answer.json["error"]


def test_a_service_counts_events_by_the_feedback_of_its_model(tmp_path):
    numbers = {"view": 1.0, "buy": 10.0, "return": -1.0}
    rows = {"user": ["ann", "bob"], "item": ["tea", "jam"], "kind": ["view", "buy"]}
    for options, kinds in (({"feedback": numbers}, numbers), ({"kind": False}, Kinds().numbers)):
        service = Service(tp.Recommender(encoder="popular").fit(rows, **options), tmp_path / "events.sqlite")
        assert service.kinds.numbers == kinds
        service.close()
