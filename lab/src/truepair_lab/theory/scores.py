"""Scores whose distribution is known: of a user's positives, of the true negatives, of the unlabelled mix.

A distribution is its quantile function. Draws are quantiles of counter-based random numbers, the same on
every machine; expectations are sums over nodes, in float64, without any draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, ndtri

from truepair.errors import InputError, check_choice, check_number, settle
from truepair.randomness import random_bits

Array = npt.NDArray[np.float64]
_STEP, _REACH = 0.05, 34.0  # of the quadrature; the mass beyond the last node is 2e-15


class Scores(ABC):
    """A distribution of scores."""

    @abstractmethod
    def at(self, u: Array) -> Array:
        """The quantiles of u in (0, 1)."""

    def nodes(self) -> tuple[Array, Array]:
        """Scores and weights with E f(s) = Σ weight·f(score).

        E f = ∫ f(Q(σ(v))) σ(v)σ(−v) dv by the trapezoid rule: the integrand is smooth and dies out at both
        ends, where the rule's error falls faster than any power of the step.
        """
        v = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
        return self.at(expit(v)), _STEP * expit(v) * expit(-v)


def _width(what: str, value: float) -> float:
    return check_number(what, value, 0, open_low=True)


@dataclass(frozen=True)
class Gaussian(Scores):
    """Normal scores."""

    mean: float
    sd: float = 1.0

    def __post_init__(self) -> None:
        settle(self, mean=check_number("mean", self.mean), sd=_width("sd", self.sd))

    def at(self, u: Array) -> Array:
        """mean + sd·Φ⁻¹(u)."""
        return np.asarray(self.mean + self.sd * ndtri(u))


@dataclass(frozen=True)
class Logistic(Scores):
    """Logistic scores: tails that fall as e^{−|s|/scale}."""

    mean: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        settle(self, mean=check_number("mean", self.mean), scale=_width("scale", self.scale))

    def at(self, u: Array) -> Array:
        """mean + scale·log(u/(1−u))."""
        return np.asarray(self.mean + self.scale * (np.log(u) - np.log1p(-u)))


@dataclass(frozen=True)
class Gumbel(Scores):
    """Skewed scores: a long tail to the right, as of a few items that score very high."""

    mode: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        settle(self, mode=check_number("mode", self.mode), scale=_width("scale", self.scale))

    def at(self, u: Array) -> Array:
        """mode − scale·log(−log u)."""
        return np.asarray(self.mode - self.scale * np.log(-np.log(u)))


@dataclass(frozen=True)
class Cosine(Scores):
    """Scores in [−1, 1]: 2x − 1 with P(x ≤ c) = 1 − (1 − c^a)^b, Kumaraswamy's distribution."""

    a: float
    b: float

    def __post_init__(self) -> None:
        settle(self, a=_width("a", self.a), b=_width("b", self.b))

    def at(self, u: Array) -> Array:
        """2·(1 − (1−u)^{1/b})^{1/a} − 1."""
        return np.asarray(2 * (-np.expm1(np.log1p(-u) / self.b)) ** (1 / self.a) - 1)


@dataclass(frozen=True)
class Discrete(Scores):
    """Finitely many scores, so that ties are common; expectations are exact sums."""

    values: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        values, weights = np.asarray(self.values, float), np.asarray(self.weights, float)
        good = values.ndim == 1 and values.shape == weights.shape and np.isfinite(values).all()
        if not (good and (weights >= 0).all() and abs(weights.sum() - 1) < 1e-9):
            raise InputError(
                f"values = {self.values!r} and weights = {self.weights!r} are no distribution; give as many "
                "finite values as weights, and weights ≥ 0 whose sum is 1."
            )

    def at(self, u: Array) -> Array:
        """The value in whose share of (0, 1) u lies."""
        edges = np.cumsum(self.weights)[:-1]
        return np.asarray(self.values, dtype=np.float64)[np.searchsorted(edges, u, side="right")]

    def nodes(self) -> tuple[Array, Array]:
        """The values and their weights."""
        return np.asarray(self.values, dtype=np.float64), np.asarray(self.weights, dtype=np.float64)


@dataclass(frozen=True)
class Population:
    """Scores of one user's items: of the positives, and of the true negatives."""

    positives: Scores
    negatives: Scores

    def unlabelled(self, tau: float, u: Array) -> Array:
        """Scores of the mix p = τ·p⁺ + (1−τ)·p⁻: u < τ says that an item is a hidden positive, and which."""
        hidden, scores = u < tau, np.empty_like(u)
        scores[hidden] = self.positives.at(u[hidden] / tau) if tau else 0.0
        scores[~hidden] = self.negatives.at((u[~hidden] - tau) / (1 - tau))
        return scores


POPULATIONS: dict[str, Population] = {
    "gaussian": Population(Gaussian(1.0), Gaussian(0.0)),
    "logistic": Population(Logistic(1.0, 0.7), Logistic(-0.5, 0.5)),
    "skewed": Population(Gumbel(0.8, 0.8), Gumbel(-0.8, 0.6)),
    "ties": Population(
        Discrete((-1, 0, 1, 2), (0.1, 0.2, 0.4, 0.3)), Discrete((-2, -1, 0, 1), (0.2, 0.4, 0.3, 0.1))
    ),
    "cosine": Population(Cosine(3.0, 2.0), Cosine(1.5, 2.5)),
}
"""What every lemma is tried on; only `cosine` is what Lemma 3 speaks of."""


def population(name: str) -> Population:
    """The population of this name, else an error that lists them."""
    return POPULATIONS[check_choice("population", name, POPULATIONS)]


def uniforms(key: int, *shape: int) -> Array:
    """Uniform numbers strictly between 0 and 1: the stream `key`, read from its start."""
    bits = random_bits(key, int(np.prod(shape))) >> np.uint64(12)
    return ((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)
