"""Whether each answer is that of a model that was served while it was asked for.

The versions of a model are linked to a folder of their own as soon as they appear, so that none is removed
before it is needed. A version may answer from its decision on until the service reports that the next one is
served. An answer must be, item by item, that of one such version with all events that were acknowledged to
the person before.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast

from visitors import K, Record, Row

from truepair.recommender.estimator import Recommender
from truepair.serving.events.event import Kinds
from truepair.serving.events.reading import StoredHistory, StoreReader
from truepair.serving.limits import Limits
from truepair.serving.lists.served_model import ListRequest, ServedModel
from truepair.serving.retraining.versions import Versions
from truepair.serving.web.routing import plain_value

_LATER = 6.0  # seconds until an answer is checked: by then it is known what was served
_LOADED = 5  # versions in memory


class Rows:
    """The events of one person at a time."""

    def __init__(self) -> None:
        self.user, self.rows = "", list[Row]()

    def of_users(self, users: Sequence[str]) -> dict[str, StoredHistory]:
        """The events of the person."""
        return {self.user: StoredHistory(self.rows)} if self.user in users and self.rows else {}

    def close(self) -> None:
        """There is nothing to close."""


class Checker(threading.Thread):
    """Checks records until it is told to end and none is left."""

    def __init__(self, versions: Versions, folder: Path, records: SimpleQueue[Record]) -> None:
        super().__init__(name="checker")
        self.versions, self.folder, self.records = versions, folder, records
        self.changes: list[tuple[float, int]] = [(0.0, 0)]  # when a version was decided for
        self.reports: list[tuple[float, int]] = []  # when the service reported one
        self.outages: list[list[float]] = []  # from, until
        self.checked: Counter[str] = Counter()
        self.without_store = 0
        """Lists of people with events that lacked some while the store was down."""
        self.wrong: list[str] = []
        self.ending = threading.Event()
        self._models: OrderedDict[int, ServedModel] = OrderedDict()
        self._rows: dict[int, Rows] = {}
        self._links = threading.Thread(target=self._link, name="links", daemon=True)

    def run(self) -> None:
        """Check each record some seconds after it was made."""
        self._links.start()
        while True:
            try:
                record = self.records.get(timeout=0.5)
            except Empty:
                if self.ending.is_set():
                    return
                continue
            time.sleep(max(0.0, record.ended + _LATER - time.time()))
            self.check(record)

    def _link(self) -> None:
        """Keep every version: a hard link of its file."""
        while not self.ending.is_set():
            with suppress(OSError):
                for path in self.versions.folder.glob("*.truepair"):
                    with suppress(FileExistsError):
                        os.link(path, self.folder / path.name)
            time.sleep(0.1)

    def note(self, line: dict[str, Any]) -> None:
        """A line of the service's log."""
        when = datetime.fromisoformat(line["time"]).timestamp()
        if line["what"] == "model":
            self.reports.append((when + 0.002, line["version"]))  # times have milliseconds

    def check(self, record: Record) -> None:
        """Count the record as right, as one without the store, or as wrong."""
        possible = self._served(record.began, record.ended)
        self.checked[record.what] += 1
        found = _items(record)
        if any(_same(self.expected(version, record), found) for version in possible):
            return
        down = any(start <= record.ended and record.began <= end for start, end in self.outages)
        if down and record.what == "person":
            self.without_store += 1
            return
        self.wrong.append(f"{record.what} {record.asked!r:.80} at {record.began:.3f}, versions {possible}")

    def _served(self, began: float, ended: float) -> list[int]:
        """The versions that may have answered."""
        changes = [(0.0, 0)]
        for one in reversed(self.versions.log.newest(1000)):
            if one["decision"] in ("promoted", "rolled back"):
                changes.append((datetime.fromisoformat(one["time"]).timestamp() - 0.002, one["version"]))
        found = []
        for place, (start, version) in enumerate(changes):
            end = float("inf")
            if place + 1 < len(changes):
                following = changes[place + 1][0]
                others = (when for when, served in self.reports if when >= following and served != version)
                end = min(others, default=end)  # one that was being loaded may still come for a moment
            if start <= ended and began <= end:
                found.append(version)
        return found

    def model(self, version: int) -> ServedModel:
        """A version as the service has it."""
        if version not in self._models:
            path = self.folder / f"{version}.truepair" if version else self.versions.model
            served = ServedModel(Recommender.load(path), Limits(), Kinds())
            self._rows[version] = Rows()
            served.histories.reader = cast(StoreReader, self._rows[version])
            self._models[version] = served
            while len(self._models) > _LOADED:
                del self._rows[self._models.popitem(last=False)[0]]
        self._models.move_to_end(version)
        return self._models[version]

    def expected(self, version: int, record: Record) -> Any:
        """What this version answers."""
        served, rows = self.model(version), self._rows[version]
        if record.what in ("list", "person"):
            rows.user, rows.rows = record.asked, list(record.rows)
            [found] = served.plain_lists([ListRequest(record.asked, K)])
            served.histories.forget([record.asked])
            return served.model.seen.item_ids.outside(found.items).to_pylist()
        if record.what == "lists":
            return [row["item"] for row in plain_value(served.recommend(record.asked, {"k": K}).to_pylist())]
        if record.what == "session":
            asked = record.asked["liked"], record.asked["disliked"]
            return [row["item"] for row in plain_value(served.session(*asked, {"k": K}).to_pylist())]
        if record.what == "similar":
            return [row["similar"] for row in plain_value(served.similar(record.asked, K).to_pylist())]
        return [row["score"] for row in plain_value(served.scores(record.asked).to_pylist())]


def _items(record: Record) -> Any:
    """What an answer holds: items in order, or scores."""
    found = record.found
    if record.what in ("list", "person", "session"):
        return [row["item"] for row in found["items"]]
    if record.what == "lists":
        return [row["item"] for one in found["lists"] for row in one["items"]]
    if record.what == "similar":
        return [row["similar"] for row in found["items"]]
    return [row["score"] for row in found["scores"]]


def _same(expected: Any, found: Any) -> bool:
    if found and isinstance(found[0], float):
        return len(expected) == len(found) and all(
            abs(a - b) < 1e-5 for a, b in zip(expected, found, strict=True)
        )
    return bool(expected == found)


def parsed(line: str) -> dict[str, Any] | None:
    """A line of the service's log, if it is one."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "what" in found else None
