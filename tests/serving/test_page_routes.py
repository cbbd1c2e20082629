"""The routes that the page asks: people, items, titles, the map, figures; and the files of the page."""

import gc
import json
import re
import weakref
from importlib.resources import files
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from test_safety import ADMIN, KEYS, READ, WRITE, bearer

import truepair as tp
from asking import schema_of
from services import clicks, integer_model, model, serve
from truepair.errors import InputError, StorageError
from truepair.serving.events.store import EventReader
from truepair.serving.lists.served_model import ServedModel, read_items
from truepair.serving.page import browsing, catalogue
from truepair.serving.page.browsing import POLICY, add_page
from truepair.serving.page.layout import layout
from truepair.serving.page.titles import CatalogueSearch, titles_of
from truepair.serving.web.routing import CheckedRouter

Response = pytest.importorskip("fastapi.responses").Response

BAD = '<script>alert("1")</script>'
NAMES = ["Amélie (2001)", "Star Wars", "Wars of the Stars", BAD, "東京物語"]
TABLE = {
    "item": [f"i{n}" for n in range(23)],  # i23 has no row
    "year": [1990 + n for n in range(23)],
    "title": [*NAMES, *(f"Title {n}" for n in range(5, 23))],
    "picture": [
        "https://pictures.example/0.png",
        "http://no.example/1.png",
        "javascript:alert(1)",
        *[None] * 20,
    ],
}


@pytest.fixture
def shop(serve, model):
    """A client of a service with the page, titles, and a second model."""

    def start(first=model, beside=None, **options):
        options = {"items": read_items(TABLE, model.seen_.item_ids), "name": "first.truepair", **options}
        return serve(first, prepare=lambda service: add_page(service, beside), **options)

    return start


# --- finding ----------------------------------------------------------------------------------------------


def test_people_are_found_by_the_beginning_of_their_id(shop):
    client = shop()
    found = client.get("/v1/users?query=U1&limit=5").json
    assert [row["user"] for row in found["users"]] == ["u1", "u10", "u11", "u12", "u13"]
    assert found["users"][0]["items"] == 5
    assert found["of"] == 20
    assert client.get("/v1/users?query=nobody").json["users"] == []
    some = client.get("/v1/users?limit=4").json["users"]
    assert len({row["user"] for row in some}) == 4


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("star wars", ["i1", "i2"]),  # the beginnings of words
        ("amelie", ["i0"]),
        ("AMÉLIE 2001", ["i0"]),
        ("ars", ["i1", "i2"]),  # no word begins so: a part of the title
        ("京物", ["i4"]),
        ("<script>", ["i3"]),
        ("i2", ["i2", "i20", "i21", "i22", "i23"]),
        ("nothing at all", []),
    ],
)
def test_items_are_found_by_title_or_id(shop, query, expected):
    found = shop().get(f"/v1/items?limit=20&query={quote(query)}").json["items"]
    names = [card["item"] for card in found]
    assert sorted(names) == sorted(expected)
    if query == "i2":
        assert names[0] == "i2"


def test_popular_items_come_first(shop, model):
    found = shop().get("/v1/items?limit=24").json["items"]
    people = [card["people"] for card in found]
    assert people == sorted(model.model_.popularity.tolist(), reverse=True)


@pytest.mark.parametrize(
    "path",
    ["/v1/users?limit=0", "/v1/users?limit=101", "/v1/items?limit=x", "/v1/items?query=" + "a" * 257,
     "/v1/items?q=a", "/v1/users/" + "a" * 300, "/v1/users/a/lists?k=0"],
)  # fmt: skip
def test_bad_questions_are_refused(shop, path):
    assert shop().get(path).status == 422


def test_a_search_without_titles_goes_by_ids():
    search = CatalogueSearch(["b", "a10", "a1"], np.array([1, 5, 3]), [None] * 3, heaviest_first=True)
    assert search.find("a1", 10).tolist() == [2, 1]
    assert search.find(" ", 2).tolist() == [1, 2]
    assert CatalogueSearch(["a", "b", "c"], np.array([0, 1, 1])).find("", 9).tolist() == [1, 2]


# --- titles -----------------------------------------------------------------------------------------------


