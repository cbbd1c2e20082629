"""Lines of the plain call and of iALS's time; NDCG@20 of every user beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from truepair.storage.atomic import atomic_write
from truepair_lab import store
from truepair_lab.lines import Key, digest
from truepair_lab.quality.user_values import Values, read_values, values_file, write_values

_PER_USER = "per-user"  # the values of single runs, before they are merged into one file of the case


@dataclass(frozen=True)
class PlainLine:
    """One `Recommender(seed=seed).fit(split)`, and what it reached on the test part.

    processor   "cpu" or "cuda"; device is its name
    alone       whether nothing else was running beside it, so that its seconds count
    chosen      the automatic settings; empty where too little could be held out
    seconds     of the whole call; `automatic` of the search, `training` of the epochs of the final training
    """

    kind: ClassVar[str] = "plain"
    older: ClassVar[Mapping[str, str]] = {}
    case: str
    seed: int
    split: str
    processor: str
    device: str
    alone: bool
    version: str | None
    chosen: Mapping[str, Any]
    hold_out: str
    trials: int
    epoch: int | None
    metrics: Mapping[str, float]
    seconds: float
    automatic: float
    training: float

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        return self.case, self.seed, self.processor, self.split


@dataclass(frozen=True)
class FitTime:
    """Seconds of one fit of tuned iALS on everything; nothing is judged."""

    kind: ClassVar[str] = "fit time"
    older: ClassVar[Mapping[str, str]] = {}
    case: str
    processor: str
    device: str
    alone: bool
    parameters: Mapping[str, Any]
    seconds: float

    @property
    def key(self) -> Key:
        """What must not be timed twice."""
        return self.case, self.processor, digest(self.parameters)


@dataclass(frozen=True)
class PlainLines:
    """All lines of a folder."""

    runs: Sequence[PlainLine] = ()
    times: Sequence[FitTime] = ()
    broken: Sequence[str] = ()


def read_plain(folder: Path) -> PlainLines:
    """Every line of every *.jsonl file in a folder."""
    found, broken = store.read(folder, PlainLine, FitTime)
    runs = tuple(line for line in found if isinstance(line, PlainLine))
    return PlainLines(runs, tuple(line for line in found if isinstance(line, FitTime)), tuple(broken))


def processor() -> str:
    """What `device="auto"` trains on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


# --- values of users -----------------------------------------------------------------------------------


def plain_name(line: PlainLine) -> str:
    """The name of a run's values."""
    return f"plain {line.processor} {line.seed}"


def keep_values(folder: Path, case: str, name: str, values: Values) -> None:
    """Keep the values of one run; `merge_values` puts them into the file of the case."""
    with atomic_write(folder / _PER_USER / f"{case} {name}.npy".replace(" ", "_")) as file:
        np.save(file, values.astype(np.float32))


def merge_values(folder: Path, case: str) -> None:
    """Put the values of single runs into `values-<case>.npz`, beside those that it has. One process only."""
    files = sorted((folder / _PER_USER).glob(f"{case}_*.npy"))
    names = [path.stem.removeprefix(f"{case}_").replace("_", " ") for path in files]
    new = {name: np.load(path, allow_pickle=False) for name, path in zip(names, files, strict=True)}
    if new:
        write_values(values_file(folder, case), read_values(folder, case) | new)
    for path in files:
        path.unlink()
