"""A seeded stream of requests that mean no good: bytes for a socket, and how they are sent."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_POSTS = ("/v1/recommendations", "/v1/session/recommendations", "/v1/scores", "/v1/events")
_GETS = ("/v1/users/u1/recommendations", "/v1/items/i1/similar", "/v1/model")
_TEXTS = (
    "", "\x00", "a\x00b", "\u202e", "😀" * 100, "é", "İ", "ﬀ", "../" * 20, "%00", "{{7*7}}", "${jndi:ldap://x}",
    "' OR 1=1 --", "<script>alert(1)</script>", "\ud800", "x" * 300, "x" * 5000, "-1", "1e999", "NaN", "null",
    "__class__", "constructor", "\r\nset-cookie: a=b", "\n\n", "\x7f", "\u2028", "0x10", "٣",
)  # fmt: skip


class Hostile(NamedTuple):
    """A request: its bytes in parts, and what the client does."""

    kind: str
    parts: list[bytes]
    pause: float = 0.0  # seconds between the parts
    half_close: bool = False  # the client says that it sends no more


def hostile_requests(seed: int, count: int, slow: float = 0.02) -> Iterator[Hostile]:
    """So many requests; `slow` seconds lie between the parts of slow ones."""
    rng = random.Random(seed)
    kinds = list(KINDS.items())
    for number in range(count):
        kind, make = kinds[number % len(kinds)]
        found = make(rng)
        parts = found if isinstance(found, list) else [found]
        yield Hostile(
            kind,
            parts,
            slow if len(parts) > 1 else 0.0,
            half_close=kind in _HALF_CLOSED,
        )


def _post(path: str, body: bytes, kind: bytes = b"application/json", *headers: bytes) -> bytes:
    size = b"content-length: %d" % len(body)
    return _head("POST", path, b"content-type: " + kind, size, *headers) + body


def _head(method: str, path: str, *headers: bytes) -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode("latin-1", "replace"), b"host: localhost", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _path(rng: random.Random) -> str:
    return rng.choice(_POSTS)


# --- bodies ----------------------------------------------------------------------------------------------


def _deep(rng: random.Random) -> bytes:
    depth, (left, right) = rng.choice((50, 1000, 100_000)), rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    body = left * depth + b"1" + right * depth
    name = rng.choice((b"users", b"events", b"pairs", b"liked", b"k"))
    return _post(_path(rng), b'{"%s":' % name + body + b"}")


def _huge(rng: random.Random) -> bytes:
    size = rng.choice((1 << 20, 3 << 20))
    return _post(_path(rng), b'{"users": ["' + b"x" * size + b'"]}')


def _many(rng: random.Random) -> bytes:
    n = rng.choice((1_001, 20_000, 60_000))
    return _post("/v1/recommendations", b'{"users": [' + b",".join([b"1"] * n) + b"]}")


def _wrong_type(rng: random.Random) -> bytes:
    values: list[Any] = [
        None,
        True,
        -1,
        0.5,
        1e308,
        10**40,
        "",
        "x" * 3000,
        [[]],
        [{}],
        {"a": []},
        [None],
        [1.5],
    ]
    field = rng.choice(("users", "k", "quota", "only_items", "diversify", "exclude_items", "nothing"))
    wrong = {"users": values[:8], "exclude_items": [value for value in values if value != ""] + [""]}
    body = {"users": ["u1"], field: rng.choice(wrong.get(field, values))}
    if field == "diversify" and body[field] == 0.5:
        body[field] = 2
    if field == "exclude_items" and body[field] == {"a": []}:
        body[field] = 7
    return _post("/v1/recommendations", json.dumps(body).encode())


def _odd_events(rng: random.Random) -> bytes:
    event: dict[str, Any] = {"user": "u1", "item": "i1"}
    name = rng.choice(("user", "item", "kind", "weight", "time", "id", "more"))
    wrong: dict[str, list[Any]] = {"user": ["", [], {}, None, 1.5, "x" * 300], "weight": [-1, 0, "1", None, 1e309],
             "time": ["yesterday", -5, 1e30, [], True], "id": ["", "a b", "é", 5, "x" * 200]}  # fmt: skip
    event[name] = rng.choice(wrong.get("user" if name == "item" else name, [[], {}, None, "\x00" * 3]))
    return _post("/v1/events", json.dumps({"events": [event] * rng.choice((1, 3))}).encode())


def _broken_json(rng: random.Random) -> bytes:
    whole = bytearray(json.dumps({"users": ["u1"], "k": 3}).encode())
    for _ in range(rng.randint(1, 4)):
        whole[rng.randrange(len(whole))] = rng.choice((0, 255, 0x5C, 0xC0, 0x80))
    return _post("/v1/recommendations", bytes(whole) + b"{")


def _repeated_keys(rng: random.Random) -> bytes:
    return _post(
        "/v1/recommendations", b'{"users": ["u1"], "users": 3' + b', "k": -1' * rng.randint(1, 5) + b"}"
    )


def _numbers(rng: random.Random) -> bytes:
    number = rng.choice(
        (b"9" * 5000, b"1e99999", b"-0.0000001", b"NaN", b"Infinity", b"0x10", b"1_000", b"01")
    )
    return _post("/v1/recommendations", b'{"users": ["u1"], "k": ' + number + b"}")


def _conditions(rng: random.Random) -> bytes:
    text = rng.choice((
        "__import__('os').system('id')", "(" * 900, "price < " + "9" * 1900, "a.__class__", "1 if 1 else 2",
        "[x for x in y]", "lambda: 0", "price\x00 < 1", "not " * 400 + "price", "x" * 2500, "'" * 99,
    ))  # fmt: skip
    return _post("/v1/recommendations", json.dumps({"users": ["u1"], "where": text}).encode())


# --- wrong content ---------------------------------------------------------------------------------------


def _content_type(rng: random.Random) -> bytes:
    kind = rng.choice((
        b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"",
        b"application/xml", b"application/json, text/plain", b"APPLICATION/", b"\xff\xfe", b"*/*",
    ))  # fmt: skip
    return _post(_path(rng), b'{"users": ["u1"]}', kind)


def _compressed(rng: random.Random) -> bytes:
    bomb = b" " * (1 << 22)
    body, name = rng.choice(
        ((gzip.compress(bomb), b"gzip"), (zlib.compress(bomb), b"deflate"), (b"\x1b\x00", b"br"))
    )
    return _post(_path(rng), body, b"application/json", b"content-encoding: " + name)


def _no_body(rng: random.Random) -> bytes:
    return _head("POST", _path(rng), b"content-type: application/json", b"content-length: 0")


# --- addresses, methods, headers -------------------------------------------------------------------------


def _address(rng: random.Random) -> bytes:
    text = rng.choice(_TEXTS).encode("utf-8", "surrogatepass")
    form = rng.choice(("raw", "percent", "traversal", "query"))
    if form == "query":
        return _head("GET", f"/v1/users/u1/recommendations?k={_percent(text) or 'x'}&z={_percent(text)}")
    if form == "traversal":
        up = rng.choice(("../", "..%2f", "%2e%2e/", "..%5c", "....//", "..;/", "%252e%252e/"))
        return _head("GET", "/v1/items/" + up * rng.randint(1, 9) + "etc/passwd")
    if form == "percent":
        return _head("GET", f"/v1/items/zz{_percent(text)}/similar?k=0")
    return b"GET /v1/items/zz" + text + b"/similar?k=0 HTTP/1.1\r\nhost: localhost\r\n\r\n"


def _percent(text: bytes) -> str:
    return "".join(f"%{byte:02x}" for byte in text)


def _long_address(rng: random.Random) -> bytes:
    return _head("GET", "/v1/items/" + "x" * rng.choice((300, 9000, 60_000)) + "/similar")


def _method(rng: random.Random) -> bytes:
    method = rng.choice((
        "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "get", "GE T", "X" * 100, "", "\x00",
        "PRI", "PURGE", "SOURCE",
    ))  # fmt: skip
    return _head(method, rng.choice((*_GETS, *_POSTS)))


def _wrong_method(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return _head("GET", rng.choice(_POSTS))
    return _post(rng.choice(_GETS), b"{}")


def _header_injection(rng: random.Random) -> bytes:
    odd = rng.choice((
        b"x-request-id: a\r\n b: c", b"x: a\x00b", b"bad header", b": empty", b"x y: 1", b"x: \x01\x02",
        b"\xff\xff: 1", b"content-length: 5\r\ncontent-length: 6", b"x: a\rset-cookie: b", b"host",
    ))  # fmt: skip
    return _head("GET", rng.choice(_GETS) + "?nothing=1", odd)


def _many_headers(rng: random.Random) -> bytes:
    n = rng.choice((2_000, 20_000))
    return _head("GET", "/v1/nothing", *(b"x-%d: %d" % (i, i) for i in range(n)))


def _long_header(rng: random.Random) -> list[bytes]:
    return [b"GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\nx: ", *([b"y" * 100_000] * rng.randint(1, 8))]


def _hosts(rng: random.Random) -> bytes:
    host = rng.choice(
        (b"evil.example", b"", b"localhost.evil.example", b"127.0.0.1.evil.example", b"\xff", b"a" * 999)
    )
    return b"GET /v1/model HTTP/1.1\r\nhost: " + host + b"\r\n\r\n"


def _versions(rng: random.Random) -> bytes:
    version = rng.choice(("HTTP/9.9", "HTTP/2.0", "HTTPS/1.1", "http/1.1", "", "HTTP/1.1.1", "HTTP/1"))
    return f"GET /v1/nothing {version}\r\nhost: localhost\r\n\r\n".encode()


def _no_http(rng: random.Random) -> bytes:
    return rng.choice((
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-x\r\n", b"\x00" * 100, b"EHLO x\r\n\r\n", b"\r\n" * 50 + b"x\r\n\r\n",
        rng.randbytes(200) + b"\r\n\r\n", b"GET\r\n\r\n", b"{}\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ))  # fmt: skip


# --- lengths, chunks, smuggling --------------------------------------------------------------------------


def _smuggled(rng: random.Random) -> bytes:
    inner = b"GET /v1/model HTTP/1.1\r\nhost: localhost\r\n\r\n"
    form = rng.choice((
        (b"content-length: %d" % len(inner), b"transfer-encoding: chunked"),
        (b"transfer-encoding: chunked", b"transfer-encoding: identity"), (b"transfer-encoding: xchunked",),
        (b"transfer-encoding : chunked",), (b"transfer-encoding:\x0bchunked",), (b"content-length: 3", b"content-length: 44"),
        (b"content-length: +3",), (b"content-length: 0x3",), (b"content-length: 3, 3",),
    ))  # fmt: skip
    return _head("POST", _path(rng), b"content-type: application/json", *form) + b"0\r\n\r\n" + inner


def _chunks(rng: random.Random) -> bytes:
    body = rng.choice((
        b"zz\r\n{}\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n{", b"-1\r\n{}\r\n", b"2;" + b"x" * 70_000 + b"\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}x\r\n0\r\n\r\n", b"2\r\n[]\r\n0\r\n\r\n", b"1\r\n{\r\n" * 300 + b"0\r\n\r\n",
    ))  # fmt: skip
    return _head("POST", _path(rng), b"content-type: application/json", b"transfer-encoding: chunked") + body


def _endless_chunks(rng: random.Random) -> list[bytes]:
    head = _head("POST", _path(rng), b"content-type: application/json", b"transfer-encoding: chunked")
    chunk = b"%x\r\n" % 200_000 + b" " * 200_000 + b"\r\n"
    return [head, *([chunk] * 8)]


def _large_length(rng: random.Random) -> list[bytes]:
    size = rng.choice((b"99999999999999", b"9" * 40, b"1048577", b"-5"))
    head = _head("POST", _path(rng), b"content-type: application/json", b"content-length: " + size)
    return [head, *([b" " * 150_000] * 9)]


def _slow_body(rng: random.Random) -> list[bytes]:
    head = _head("POST", _path(rng), b"content-type: application/json", b"content-length: 12")
    return [head, *(bytes([byte]) for byte in b'{"usersx":1}')]


def _slow_head(rng: random.Random) -> list[bytes]:
    return [
        bytes([byte]) for byte in b"GET /v1/none HTTP/1.1\r\nhost: localhost\r\n\r\n"[: rng.choice((10, 44))]
    ]


def _cut_head(rng: random.Random) -> bytes:
    whole = _head("GET", "/v1/nothing", b"accept: */*")
    return whole[: rng.randrange(1, len(whole) - 1)]


def _cut_body(rng: random.Random) -> bytes:
    whole = _post(_path(rng), b'{"users": ["u1"], "more": 1}')
    return whole[: len(whole) - rng.randint(1, 20)]


def _pipelined(rng: random.Random) -> bytes:
    return _head("GET", "/v1/nothing") * rng.choice((20, 500))


def _upgrade(rng: random.Random) -> bytes:
    kind = rng.choice((b"websocket", b"h2c", b"\xff"))
    return _head(
        "GET", "/v1/nothing", b"connection: upgrade", b"upgrade: " + kind, b"sec-websocket-version: 13"
    )


def _expectation(rng: random.Random) -> bytes:
    return _head("POST", "/v1/nothing", b"expect: 100-continue", b"content-length: 999999")


KINDS: dict[str, Callable[[random.Random], bytes | list[bytes]]] = {
    "nested": _deep, "huge": _huge, "many values": _many, "wrong types": _wrong_type, "odd events": _odd_events,
    "broken JSON": _broken_json, "repeated keys": _repeated_keys, "numbers": _numbers, "conditions": _conditions,
    "content types": _content_type, "compressed": _compressed, "no body": _no_body, "addresses": _address,
    "long addresses": _long_address, "methods": _method, "wrong methods": _wrong_method,
    "header injection": _header_injection, "many headers": _many_headers, "long header": _long_header,
    "hosts": _hosts, "versions": _versions, "not HTTP": _no_http, "smuggling": _smuggled, "chunks": _chunks,
    "endless chunks": _endless_chunks, "large lengths": _large_length, "slow body": _slow_body,
    "slow head": _slow_head, "cut head": _cut_head, "cut body": _cut_body, "pipelined": _pipelined,
    "upgrade": _upgrade, "expectation": _expectation,
}  # fmt: skip
_HALF_CLOSED = ("slow head", "cut head", "cut body", "not HTTP", "long header", "expectation", "chunks")
