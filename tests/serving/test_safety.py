"""Tokens, limits, and requests that mean no good."""

import asyncio
import io
import json

import pytest

from asking import asked
from services import clicks, integer_model, model, serve
from truepair.errors import InputError
from truepair.serving.limits import Limits
from truepair.serving.web import tokens as token_module
from truepair.serving.web.guard import RequestLog
from truepair.serving.web.tokens import Tokens, check_binding, is_loopback

READ, WRITE, ADMIN = (name * 4 for name in ("read-", "write-", "admin-"))
KEYS = Tokens.of({"read": [READ], "write": [WRITE], "admin": [ADMIN]})
EVENT = {"events": [{"user": "u1", "item": "i1"}]}


def bearer(token):
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize(
    ("token", "lists", "events"),
    [(READ, 200, 403), (WRITE, 403, 200), (ADMIN, 200, 200), ("wrong" * 5, 401, 401), ("", 401, 401)],
)
def test_a_token_allows_what_it_is_for(serve, model, token, lists, events):
    client = serve(model, tokens=KEYS)
    for path in ("/v1/users/u1/recommendations", "/v1/model", "/metrics", "/openapi.json", "/docs"):
        assert client.get(path, **bearer(token)).status == lists
    assert client.post("/v1/recommendations", {"users": ["u1"]}, **bearer(token)).status == lists
    assert client.post("/v1/events", EVENT, **bearer(token)).status == events
    assert client.get("/health/live").status == 200
    assert client.get("/v1/model", authorization=f"Basic {READ}").status == 401


