"""Rate limits, the index of a service, and the bounds on the head of a request."""

import asyncio
import dataclasses
import io
import socket
import time

import numpy as np
import pytest
import torch

from hostile.requests import KINDS, hostile_requests
from hostile.sending import send_all
from live import listening, uvicorn
from services import clicks, model, serve
from truepair.errors import InputError
from truepair.ranking.approximate.indexing import IndexChoice
from truepair.recommender import lister
from truepair.serving.lists.served_model import read_items
from truepair.serving.web import guard as rates_module
from truepair.serving.web.guard import RateLimit, RequestLog
from truepair.serving.web.protocol import BoundedProtocol
from truepair.serving.web.running import configuration
from truepair.serving.web.tokens import Tokens

READ, WRITE = ("read-" * 4, "write-" * 4)


def test_a_caller_may_ask_so_many_times_a_second():
    now = [100.0]
    limit = RateLimit(2, clock=lambda: now[0])
    assert [limit.wait(b"a") for _ in range(4)] == [0, 0, 1, 1]
    assert limit.wait(b"b") == 0
    now[0] += 0.5
    assert [limit.wait(b"a") for _ in range(2)] == [0, 1]
    now[0] += 60  # a bucket holds the tokens of one second, no more
    assert [limit.wait(b"a") for _ in range(3)] == [0, 0, 1]
    slow = RateLimit(0.1, clock=lambda: now[0])
    assert [slow.wait(b"a") for _ in range(2)] == [0, 10]
    with pytest.raises(InputError, match="rate"):
        RateLimit(0)


def test_callers_are_remembered_in_a_bounded_memory(monkeypatch):
    monkeypatch.setattr(rates_module, "_CALLERS", 10)
    limit = RateLimit(1, clock=lambda: 5.0)
    for number in range(1000):
        limit.wait(b"%d" % number)
    assert len(limit._full_at) == 10
    assert limit.wait(b"999") == 1


def test_each_token_has_its_own_rate_and_health_has_none(serve, model):
    client = serve(model, tokens=Tokens.of({"read": [READ], "admin": [WRITE]}), rate=2)
    ask = lambda token: client.get("/v1/model", authorization=f"Bearer {token}")  # noqa: E731
    assert [ask(READ).status for _ in range(3)] == [200, 200, 429]
    refused = ask(READ)
    assert refused.headers["retry-after"] == "1"
    assert "more than 2 requests a second" in refused.json["error"]
    assert ask(WRITE).status == 200
    by_chance = [ask(f"by-chance-{number:010}").status for number in range(5)]  # one caller: the address
    assert by_chance == [401, 401, 429, 429, 429]
    assert [client.get("/health/live").status for _ in range(5)] == [200] * 5


def test_a_service_with_an_index_gives_the_lists_of_the_library(serve, model):
    client = serve(model, index=IndexChoice("ivf", 0.99))
    assert client.service.served.indexing.kind == "ivf"
    for user in model.seen_.user_ids.ids.to_pylist():
        found = client.get(f"/v1/users/{user}/recommendations?k=4").json["items"]
        expected = model.recommend([user], k=4).to_pylist()
        assert found == [{name: row[name] for name in ("item", "score", "rank")} for row in expected]
    text = client.get("/metrics").body.decode()
    assert "truepair_index_recall 1.0" in text
    assert 'truepair_index_items{kind="ivf"} 24.0' in text
    assert client.get("/v1/model").json["index"] == {"kind": "ivf", "recall": 1.0}
    assert serve(model, "b.sqlite").service.served.indexing.kind == "exact"


def test_models_without_vectors_have_no_index(serve, clicks):
    import truepair as tp

    for encoder in ("ease", "popular"):
        closed = tp.Recommender(encoder=encoder).fit(clicks)
        indexing = serve(closed, f"{encoder}.sqlite", index=IndexChoice("ivf")).service.served.indexing
        assert indexing.kind == "exact"
        assert "needs a vector for each user and item" in indexing.about


def test_wrong_choices_of_an_index_are_errors():
    for wrong, problem in (({"kind": "tree"}, "index = 'tree'"), ({"recall": 0}, "recall = 0")):
        with pytest.raises(InputError, match=problem):
            IndexChoice(**wrong)


