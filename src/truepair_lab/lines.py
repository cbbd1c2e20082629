"""Lines: one JSON object for each run, appended to files; what is done is not run again.

A folder of lines is all that a report needs. Files may be split, joined and copied between machines; the
order of the lines does not matter, and of two lines with one key the later counts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from truepair.errors import InputError, StorageError

Key = tuple[object, ...]


@dataclass(frozen=True)
class RunLine:
    """One training run (or one solved model) and what it reached on the test part.

    study       which protocol or study it belongs to: see `paper.STUDIES`
    encoder     "mf", "lightgcn", or "-" for reference points that have no encoder of ours
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

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        named = self.study, self.dataset, self.encoder, self.method, self.variant, self.seed
        return (*named, digest(self.parameters), self.split)


@dataclass(frozen=True)
class TrialLine:
    """One trial of a search: validation only."""

    kind: ClassVar[str] = "trial"
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

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        return self.dataset, self.encoder, self.method, self.number, self.split


@dataclass(frozen=True)
class Contrast:
    """One comparison of two methods over the same users, each the mean of its seeds."""

    kind: ClassVar[str] = "contrast"
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
_KINDS: dict[str, type[AnyLine]] = {k.kind: k for k in (RunLine, TrialLine, Contrast, Timing, Session)}


@dataclass(frozen=True)
class Lines:
    """All lines of a folder, by kind; of two with one key the later one."""

    runs: Sequence[RunLine] = ()
    trials: Sequence[TrialLine] = ()
    contrasts: Sequence[Contrast] = ()
    timings: Sequence[Timing] = ()
    sessions: Sequence[Session] = ()
    broken: Sequence[str] = field(default=(), compare=False)  # where a line could not be read


def digest(parameters: Mapping[str, Any]) -> str:
    """A short checksum of parameters, whatever their order."""
    text = json.dumps(dict(parameters), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def append_line(path: Path, line: AnyLine) -> None:
    """Add a line to a file."""
    append_text(path, json.dumps({"kind": line.kind, **asdict(line)}, ensure_ascii=False, allow_nan=False))


def append_text(path: Path, text: str) -> None:
    """Add text as lines, in one write, so that several processes may share the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torn = path.exists() and path.stat().st_size > 0 and not _ends_whole(path)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, (("\n" if torn else "") + text + "\n").encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise StorageError(f"cannot write to {path}: {error.strerror or error}.") from error


def six_digits(value: Any) -> Any:
    """Plain JSON with its floats rounded: more digits are noise, and would make the lines long."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: six_digits(part) for name, part in value.items()}
    return [six_digits(part) for part in value] if isinstance(value, list | tuple) else value


def _ends_whole(path: Path) -> bool:
    """Whether the last line is whole; a process that was killed may have left half of one."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def read_lines(folder: Path) -> Lines:
    """Every line of every *.jsonl file in a folder."""
    found: dict[str, dict[Key, AnyLine]] = {kind: {} for kind in _KINDS}
    broken: list[str] = []
    for path in sorted(folder.glob("*.jsonl")):
        for place, text in _texts(path):
            try:
                line = _parsed(text)
                found[line.kind][line.key] = line
            except (ValueError, TypeError, InputError) as error:
                broken.append(f"{path.name}, line {place}: {error}")
    of: dict[str, Any] = {kind: tuple(lines.values()) for kind, lines in found.items()}
    return Lines(of["run"], of["trial"], of["contrast"], of["timing"], of["session"], tuple(broken))


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:  # a torn line may end in half a letter
            yield from ((place, text) for place, text in enumerate(file, 1) if text.strip())
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}.") from error


def _parsed(text: str) -> AnyLine:
    fields = json.loads(text)
    kind = _KINDS.get(fields.pop("kind", None)) if isinstance(fields, dict) else None
    if kind is None:
        raise InputError(f"its kind is none of {', '.join(_KINDS)}.")
    for name, wanted in get_type_hints(kind).items():
        if name in fields and not _fits(fields[name], wanted):
            raise InputError(f"{name} = {fields[name]!r:.60} is not what it should be.")
    return kind(**fields)


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a JSON value is of the kind that a field wants."""
    if value is None:
        return type(None) in get_args(wanted)
    kinds = {
        get_origin(part) or part
        for part in (get_args(wanted) if get_origin(wanted) is UnionType else [wanted])
    }
    if Mapping in kinds:
        return isinstance(value, dict) and _numbers_fit(value.values(), get_args(wanted)[1:])
    if Sequence in kinds:
        return isinstance(value, list)
    if float in kinds:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type)))


def _numbers_fit(values: Iterable[Any], wanted: Sequence[Any]) -> bool:
    """Metrics are numbers; parameters may be anything."""
    return float not in wanted or all(isinstance(value, int | float) for value in values)
