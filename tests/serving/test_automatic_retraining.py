"""A service that retrains its model: promotions, rollbacks, failures, and what it says about them."""

import io
import json

import pytest

from asking import Client, resolved, schema_of
from retraining_worlds import Shop
from truepair.errors import StorageError
from truepair.recommender.estimator import Recommender
from truepair.serving.retraining import trainer
from truepair.serving.retraining.decisions import DecisionLog
from truepair.serving.retraining.schedule import Schedule
from truepair.serving.retraining.versions import Versions
from truepair.serving.web import retraining
from truepair.serving.web.app import Service
from truepair.serving.web.guard import RequestLog
from truepair.serving.web.retraining import AutomaticRetraining
from truepair.serving.web.tokens import Tokens


class Trainer:
    """In place of a process: it has ended when it is looked at."""

    ends = None
    """How it ends; None: with what a trainer gives."""

    def __init__(self, plan):
        self.plan, self.is_running, self.is_stopped = plan, False, False

    def outcome(self):
        return self.ends or trainer.outcome(json.loads(json.dumps(self.plan)))

    def stop(self):
        self.is_stopped = True


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def start(shop, monkeypatch):
    """A function that gives a client of a service of the shop; its thread does not run."""
    monkeypatch.setattr(retraining, "Child", Trainer)
    monkeypatch.setattr(Trainer, "ends", None)
    services = []

    def started(schedule=None, log=None, **options):
        versions = Versions(shop.path)
        current = versions.open().current
        log = log or RequestLog(io.StringIO())
        service = Service(Recommender.load(versions.path(current)), shop.store_path, log=log, **options)
        service.served.version = current
        service.retraining = AutomaticRetraining(service, versions, shop.plan(), schedule or Schedule())
        services.append(service)
        return Client(service)

    yield started
    for service in services:
        service.close()


def retrained(client):
    """Train now, and wait for the decision."""
    answer = client.post("/v1/model/retrain", {})
    assert (answer.status, answer.json) == (200, {"training": True})
    client.service.retraining.tick()


def decisions(client):
    return [one["decision"] for one in client.get("/v1/model/decisions").json["decisions"]]


def version(client):
    return client.get("/v1/model").json["version"]


def test_a_promoted_model_is_served_and_survives_a_restart(shop, start):
    client = start()
    shop.add_visits()
    retrained(client)
    assert (version(client), decisions(client)) == (1, ["promoted"])
    promoted = Recommender.load(Versions(shop.path).path(1))
    expected = [row["item"] for row in promoted.recommend(["u1"], k=3).to_pylist()]
    again = start()
    assert version(again) == 1
    for one in (client, again):
        found = one.get("/v1/users/u1/recommendations?k=3").json
        assert found["basis"] in ("model", "events")  # the events that judged are not learnt yet
        if found["basis"] == "model":
            assert [row["item"] for row in found["items"]] == expected
        assert one.get("/v1/users/u109/recommendations").json["basis"] != "popularity"  # is new since


def test_one_call_rolls_back(shop, start):
    client = start()
    first = client.get("/v1/users/u1/recommendations").body
    assert client.post("/v1/model/rollback", {}).status == 409
    shop.add_visits(users=range(2, 90))
    retrained(client)
    assert client.get("/v1/users/u1/recommendations").body != first
    answer = client.post("/v1/model/rollback", {})
    assert (answer.status, answer.json) == (200, {"version": 0})
    assert client.get("/v1/users/u1/recommendations").body == first
    assert decisions(client) == ["rolled back", "promoted"]
    retrained(client)
    assert (version(client), decisions(client)[0]) == (0, "waited")


def test_another_service_follows(shop, start):
    one, other = start(), start()
    shop.add_visits()
    retrained(one)
    assert version(other) == 0
    other.service.retraining.tick()
    assert version(other) == 1
    Versions(shop.path).roll_back()  # `truepair rollback`
    for client in (one, other):
        client.service.retraining.tick()
        assert version(client) == 0


