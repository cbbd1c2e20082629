"""Scores on further validation parts: how settings are chosen by several parts, and by each part alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from truepair.evaluation import Validation
from truepair.ranking.prepared_items import Matrix
from truepair_lab import store
from truepair_lab.lines import Key, Lines, TrialLine, read_lines
from truepair_lab.paper.presets import SPLIT_SEED
from truepair_lab.quality.cases import is_resampled, n_parts
from truepair_lab.quality.contestants import Model
from truepair_lab.searching import Place

FOLDER = "parts"  # below the lines of runs and trials


@dataclass(frozen=True)
class PartLine:
    """The settings of a trial, scored on another validation part."""

    kind: ClassVar[str] = "part"
    older: ClassVar[Mapping[str, str]] = {}
    dataset: str
    encoder: str
    method: str
    trial: str  # the checksum of the trial's parameters
    epoch: int | None
    part: int  # 1, 2, …: see `Case.part`
    split: str
    score: float
    device: str
    seconds: float

    @property
    def key(self) -> Key:
        """What must not be run twice."""
        return self.dataset, self.encoder, self.method, self.trial, self.epoch, self.part


@dataclass(frozen=True)
class ContestLines(Lines):
    """The lines of the contest, with the scores on further validation parts."""

    parts: Sequence[PartLine] = ()

    __hash__ = Lines.__hash__


def read_contest(folder: Path) -> ContestLines:
    """Every line of a folder of the contest."""
    lines = read_lines(folder)
    parts, broken = store.read(folder / FOLDER, PartLine)
    kinds = lines.runs, lines.trials, lines.contrasts, lines.timings, lines.sessions
    return ContestLines(*kinds, broken=(*lines.broken, *broken), parts=tuple(parts))


def part_file(folder: Path, case: str) -> Path:
    """Where the scores of a case are kept."""
    return folder / FOLDER / f"{case}.jsonl"


@dataclass(frozen=True, eq=False, repr=False)
class ResampledValidation(Validation):
    """A validation whose users are also drawn with replacement, once for each further part.

    `drawn` has the scores on these parts by the score on all users, for every model that was scored.
    """

    parts: int = 1
    drawn: dict[float, tuple[float, ...]] = field(default_factory=dict)

    def score(self, users: Matrix, items: Matrix) -> float:
        """The mean over all users; the means over the users of each further part are kept."""
        values = self.values(users, items)
        score, n = float(values.mean()), len(values)
        draws = (np.random.default_rng([SPLIT_SEED, part]) for part in range(1, self.parts))
        self.drawn[score] = tuple(round(float(values[draw.integers(n, size=n)].mean()), 6) for draw in draws)
        return score


@dataclass(frozen=True)
class Scored:
    """A trial with its score on every validation part, the first one first."""

    trial: TrialLine
    scores: tuple[float, ...]

    @property
    def model(self) -> Model:
        """The contestant."""
        return self.trial.encoder, self.trial.method

    @cached_property
    def mean(self) -> float:
        """Over the parts; the score on all users where the further parts are draws of them."""
        return self.scores[0] if is_resampled(self.trial.dataset) else statistics.fmean(self.scores)


@dataclass(frozen=True)
class Choice:
    """What several parts choose by their mean, and what each would choose alone."""

    by_mean: Scored
    by_part: tuple[Scored, ...]


def scored_trials(lines: Lines) -> dict[Place, list[Scored]]:
    """The trials with a score on every part of their case."""
    again: dict[tuple[object, ...], dict[int, float]] = {}
    for line in lines.parts if isinstance(lines, ContestLines) else ():
        again.setdefault(line.key[:-1], {})[line.part] = line.score
    found: dict[Place, list[Scored]] = {}
    for trial in sorted(lines.trials, key=lambda trial: trial.number):
        if trial.state != "complete" or trial.score is None:
            continue
        place = trial.dataset, trial.encoder, trial.method
        others = again.get((*place, trial.digest, trial.epoch), {})
        if all(part in others for part in range(1, n_parts(trial.dataset))):
            scores = trial.score, *(others[part] for part in range(1, n_parts(trial.dataset)))
            found.setdefault(place, []).append(Scored(trial, scores))
    return found


def choice_of(candidates: Iterable[Scored]) -> Choice | None:
    """The choice among these settings; None without any."""
    every = list(candidates)
    if not every:
        return None
    parts = range(len(every[0].scores))
    by_part = tuple(max(every, key=lambda each, part=part: each.scores[part]) for part in parts)  # type: ignore[misc]
    return Choice(max(every, key=lambda each: each.mean), by_part)
