"""Lines of the study: one JSON object for each estimate and each training. The page needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from truepair_lab import store

Key = tuple[object, ...]


@dataclass(frozen=True)
class EstimateLine:
    """One estimate where the truth is known.

    study      a name of `cases.STUDIES`
    level      the τ that was asked for in a world; the share that was hidden in a block; 0 in Coat
    tau        the true share of positives among unlabelled pairs, between `tau_low` and `tau_high`: equal
               where all labels are known, a binomial interval at 95% where only some are
    estimate   the recommended number, from `low` to `high`
    methods    every method's estimate
    seen       whether the end of the curve was seen; else `estimate` is half of DEDPUL's number
    users      per user, against the truth: see `measuring.per_user`; empty where that is not known
    """

    kind: ClassVar[str] = "estimate"
    older: ClassVar[Mapping[str, str]] = {"told": "estimate"}
    study: str
    exposure: str
    level: float
    seed: int
    tau: float
    tau_low: float
    tau_high: float
    estimate: float
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
        return self.study, self.exposure, self.level, self.seed


@dataclass(frozen=True)
class AutoLine:
    """DPL with τ from one source, trained once and tested once.

    source     a name of `auto.SOURCES`
    tau        what it was: the mean, where every user has an own one
    valid      the best NDCG@20 on the validation part, at `epoch`; `ndcg` the one on the test part
    grid       [τ, validation NDCG@20] of all that was tried; None where training diverged
    """

    kind: ClassVar[str] = "auto"
    older: ClassVar[Mapping[str, str]] = {}
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
        return self.dataset, self.source, self.seed, self.split


Line = EstimateLine | AutoLine
_KINDS: tuple[type[Line], ...] = EstimateLine, AutoLine


def append(path: Path, lines: Sequence[Line]) -> None:
    """Add lines to a file, in one write."""
    store.append(path, *map(store.rounded, lines))


def read(folder: Path) -> tuple[list[Line], list[str]]:
    """Every line of a folder, sorted by key, and where a line could not be read."""
    found, broken = store.read(folder, *_KINDS)
    return sorted(found, key=lambda line: [line.kind, *map(str, line.key)]), broken
