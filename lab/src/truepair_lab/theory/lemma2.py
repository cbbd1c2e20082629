"""Lemma 2: the loss approaches the supervised loss as M and N grow, and how fast.

Gap of a row: d = −log max(P̂, floor) + log P(s⁺). Its mean absolute value falls as size^{−½}, its mean as
size^{−1}.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from truepair.errors import InputError, check_number, check_whole
from truepair.losses import DPL, Rows
from truepair.randomness import stream_key
from truepair_lab.theory.estimators import WRONG, Draw, shipped
from truepair_lab.theory.lemma1 import drawn
from truepair_lab.theory.probability import preference, supervised_bpr, supervised_loss, whole
from truepair_lab.theory.results import Exponent, Gap, Lemma2, Limit
from truepair_lab.theory.scores import Array, population, uniforms

TAU = 0.1
SIZES = tuple(2**k for k in range(13))
DESIGNS = ("N", "M", "M = N")
TRIED = ("gaussian", "skewed", "cosine")
SHIPPED = "shipped"
EXPECTED = {"gap": (-0.5, 0.05), "sd": (-0.5, 0.05), "bias": (-1.0, 0.1)}
"""Measure -> exponent and tolerance."""
ERRORS = 4.0
"""The tolerance in standard errors, used where it is the larger one, as in a quick run."""
LEVELS_OFF = -0.2
"""A wrong estimator's gap stops to shrink: over the last sizes its exponent is above this."""
FROM, LAST = 32, 4  # the power law is fitted from this size on; a wrong estimator's over its last sizes


def run_lemma2(rows: int, seed: int, sizes: Sequence[int] = SIZES) -> Lemma2:
    """The gaps of three populations in three designs, and those of wrong estimators in one."""
    gaps = []
    for at, name in enumerate(TRIED):
        for how, design in enumerate(DESIGNS):
            others = WRONG if (at, how) == (0, 2) else {}
            for size in sizes:
                key = stream_key(seed, 3, at, how, size)
                gaps += measure_gaps(name, design, size, rows, key, others)
    limits = tuple(_limit(name, gaps) for name in TRIED)
    return Lemma2(TAU, rows, tuple(gaps), tuple(_exponents(gaps)), limits)


def measure_gaps(
    name: str, design: str, size: int, rows: int, key: int, others: Collection[str] = ()
) -> list[Gap]:
    """The gap of the shipped loss at one size, and of these wrong estimators on the same rows."""
    of, size = population(name), check_whole("size", size, 1)
    pos = of.positives.at(uniforms(stream_key(key, 0), check_whole("rows", rows, 2)))
    truth = preference(pos, of.negatives)
    extra, unlabelled = (1 if design == "N" else size), (1 if design == "M" else size)
    finite = drawn(of, TAU, pos, extra, unlabelled, key, spare=bool(others))
    draw = _infinite(finite, design, preference(pos, of.positives), truth)
    floor = DPL(tau=TAU).floor
    estimators: dict[str, Callable[[Draw], Rows]] = {SHIPPED: lambda draw: shipped(draw, floor)}
    estimators |= {other: WRONG[other] for other in others}
    return [_gap(name, design, e, size, estimate(draw), truth) for e, estimate in estimators.items()]


def _infinite(draw: Draw, design: str, pp: Array, pn: Array) -> Draw:
    """The draw with M = ∞, or N = ∞, or as it is: one score of the exact mean stands for infinitely many."""
    if design == "N":
        return draw._replace(extra=whole(draw.pos, pp))
    if design == "M":
        return draw._replace(unlabelled=whole(draw.pos, draw.tau * pp + (1 - draw.tau) * pn))
    return draw


def _gap(name: str, design: str, estimator: str, size: int, rows: Rows, truth: Array) -> Gap:
    d = rows.loss.numpy() + np.log(truth)
    clamped = 0 if rows.clamped is None else int(rows.clamped.sum())
    # P̂/P − 1 = e^{−d} − 1 has mean 0 by Lemma 1 (where no row is clamped): adding it leaves the mean of d as
    # it is and takes away nearly all of its noise. A wrong estimator has no such right.
    level = d + np.expm1(-d) if not clamped and estimator == SHIPPED else d
    root = np.sqrt(len(d))
    return Gap(
        name, design, estimator, size,
        float(np.abs(d).mean()), float(np.abs(d).std(ddof=1) / root),
        float(level.mean()), float(level.std(ddof=1) / root),
        float(d.std(ddof=1)), clamped,
    )  # fmt: skip


def fit_exponent(
    sizes: Sequence[float], values: Sequence[float], errors: Sequence[float]
) -> tuple[float, float]:
    """The slope of log value on log size and its standard error, weighted by the relative errors.

    >>> slope, se = fit_exponent([1, 4, 16], [8.0, 4.0, 2.0], [0.1, 0.1, 0.1])
    >>> round(slope, 6)
    -0.5
    """
    x, y, e = (np.asarray(v, dtype=np.float64) for v in (sizes, values, errors))
    if (
        len({len(x), len(y), len(e)}) > 1
        or len(set(x.tolist())) < 2
        or not ((x > 0) & (y > 0) & (e > 0)).all()
    ):
        raise InputError(
            "a power law needs two sizes or more, and sizes, values and errors > 0; got sizes "
            f"{list(sizes)}, values {list(values)}, errors {list(errors)}."
        )
    weights = (y / e) ** 2
    centred = np.log(x) - np.average(np.log(x), weights=weights)
    spread = float(weights @ centred**2)
    return float((weights * centred) @ np.log(y)) / spread, spread**-0.5


def _exponents(gaps: Sequence[Gap]) -> Iterable[Exponent]:
    groups: dict[tuple[str, str, str], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.population, gap.design, gap.estimator), []).append(gap)
    for (name, design, estimator), found in groups.items():
        right = estimator == SHIPPED
        used = [g for g in found if g.size >= FROM and not g.clamped] if right else found[-LAST:]
        for measure in EXPECTED if right else ("gap",):
            values = [float(getattr(g, measure)) for g in used]
            slope, se = fit_exponent([g.size for g in used], values, [_error(g, measure) for g in used])
            yield Exponent(name, design, estimator, measure, slope, se, len(used))


def _error(gap: Gap, measure: str) -> float:
    """The standard error of a measure; for `sd` that of `gap`, which for a normal d is a sixth too small."""
    return gap.bias_se if measure == "bias" else gap.gap_se


def _limit(name: str, gaps: Sequence[Gap]) -> Limit:
    of = population(name)
    last = [g for g in gaps if (g.population, g.design, g.estimator) == (name, DESIGNS[-1], SHIPPED)][-1]
    exact = check_number("L_sup", supervised_loss(of))
    return Limit(name, exact, exact + last.bias, last.bias_se, supervised_bpr(of))
