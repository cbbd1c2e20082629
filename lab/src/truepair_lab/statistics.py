"""Means over seeds, differences between them, and the one rule by which a difference is significant.

A difference is significant where its p, corrected by Holm once, is below SIGNIFICANT, from at least
LEAST_SEEDS seeds. p is by Student's t where seeds come in pairs, by Welch's t where they do not, by a
sign-flip test over users where each user's values were kept. It is corrected over all contrasts of a case (a
dataset and how it was observed), or, where a claim is asked of several cases, over these.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from scipy.special import stdtr
from scipy.stats import t as student

from truepair.evaluation.comparison import SIGNIFICANT
from truepair.evaluation.statistics import holm
from truepair_lab.markdown import short, signed

LEAST_SEEDS = 3  # with fewer, a spread is not known
UNKNOWN = "spread unknown"
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """An estimate with its standard error and degrees of freedom; no error where the spread is not known."""

    value: float
    error: float | None
    freedom: float = math.inf

    def p(self, beyond: float = 0.0) -> float | None:
        """The two-sided p of Student's t for value = beyond; it is below .05 where the 95% interval ends
        before `beyond`."""
        if self.error is None:
            return None
        distance = abs(self.value - beyond)
        if self.error == 0:
            return 1.0 if distance == 0 else 0.0
        return float(2 * stdtr(self.freedom, -distance / self.error))

    @property
    def sign(self) -> int | None:
        """See `sign_of`."""
        return sign_of(self.value, self.p())

    def __str__(self) -> str:
        return signed(self.value) + (f" ({UNKNOWN})" if self.error is None else f" ± {short(self.error)}")


@dataclass(frozen=True)
class Mean:
    """The mean over seeds and their standard deviation; None for one run."""

    value: float
    sd: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Mean | None:
        """The mean of values; None without any."""
        every = list(values)
        if not every:
            return None
        return cls(statistics.fmean(every), statistics.stdev(every) if len(every) > 1 else None, len(every))

    @property
    def error(self) -> float | None:
        """The standard error of the mean, sd / √n; None for fewer than LEAST_SEEDS."""
        return None if self.sd is None or self.n < LEAST_SEEDS else self.sd / math.sqrt(self.n)

    @property
    def freedom(self) -> float:
        """Degrees of freedom: n - 1."""
        return float(self.n - 1)

    @property
    def p(self) -> float | None:
        """Of a mean of differences, seed by seed: Student's t, not corrected; None for too few seeds."""
        return Difference(self.value, self.error, self.freedom).p()

    @property
    def reach(self) -> tuple[float, float]:
        """One standard deviation to each side."""
        return self.value - (self.sd or 0.0), self.value + (self.sd or 0.0)

    def text(self, digits: int = 4, sign: bool = False) -> str:
        """`.4338 ± .0004`."""
        value = signed(self.value, digits) if sign else short(self.value, digits)
        return f"{value} ± {short(self.sd, digits)}" if self.sd is not None else value

    def interval(self, is_significant: bool = False) -> str:
        """`+.0071 [+.0062, +.0080]`, in bold where it is significant; Student's t at 95%."""
        if self.sd is None:
            return signed(self.value)
        half = float(student.ppf(1 - SIGNIFICANT / 2, self.n - 1)) * self.sd / math.sqrt(self.n)
        ends = f"[{signed(self.value - half)}, {signed(self.value + half)}]"
        return bold(f"{signed(self.value)} {ends}", is_significant)

    def __str__(self) -> str:
        return self.text()


def bold(text: str, really: bool) -> str:
    """Bold in Markdown, or as it is."""
    return f"**{text}**" if really else text


def sign_of(value: float, p: float | None) -> int | None:
    """1 or -1 where it is significant, else 0; None where there is no p."""
    if p is None:
        return None
    return 0 if p >= SIGNIFICANT or value == 0 else (1 if value > 0 else -1)


def weighted(*parts: tuple[float, Mean | Difference]) -> Difference:
    """Σ wᵢ xᵢ of independent estimates, by Welch and Satterthwaite.

    With errors eᵢ and degrees of freedom fᵢ, vᵢ = (wᵢ eᵢ)²: error √(Σ vᵢ), freedom (Σ vᵢ)² / Σ (vᵢ² / fᵢ).
    """
    value = sum(weight * part.value for weight, part in parts)
    known = [(weight * part.error, part.freedom) for weight, part in parts if part.error is not None]
    if len(known) < len(parts):
        return Difference(value, None)
    variance = sum(error**2 for error, _ in known)
    spread = sum(error**4 / freedom for error, freedom in known)
    return Difference(value, math.sqrt(variance), variance**2 / spread if spread else math.inf)


def difference(a: Mean, b: Mean) -> Difference:
    """How much a is above b, by Welch: variances need not be equal."""
    return weighted((1, a), (-1, b))


def relative(a: Mean, b: Mean) -> Difference:
    """How much a is above b, as a share of b."""
    return weighted((1 / b.value, a), (-1 / b.value, b)) if b.value > 0 else Difference(0.0, None)


def corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """Those that are known, corrected by Holm for being several."""
    known = [p for p in p_values if p is not None]
    left = iter(holm(known) if known else [])
    return [None if p is None else next(left) for p in p_values]


def significant(contrasts: Mapping[Name, Mean | None]) -> frozenset[Name]:
    """The names of those contrasts of one case, seed by seed, that are significant after the correction."""
    known = {name: mean for name, mean in contrasts.items() if mean is not None}
    p_values = corrected([mean.p for mean in known.values()])
    pairs = zip(known.items(), p_values, strict=True)
    return frozenset(name for (name, mean), p in pairs if sign_of(mean.value, p))


def contrast_text(value: float, low: float, high: float, p: float) -> str:
    """A difference over users with its interval and its p."""
    chance = "p < .001" if p < 0.001 else f"p = {short(p, 3)}"
    return f"{signed(value)} [{signed(low)}, {signed(high)}], {chance}"
