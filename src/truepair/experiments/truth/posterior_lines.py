"""Lines of the study of weights by a first model: one JSON object for each model that was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from truepair.errors import InputError
from truepair.experiments.lines import append_text, six_digits

FOLDER = "posterior"  # below that of the lab's own lines
Key = tuple[str, str, float, str, int]


@dataclass(frozen=True)
class PosteriorLine:
    """One model of one case.

    case, exposure, hide, seed  which labels were hidden: see `cases`
    treatment   a name of `posterior.TITLES`
    tau, told   the case's true prior, and the one that the loss was told; None where it has none
    scoring, temperature, weight_decay  chosen on the validation part of seed 0
    search      [scoring, temperature, weight decay, validation score] of all that was tried; seed 0 only
    score       NDCG@20 on the validation part, at the best epoch
    quality     NDCG@20, recall@20 and AUC against true labels, at that epoch
    chance      the mean of P over unlabelled pairs that are positive in truth, and over the others
    """

    case: str
    exposure: str
    hide: float
    treatment: str
    seed: int
    tau: float
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

    @property
    def key(self) -> Key:
        """What is not run twice."""
        return self.case, self.exposure, self.hide, self.treatment, self.seed


def append(path: Path, line: PosteriorLine) -> None:
    """Add a line to a file."""
    append_text(path, json.dumps(six_digits(asdict(line)), ensure_ascii=False, allow_nan=False))


def read(folder: Path) -> list[PosteriorLine]:
    """Every line of every *.jsonl file of a folder; of two with one key the later counts."""
    found: dict[Key, PosteriorLine] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for place, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = _parsed(text, f"{path.name}, line {place}")
            found[line.key] = line
    return list(found.values())


def _parsed(text: str, where: str) -> PosteriorLine:
    try:
        told = json.loads(text)
        return PosteriorLine(**{field.name: told[field.name] for field in fields(PosteriorLine)})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"{where} is no line of this study ({error}); delete it, and run again.") from None
