"""Groups: the lines of one setting, and what is said of them over seeds and levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from truepair_lab.prior_study.cases import STUDIES
from truepair_lab.prior_study.lines import EstimateLine, Line

WORLDS, BLOCKS = ("worlds", "noisy"), ("kuairec", "jester5k")
SMALL = ("small", "small-noisy", "tiny", "tiny-noisy")
METHOD_NAMES = {
    "recommended": "recommended",
    "plateau": "plateau",
    "dedpul": "DEDPUL",
    "bbe": "BBE",
    "density": "density",
}
EXPOSURE_NAMES = {"random": "at random", "popularity": "by popularity", "self": "as people chose"}


def estimate_of(line: EstimateLine, method: str) -> float:
    """What a method says; "recommended" is what is recommended: the plateau, or half of DEDPUL's number."""
    return line.estimate if method == "recommended" else line.methods[method]


def agrees(line: EstimateLine) -> bool:
    """Whether the end of the curve was seen, and both upper bounds are within twice the number."""
    return line.seen and max(line.methods["bbe"], line.methods["dedpul"]) <= 2 * line.estimate


def warned(line: EstimateLine) -> bool:
    """Whether `truepair prior` once refused the number: the scores do not separate positives or reach no
    plateau, or a bound is 5 times the estimate or more."""
    far = max(line.methods["bbe"], line.methods["dedpul"]) >= 5 * line.estimate
    return line.separation < 0.55 or not line.seen or far


def is_wrong(line: EstimateLine) -> bool:
    """Whether the estimate is more than twice the truth, or less than half of it."""
    return not 0.5 <= line.estimate / line.tau <= 2


@dataclass(frozen=True)
class Group:
    """Estimates that belong together: of one level, or of all."""

    study: str
    exposure: str
    lines: Sequence[EstimateLine]

    @property
    def title(self) -> str:
        """What was observed, and how it was chosen."""
        return f"{STUDIES[self.study].title}, {EXPOSURE_NAMES[self.exposure]}"

    def by_level(self) -> list[Group]:
        """One group a level, from the lowest."""
        levels = sorted({line.level for line in self.lines})
        return [
            Group(self.study, self.exposure, [line for line in self.lines if line.level == x]) for x in levels
        ]

    def over(self, value: Callable[[EstimateLine], float]) -> list[float]:
        """A value of each line."""
        return [value(line) for line in self.lines]

    def median(self, value: Callable[[EstimateLine], float]) -> float:
        """Over all lines."""
        return float(np.median(self.over(value)))

    def estimate(self, method: str) -> float:
        """The median of what a method says."""
        return self.median(lambda line: estimate_of(line, method))

    def error(self, method: str) -> float:
        """The median of |estimate − τ|/τ."""
        return self.median(lambda line: abs(estimate_of(line, method) - line.tau) / line.tau)

    def ratio(self, method: str) -> float:
        """The median of estimate/τ."""
        return self.median(lambda line: estimate_of(line, method) / line.tau)

    @property
    def n_covered(self) -> int:
        """The number of intervals that cover the true τ, or overlap its interval where it has one."""
        return sum(line.low <= line.tau_high and line.tau_low <= line.high for line in self.lines)

    def per_user(self, name: str) -> float | None:
        """The mean of one of `measuring.per_user`, errors in units of the true τ; None where unknown."""
        known = [line for line in self.lines if name in line.users]
        unit = name.startswith("error")
        each = [line.users[name] / (line.tau if unit else 1.0) for line in known]
        return float(np.mean(each)) if each else None


def groups_of(lines: Iterable[Line], small: bool = False) -> list[Group]:
    """Every setting there are lines of, in the order of the studies: the small worlds, or all others."""
    known = [line for line in lines if isinstance(line, EstimateLine)]
    found = []
    for name, study in STUDIES.items():
        if (name in SMALL) != small:
            continue
        for exposure in study.exposures:
            own = [line for line in known if (line.study, line.exposure) == (name, exposure)]
            if own:
                found.append(Group(name, exposure, sorted(own, key=lambda line: (line.level, line.seed))))
    return found