def test_the_numbers_of_decisions_are_answered(shop, start):
    client = start(Schedule(3600.0, 10**6))
    shop.add_visits()
    retrained(client)
    retrained(client)
    found = client.get("/v1/model/decisions?n=1").json
    assert [one["decision"] for one in found["decisions"]] == ["waited"]
    promoted = client.get("/v1/model/decisions").json["decisions"][1]
    assert (promoted["people"], promoted["needed"], promoted["margin"]) == (88, 20_000, 0.02)
    running = found["running"]
    assert running.pop("next") > "2026"
    assert running == {
        "version": 1, "versions": [0, 1], "learnt_until": 352, "judged_until": 440, "training": False,
        "margin": 0.02, "every_seconds": 3600.0, "every_events": 10**6, "trainings": 2, "failures": 0,
    }  # fmt: skip
    assert client.get("/v1/model/decisions?n=0").status == 422
    assert client.get("/v1/model/decisions?n=1001").status == 422
    metrics = client.get("/metrics").body.decode()
    assert 'truepair_decisions_total{decision="promoted"} 1.0' in metrics
    assert "truepair_model_version 1.0" in metrics


def test_the_document_describes_the_decisions(shop, start):
    client = start()
    shop.add_visits()
    retrained(client)
    document = client.get("/openapi.json").json
    paths = document["paths"]
    schema = schema_of(document, paths["/v1/model/decisions"]["get"])["properties"]
    running, decision = (resolved(document, s) for s in (schema["running"], schema["decisions"]["items"]))
    found = client.get("/v1/model/decisions").json
    assert set(running["properties"]) == set(found["running"])
    assert set(decision["properties"]) == set(found["decisions"][0])
    assert paths["/v1/model/rollback"]["post"]["requestBody"]["content"]["application/json"]["example"] == {}


def test_only_admins_change_the_model(shop, start):
    tokens = {kind: f"{kind}-0123456789abcdef" for kind in ("read", "write", "admin")}
    client = start(tokens=Tokens.of({kind: [text] for kind, text in tokens.items()}))
    for path in ("/v1/model/retrain", "/v1/model/rollback"):
        assert client.post(path, {}).status == 401
        for kind in ("read", "write"):
            assert client.post(path, {}, authorization=f"Bearer {tokens[kind]}").status == 403
    assert client.get("/v1/model/decisions", authorization=f"Bearer {tokens['read']}").status == 200
    admin = f"Bearer {tokens['admin']}"
    assert client.post("/v1/model/retrain", {}, authorization=admin).status == 200
    assert client.post("/v1/model/rollback", {}, authorization=admin).status == 409


def test_a_page_of_another_site_cannot_change_the_model(start):
    client = start()
    for path in ("/v1/model/retrain", "/v1/model/rollback"):
        assert client.post(path, b"", content_type="text/plain").status == 415
    assert client.post("/v1/model/retrain", {"by": "magic"}).status == 422
    assert client.post("/v1/model/rollback", {"now": True}).status == 422


def test_one_trainer_at_a_time(shop, start):
    client = start()
    assert client.post("/v1/model/retrain", {"by": "fit"}).status == 200
    assert client.service.retraining.child.plan["by"] == "fit"
    again = client.post("/v1/model/retrain", {})
    assert (again.status, "being trained already" in again.json["error"]) == (409, True)
    client.service.retraining.tick()
    with Versions(shop.path).training():  # another process
        assert client.post("/v1/model/retrain", {}).status == 409
    assert client.post("/v1/model/retrain", {}).status == 200


def test_a_killed_trainer_is_logged_and_tried_again(shop, start, monkeypatch):
    stream = io.StringIO()
    client = start(Schedule(1e-6), log=RequestLog(stream))
    before = client.get("/v1/users/u1/recommendations").body
    shop.add_visits(users=range(2, 90))
    ends = {"decision": "failed", "reason": "the trainer was killed by SIGKILL", "trace": "frames"}
    monkeypatch.setattr(Trainer, "ends", ends)
    loop = client.service.retraining
    loop.tick()
    loop.tick()
    assert decisions(client) == ["failed"]
    assert client.get("/v1/model/decisions").json["running"]["failures"] == 1
    assert client.get("/v1/users/u1/recommendations").body == before
    assert 'truepair_decisions_total{decision="failed"} 1.0' in client.get("/metrics").body.decode()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["error"] for line in lines if line["what"] == "trainer"] == [ends["reason"]]
    monkeypatch.setattr(Trainer, "ends", None)
    loop.tick()
    assert (version(client), decisions(client)) == (1, ["promoted", "failed"])


