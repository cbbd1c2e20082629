"""Lemma 3: how far the loss is from the supervised loss, against the bounds, for cosine scores.

Observed: E_{s⁺} E |−log max(P̂, floor) + log P(s⁺)|, by draws from a smooth population, and exactly for
populations whose scores are all −1 or +1, where the search for the worst is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from truepair.errors import check_choice, check_number, check_whole
from truepair.losses import DPL
from truepair.randomness import stream_key
from truepair_lab.theory.estimators import Draw, shipped
from truepair_lab.theory.lemma1 import drawn
from truepair_lab.theory.probability import preference, whole
from truepair_lab.theory.results import Corner, Error, Lemma3
from truepair_lab.theory.scores import Array, population, uniforms

TAUS = (0.01, 0.05, 0.1, 0.3, 0.5)
SIZES = (1, 4, 16, 64, 256, 1024)
HARD_TAUS = (0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
HARD_SIZES = (1, 4, 16, 64, 256, 1024, 4096)
_POSITIVES_UP = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.95)
_NEGATIVES_UP = (0.0, 0.5, 1.0)
LEAST = float(expit(-2))
"""1/(1+e²): no P(s⁺) of cosine scores is smaller, so a floor there takes nothing away."""
ALWAYS_POSITIVE = 2 * LEAST
"""Below this τ no P̂ of cosine scores is ≤ 0: σ(s⁺−1) ≥ (σ(−2)/σ(0))·σ(s⁺+1) for s⁺ ≥ −1."""
FLOORS = {"shipped": DPL(tau=0.0).floor, "cosine": LEAST}
_UNLIKELY = 1e-10  # a count of less probability is left out of an exact mean


def printed(tau: float, extra: int | None, unlabelled: int) -> float:
    """The bound as printed: e²·√(2π/N) + e²·τ·√(2π/M); `extra` None is M = ∞."""
    return math.e**2 * math.sqrt(2 * math.pi) * _rate(tau, extra, unlabelled)


def corrected(tau: float, extra: int | None, unlabelled: int) -> float:
    """The bound with the 1/(1−τ) that its proof drops: (e²/(1−τ))·(√(2π/N) + τ·√(2π/M))."""
    return printed(tau, extra, unlabelled) / (1 - tau)


def simple(tau: float, extra: int | None, unlabelled: int) -> float:
    """A shorter proof's bound, for a loss whose floor is 1/(1+e²): ((e²−1)/(2(1−τ)))·(1/√N + τ/√M).

    log is (1+e²)-Lipschitz above that floor, and no mean of n values in an interval of width w has a standard
    deviation above w/(2√n); here w = (e²−1)/(e²+1).
    """
    return (math.e**2 - 1) / 2 * _rate(tau, extra, unlabelled) / (1 - tau)


BOUNDS: dict[str, Callable[[float, int | None, int], float]] = {
    "printed": printed,
    "corrected": corrected,
    "simple": simple,
}


def _rate(tau: float, extra: int | None, unlabelled: int) -> float:
    tau = check_number("tau", tau, 0, 1, open_high=True)
    m = math.inf if extra is None else check_whole("extra", extra, 1)
    return 1 / math.sqrt(check_whole("unlabelled", unlabelled, 1)) + tau / math.sqrt(m)


def run_lemma3(rows: int, seed: int, hard: Sequence[int] = HARD_SIZES) -> Lemma3:
    """The grid of draws, and the search among two-point populations of these sizes."""
    grid = list(product(TAUS, SIZES, SIZES))
    errors = tuple(measure_error(*cell, rows, stream_key(seed, 4, at)) for at, cell in enumerate(grid))
    corners = list(_corners(hard))
    broken = sum(c.error > printed(*place_of(c)) for c in corners)
    worst: dict[tuple[float, int | None, int, str], Corner] = {}
    for corner in corners:
        place = *place_of(corner), corner.floor
        worst[place] = max(worst.get(place, corner), corner, key=lambda c: c.error)
    return Lemma3(rows, errors, len(corners), broken, tuple(worst.values()))


def measure_error(tau: float, extra: int, unlabelled: int, rows: int, key: int) -> Error:
    """The mean absolute error of the shipped loss, its own floor included, on draws of cosine scores."""
    of = population("cosine")
    pos = of.positives.at(uniforms(stream_key(key, 0), check_whole("rows", rows, 2)))
    found = shipped(drawn(of, tau, pos, extra, unlabelled, key), FLOORS["shipped"])
    error = np.abs(found.loss.numpy() + np.log(preference(pos, of.negatives)))
    share = 0.0 if found.clamped is None else float(found.clamped.double().mean())
    return Error(tau, extra, unlabelled, float(error.mean()), share)


def _corners(sizes: Sequence[int]) -> Iterator[Corner]:
    shares = list(product(_POSITIVES_UP, _NEGATIVES_UP))
    for tau, infinite, size, floor, (up, down) in product(HARD_TAUS, (False, True), sizes, FLOORS, shares):
        error = exact_error(tau, None if infinite else size, size, up, down, floor)
        yield Corner(tau, size, infinite, floor, error, up, down)


def place_of(corner: Corner) -> tuple[float, int | None, int]:
    """(τ, M, N) of a corner, as the bounds take them."""
    return corner.tau, None if corner.infinite else corner.size, corner.size


def exact_error(
    tau: float, extra: int | None, unlabelled: int, up: float, down: float, floor: str = "shipped"
) -> float:
    """The mean absolute error where positives are +1 with chance `up`, negatives with chance `down`, else −1.

    How many of the M and N scores are +1 is binomial: the mean is a finite sum of the shipped loss's values.
    """
    up, down = check_number("up", up, 0, 1), check_number("down", down, 0, 1)
    level = FLOORS[check_choice("floor", floor, FLOORS)]
    always = np.array([up]), np.ones(1)  # among infinitely many the share is no matter of chance
    pp = always if extra is None else _counts(check_whole("extra", extra, 1), up)
    pu = _counts(check_whole("unlabelled", unlabelled, 1), tau * up + (1 - tau) * down)
    chances = {1.0: up, -1.0: 1 - up}
    return sum(chance * _at_anchor(tau, a, pp, pu, down, level) for a, chance in chances.items() if chance)


def _counts(n: int, share: float) -> tuple[Array, Array]:
    """Shares of +1 among n draws, and their chances."""
    low, high = (int(end) for end in binom.interval(1 - _UNLIKELY, n, share))
    counts = np.arange(low, high + 1)
    chances = binom.pmf(counts, n, share)
    return counts / n, chances / chances.sum()


def _at_anchor(
    tau: float, anchor: float, pp: tuple[Array, Array], pu: tuple[Array, Array], down: float, level: float
) -> float:
    (extra, extra_chance), (unlabelled, chance) = pp, pu
    low, high = float(expit(anchor - 1)), float(expit(anchor + 1))
    means = [
        np.repeat(high + (low - high) * unlabelled, len(extra)),
        np.tile(high + (low - high) * extra, len(chance)),
    ]
    pos = np.full(len(means[0]), anchor)
    draw = Draw(tau, pos, whole(pos, means[1]), whole(pos, means[0]), pos[:, None])
    error = np.abs(shipped(draw, level).loss.numpy() + math.log(high + (low - high) * down))
    return float(np.outer(chance, extra_chance).ravel() @ error)