def test_every_token_is_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(token_module.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    KEYS.check(f"Bearer {READ}", "read")
    assert len(compared) == 3
    assert READ not in repr(KEYS)


def test_tokens_from_a_file_and_from_the_environment(tmp_path):
    path = tmp_path / "tokens.toml"
    path.write_text(f'read = ["{READ}"]')
    found = Tokens.read(path, {"TRUEPAIR_WRITE_TOKEN": WRITE})
    found.check(f"Bearer {READ}", "read")
    found.check(f"bearer {WRITE}", "write")
    assert not Tokens.read(None, {})
    for text, problem in [
        ('read = ["short"]', "a read token of 5 characters cannot be used"),
        (f'reed = ["{READ}"]', "the kind of tokens = 'reed' is not known; .* Did you mean 'read'?"),
        (f'read = "{READ}"', "read is no list of texts"),
        ("read = [", "cannot read tokens from"),
        (f'read = ["{READ}"]\nadmin = ["{READ}"]', "one token is admin and read"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=problem):
            Tokens.read(path, {})


def test_without_tokens_only_this_machine_is_served(serve, model):
    assert all(is_loopback(host) for host in ("127.0.0.1", "::1", "[::1]", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "evil.example", ""))
    with pytest.raises(
        InputError, match=r"--host 0.0.0.0 can be reached from other machines, and there are no tokens"
    ):
        check_binding("0.0.0.0", Tokens())
    check_binding("0.0.0.0", KEYS)
    client = serve(model)
    assert client.get("/v1/model", host="127.0.0.1:8000").status == 200
    assert client.get("/v1/model", host="[::1]:8000").status == 200
    assert client.get("/v1/model", host="evil.example:8000").status == 403
    assert serve(model, tokens=KEYS).get("/v1/model", host="shop.example", **bearer(READ)).status == 200


LIMITS = Limits(body=5000, k=20, users=5, items=30, pairs=4, events=3, text_length=100)


def hostile():
    """(path, body) of requests that each deserve a 4xx."""
    deep = b"[" * 2000 + b"]" * 2000
    values = [
        None,
        True,
        -1,
        0,
        1.5,
        1e400,
        10**30,
        "",
        "x",
        "1",
        [],
        {},
        [[]],
        [{}],
        {"a": 1},
        [None],
        "\ud800",
    ]
    lists, session = "/v1/recommendations", "/v1/session/recommendations"
    for body in (
        b"",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"{",
        b'{"users": [1}',
        b"\xff\xfe",
        b"\x00",
        deep,
        b'{"k": NaN}',
    ):
        for path in (lists, session, "/v1/scores", "/v1/events"):
            yield path, body
    yield lists, b'{"users": ' + deep + b"}"
    yield lists, b'{"users": ["u1"], "k": ' + b"9" * 4999 + b"}"
    yield lists, b'{"users": ["' + b"x" * 6000 + b'"]}'
    for field in (
        "users",
        "k",
        "quota",
        "where",
        "diversify",
        "only_items",
        "unknown",
        "cold",
        "exclude_items",
    ):
        allowed = {"k": [], "quota": [{}], "where": ["x"], "diversify": [0], "exclude_items": [[], {}]}.get(
            field, []
        )
        allowed += [["x"]] if field == "users" else []
        for value in values:
            if (value in allowed and value is not True) or (field, value) in (("where", "x"),):
                continue
            yield lists, {"users": ["u1"], field: value}
    for field in ("liked", "disliked", "explain", "exclude_items", "k"):
        for value in values:
            good = value == [] or (field == "explain" and value is True)
            if not good:
                yield session, {field: value}
    for user in (None, True, 1.5, [], {}, "", "x" * 257, "\ud800"):
        yield "/v1/events", {"events": [{"user": user, "item": "i1"}]}
        yield "/v1/events", {"events": [{"user": "u1", "item": user}]}
        yield "/v1/scores", {"pairs": [{"user": user, "item": "i1"}]}
    for name, bad in {
        "kind": [1, "unheard", None, "__class__"],
        "weight": [0, -1, "1", None, True, 1e400, [1]],
        "time": [-1, 1e18, "yesterday", "9999-12-31T00:00:00", True, [1], 10**400],
        "id": [1, "", "x" * 129, "a b", "é", "\x00"],
        "more": [1],
    }.items():
        for value in bad:
            yield "/v1/events", {"events": [{"user": "u1", "item": "i1", name: value}]}
    for where in ("price", "1", "__import__('os')", "price <", "(" * 99, "price < 'x'", "price ** 99",
                  "lambda: 1", "stock < 3", "price < 1; price", "x" * 101, "a.__class__"):  # fmt: skip
        yield lists, {"users": ["u1"], "where": where}
    yield lists, {"users": [f"u{n}" for n in range(6)]}
    yield lists, {"users": ["u1"], "k": 21}
    yield lists, {"users": ["u1"], "only_items": ["no such item"]}
    yield lists, {"users": ["u1"], "only_items": ["i1"] * 31}
    yield lists, {"users": ["u1"], "quota": {"nothing": 1}}
    yield lists, {"users": ["u1"], "quota": {f"c{n}": 1 for n in range(21)}}
    yield lists, {"users": ["u1"], "exclude_items": {"u1": "i1"}}
    yield lists, {"users": ["nobody"], "unknown": "error"}
    yield lists, {"user": ["u1"]}
    yield lists, {"users": ["u1"], "limit": 3}
    yield session, {"liked": ["i1"], "users": ["u1"]}
    yield lists, {}
    yield "/v1/events", {"events": [EVENT["events"][0]] * 4}
    yield "/v1/scores", {"pairs": [{"user": "u1", "item": "i1"}] * 5}
    yield "/v1/scores", {"pairs": [["u1", "i1"]]}


ADDRESSES = [
    "/", "/v1", "/v1/", "/v1/users", "/v1/users/", "/v1/users//recommendations", "/v2/model", "/v1/events",
    "/v1/users/u1/recommendations/", "/v1/users/u1/recommendations?k=", "/v1/users/u1/recommendations?k=0",
    "/v1/users/u1/recommendations?k=-1", "/v1/users/u1/recommendations?k=1e3",
    "/v1/users/u1/recommendations?k=٣",
    "/v1/users/u1/recommendations?k=99999999999999999999", "/v1/users/u1/recommendations?limit=3",
    "/v1/users/" + "x" * 257 + "/recommendations", "/v1/items/../../etc/passwd/similar",
    "/v1/items/%2e%2e%2f%2e%2e%2fetc%2fpasswd/similar", "/v1/items/i1%00/similar", "/v1/items/%ff/similar",
    "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/metrics/", "/health",
    "/health/live/x", "/redoc",
]  # fmt: skip


def test_hostile_requests_are_refused_and_the_service_still_answers(serve, model):
    from truepair.serving.lists.served_model import read_items

    table = {"item": [f"i{i}" for i in range(24)], "price": list(range(24))}
    log = io.StringIO()
    client = serve(model, limits=LIMITS, items=read_items(table, model.seen_.item_ids), log=RequestLog(log))
    n_requests = 0

    async def all_of_them():
        nonlocal n_requests
        for path, body in hostile():
            answer = await asked(client.app, "POST", path, body)
            check(answer, path, body)
            n_requests += 1
        for path in ADDRESSES:
            check(await asked(client.app, "GET", path), path, None)
            n_requests += 1
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "POST", "ODD"):
            check(await asked(client.app, method, "/v1/model"), method, None)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            headers = {"content-type": kind}
            check(await asked(client.app, "POST", "/v1/events", EVENT, headers), kind, None)

    def check(answer, path, body):
        assert 400 <= answer.status < 500, (answer.status, path, body, answer.body[:300])
        assert set(answer.json) == {"error", "request"}, path
        assert "Traceback" not in answer.json["error"]

    asyncio.run(all_of_them())
    assert n_requests > 250
    assert '"what": "error"' not in log.getvalue()
    assert client.service.reader.count() == 0
    assert client.get("/v1/users/u1/recommendations").status == 200


def test_a_body_that_does_not_come_to_an_end_is_refused(serve, model):
    client = serve(model, limits=Limits(body_seconds=0.05))

    async def slow(parts):
        messages, left = [], iter(parts)

        async def receive():
            part = next(left, None)
            if part is None:
                await asyncio.sleep(60)
            return {"type": "http.request", "body": part, "more_body": True}

        async def send(message):
            messages.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/events", "raw_path": b"/v1/events",
                 "query_string": b"", "headers": headers, "scheme": "http"}  # fmt: skip
        await client.app(scope, receive, send)
        return messages[0]["status"]

    assert asyncio.run(slow([b"{"])) == 408
    assert asyncio.run(slow([b" " * (1 << 19)] * 3)) == 413


