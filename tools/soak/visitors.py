"""Visitors of a service: several threads ask for lists and send events; what they got is kept to be checked.

Each thread has people of its own, so that it knows what they have done when it asks for their list. Others
never do anything, and belong to all threads.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

K = 10
Row = tuple[str, str, float]


class Record(NamedTuple):
    """An answer, to be checked."""

    what: str  # list, person, lists, session, similar, scores
    asked: Any
    found: Any
    rows: tuple[Row, ...]  # the acknowledged events of the person
    began: float
    ended: float


@dataclass
class Tally:
    """What all visitors met; guarded by a lock."""

    reads: Counter[str] = field(default_factory=Counter)
    failed_reads: list[str] = field(default_factory=list)
    writes: int = 0
    refused_writes: int = 0  # with 503: the client tries again
    failed_writes: list[str] = field(default_factory=list)
    acknowledged: set[tuple[str, str, str]] = field(default_factory=set)
    milliseconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Visitors(threading.Thread):
    """One thread of visitors, until `ending` is set."""

    def __init__(
        self,
        port: int,
        quiet: Sequence[str],
        likes: Mapping[str, Sequence[str]],
        items: Sequence[str],
        tally: Tally,
        records: SimpleQueue[Record],
        ending: threading.Event,
        pause: float,
        seed: int,
    ) -> None:
        super().__init__(name=f"visitors {seed}")
        self.port, self.quiet, self.items, self.pause = port, quiet, items, pause
        self.active = list(likes)
        self.left = {user: list(own) for user, own in likes.items()}
        self.rows: dict[str, list[Row]] = {user: [] for user in likes}
        self.pending: dict[str, list[dict[str, Any]]] = {}
        self.tally, self.records, self.ending, self.seed = tally, records, ending, seed
        self.chance = random.Random(seed)
        self.connection: http.client.HTTPConnection | None = None
        self.sent = 0

    def run(self) -> None:
        """Ask and send, in turns drawn from the seed."""
        kinds = {self.one_list: 45, self.person: 20, self.lists: 6, self.session: 7, self.similar: 7,
                 self.scores: 5, self.events: 25}  # fmt: skip
        while not self.ending.is_set():
            self.chance.choices(list(kinds), list(kinds.values()))[0]()
            time.sleep(self.chance.expovariate(1 / self.pause))

    # --- reads -------------------------------------------------------------------------------------------

    def one_list(self) -> None:
        """The list of somebody who never does anything."""
        user = self.chance.choice(self.quiet)
        self._read("list", user, "GET", f"/v1/users/{user}/recommendations?k={K}")

    def person(self) -> None:
        """The list of somebody of this thread."""
        user = self.chance.choice(self.active)
        if user not in self.pending:  # an event that may or may not be stored
            rows = tuple(self.rows[user])
            self._read("person", user, "GET", f"/v1/users/{user}/recommendations?k={K}", rows=rows)

    def lists(self) -> None:
        """Lists of several people."""
        users = self.chance.sample(self.quiet, 5)
        self._read("lists", users, "POST", "/v1/recommendations", {"users": users, "k": K})

    def session(self) -> None:
        """A list by a history."""
        body = {"liked": self.chance.sample(self.items, 3), "disliked": self.chance.sample(self.items, 1)}
        self._read("session", body, "POST", "/v1/session/recommendations", {**body, "k": K})

    def similar(self) -> None:
        """Similar items."""
        item = self.chance.choice(self.items)
        self._read("similar", item, "GET", f"/v1/items/{item}/similar?k={K}")

    def scores(self) -> None:
        """Scores of pairs."""
        pairs = [
            {"user": self.chance.choice(self.quiet), "item": self.chance.choice(self.items)} for _ in range(5)
        ]
        self._read("scores", pairs, "POST", "/v1/scores", {"pairs": pairs})

    def _read(
        self, what: str, asked: Any, method: str, path: str, body: Any = None, rows: tuple[Row, ...] = ()
    ) -> None:
        began, clock = time.time(), time.perf_counter()
        status, found = self._ask(method, path, body)
        took = 1000 * (time.perf_counter() - clock)
        with self.tally.lock:
            self.tally.reads[what] += 1
            self.tally.milliseconds.append(took)
            if status != 200:
                self.tally.failed_reads.append(f"{what}: {status} {found!r:.200}")
        if status == 200:
            self.records.put(Record(what, asked, found, rows, began, time.time()))

    # --- writes ------------------------------------------------------------------------------------------

    def events(self) -> None:
        """Send what somebody of this thread did; what was not acknowledged is sent again."""
        user = self.chance.choice([*self.pending] or self.active)
        if user not in self.pending:
            self.pending[user] = self._new_events(user)
        events = self.pending[user]
        if not events:
            del self.pending[user]
            return
        status, found = self._ask("POST", "/v1/events", {"events": events})
        with self.tally.lock:
            if status == 200:
                self.tally.writes += 1
                done = [(event["item"], event["kind"], 1.0) for event in events]
                self.rows[user] += done
                self.tally.acknowledged.update((user, item, kind) for item, kind, _ in done)
                del self.pending[user]
            elif status == 503 or status == 0:
                self.tally.refused_writes += 1
            else:
                self.tally.failed_writes.append(f"{status} {found!r:.200}")

    def _new_events(self, user: str) -> list[dict[str, Any]]:
        """One to three things that the person has not done before, mostly likes."""
        left, events = self.left[user], []
        for _ in range(min(self.chance.randint(1, 3), len(left))):
            self.sent += 1
            kind = "dislike" if self.chance.random() < 0.05 else "like"
            event = {"user": user, "item": left.pop(), "kind": kind, "time": time.time()}
            events.append({**event, "id": f"{self.seed}-{self.sent}"})
        return events

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; 0 if there was none."""
        text = None if body is None else json.dumps(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.request(method, path, text, headers)
            answer = self.connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if answer.status == 200 else content.decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            return 0, f"{type(error).__name__}: {error}"