def test_titles_and_pictures_of_a_table(model):
    ids = model.seen_.item_ids
    found = titles_of(read_items(TABLE, ids), ids)
    at = {item: place for place, item in enumerate(ids.ids.to_pylist())}
    assert found.texts[at["i3"]] == BAD
    assert found.texts[at["i23"]] is None
    assert found.pictures[at["i0"]] == "https://pictures.example/0.png"
    assert [found.pictures[at[item]] for item in ("i1", "i2", "i23")] == [None, None, None]
    assert found.facts(at["i2"]) == {"year": 1992}
    assert found.facts(at["i23"]) == {}


def test_without_a_column_title_the_first_text_is_one(model):
    ids = model.seen_.item_ids
    table = {"item": ["i1", "i2"], "price": [1, 2], "name": ["x" * 400, None], "other": ["a", "b"]}
    found = titles_of(read_items(table, ids), ids)
    at = ids.ids.to_pylist().index("i1")
    assert found.texts[at] == "x" * 300
    assert found.facts(at) == {"price": 1, "other": "a"}
    only = titles_of(read_items({"item": ["i1"], "price": [1]}, ids), ids)
    assert only.texts[at] is None
    assert titles_of(None, ids).texts == [None] * 24


def test_titles_of_some_items(shop):
    client = shop()
    answer = client.post("/v1/titles", {"items": ["i3", "i23", "new"]})
    assert b"<" not in answer.body
    assert [card["title"] for card in answer.json["items"]] == [BAD, None, None]
    assert client.post("/v1/titles", {"items": [True]}).status == 422
    assert client.post("/v1/titles", {"items": "i3"}).status == 422
    assert client.post("/v1/titles", {"items": ["i"] * 1001}).status == 422


def test_titles_of_the_store_are_those_of_this_moment(serve, model):
    client = serve(model, prepare=add_page)
    assert client.get("/v1/items/i3").json["title"] is None
    places = client.get("/v1/map").json["x"]
    client.post(
        "/api/items", [{"ItemId": "i3", "Labels": {"title": BAD, "genre": "play"}, "Categories": ["a", "b"]}]
    )
    found = client.get("/v1/items/i3").json
    assert found["title"] == BAD
    assert found["facts"] == {"genre": "play", "categories": "a, b"}
    assert [card["item"] for card in client.get("/v1/items?query=alert").json["items"]] == ["i3"]
    assert BAD in client.get("/v1/map").json["titles"]
    assert client.get("/v1/map").json["x"] == places  # the map itself is kept
    assert not found["hidden"]
    client.post("/api/items", [{"ItemId": "i3", "IsHidden": True}])
    assert client.get("/v1/items/i3").json["hidden"]


def test_people_who_were_forgotten_are_not_shown(serve, model, clicks):
    client = serve(model, prepare=add_page)
    user, item = clicks["user"][0], clicks["item"][0]
    assert user in client.get(f"/v1/items/{item}").json["audience"]["some"]
    client.service.store.delete_user(user)
    assert user not in client.get(f"/v1/items/{item}").json["audience"]["some"]
    assert user not in [row["user"] for row in client.get(f"/v1/users?query={user}").json["users"]]
    found = client.get(f"/v1/users/{user}").json
    assert (found["known"], found["items"]) == (False, [])


# --- people -----------------------------------------------------------------------------------------------


def test_a_person_has_a_history_and_events(shop, model):
    client = shop()
    code = int(model.seen_.user_ids.find(["u4"])[0])
    own = set(model.seen_.item_ids.outside(model.seen_.items_of(code)).to_pylist())
    found = client.get("/v1/users/u4").json
    assert found["known"]
    assert (found["n_items"], found["n_events"]) == (5, 0)
    assert {card["item"] for card in found["items"]} == own
    people = [card["people"] for card in found["items"]]
    assert people == sorted(people, reverse=True)
    events = [{"user": "u4", "item": "i3", "time": 1}, {"user": "u4", "item": "x", "kind": "dislike"}]
    client.post("/v1/events", {"events": events})
    found = client.get("/v1/users/u4").json
    assert [(card["item"], card["kind"], card["title"]) for card in found["events"]] == [
        ("x", "dislike", None),
        ("i3", "like", BAD),
    ]
    nobody = client.get("/v1/users/a%2Fb%20%3Cb%3E").json
    assert (nobody["user"], nobody["known"], nobody["items"]) == ("a/b <b>", False, [])


