"""Estimates: means over seeds, their differences, and how sure a difference is.

Here too are the thresholds by which a difference counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from truepair.evaluation.statistics import holm
from truepair_lab.paper.report.words import short, signed

P_SURE = 0.05  # a difference counts when its corrected p is below this
LEAST_SEEDS = 3  # with fewer, a spread is not known
SIMILAR = 0.01  # "similar" is within this share of the other figure; "at least as good", not below it by more
GENERALLY = 0.8  # what "generally" holds, holds in this share of the cases
SLIGHTLY = (1.0, 1.2)  # "only slightly longer": the ratio of epoch times
SEVERAL = (3.0, 5.0)  # "3-5 times longer"
UNKNOWN = "spread unknown"


@dataclass(frozen=True)
class Mean:
    """The mean over seeds and their standard deviation; None for one run, be it drawn or solved."""

    value: float
    sd: float | None
    n: int

    @property
    def error(self) -> float | None:
        """The standard error of the mean, sd / √n; None for fewer than LEAST_SEEDS."""
        return None if self.sd is None or self.n < LEAST_SEEDS else self.sd / math.sqrt(self.n)

    @property
    def freedom(self) -> float:
        """Degrees of freedom: n - 1."""
        return float(self.n - 1)

    def __str__(self) -> str:
        return f"{short(self.value)} ± {short(self.sd or 0.0)}" if self.n > 1 else short(self.value)


@dataclass(frozen=True)
class Difference:
    """A sum of estimates with its standard error and degrees of freedom; no error where one is not known."""

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
        """1 or -1 where its p is below P_SURE, else 0; None where its error is not known."""
        return sign_of(self.value, self.p())

    def __str__(self) -> str:
        return signed(self.value) + (f" ({UNKNOWN})" if self.error is None else f" ± {short(self.error)}")


def sign_of(value: float, p: float | None) -> int | None:
    """1 or -1 where the p is below P_SURE, else 0; None where there is no p."""
    if p is None:
        return None
    return 0 if p >= P_SURE or value == 0 else (1 if value > 0 else -1)


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