def test_many_lists_of_a_large_catalogue_are_worth_a_gpu(monkeypatch):
    items, gpu = torch.empty(1, 1).expand(1_000_000, 64), torch.device("cuda")
    for n_users, free, is_worth in (
        (10_000, 10**11, True),
        (10, 10**11, False),
        (10_000, 10**8, False),
        (10_000, None, True),
    ):
        monkeypatch.setattr(lister, "free_bytes", lambda device, free=free: free)
        assert lister.is_worth_a_gpu(n_users, items, gpu) == is_worth
        assert not lister.is_worth_a_gpu(n_users, items, torch.device("cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_lists_on_a_gpu_are_those_of_the_cpu(model, monkeypatch):
    monkeypatch.setattr(lister, "_SCORES", 1)
    tables, fitted = [], model.model_
    for device in ("cpu", "cuda"):
        moved = dataclasses.replace(fitted, spec=fitted.spec.varied(device=device))
        monkeypatch.setattr(model, "model_", moved)
        tables.append(model.recommend(k=5, exclude_items=["i3"]).to_pydict())
    assert tables[0]["item"] == tables[1]["item"]
    assert np.allclose(tables[0]["score"], tables[1]["score"], atol=1e-5)


# --- hostile connections ---------------------------------------------------------------------------------


def test_hostile_requests_by_raw_sockets(serve, model):
    table = {"item": [f"i{i}" for i in range(24)], "price": list(range(24))}
    log = io.StringIO()
    client = serve(model, items=read_items(table, model.seen_.item_ids), log=RequestLog(log))
    with listening(client.service, head_seconds=0.5) as port:
        tally = send_all(port, hostile_requests(7, len(KINDS), slow=0.001))
        request = b"GET /v1/users/u1/recommendations HTTP/1.0\r\nhost: localhost\r\n\r\n"
        assert connected(port, request)[0].startswith(b"HTTP/1.1 200 ")
    assert tally.total() == len(KINDS)
    assert not tally.wrong, tally.wrong
    assert '"what": "error"' not in log.getvalue()


def connected(port, *parts, seconds=5.0):
    """What a client receives until the service closes the connection, and how long that took."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        received = b""
        try:
            for part in parts:
                connection.sendall(part)
            while data := connection.recv(4096):
                received += data
        except ConnectionError:
            pass
    return received, time.monotonic() - begun


def test_a_head_has_bounds_and_a_rest_of_a_body_is_not_read_for_ever(serve, model):
    client = serve(model)
    head = b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999\r\n\r\n"
    with listening(client.service, head_seconds=0.2) as port:
        assert connected(port)[0] == b""  # says nothing
        assert connected(port, b"GET / HTTP/1.1\r\nx: ")[0] == b""  # never ends its head
        assert connected(port, b"\r\n\r\n")[0] == b""
    with listening(client.service, linger_seconds=1.0) as port:
        large, _ = connected(port, b"GET / HTTP/1.1\r\nx: ", *([b"y" * 50_000] * 4))
        assert large.startswith(b"HTTP/1.1 431 ")
        assert large.count(b"HTTP/1.1 ") == 1
        assert connected(port, head)[0].startswith(b"HTTP/1.1 404 ")  # and the connection is closed
    with listening(client.service, head_seconds=1.0) as port:
        live = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
        assert connected(port, live + live + live[:20])[0].count(b"HTTP/1.1 200 ") == 2


class Transport(asyncio.Transport):
    """A connection that keeps what is written."""

    def __init__(self):
        super().__init__()
        self.written, self.closed = b"", False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def test_after_the_refusal_of_a_head_the_rest_is_read_and_thrown_away(serve, model):
    service = serve(model).service
    config = configuration(service)
    config.load()

    async def refused():
        protocol, transport = BoundedProtocol(config, uvicorn.server.ServerState(), {}), Transport()
        protocol.connection_made(transport)
        asked = b"GET /health/live HTTP/1.1\r\n\r\n"  # is answered later than the refusal
        for part in (asked, b"GET / HTTP/1.1\r\nx: ", *[b"y" * 50_000] * 4, b"\r\n\r\n"):
            protocol.data_received(part)
        await asyncio.gather(*protocol.tasks)
        lingering = not transport.closed
        protocol._close()
        protocol.connection_lost(None)
        return transport, lingering

    transport, lingering = asyncio.run(refused())
    assert lingering  # closed with unread bytes, it could lose the answer
    assert transport.written.startswith(b"HTTP/1.1 431 ")
    assert transport.written.count(b"HTTP/1.1 ") == 1