def test_a_history_is_shown_without_the_store(shop, monkeypatch):
    client = shop()

    def fails(self, users):
        raise StorageError("gone")

    monkeypatch.setattr(EventReader, "of_users", fails)
    found = client.get("/v1/users/u4").json
    assert (found["n_items"], found["events"]) == (5, [])


def test_the_lists_of_two_models_are_those_of_the_library_with_reasons(shop, model, clicks):
    ease = tp.Recommender(encoder="ease").fit(clicks)
    client = shop(beside=("second", ease))
    found = client.get("/v1/users/u4/lists?k=3").json
    assert [one["model"] for one in found["lists"]] == ["first.truepair", "second"]
    for one, library in zip(found["lists"], (model, ease), strict=True):
        expected = library.recommend(["u4"], k=3, explain=3).to_pylist()
        assert one["basis"] == "model"
        for card, row in zip(one["items"], expected, strict=True):
            assert (card["item"], card["rank"]) == (row["item"], row["rank"])
            assert card["score"] == pytest.approx(row["score"], abs=1e-6)
            assert [(r["item"], r["weight"]) for r in card["because"]] == [
                (r["item"], pytest.approx(r["weight"], abs=1e-6)) for r in row["because"]
            ]
            assert "title" in card["because"][0]
    best = [one["items"][0]["item"] for one in found["lists"]]
    client.post("/v1/events", {"events": [{"user": "u4", "item": item} for item in set(best)]})
    after = client.get("/v1/users/u4/lists?k=3").json
    for one in after["lists"]:  # both models hear of the event
        assert one["basis"] == "events"
        assert not {card["item"] for card in one["items"]} & set(best)


def test_a_second_model_needs_ids_of_the_same_type(shop, integer_model):
    with pytest.raises(InputError, match="the user ids of other are int64, and those of first"):
        shop(beside=("other", integer_model))


def test_an_id_may_hold_slashes(serve, clicks):
    bad = "a/b/lists/../<x>"
    model = tp.Recommender(encoder="ease").fit(
        {"user": [*clicks["user"], bad], "item": [*clicks["item"], bad]}
    )
    client = serve(model, prepare=add_page)
    quoted = "a%2Fb%2Flists%2F..%2F%3Cx%3E"
    assert client.get(f"/v1/users/{quoted}").json["user"] == bad
    assert client.get(f"/v1/users/{quoted}/lists").json["user"] == bad
    answer = client.get(f"/v1/items/{quoted}")
    assert answer.json["item"] == bad
    assert b"<" not in answer.body


def test_an_address_that_ends_with_an_id_gives_way_to_routes_that_came_later(serve, model):
    async def later(id: str) -> Response:
        return Response("later")

    def prepare(service):
        add_page(service)
        router = CheckedRouter(service.gate)
        router.add("GET", "/v1/items/{id:path}/later", later, "read")
        service.routers.append(router)

    client = serve(model, prepare=prepare)
    assert client.get("/v1/items/i1/later").body == b"later"
    assert client.get("/v1/items/i1").json["item"] == "i1"


# --- items ------------------------------------------------------------------------------------------------


def test_everything_about_an_item(shop, model):
    found = shop().get("/v1/items/i2").json
    seen = model.seen_
    counts = dict(zip(seen.item_ids.ids.to_pylist(), seen.item_counts.tolist(), strict=True))
    assert found["title"] == "Wars of the Stars"
    assert found["facts"] == {"year": 1992}
    assert found["people"] == counts["i2"]
    assert found["more_popular"] == sum(count > counts["i2"] for count in counts.values())
    similar = model.similar_items(["i2"], k=12)
    assert [card["item"] for card in found["neighbours"]] == similar["similar"].to_pylist()


def test_an_audience_is_counted_as_by_hand(shop, model, clicks):
    pairs = set(zip(clicks["user"], clicks["item"], strict=True))
    top = shop().get("/v1/items?limit=1").json["items"][0]["item"]
    owners = {user for user, item in pairs if item == top}
    assert len(owners) > 5
    found = shop().get(f"/v1/items/{top}").json["audience"]
    assert found["people"] == found["asked"] == len(owners)
    assert set(found["some"]) == owners
    for card in found["also"]:
        share = len({user for user, item in pairs if item == card["item"] and user in owners}) / len(owners)
        overall = len({user for user, item in pairs if item == card["item"]}) / 20
        assert card["share"] == pytest.approx(share, abs=1e-4)
        assert card["overall"] == pytest.approx(overall, abs=1e-4)
        assert share > overall
        assert card["item"] != top
    gains = [card["share"] - card["overall"] for card in found["also"]]
    assert gains == sorted(gains, reverse=True)


