"""Cells: the runs of a study, gathered by what was run."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from truepair_lab.lines import Lines, RunLine, digest
from truepair_lab.paper.presets import CHOOSE_BY, DATA
from truepair_lab.paper.report.names import in_order
from truepair_lab.paper.running.plan import optimistic, settled
from truepair_lab.paper.running.search import Place, best_trials
from truepair_lab.statistics import Mean

NDCG = CHOOSE_BY
SWEPT = "ml-1m"  # the dataset of the sweeps, as in the paper
OTHER = "‡"
OTHER_TEXT = f"{OTHER} other settings than the best trial's."

Spot = tuple[str, str, str, str]  # dataset, encoder, method, variant
_MAY_DIFFER = ("seed",)  # parameters in which two runs of one setting may differ
_TUNED = {"clean": settled, "paper-tuned": optimistic}  # studies of the best trials' settings


@dataclass(frozen=True)
class Cell:
    """The runs of one setting, one a seed; `left_out` counts those of other settings or splits.

    `other` says that the best trial's settings were not run, and these are others.
    """

    runs: Sequence[RunLine]
    left_out: int
    other: bool = False

    def values(self, metric: str, last: bool = False) -> list[float]:
        """The metric of each run that has it."""
        of = [run.last if last else run.metrics for run in self.runs]
        return [figures[metric] for figures in of if metric in figures]

    @cached_property
    def digests(self) -> frozenset[str]:
        """The checksums of the runs' parameters."""
        return frozenset(run.digest for run in self.runs)

    @cached_property
    def clamped(self) -> float | None:
        """The share of rows that met the loss's floor, the mean over seeds."""
        shares = [run.clamped for run in self.runs if run.clamped is not None]
        return statistics.fmean(shares) if shares else None


@dataclass(frozen=True)
class Study:
    """All cells of one study."""

    name: str
    cells: Mapping[Spot, Cell]

    def mean(
        self,
        dataset: str,
        encoder: str,
        method: str,
        metric: str = NDCG,
        variant: str = "",
        last: bool = False,
    ) -> Mean | None:
        """The mean over seeds; None where nothing was run."""
        cell = self.cells.get((dataset, encoder, method, variant))
        return Mean.of(cell.values(metric, last)) if cell else None

    def mark(self, dataset: str, encoder: str, method: str, variant: str = "") -> str:
        """What stands behind a name whose runs are of other settings than the best trial's."""
        cell = self.cells.get((dataset, encoder, method, variant))
        return f" {OTHER}" if cell and cell.other else ""

    @cached_property
    def datasets(self) -> list[str]:
        """Those with runs, in the paper's order."""
        return sorted({spot[0] for spot in self.cells}, key=in_order(DATA))


def study_of(lines: Lines, name: str) -> Study:
    """The runs of one study as cells.

    Runs of one cell share their setting and split. Of several settings, that of the best trial counts, where
    the study is of tuned settings and there are trials; else the one with the most seeds, and of equal ones
    the first by checksum: never the one with the better figures.
    """
    found: dict[Spot, dict[tuple[str, str], list[RunLine]]] = defaultdict(lambda: defaultdict(list))
    for run in lines.runs:
        if run.study == name:
            spot = run.dataset, run.encoder, run.method, run.variant
            found[spot][_setting(run.parameters), run.split].append(run)
    best = _best_settings(lines, name)
    wanted = {spot: None if spot[3] else best.get(spot[:3]) for spot in found}
    return Study(name, {spot: _chosen(found[spot], wanted[spot]) for spot in sorted(found)})


def _setting(parameters: Mapping[str, Any]) -> str:
    return digest({k: v for k, v in parameters.items() if k not in _MAY_DIFFER})


def _best_settings(lines: Lines, name: str) -> dict[Place, str]:
    """The checksums of the best trials' settings, as the study trains with them."""
    if name not in _TUNED:
        return {}
    return {
        place: _setting(_TUNED[name]({"parameters": best.parameters, "epoch": best.epoch}))
        for place, best in best_trials(lines).items()
        if best.epoch is not None
    }


def _chosen(settings: Mapping[tuple[str, str], list[RunLine]], wanted: str | None) -> Cell:
    of_best = {setting: runs for setting, runs in settings.items() if setting[0] == wanted}
    runs = min((of_best or settings).items(), key=lambda item: (-len(item[1]), item[0]))[1]
    left_out = sum(map(len, settings.values())) - len(runs)
    return Cell(sorted(runs, key=lambda run: run.seed), left_out, wanted is not None and not of_best)


def swept(study: Study, parameter: str, encoder: str, metric: str) -> list[tuple[float, Mean]]:
    """The points of a sweep, "M=0", "M=1", … in rising order."""
    found: dict[float, Mean] = {}
    for dataset, of, method, variant in study.cells:
        value = re.fullmatch(rf"{parameter}=([0-9.e-]+)", variant)
        mean = study.mean(dataset, of, method, metric, variant)
        if value and (dataset, of) == (SWEPT, encoder) and mean:
            found[float(value[1])] = mean
    return sorted(found.items(), key=lambda point: point[0])
