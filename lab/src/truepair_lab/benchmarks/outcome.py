"""What a benchmark is asked for, and what it gives: rows to read, and every round behind them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truepair.errors import InputError, check_whole, settle

Measure = Callable[[], float]  # does the work once, and gives its figure: mostly seconds


def _silence(text: str) -> None:
    pass


@dataclass(frozen=True)
class Options:
    """How to measure. `quick` is a rehearsal: little work, few rounds, figures that mean little."""

    rounds: int = 5
    quick: bool = False
    data_dir: Path | None = None
    seed: int = 0
    say: Callable[[str], None] = _silence  # progress, for people

    def __post_init__(self) -> None:
        settle(self, rounds=check_whole("rounds", self.rounds, 1), seed=check_whole("seed", self.seed, 0))

    def facts(self) -> dict[str, Any]:
        """The options as plain values."""
        return {"rounds": self.rounds, "quick": self.quick, "seed": self.seed}


@dataclass(frozen=True)
class Row:
    """One figure of truepair; beside it that of a peer and their ratio, and the bar, where there are such.

    The bar is for the ratio where there is a peer, else for the figure itself. `at_least` says that more
    is better.
    """

    what: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    bar: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """This figure / the peer's."""
        return None if self.peer_value is None else self.value / self.peer_value

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None without a bar."""
        if self.bar is None:
            return None
        figure = self.value if self.ratio is None else self.ratio
        return figure >= self.bar if self.at_least else figure <= self.bar

    def facts(self) -> dict[str, Any]:
        """The row as plain values."""
        names = ("what", "value", "unit", "peer", "peer_value", "ratio", "bar", "at_least", "passed", "note")
        return {name: getattr(self, name) for name in names}


@dataclass
class Outcome:
    """What a benchmark found."""

    rows: list[Row] = field(default_factory=list)
    rounds: dict[str, list[float]] = field(default_factory=dict)  # every round, by what was measured
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)  # what was not measured, and how it could be
    data: dict[str, Any] = field(default_factory=dict)  # for plots

    def facts(self) -> dict[str, Any]:
        """The outcome as plain values."""
        rows = [row.facts() for row in self.rows]
        kept = {"rounds": self.rounds, "settings": self.settings, "skipped": self.skipped, "data": self.data}
        return {"rows": rows, **kept}


class Skipped(InputError):  # noqa: N818, it is not always the user's error
    """A benchmark, or a part of one, that cannot run here; the message says what is missing."""


def alternate(measures: Mapping[str, Measure], options: Options, label: str = "") -> dict[str, list[float]]:
    """`rounds` figures of each, in turns, so that a busy moment hits all alike; the first turn is dropped.

    >>> alternate({"a": lambda: 1.0, "b": lambda: 2.0}, Options(rounds=2))
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(options.rounds + 1):  # turn 0 compiles, and fills the caches
        for name, measure in measures.items():
            figure = measure()
            turn_name = f"round {turn} of {options.rounds}" if turn else "warming up"
            options.say(f"{label}{name}: {turn_name}, {figure:.4g}")
            if turn:
                found[name].append(figure)
    return found


def medians(rounds: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each.

    >>> medians({"a": [3.0, 1.0, 2.0]})
    {'a': 2.0}
    """
    return {name: statistics.median(figures) for name, figures in rounds.items()}
