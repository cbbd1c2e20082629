"""Lines of the study of weights by a first model: one JSON object for each model that was trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from truepair_lab.truth.lines import CaseLine, read_lines_of

FOLDER = "posterior"  # below that of the lab's own lines


@dataclass(frozen=True)
class PosteriorLine(CaseLine):
    """A line of this study.

    treatment   a name of `posterior.TITLES`
    told        the prior that the loss was told; None where it has none
    scoring, temperature, weight_decay  chosen on the validation part of seed 0
    search      [scoring, temperature, weight decay, validation score] of all that was tried; seed 0 only
    score       NDCG@20 on the validation part, at the best epoch
    quality     NDCG@20, recall@20 and AUC against true labels, at that epoch
    chance      the mean of P over unlabelled pairs that are positive in truth, and over the others
    """

    told: float | None
    scoring: str
    temperature: float
    weight_decay: float
    search: Sequence[Sequence[str | float | None]]
    score: float
    epoch: int
    quality: Mapping[str, float]
    chance: Mapping[str, float]
    seconds: float


def read(folder: Path) -> list[PosteriorLine]:
    """The lines of this study."""
    return read_lines_of(PosteriorLine, folder)
