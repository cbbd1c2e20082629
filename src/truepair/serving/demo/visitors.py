"""Visitors: simulated users who ask for lists and act, so that a demo is alive."""

from __future__ import annotations

import http.client
import json
import random
import secrets
import threading
from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from truepair.serving.demo.world import Visit
from truepair.serving.web.tokens import Tokens
from truepair.storage.types import Json

_NEW = 0.15  # the share of visits by new users


class Visitors:
    """A thread that visits a service over HTTP, gently: `rate` visits a second, each of a few requests.

    A visit: a user looks at their list, at something similar, does what they did in the data or likes
    one of the first items of the list, and looks again.
    """

    def __init__(self, future: Sequence[Visit], rate: float = 2.0, seed: int = 0) -> None:
        self.rate, self.visits = rate, 0
        self._future = future
        self._random = random.Random(seed)
        self._headers = {"content-type": "application/json"}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def with_token(self, tokens: Tokens) -> Tokens:
        """Tokens with one for the visitors, which is known to them alone; without any, none is needed."""
        if not tokens:
            return tokens
        token = secrets.token_urlsafe(32)
        self._headers["authorization"] = f"Bearer {token}"
        return tokens.with_one("admin", token)

    def start(self, address: str) -> None:
        """Visit the service at this address until `stop`."""
        self._thread = threading.Thread(target=self._run, args=(address,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the request that runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self, address: str) -> None:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=10)
        while not self._stop.wait(self._random.expovariate(self.rate)):
            try:
                self.visit(connection)
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                connection.close()  # the next request opens it again
        connection.close()

    def visit(self, connection: http.client.HTTPConnection) -> None:
        """One visit."""
        user, item, kind = self._future[self.visits % len(self._future)]
        is_new = self._random.random() < _NEW
        if is_new:  # ids of the same type: beyond all others
            user = 1_000_000 + self.visits if isinstance(user, int) else f"new-{self.visits}"
        self.visits += 1
        path = f"/v1/users/{quote(str(user), safe='')}/recommendations?k=10"
        listed = self._ask(connection, "GET", path)["items"]
        if is_new and listed:
            item, kind = self._random.choice(listed)["item"], "like"
        if listed and self._random.random() < 0.5:
            first = listed[min(int(self._random.expovariate(0.5)), len(listed) - 1)]["item"]
            self._ask(connection, "GET", f"/v1/items/{quote(str(first), safe='')}/similar?k=6")
        if not self._stop.is_set():
            event = {"user": user, "item": item, "kind": kind}
            self._ask(connection, "POST", "/v1/events", {"events": [event]})
            self._ask(connection, "GET", path)

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object = None
    ) -> Json:
        sent = None if body is None else json.dumps(body)
        connection.request(method, path, sent, self._headers)
        answer: Json = json.loads(connection.getresponse().read())
        return answer
