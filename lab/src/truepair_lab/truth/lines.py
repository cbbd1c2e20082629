"""Lines of the truth lab: one JSON object for each model that was trained. A page needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from truepair_lab import store

Key = tuple[str, str, float, str, int]


@dataclass(frozen=True)
class CaseLine:
    """One model of one case.

    case, exposure, hide, seed  which labels were hidden: see `cases`
    treatment   how it was trained
    tau         the case's true prior
    """

    kind: ClassVar[str] = ""
    older: ClassVar[Mapping[str, str]] = {"told": "prior"}
    case: str
    exposure: str
    hide: float
    treatment: str
    seed: int
    tau: float

    @property
    def key(self) -> Key:
        """What is not run twice."""
        return self.case, self.exposure, self.hide, self.treatment, self.seed


@dataclass(frozen=True)
class TruthLine(CaseLine):
    """A line of the lab's own study.

    treatment   a name of `treatments.EVERY`
    facts       sizes of the case: users, items, train, judged users, judged positives
    settings    learning rate and weight decay, chosen on the validation part
    search      [learning rate, weight decay, validation score] of all that was tried; seed 0 only
    epoch       the best by validation; `epochs` were trained
    quality     NDCG@20, recall@20 and AUC against true labels, at that epoch
    curve       [epoch, NDCG@20] along training, against true labels; nothing was chosen by it
    probes      [epoch, measures]: see `probes`; the last one is at the best epoch
    clamped     the share of rows that met the loss's floor; None where it has none
    """

    facts: Mapping[str, int]
    settings: Mapping[str, float]
    search: Sequence[Sequence[float | None]]
    epoch: int
    epochs: int
    quality: Mapping[str, float]
    curve: Sequence[Sequence[float]]
    probes: Sequence[tuple[int, Mapping[str, float | None]]]
    clamped: float | None
    seconds: float


@dataclass(frozen=True)
class PosteriorLine(CaseLine):
    """A line of the study of weights by a first model.

    treatment   a name of `posterior_study.TITLES`
    prior       the prior that the loss was given; None where it has none
    scoring, temperature, weight_decay  chosen on the validation part of seed 0
    search      [scoring, temperature, weight decay, validation score] of all that was tried; seed 0 only
    score       NDCG@20 on the validation part, at the best epoch
    quality     NDCG@20, recall@20 and AUC against true labels, at that epoch
    chance      the mean of P over unlabelled pairs that are positive in truth, and over the others
    """

    prior: float | None
    scoring: str
    temperature: float
    weight_decay: float
    search: Sequence[Sequence[str | float | None]]
    score: float
    epoch: int
    quality: Mapping[str, float]
    chance: Mapping[str, float]
    seconds: float


POSTERIOR = "posterior"  # the folder of its lines, below that of the others


def append(path: Path, line: CaseLine) -> None:
    """Add a line to a file."""
    store.append(path, store.rounded(line))
