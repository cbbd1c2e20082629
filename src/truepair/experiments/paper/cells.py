"""Cells: the runs of a study, gathered by what was run, with their means and the seeds' spread.

Here too are the thresholds by which a difference counts.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from truepair.experiments.lines import Lines, RunLine, digest
from truepair.experiments.paper.published import DATASETS
from truepair.experiments.paper.words import in_order, short, signed

SURE = 2.0  # a difference counts when it is larger than this many of its standard errors
P_SURE = 0.05  # and, where users were compared one by one, when its corrected p is below this
SIMILAR = 0.01  # two figures are similar when they differ by less than this share of the larger
GENERALLY = 0.8  # what "generally" holds, holds in this share of the cases
SLIGHTLY = (1.0, 1.2)  # "only slightly longer": the ratio of epoch times
SEVERAL = (3.0, 5.0)  # "3-5 times longer"

NDCG = "ndcg@20"
SWEPT = "ml-1m"  # the dataset of the sweeps, as in the paper
LOSSES = ("bpr", "infonce", "dcl", "hcl", "dpl")
SAMPLED = (*LOSSES, "dpl-hard", "bns")
REFERENCES = ("ease", "ials", "itemknn", "popularity")

Spot = tuple[str, str, str, str]  # dataset, encoder, method, variant
_MAY_DIFFER = ("seed",)  # parameters in which two runs of one setting may differ


@dataclass(frozen=True)
class Mean:
    """The mean over seeds; `sd` is theirs, borrowed from like cells where there is one seed, else None."""

    value: float
    sd: float | None
    n: int

    @property
    def error(self) -> float | None:
        """The standard error of the mean: sd / √n."""
        return None if self.sd is None else self.sd / math.sqrt(self.n)

    def __str__(self) -> str:
        return f"{short(self.value)} ± {short(self.sd or 0.0)}" if self.n > 1 else short(self.value)


@dataclass(frozen=True)
class Difference:
    """a - b, with its standard error √(error_a² + error_b²); None where a spread is not known."""

    value: float
    error: float | None

    @property
    def sign(self) -> int:
        """1 or -1 where it is larger than SURE standard errors, else 0: no difference."""
        if self.error is None or abs(self.value) <= SURE * self.error:
            return 0
        return 1 if self.value > 0 else -1

    def __str__(self) -> str:
        return signed(self.value) + ("" if self.error is None else f" ± {short(self.error)}")


def difference(a: Mean, b: Mean) -> Difference:
    """How much a is above b."""
    known = a.error is not None and b.error is not None
    return Difference(a.value - b.value, math.hypot(a.error or 0, b.error or 0) if known else None)


@dataclass(frozen=True)
class Cell:
    """The runs of one setting, one a seed; `left_out` counts those of other settings or splits."""

    runs: Sequence[RunLine]
    left_out: int

    def values(self, metric: str, last: bool = False) -> list[float]:
        """The metric of each run that has it."""
        of = [run.last if last else run.metrics for run in self.runs]
        return [figures[metric] for figures in of if metric in figures]


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
        values = cell.values(metric, last) if cell else []
        if not values:
            return None
        if len(values) > 1:
            return Mean(statistics.fmean(values), statistics.stdev(values), len(values))
        solved = encoder == "-"  # reference points are solved, not drawn: one run is all there is
        return Mean(values[0], 0.0 if solved else self._widest(dataset, metric, last), 1)

    def _widest(self, dataset: str, metric: str, last: bool) -> float | None:
        """The largest spread of the dataset's other cells, for a cell with one seed."""
        several = [cell.values(metric, last) for spot, cell in self.cells.items() if spot[0] == dataset]
        return max((statistics.stdev(values) for values in several if len(values) > 1), default=None)

    @cached_property
    def datasets(self) -> list[str]:
        """Those with runs, in the paper's order."""
        return sorted({spot[0] for spot in self.cells}, key=in_order(DATASETS))


def study_of(lines: Lines, name: str) -> Study:
    """The runs of one study as cells.

    Runs of one cell share their setting and split. Where lines of several settings are there, those with the
    most seeds count, and of equal ones the first by checksum: never the one with the better figures.
    """
    found: dict[Spot, dict[tuple[str, str], list[RunLine]]] = defaultdict(lambda: defaultdict(list))
    for run in lines.runs:
        if run.study == name:
            spot = run.dataset, run.encoder, run.method, run.variant
            found[spot][_setting(run), run.split].append(run)
    return Study(name, {spot: _chosen(found[spot]) for spot in sorted(found)})


def _setting(run: RunLine) -> str:
    return digest({k: v for k, v in run.parameters.items() if k not in _MAY_DIFFER})


def _chosen(settings: Mapping[tuple[str, str], list[RunLine]]) -> Cell:
    runs = min(settings.items(), key=lambda item: (-len(item[1]), item[0]))[1]
    return Cell(sorted(runs, key=lambda run: run.seed), sum(map(len, settings.values())) - len(runs))


def swept(study: Study, parameter: str, encoder: str, metric: str) -> list[tuple[float, Mean]]:
    """The points of a sweep, "M=0", "M=1", … in rising order."""
    found: dict[float, Mean] = {}
    for dataset, of, method, variant in study.cells:
        value = re.fullmatch(rf"{parameter}=([0-9.e-]+)", variant)
        mean = study.mean(dataset, of, method, metric, variant)
        if value and (dataset, of) == (SWEPT, encoder) and mean:
            found[float(value[1])] = mean
    return sorted(found.items(), key=lambda point: point[0])
