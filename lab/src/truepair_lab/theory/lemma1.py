"""Lemma 1: the mean of P̂ is the true probability, for every anchor, prior and distribution of scores.

For a fixed anchor s⁺:  E P̂ = E_{s⁻} σ(s⁺ − s⁻).  Over drawn anchors both sides become the smooth AUC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import expit, ndtri

from truepair.errors import check_choice, check_number, check_whole
from truepair.losses import DPL, Rows
from truepair.randomness import stream_key
from truepair_lab.theory.estimators import TINY, WRONG, Draw, shipped
from truepair_lab.theory.probability import auc, preference
from truepair_lab.theory.results import Cell, Clamped, Lemma1, Wrong
from truepair_lab.theory.scores import POPULATIONS, Array, Population, population, uniforms

TAUS = (0.0, 0.01, 0.05, 0.1, 0.3, 0.5)
ANCHORS = {"low": 0.1, "middle": 0.5, "high": 0.9}
"""Fixed anchors: quantiles of the positives."""
DRAWN = "drawn"
EXTRA, UNLABELLED = 64, 256  # so many that P̂ > 0 in every row: the floor is no part of the lemma
FALSE_ALARM = 1e-3
"""The chance that a right estimator fails, over all cells together."""
POWER = 0.99
_FLOORED = tuple((tau, size) for tau in (0.1, 0.3, 0.5) for size in (1, 5, 10, 50))


class _Cell(NamedTuple):
    population: str
    anchor: str
    tau: float
    place: int


def bound(cells: int) -> float:
    """The largest |z| that is still chance, over so many cells together (Bonferroni)."""
    return float(-ndtri(FALSE_ALARM / (2 * check_whole("cells", cells, 1))))


def detectable(se: float, cells: int) -> float:
    """The bias that a cell with this standard error shows with probability 99%."""
    return (bound(cells) + float(ndtri(POWER))) * check_number("se", se, 0)


def run_lemma1(rows: int, seed: int) -> Lemma1:
    """Every cell of populations × anchors × τ, by the shipped loss and by the wrong estimators."""
    cells, means, clamped = list(_cells()), [], 0
    wrong: dict[str, list[tuple[_Cell, float]]] = {name: [] for name in WRONG}
    for cell in cells:
        draw, truth = draw_cell(cell.population, cell.anchor, cell.tau, rows, stream_key(seed, 1, cell.place))
        found = shipped(draw)
        clamped += _count(found)
        means.append(_mean(cell, truth, found))
        for name, estimate in WRONG.items():
            if cell.tau and not (name.startswith("τ") and cell.tau > 0.4):  # τ doubled must stay below 1
                wrong[name].append((cell, _mean(cell, truth, estimate(draw)).z))
    most = bound(len(cells))
    caught = tuple(_wrong(name, zs, most) for name, zs in wrong.items())
    floor = tuple(_floored(tau, size, 10 * rows, seed) for tau, size in _FLOORED)
    return Lemma1(rows, EXTRA, UNLABELLED, most, clamped, tuple(means), caught, floor)


def estimate_mean(
    estimate: Callable[[Draw], Rows], name: str, anchor: str, tau: float, rows: int, seed: int = 0
) -> Cell:
    """One cell of the test, by any estimator."""
    draw, truth = draw_cell(name, anchor, tau, rows, stream_key(seed, 1))
    return _mean(_Cell(name, anchor, tau, 0), truth, estimate(draw))


def draw_cell(name: str, anchor: str, tau: float, rows: int, key: int) -> tuple[Draw, Array]:
    """Rows of scores of one cell, and the true mean of P̂ in each row: it depends on the anchor alone."""
    of = population(name)
    tau = check_number("tau", tau, 0, 1, open_high=True)
    rows = check_whole("rows", rows, 2, remedy="A standard error needs at least two rows.")
    if anchor == DRAWN:
        pos = of.positives.at(uniforms(stream_key(key, 0), rows))
        truth = preference(pos, of.negatives)
    else:
        fixed = of.positives.at(np.array([ANCHORS[check_choice("anchor", anchor, [*ANCHORS, DRAWN])]]))
        pos, truth = np.repeat(fixed, rows), np.repeat(preference(fixed, of.negatives), rows)
    return drawn(of, tau, pos, EXTRA, UNLABELLED, key, spare=True), truth


def drawn(
    of: Population, tau: float, pos: Array, extra: int, unlabelled: int, key: int, spare: bool = False
) -> Draw:
    """Rows for these anchors: M extra positives and N unlabelled scores each, all independent."""
    rows = len(pos)
    return Draw(
        tau,
        pos,
        of.positives.at(uniforms(stream_key(key, 1), rows, extra)),
        of.unlabelled(tau, uniforms(stream_key(key, 2), rows, unlabelled)),
        of.unlabelled(tau, uniforms(stream_key(key, 3), rows, extra if spare else 0)),
    )


def _cells() -> Iterator[_Cell]:
    place = 0
    for name in POPULATIONS:
        for anchor in (*ANCHORS, DRAWN):
            for tau in TAUS:
                yield _Cell(name, anchor, tau, place)
                place += 1


def _mean(cell: _Cell, truth: Array, rows: Rows) -> Cell:
    off = (-rows.loss).exp().numpy() - truth  # paired: the spread of drawn anchors drops out
    mean, se = float(off.mean()), float(off.std(ddof=1) / np.sqrt(len(off)))
    whole = auc(population(cell.population)) if cell.anchor == DRAWN else float(truth[0])
    return Cell(cell.population, cell.anchor, cell.tau, whole, whole + mean, se, mean / max(se, TINY))


def _count(rows: Rows) -> int:
    return 0 if rows.clamped is None else int(rows.clamped.sum())


def _wrong(name: str, zs: list[tuple[_Cell, float]], most: float) -> Wrong:
    fixed = [(cell.tau, abs(z)) for cell, z in zs if cell.anchor != DRAWN]
    beyond = [tau for tau, z in fixed if z > most]
    free = max(abs(z) for cell, z in zs if cell.anchor == DRAWN)
    by_tau = tuple(
        max(z for at, z in fixed if at == tau) for tau in TAUS if any(at == tau for at, _ in fixed)
    )
    return Wrong(name, max(by_tau), len(beyond), len(fixed), min(beyond, default=None), by_tau, free)


def _floored(tau: float, size: int, rows: int, seed: int) -> Clamped:
    """The shipped floor on small samples: the mean is too high by what the rows below it gain."""
    of, key = population("gaussian"), stream_key(seed, 2, size, round(1000 * tau))
    pos = of.positives.at(uniforms(stream_key(key, 0), rows))
    draw = drawn(of, tau, pos, size, size, key)
    found = shipped(draw, floor=DPL(tau=tau).floor)
    pu, pp = (expit(pos[:, None] - scores).mean(axis=1) for scores in (draw.unlabelled, draw.extra))
    lift = (-found.loss).exp().numpy() - (pu - tau * pp) / (
        1 - tau
    )  # its mean is the bias, with little noise
    return Clamped(
        tau, size, _count(found) / rows, float(lift.mean()), float(lift.std(ddof=1) / np.sqrt(rows))
    )