def test_an_error_of_the_service_shows_the_id_of_the_request_alone(serve, model, monkeypatch):
    log = io.StringIO()
    client = serve(model, log=RequestLog(log))
    monkeypatch.setattr(client.service.served, "similar", lambda item, k: 1 / 0)
    answer = client.get("/v1/items/a-private-thing/similar", x_request_id="abc-1")
    assert answer.status == 500
    assert answer.json == {"error": "the service failed; its log has the reason.", "request": "abc-1"}
    assert answer.headers["x-request-id"] == "abc-1"
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["what"] for line in lines] == ["error", "request"]
    assert lines[0]["request"] == lines[1]["request"] == "abc-1"
    assert lines[0]["error"] == "ZeroDivisionError"
    assert "a-private-thing" not in log.getvalue()
    assert client.get("/v1/model", x_request_id="no good\n").headers["x-request-id"] != "no good\n"


def test_a_request_that_takes_too_long_is_given_up(serve, model, monkeypatch):
    client = serve(model, limits=Limits(seconds=0.05))

    async def never(question):
        await asyncio.sleep(60)

    monkeypatch.setattr(client.service.lists_together, "ask", never)
    assert client.get("/v1/users/u1/recommendations").status == 503
    assert client.get("/health/live").status == 200


def test_a_store_that_cannot_be_used_is_said_without_its_path(serve, model, monkeypatch):
    client = serve(model)
    client.service.store.close()
    answer = client.post("/v1/events", EVENT)
    assert answer.status == 503
    assert "sqlite" not in answer.json["error"]


def test_reads_go_on_without_the_store(serve, model):
    client = serve(model)
    client.post("/v1/events", {"events": [{"user": "u1", "item": "i0"}]})
    moved = client.get("/v1/users/u1/recommendations").body
    for reader in (client.service.reader, client.service.served.reader):
        reader.close()
    assert client.get("/health/ready").status == 503
    assert client.get("/v1/users/u1/recommendations").body == moved
    assert client.get("/v1/users/u2/recommendations").json["basis"] == "model"
    assert client.post("/v1/recommendations", {"users": ["u1", "u3"]}).status == 200
    assert "truepair_store_failures 5.0" in client.get("/metrics").body.decode()


def test_logs_name_ids_only_if_asked(serve, model):
    for with_ids in (False, True):
        log = io.StringIO()
        client = serve(model, log=RequestLog(log, with_ids=with_ids))
        client.get("/v1/users/u11/recommendations")
        line = json.loads(log.getvalue())
        assert line["route"] == "/v1/users/{id}/recommendations"
        assert line["status"] == 200
        assert ("u11" in log.getvalue()) is with_ids
    log = io.StringIO()
    serve(model, log=RequestLog(log, requests=False)).get("/v1/users/u11/recommendations")
    assert log.getvalue() == ""
