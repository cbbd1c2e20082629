"""Lines of the study: one JSON object for each estimate and each training. The page needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from truepair_lab.lines import append_text, six_digits

Key = tuple[object, ...]


@dataclass(frozen=True)
class EstimateLine:
    """One estimate where the truth is known.

    study      a name of `cases.STUDIES`
    level      the τ that was asked for in a world; the share that was hidden in a block; 0 in Coat
    tau        the true share of positives among unlabelled pairs, between `tau_low` and `tau_high`: equal
               where all labels are known, a binomial interval at 95% where only some are
    told       the recommended number, from `low` to `high`
    methods    every method's estimate
    seen       whether the end of the curve was seen; else `told` is half of DEDPUL's number
    users      per user, against the truth: see `measuring.per_user`; empty where that is not known
    """

    kind: ClassVar[str] = "estimate"
    study: str
    exposure: str
    level: float
    seed: int
    tau: float
    tau_low: float
    tau_high: float
    told: float
    low: float
    high: float
    methods: Mapping[str, float]
    separation: float
    observed: float
    users: Mapping[str, float]
    resamples: int
    seen: bool

    @property
    def key(self) -> Key:
        """What is not done twice."""
        return self.kind, self.study, self.exposure, self.level, self.seed


@dataclass(frozen=True)
class AutoLine:
    """DPL with τ from one source, trained once and tested once.

    source     a name of `auto.SOURCES`
    tau        what it was: the mean, where every user has an own one
    valid      the best NDCG@20 on the validation part, at `epoch`; `ndcg` the one on the test part
    grid       [τ, validation NDCG@20] of all that was tried; None where training diverged
    """

    kind: ClassVar[str] = "auto"
    dataset: str
    source: str
    seed: int
    tau: float
    valid: float
    epoch: int
    ndcg: float
    grid: Sequence[Sequence[float | None]]
    settings: Mapping[str, Any]
    split: str
    engine: str

    @property
    def key(self) -> Key:
        """What is not done twice."""
        return self.kind, self.dataset, self.source, self.seed, self.split


Line = EstimateLine | AutoLine
_KINDS: dict[str, type[Line]] = {kind.kind: kind for kind in (EstimateLine, AutoLine)}


def append(path: Path, lines: Sequence[Line]) -> None:
    """Add lines to a file, in one write."""
    told = ({"kind": line.kind, **six_digits(asdict(line))} for line in lines)
    append_text(path, "\n".join(json.dumps(line, allow_nan=False) for line in told))


def read(folder: Path) -> list[Line]:
    """Every line of every *.jsonl file, by key; of two with one key the later counts.

    A line that cannot be read is left out, and so run again: a process that was killed may have left half
    of one.
    """
    found: dict[Key, Line] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for text in path.read_text(encoding="utf-8").splitlines():
            if (line := _parsed(text)) is not None:
                found[line.key] = line
    return [found[key] for key in sorted(found, key=lambda key: [str(part) for part in key])]


def _parsed(text: str) -> Line | None:
    try:
        told = json.loads(text)
        kind = _KINDS[told["kind"]]
        return kind(**{field.name: told[field.name] for field in fields(kind)})
    except (ValueError, TypeError, KeyError):
        return None
