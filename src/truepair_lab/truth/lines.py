"""Lines of the truth lab: one JSON object for each model that was trained. A page needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TypeVar

from truepair.errors import InputError
from truepair_lab.lines import append_text, six_digits

Key = tuple[str, str, float, str, int]


@dataclass(frozen=True)
class CaseLine:
    """One model of one case.

    case, exposure, hide, seed  which labels were hidden: see `cases`
    treatment   how it was trained
    tau         the case's true prior
    """

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


Line = TypeVar("Line", bound=CaseLine)


def append(path: Path, line: CaseLine) -> None:
    """Add a line to a file."""
    append_text(path, json.dumps(six_digits(asdict(line)), ensure_ascii=False, allow_nan=False))


def read(folder: Path) -> list[TruthLine]:
    """The lines of the lab's own study."""
    return read_lines_of(TruthLine, folder)


def read_lines_of(kind: type[Line], folder: Path) -> list[Line]:
    """Every line of every *.jsonl file of a folder; of two with one key the later counts."""
    found: dict[Key, Line] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for place, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = _parsed(kind, text, f"{path.name}, line {place}")
            found[line.key] = line
    return list(found.values())


def _parsed(kind: type[Line], text: str, where: str) -> Line:
    try:
        told = json.loads(text)
        return kind(**{field.name: told[field.name] for field in fields(kind)})
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{where} is no line of the truth lab ({error}); delete it, and run again."
        ) from None
