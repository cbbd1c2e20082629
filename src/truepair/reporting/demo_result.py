"""The data and the results of the demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.data.simulation import World
from truepair.data.split import Split
from truepair.evaluation import Comparison, Evaluation
from truepair.training import FitResult

METRIC = "ndcg@20"
"""The metric that chooses the epoch and compares the models."""

DEFAULT = "InfoNCE"
"""The name of the default model, full-catalogue InfoNCE: what `Recommender()` trains."""


@dataclass(frozen=True, eq=False)
class DemoData:
    """The split, the items' titles by code, and the simulated world if there is one."""

    name: str
    split: Split
    titles: tuple[str, ...]
    world: World | None = None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> list[Interactions]:
        """The interactions that lists must not repeat: train and validation."""
        return [part for name, part in self.split.parts.items() if name != "test"]


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """An evaluation of each model by name, and a comparison of each other model with the default one."""

    evaluations: Mapping[str, Evaluation]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, eq=False)
class ExampleUser:
    """One person: the known items, the number of held-out items, and the lists of some models."""

    id: str
    history: tuple[str, ...]  # titles, the highest rated first if there are ratings
    n_held_out: int
    lists: Mapping[str, tuple[str, ...]]
    hits: Mapping[str, frozenset[int]]  # positions in the list, from 0, of held-out items


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The results of the demo, and the path of its report.

    `test` is on held-out interactions; `truth` on all true preferences, which only a simulated world knows.
    """

    report: Path
    data: DemoData
    models: Mapping[str, FitResult]  # each with its validation score
    seconds: Mapping[str, float]  # of fitting
    test: ModelComparison
    person: ExampleUser
    truth: ModelComparison | None = None
