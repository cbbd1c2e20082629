"""Lines of the paper's studies and of the contest: runs, trials, comparisons, timings, sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from truepair_lab import store

Key = tuple[object, ...]


@dataclass(frozen=True)
class RunLine:
    """One training run (or one solved model) and what it reached on the test part.

    study       which protocol or study it belongs to: see `paper.STUDIES`
    encoder     "mf", "lightgcn", or "-" for reference points without an encoder
    method      "bpr", "dpl", "ease", …
    variant     what is varied: "M=3", "tau=0.1", an ablation's name; "" for none
    parameters  all of them, flat: see `parameters.assembled`
    epoch       the epoch that the figures are from; 0 where every metric has its own (paper protocol)
    curve       (epoch, NDCG@20): on the validation part in tuning, on the test part in the paper protocol
    metrics     on the test part, "precision@5" … "ndcg@20"; in the paper protocol the best of all epochs
                looked at, for each metric separately: optimistic
    last        paper protocol: the same metrics after the last epoch, nothing chosen
    clamped     the share of rows that met the loss's floor; None where it has none
    """

    kind: ClassVar[str] = "run"
    older: ClassVar[Mapping[str, str]] = {}
    study: str
    dataset: str
    encoder: str
    method: str
    variant: str
    seed: int
    parameters: Mapping[str, Any]
    split: str
    engine: str
    device: str
    versions: Mapping[str, str | None]
    epoch: int
    curve: Sequence[tuple[int, float]]
    metrics: Mapping[str, float]
    last: Mapping[str, float]
    clamped: float | None
    seconds: float

    @cached_property
    def digest(self) -> str:
        """The checksum of the parameters."""
        return digest(self.parameters)

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        named = self.study, self.dataset, self.encoder, self.method, self.variant, self.seed
        return (*named, self.digest, self.split)


@dataclass(frozen=True)
class TrialLine:
    """One trial of a search: validation only."""

    kind: ClassVar[str] = "trial"
    older: ClassVar[Mapping[str, str]] = {}
    dataset: str
    encoder: str
    method: str
    number: int
    state: str  # "complete", "pruned", "failed"
    parameters: Mapping[str, Any]
    score: float | None  # the best validation NDCG@20
    epoch: int | None  # where it was reached
    curve: Sequence[tuple[int, float]]
    split: str
    engine: str | None
    device: str
    seconds: float

    @cached_property
    def digest(self) -> str:
        """The checksum of the parameters."""
        return digest(self.parameters)

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        return self.dataset, self.encoder, self.method, self.number, self.split


@dataclass(frozen=True)
class Contrast:
    """One comparison of two methods over the same users, each the mean of its seeds."""

    kind: ClassVar[str] = "contrast"
    older: ClassVar[Mapping[str, str]] = {}
    dataset: str
    a: str  # "lightgcn dpl", "ease"
    b: str
    metric: str
    seeds: int
    users: int
    difference: float
    low: float
    high: float
    p: float
    p_corrected: float  # by Holm, over all contrasts of the dataset
    split: str
    a_digest: str  # checksums of the two methods' parameters
    b_digest: str

    @property
    def key(self) -> Key:
        """Which question this answers."""
        return self.dataset, self.a, self.b, self.metric, self.split


@dataclass(frozen=True)
class Timing:
    """Seconds of one epoch, and their ratio to BPR's in the same process."""

    kind: ClassVar[str] = "timing"
    older: ClassVar[Mapping[str, str]] = {}
    dataset: str
    encoder: str
    method: str
    device: str  # "NVIDIA H200", "CPU, 2 threads"
    engine: str
    batch_size: int
    seconds: Sequence[float]  # of each round
    ratio: float  # the median of the rounds' ratios to BPR

    @property
    def key(self) -> Key:
        """What was timed."""
        return self.dataset, self.encoder, self.method, self.device, self.engine, self.batch_size


@dataclass(frozen=True)
class Session:
    """One call of the command: what it did, on what, and how long it took."""

    kind: ClassVar[str] = "session"
    older: ClassVar[Mapping[str, str]] = {}
    began: str  # UTC, ISO 8601
    device: str
    asked: str
    runs: int
    seconds: float

    @property
    def key(self) -> Key:
        """Every session is its own."""
        return self.began, self.device, self.asked


AnyLine = RunLine | TrialLine | Contrast | Timing | Session
_Kind = TypeVar("_Kind", RunLine, TrialLine, Contrast, Timing, Session)


@dataclass(frozen=True)
class Lines:
    """All lines of a folder, by kind."""

    runs: Sequence[RunLine] = ()
    trials: Sequence[TrialLine] = ()
    contrasts: Sequence[Contrast] = ()
    timings: Sequence[Timing] = ()
    sessions: Sequence[Session] = ()
    broken: Sequence[str] = field(default=(), compare=False)  # where a line could not be read

    __hash__ = object.__hash__  # what is computed from lines is kept for this value, not for equal ones


def digest(parameters: Mapping[str, Any]) -> str:
    """A short checksum of parameters, whatever their order."""
    text = json.dumps(dict(parameters), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def append_line(path: Path, line: AnyLine) -> None:
    """Add a line to a file."""
    store.append(path, line)


def read_lines(folder: Path) -> Lines:
    """Every line of every *.jsonl file in a folder."""
    found, broken = store.read(folder, RunLine, TrialLine, Contrast, Timing, Session)

    def of(kind: type[_Kind]) -> tuple[_Kind, ...]:
        return tuple(line for line in found if isinstance(line, kind))

    return Lines(of(RunLine), of(TrialLine), of(Contrast), of(Timing), of(Session), tuple(broken))
