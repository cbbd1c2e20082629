"""`truepair serve --demo`: its data, its files, its visitors, and the command."""

import json
import signal
import time
from urllib.parse import quote

import numpy as np
import pytest
from test_safety import KEYS, READ
from test_serve_command import ask, running
from typer.testing import CliRunner

import truepair as tp
from services import clicks, model, serve
from truepair.cli.main import app
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import DownloadError
from truepair.serving.demo import world as world_module
from truepair.serving.demo.visitors import Visitors
from truepair.serving.demo.world import demo_files, demo_world
from truepair.serving.web.tokens import Tokens


def offline(*arguments):
    raise DownloadError("there is no network")


def rated(*arguments):
    """20 people with ratings from 1 to 5 at different times."""
    random = np.random.default_rng(0)
    users, items = (part.ravel() for part in np.meshgrid(np.arange(20), np.arange(30), indexing="ij"))
    ids = IdMap.range(20), IdMap.range(30)
    rating, time = random.integers(1, 6, 600).astype(float), random.permutation(600).astype(float)
    return Interactions(users, items, *ids, rating=rating, time=time)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(
        "truepair.serving.demo.world.load_titles",
        lambda name, folder: {n: f"Film {n} (19{n + 60})" for n in range(30)},
    )
    monkeypatch.setattr("truepair.serving.demo.world.load", rated)
    return demo_world()


def test_the_past_is_learnt_and_the_future_visits(world):
    ratings = rated()
    start = world.split.test.time.min()
    assert world.split.train.time.max() < start
    assert world.split.train.rating.min() >= 4
    kinds = {(u, i): r for u, i, r, t in zip(ratings.users.tolist(), ratings.items.tolist(),
             ratings.rating.tolist(), ratings.time.tolist(), strict=True) if t >= start}  # fmt: skip
    assert {(u, i) for u, i, _ in world.future} == {pair for pair, rating in kinds.items() if rating != 3}
    assert all((kind == "like") == (kinds[u, i] >= 4) for u, i, kind in world.future)
    assert all((kind == "dislike") == (kinds[u, i] <= 2) for u, i, kind in world.future)
    assert world.items.slice(0, 1).to_pylist() == [{"item": 0, "title": "Film 0 (1960)", "year": "1960"}]


def test_without_the_data_the_world_is_simulated_and_says_so(monkeypatch):
    monkeypatch.setattr("truepair.serving.demo.world.load", offline)
    world = demo_world()
    assert "cannot be downloaded: this world is simulated" in world.note
    known = set(world.split.train.user_ids.ids.to_pylist())
    assert {user for user, _, _ in world.future} <= known
    pairs = set(zip(world.split.train.users.tolist(), world.split.train.items.tolist(), strict=True))
    assert not any(
        (int(world.split.train.user_ids.find([u])[0]), int(world.split.train.item_ids.find([i])[0])) in pairs
        for u, i, _ in world.future[:50]
    )
    row = world.items.slice(0, 1).to_pylist()[0]
    assert row["genre"] in row["title"]


