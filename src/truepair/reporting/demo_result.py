"""What the demo learnt from, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.data.simulation import World
from truepair.data.split import Split
from truepair.evaluation import Comparison, Evaluation
from truepair.training import FitResult

METRIC = "ndcg@20"
"""What validation chooses by, and what the models are compared by."""


@dataclass(frozen=True, eq=False)
class DemoData:
    """What is learnt from: the split, the items' titles by code, and the truth where it is known."""

    name: str
    split: Split
    titles: tuple[str, ...]
    world: World | None = None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> list[Interactions]:
        """What a list must not hold again: train and validation."""
        return [part for name, part in self.split.parts.items() if name != "test"]


@dataclass(frozen=True, eq=False)
class Person:
    """One person: what is known of them, what was held out, and the list that each model makes."""

    id: str
    history: tuple[str, ...]  # titles, highest rated first where there are ratings
    n_held_out: int
    lists: Mapping[str, tuple[str, ...]]
    hits: Mapping[str, frozenset[int]]  # places in the list, from 0, that hold a held-out item


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What the demo found, and where its report lies.

    `evaluations` and `comparison` are on held-out clicks; `on_truth` and `truth_comparison` on all that
    people truly like, which only a simulated world can tell.
    """

    report: Path
    data: DemoData
    fits: Mapping[str, FitResult]
    evaluations: Mapping[str, Evaluation]
    comparison: Comparison
    person: Person
    on_truth: Mapping[str, Evaluation] = field(default_factory=dict)
    truth_comparison: Comparison | None = None