def test_a_large_audience_is_sampled(shop, monkeypatch):
    monkeypatch.setattr(catalogue, "_ASKED", 3)
    top = shop().get("/v1/items?limit=1").json["items"][0]["item"]
    found = shop().get(f"/v1/items/{top}").json["audience"]
    assert found["asked"] == 3
    assert len(found["some"]) == 3
    assert found["people"] > 3


def test_an_item_without_a_pair_or_a_model_without_vectors_has_no_neighbours(serve, clicks):
    client = serve(tp.Recommender(encoder="popular").fit(clicks), prepare=add_page)
    assert client.get("/v1/items/i2").json["neighbours"] == []
    refused = client.get("/v1/map")
    assert refused.status == 422
    assert client.get("/v1/items/none").status == 404


# --- the map ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [None, {"encoder": "ease"}, {"encoder": "itemknn"}], ids=str)
def test_a_map_of_every_kind_of_model(shop, serve, clicks, settings):
    client = shop() if settings is None else serve(tp.Recommender(**settings).fit(clicks), prepare=add_page)
    found = client.get("/v1/map").json
    assert sorted(found["items"]) == sorted(set(clicks["item"]))
    assert found["people"] == sorted(found["people"], reverse=True)
    assert len(found["x"]) == len(found["y"]) == len(found["titles"]) == found["of"] == 24
    assert all(0 <= place <= 1 for place in (*found["x"], *found["y"]))
    assert client.get("/v1/map").json == found


def test_a_map_holds_the_most_popular_items(shop, monkeypatch):
    monkeypatch.setattr(catalogue, "MAPPED", 5)
    client = shop()
    found = client.get("/v1/map").json
    assert found["people"] == [card["people"] for card in client.get("/v1/items?limit=5").json["items"]]
    assert found["of"] == 24


def test_neighbours_are_near_on_the_map():
    groups = np.repeat([0, 1, 2], 20)
    random = np.random.default_rng(0)
    near = np.stack([random.permutation(np.flatnonzero(groups == group))[:6] for group in groups])
    places = layout(near)
    centres = np.stack([places[groups == group].mean(axis=0) for group in range(3)])
    closest = np.argmin(((places[:, None] - centres) ** 2).sum(axis=2), axis=1)
    assert (closest == groups).all()
    assert np.array_equal(places, layout(near))
    assert places.min() >= 0
    assert places.max() <= 1
    assert layout(np.array([[-1]])).tolist() == [[0.5, 0.5]]
    assert layout(np.array([[1], [0]])).shape == (2, 2)


def test_a_catalogue_is_freed_with_its_model(shop, model):
    client = shop()
    part = browsing.Browsing(client.service)
    other = ServedModel(model, client.service.limits, client.service.kinds)
    found = weakref.ref(part.catalogue(other))
    assert part.catalogue(other) is found()
    found().map_json  # noqa: B018, computed and kept
    del other
    gc.collect()
    assert found() is None


# --- the model and the service ----------------------------------------------------------------------------


def test_the_facts_of_a_model(shop, clicks, tmp_path):
    model = tp.Recommender(dim=4, epochs=3, auto=False, validation=0.2).fit(clicks)
    model.facts_["metrics"]["test x"] = 0.5
    model.facts_["intervals"] = {"test x": [0.4, float("nan")]}
    client = shop(first=model)
    found = client.get("/v1/model").json
    assert found["name"] == "first.truepair"
    assert found["decisions"] is False
    facts = found["facts"]
    assert len(facts["training curve"]["loss"]) == len(facts["training curve"]["validation"]) > 0
    names = {row["name"]: row for row in facts["metrics"]}
    assert names["test x"]["interval"] == [0.4, None]
    assert names["validation ndcg@20"]["interval"] is None
    assert "versions" in facts
    path = tmp_path / "kept.truepair"
    model.facts_["intervals"] = {}
    model.save(path)
    assert tp.Recommender.load(path).facts_["training curve"] == facts["training curve"]