def test_the_models_are_kept_in_the_cache(world, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(
        world_module,
        "MODELS",
        {"default": {"dim": 4, "epochs": 2, "auto": False}, "ease": {"encoder": "ease"}},
    )
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir(), two.mkdir()
    first = demo_files(one, world)
    facts = tp.Recommender.load(first.model).facts_
    low, high = facts["intervals"]["test ndcg@10"]
    assert low <= facts["metrics"]["test ndcg@10"] <= high
    monkeypatch.setattr(world_module, "fitted", None)  # nothing is fitted again
    second = demo_files(two, world)
    assert second.model.read_bytes() == first.model.read_bytes()
    assert tp.Recommender.load(second.beside).encoder == "ease"
    monkeypatch.undo()


def test_a_damaged_model_of_the_cache_is_fitted_again(world, tmp_path, monkeypatch):
    monkeypatch.setenv("TRUEPAIR_CACHE", str(tmp_path))
    monkeypatch.setattr(
        world_module, "MODELS", {"default": {"encoder": "popular"}, "ease": {"encoder": "ease"}}
    )
    place = tmp_path / "files"
    place.mkdir()
    demo_files(place, world)
    for path in (tmp_path / "serve-demo").iterdir():
        path.write_bytes(b"no model")
    found = demo_files(place, world)
    assert tp.Recommender.load(found.model).encoder == "popular"


class Connection:
    """An http.client connection to a service of this process."""

    def __init__(self, client):
        self.client, self.asked = client, []

    def request(self, method, path, body, headers):
        names = {name.replace("-", "_"): value for name, value in headers.items()}
        self.asked.append((method, path))
        if method == "GET":
            self.answer = self.client.get(path, **names)
        else:
            self.answer = self.client.post(path, json.loads(body), **names)
        assert self.answer.status == 200, self.answer.body

    def getresponse(self):
        return self

    def read(self):
        return self.answer.body

    def close(self):
        pass


def test_a_visit_asks_acts_and_asks_again(serve, model):
    visitors = Visitors([("u1", "i0", "like"), ("u2", "i3", "dislike")], seed=1)
    tokens = visitors.with_token(KEYS)
    client = serve(model, tokens=tokens)
    connection = Connection(client)
    for _ in range(10):
        visitors.visit(connection)
    posts = [path for method, path in connection.asked if method == "POST"]
    lists = [path for method, path in connection.asked if "/recommendations" in path]
    assert (len(posts), len(lists)) == (10, 20)
    assert any("/similar" in path for _, path in connection.asked)
    people = {path.split("/")[3] for path in lists}
    assert {"u1", "u2"} < people
    assert any(user.startswith("new-") for user in people)
    basis = client.get("/v1/users/u1/recommendations", authorization=f"Bearer {READ}").json["basis"]
    assert basis == "events"


def test_visitors_need_no_token_where_there_is_none():
    visitors = Visitors([(1, 2, "like")])
    assert not visitors.with_token(Tokens())
    visitors.stop()


def test_visitors_survive_a_service_that_is_gone():
    visitors = Visitors([("u1", "i0", "like")], rate=1000.0)
    visitors.start("http://127.0.0.1:9")  # nobody listens
    while visitors.visits < 3:
        pass
    visitors.stop()
    assert not visitors._thread.is_alive()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "there is no MODEL; give a model file saved by `truepair fit`, or --demo"),
        (["model.truepair", "--demo"], "MODEL model.truepair has no effect with --demo"),
        (["--demo", "--items", "x.csv"], "--items x.csv has no effect with --demo"),
        (["--demo", "--beside", "x"], "--beside x has no effect with --demo"),
        (["model.truepair", "--data-dir", "."], "--data-dir . has no effect without --demo"),
        (["--demo", "--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines"),
        (["model.truepair", "--beside", "nothing.truepair"], "nothing.truepair"),
    ],
)
def test_each_bad_option_is_a_clear_error(options, problem, tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    model.save("model.truepair")
    result = CliRunner().invoke(app, ["serve", *options])
    assert result.exit_code == 1, result.output
    assert problem in result.output


@pytest.mark.long
def test_the_demo_as_a_process(tmp_path):
    empty = tmp_path / "data"
    empty.mkdir()
    settings = {
        "TRUEPAIR_CACHE": str(tmp_path / "cache"), "TRUEPAIR_DATA": str(empty), "TMPDIR": str(tmp_path),
        "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "PIP_INDEX_URL": "http://127.0.0.1:9",
    }  # fmt: skip
    with running("--demo", cwd=tmp_path, **settings) as (process, port):
        assert "this world is simulated" in "".join(process.lines)
        for _ in range(300):
            found = json.loads(ask(port, "GET", "/v1/service")[1])
            if found["events"].get("stored"):
                break
            time.sleep(0.1)
        assert found["events"]["stored"] > 0
        assert found["failed"] == found["refused"] == 0
        user = json.loads(ask(port, "GET", "/v1/users?limit=1")[1])["users"][0]["user"]
        lists = json.loads(ask(port, "GET", f"/v1/users/{quote(user)}/lists")[1])["lists"]
        assert [one["model"] for one in lists] == ["default.truepair", "ease.truepair"]
        assert lists[0]["items"][0]["title"]
        assert b"<title>truepair</title>" in ask(port, "GET", "/")[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not list(tmp_path.glob("truepair-demo-*"))