def test_reasons_that_may_name_people_are_not_logged(start, monkeypatch):
    stream = io.StringIO()
    client = start(log=RequestLog(stream))
    monkeypatch.setattr(Trainer, "ends", {"decision": "failed", "reason": "InputError: unknown user 'ann'"})
    retrained(client)
    assert "ann" not in stream.getvalue()
    assert "InputError" in stream.getvalue()
    assert client.get("/v1/model/decisions").json["decisions"][0]["reason"].endswith("'ann'")


def test_a_full_disk_does_not_touch_the_service(start, monkeypatch):
    client = start()

    def full(self, line):
        raise StorageError("No space left on device")

    monkeypatch.setattr(DecisionLog, "append", full)
    monkeypatch.setattr(Trainer, "ends", {"decision": "failed", "reason": "StorageError: full"})
    retrained(client)
    assert client.get("/v1/users/u1/recommendations").status == 200
    assert client.service.retraining.failures == 1
    assert client.service.retraining.child is None


@pytest.mark.parametrize("content", [b"", b"no model", None], ids=["empty", "damaged", "missing"])
def test_a_version_that_cannot_be_loaded_is_not_served(shop, start, content, monkeypatch):
    client = start()
    before = client.get("/v1/users/u1/recommendations").body
    shop.add_visits(users=range(2, 90))
    trainer.outcome(json.loads(json.dumps(vars(shop.plan()))))
    path = Versions(shop.path).path(1)
    good = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    loop, loads = client.service.retraining, []
    load = Recommender.load
    monkeypatch.setattr(Recommender, "load", lambda path: loads.append(path) or load(path))
    for _ in range(3):
        loop.tick()
    assert len(loads) == 1  # it is not tried again and again
    assert client.get("/v1/users/u1/recommendations").body == before
    assert loop.failures == 1
    path.write_bytes(good)
    loop._unusable = (loop._unusable[0], loop._unusable[1] - 60)
    loop.tick()
    assert version(client) == 1


def test_the_thread_goes_on_after_an_error(start, monkeypatch):
    stream = io.StringIO()
    client = start(log=RequestLog(stream))
    loop, ticks = client.service.retraining, []

    def broken():
        ticks.append(1)
        if len(ticks) == 3:
            loop._ending.set()
        raise StorageError("cannot read current")

    monkeypatch.setattr(loop, "tick", broken)
    monkeypatch.setattr(retraining, "TICK", 0.001)
    loop._run()
    assert len(ticks) == 3
    assert stream.getvalue().count('"error": "StorageError"') == 3


def test_the_end_of_the_service_ends_its_trainer(start):
    client = start()
    client.post("/v1/model/retrain", {})
    loop = client.service.retraining
    loop.start()
    loop.child.is_running = True
    child = loop.child
    client.service.close()
    assert child.is_stopped
    assert not loop._thread.is_alive()
    assert not loop.begin(loop.plan)


def test_the_clock_starts_anew_after_a_rollback(shop, start):
    client = start(Schedule(None, 5))
    shop.add_visits()
    loop = client.service.retraining
    loop.tick()
    loop.tick()
    assert version(client) == 1
    client.post("/v1/model/rollback", {})
    trainings = loop.trainings
    shop.add([("u1", "x1")])
    loop.schedule._next_count = 0
    loop.tick()
    assert loop.trainings == trainings
    shop.add([(f"u{n}", "x1") for n in range(2, 8)])
    loop.schedule._next_count = 0
    loop.tick()
    assert loop.trainings == trainings + 1
