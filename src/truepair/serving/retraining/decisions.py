"""Decisions: a log of what happened to the served model, one JSON object a line."""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from truepair.errors import StorageError
from truepair.storage.atomic import flush_to_disk
from truepair.storage.plain_values import from_json
from truepair.storage.types import Json

DECISIONS = {
    "promoted": "the candidate took over: it loses less than the margin, if anything",
    "refused": "the candidate may lose more than the margin, and was dropped",
    "waited": "there were too few new events to learn from, or too few users to judge by",
    "overtaken": "the served model was changed while the candidate was trained, which was dropped",
    "failed": "the trainer failed or was killed; it is tried again at the next time",
    "rolled back": "an administrator returned to the former model",
    "replaced": "the model file is another one than before, and is served; its former versions are not",
}
"""What can be decided."""

_TAIL = 1 << 20  # bytes of the log that are read: its newest lines


def now_text() -> str:
    """The time, as decisions have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Decision:
    """A decision with all its numbers; None where there is none."""

    decision: str  # one of DECISIONS
    reason: str
    version: int | None = None
    """That of the candidate; after a rollback, the one that is served now."""
    against: int | None = None
    """The version that was served before."""
    by: str | None = None  # update or fit
    events: int | None = None  # in the store
    new_events: int | None = None  # that the served model has not learnt from
    judged_events: int | None = None  # the newest of them, which neither model has learnt from
    new_pairs: int | None = None  # learnt by the candidate, and not by the served model
    people: int | None = None  # how many users judged
    needed: int | None = None  # how many are enough for the margin
    margin: float | None = None  # the share of a former model's score that a candidate may not lose
    metric: str | None = None
    candidate: dict[str, float] | None = None  # mean, low, high
    running: dict[str, float] | None = None
    difference: dict[str, float] | None = None  # candidate - running
    best: int | None = None  # the version that was best so far, and must not be lost against either
    best_score: dict[str, float] | None = None
    p: float | None = None  # of the one-sided paired test that the margin or more is lost; the larger of two
    seconds: float | None = None
    time: str = field(default_factory=now_text)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def as_json(self) -> Json:
        """Its fields."""
        return dataclasses.asdict(self)


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """An OSError as a StorageError that names the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot use {path}: {error.strerror or error}; check the disk.") from error


class DecisionLog:
    """The file; several processes may append to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, decision: Json) -> None:
        """Add a line, and have it on the disk. What a killed writer left of a line stays one by itself."""
        line = json.dumps(decision).encode() + b"\n"
        with usable(self.path):
            self.path.parent.mkdir(exist_ok=True)
            with open(self.path, "a+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - 1, 0))
                torn = size and file.read(1) != b"\n"
                file.write(b"\n" + line if torn else line)
                flush_to_disk(file)

    def newest(self, most: int) -> list[Json]:
        """The newest decisions, newest first; lines that are not whole are left out."""
        with usable(self.path):
            if not self.path.exists():
                return []
            with open(self.path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _TAIL, 0))
                lines = file.read().split(b"\n")
        found = [one for line in reversed(lines) if (one := _parsed(line)) is not None]
        return found[:most]


def _parsed(line: bytes) -> Json | None:
    try:
        found = from_json(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("decision") not in DECISIONS:
        return None
    return {name: found.get(name) for name in Decision.__dataclass_fields__}