def test_the_figures_of_the_service(shop):
    client = shop()
    client.get("/v1/users/u1/recommendations")
    client.get("/v1/users/u1/recommendations")
    client.get("/v1/items/none")
    client.get("/health/live")
    client.post("/v1/events", {"events": [{"user": "u1", "item": "i1", "id": "a"}] * 2})
    client.get("/v1/service")
    found = client.get("/v1/service").json
    assert (found["requests"], found["refused"], found["failed"]) == (4, 1, 0)
    assert found["events"] == {"stored": 1, "repeated": 1}
    assert found["gathered"]["products"] == found["gathered"]["requests"] == 2
    rows = {row["route"]: row for row in found["routes"]}
    assert rows["/v1/users/{id}/recommendations"]["requests"] == 2
    assert rows["/v1/users/{id}/recommendations"]["mean_ms"] > 0
    assert "/v1/service" not in rows
    assert found["latency"]["bounds"][-1] is None
    assert found["latency"]["counts"][-1] == 4
    assert found["latency"]["counts"] == sorted(found["latency"]["counts"])


def test_figures_of_other_parts_are_shown(shop):
    from prometheus_client import Gauge

    client = shop()
    Gauge("truepair_queue_length", "Length", registry=client.service.metrics.registry).set(0.5)
    others = client.get("/v1/service").json["others"]
    assert {"name": "queue length", "about": "Length", "value": 0.5} in others
    assert "index recall" in [one["name"] for one in others]


def test_the_examples_of_the_pages_routes_are_served(shop):
    client = shop()
    document = client.get("/openapi.json").json
    for route in browsing.Browsing(client.service).router().routes:
        [method] = route.methods
        about = document["paths"][route.path.replace(":path", "")][method.lower()]
        values = {p["name"]: p["example"] for p in about.get("parameters", ()) if p["in"] == "path"}
        address = route.path.replace(":path", "").format(**values)
        body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
        answer = client.get(address) if body is None else client.post(address, body)
        assert answer.status == 200, (address, answer.body)
        for name in schema_of(document, about)["required"]:
            assert name in answer.json
    assert "/" not in document["paths"]


# --- tokens and files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("token", "status"), [(READ, 200), (ADMIN, 200), (WRITE, 403), ("", 401)])
def test_data_needs_a_token_and_the_files_do_not(shop, token, status):
    client = shop(tokens=KEYS)
    for path in ("/v1/users", "/v1/items", "/v1/users/u1", "/v1/users/u1/lists", "/v1/items/i1", "/v1/map",
                 "/v1/service"):  # fmt: skip
        assert client.get(path, **bearer(token)).status == status
    for path in ("/", "/page/app.js", "/page/style.css", "/page/icon.svg"):
        assert client.get(path).status == 200


def test_the_files_have_a_strict_policy_and_name_no_other_host(shop):
    client = shop()
    folder = files("truepair.serving.page") / "static"
    names = [file.name for file in folder.iterdir() if file.is_file()]
    assert "index.html" in names
    for name in names:
        answer = client.get("/" if name == "index.html" else f"/page/{name}")
        assert answer.status == 200
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        text = answer.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
    assert "default-src 'none'" in POLICY
    assert "unsafe" not in POLICY
    page = client.get("/").body.decode()
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", page)
    for path in ("/page/none.js", "/page/..%2f__init__.py", "/page/titles.py", "/page/"):
        assert client.get(path).status == 404


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_the_palette_has_contrast(scheme):
    style = (files("truepair.serving.page") / "static" / "style.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", style)
    colours = {name: pair[scheme] for name, *pair in found}
    grounds = ("ground", "surface", "raised")
    pairs = [(text, ground) for text in ("ink", "muted", "accent") for ground in grounds]
    pairs += [
        ("accent", "accent-soft"),
        ("accent-ink", "accent"),
        ("alarm", "alarm-soft"),
        ("alarm", "surface"),
    ]
    for text, ground in pairs:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for ground in grounds[:2]:
        assert contrast(colours["edge"], colours[ground]) >= 3, ground  # borders of controls


def test_the_answers_of_a_hostile_table_are_json(shop):
    client = shop()
    for path in ("/v1/items?query=i3", "/v1/items/i3", "/v1/map", "/v1/users/u1/lists"):
        answer = client.get(path)
        assert b"<" not in answer.body
        json.loads(answer.body)
    assert pa.table(TABLE).num_rows == 23
