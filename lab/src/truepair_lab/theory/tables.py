"""The page's tables."""

from __future__ import annotations

from truepair_lab.markdown import csv_text, joined, short, table
from truepair_lab.statistics import bold
from truepair_lab.theory.lemma1 import detectable
from truepair_lab.theory.lemma2 import EXPECTED, SHIPPED
from truepair_lab.theory.lemma3 import corrected, place_of, printed
from truepair_lab.theory.results import Exponent, Lemma1, Lemma2, Lemma3, Results

_MEASURES = {"gap": "mean absolute gap", "sd": "standard deviation", "bias": "mean gap"}
LEMMA_1, LEMMA_3 = "theory-lemma1.csv", "theory-lemma3.csv"  # every cell


def means_table(found: Lemma1) -> str:
    """A row for each population: over anchors and τ, the largest |z|."""
    rows = []
    for name in dict.fromkeys(m.population for m in found.means):
        cells = [m for m in found.means if m.population == name]
        worst, se = max(abs(m.z) for m in cells), max(m.se for m in cells)
        truths = [short(end(m.truth for m in cells)) for end in (min, max)]
        least = short(detectable(se, len(found.means)))
        rows.append([name, len(cells), " to ".join(truths), f"{worst:.2f}", least])
    text = (
        f"{found.rows:,} rows a cell with M = {found.extra}, N = {found.unlabelled}; every cell is in "
        f"{_link(LEMMA_1)}."
    )
    head = ["scores", "cells", "truth", "largest abs. z", "bias it would show"]
    return joined(table(head, rows), text)


def wrong_table(found: Lemma1) -> str:
    """What the test says of each wrong estimator."""
    rows = []
    for wrong in found.wrong:
        least = "never" if wrong.least_tau is None else f"{wrong.least_tau:g}"
        caught = "yes" if wrong.worst > found.bound else "**no**"
        share = f"{wrong.beyond} of {wrong.cells}"
        rows.append([wrong.name, caught, least, share, f"{wrong.worst:.0f}", f"{wrong.drawn:.1f}"])
    head = [
        "estimator",
        "caught",
        "from τ =",
        "cells beyond",
        "largest abs. z, fixed anchor",
        "drawn anchors",
    ]
    return (
        table(head, rows)
        + f"\n\nThe bound is {found.bound:.2f}; cells with τ = 0 are left out, where all are right."
    )


def clamp_table(found: Lemma1) -> str:
    """The floor on small samples."""
    rows = [
        [f"{c.tau:g}", c.size, f"{c.share:.2%}", f"{max(c.bias, 0.0):.5f} ± {2 * c.se:.5f}"]
        for c in found.floor
    ]
    return table(["τ", "M = N", "rows at the floor", "bias of max(P̂, .01)"], rows)


def exponent_table(found: Lemma2) -> str:
    """A row for each population and design, a column for each measure."""
    fits = {(e.population, e.design, e.measure): e for e in found.exponents if e.estimator == SHIPPED}
    rows = []
    for name, design in dict.fromkeys((population, design) for population, design, _ in fits):
        cells = [_interval(fits[name, design, measure]) for measure in EXPECTED]
        rows.append([name, design, *cells, fits[name, design, "gap"].points])
    head = [f"{_MEASURES[measure]} ({expected:g})" for measure, (expected, _) in EXPECTED.items()]
    return table(["scores", "what grows", *head, "sizes"], rows)


def _interval(fit: Exponent) -> str:
    reach = 1.96 * fit.se
    return f"{fit.value:.3f} [{fit.value - reach:.3f}, {fit.value + reach:.3f}]"


def stopped_table(found: Lemma2) -> str:
    """The wrong estimators' gaps at the largest size, and how they shrink."""
    rows = []
    for fit in found.exponents:
        if fit.measure == "gap" and (fit.population, fit.design) == (found.gaps[0].population, "M = N"):
            last = [g for g in found.gaps if (g.population, g.design, g.estimator) == _place(fit)][-1]
            name = "the shipped loss (from size 32 on)" if fit.estimator == SHIPPED else fit.estimator
            rows.append([name, f"{last.gap:.4f}", _interval(fit)])
    return table(["estimator", f"mean absolute gap at M = N = {found.gaps[-1].size:,}", "exponent"], rows)


def _place(fit: Exponent) -> tuple[str, str, str]:
    return fit.population, fit.design, fit.estimator


def limit_table(found: Lemma2) -> str:
    """The limits of the populations."""
    rows = [
        [x.population, f"{x.supervised:.6f}", f"{x.reached:.7f} ± {2 * x.reached_se:.7f}", f"{x.bpr:.6f}"]
        for x in found.limits
    ]
    size = f"{found.gaps[-1].size:,}"
    return table(["scores", "L_sup", f"mean loss at M = N = {size}", "BPR with true negatives"], rows)


def error_text(found: Lemma3) -> str:
    """The observed errors against the bounds."""
    ratios = [e.error / printed(e.tau, e.extra, e.unlabelled) for e in found.errors]
    return (
        f"Draws of smooth cosine scores, {found.rows:,} rows a cell, {len(ratios)} cells: error / printed "
        f"bound is from {min(ratios):.4f} to {max(ratios):.4f}, so the bound is {1 / max(ratios):.0f} to "
        f"{1 / min(ratios):.0f} times too large; {sum(r > 1 for r in ratios)} cells are above it. The "
        f"corrected bound is larger still, by 1/(1−τ). Every cell is in {_link(LEMMA_3)}."
    )


def corner_table(found: Lemma3) -> str:
    """The worst two-point populations against the printed bound, M = ∞."""
    shipped = [corner for corner in found.corners if corner.floor == "shipped"]
    ratios = {(c.tau, c.infinite, c.size): c.error / printed(*place_of(c)) for c in shipped}
    rest = [c.error / corrected(*place_of(c)) for c in found.corners]
    least = min((tau for (tau, _, _), ratio in ratios.items() if ratio > 1), default=1.0)
    text = (
        f"{found.printed_broken:,} of {found.tried:,} cases are above the printed bound, whichever the "
        f"floor, all with τ ≥ {least:g}; {sum(ratio > 1 for ratio in rest)} are above the corrected one, the "
        f"largest error being {max(rest):.3f} of it. {_link(LEMMA_3)} has M = N and the other floor too."
    )
    sizes = sorted({n for _, _, n in ratios})
    taus = dict.fromkeys(tau for tau, _, _ in ratios)
    rows = [[f"{tau:g}", *(_ratio(ratios[tau, True, n]) for n in sizes)] for tau in taus]
    return joined(table(["τ, M = ∞", *(f"N = {n:,}" for n in sizes)], rows), text)


def _ratio(ratio: float) -> str:
    return bold(f"{ratio:.2f}", ratio > 1)


# --- what the page leaves out ----------------------------------------------------------------------------


def _link(name: str) -> str:
    return f"[tables/{name}](tables/{name})"


def csv_tables(results: Results) -> dict[str, str]:
    """File -> text: every cell of Lemmas 1 and 3."""
    first, third = results.lemma1, results.lemma3
    means = [[m.population, m.anchor, m.tau, m.truth, m.mean, m.se, m.z] for m in first.means]
    errors = [
        ["drawn", e.tau, e.extra, e.unlabelled, "shipped", e.error, *_bounds(e.tau, e.extra, e.unlabelled)]
        for e in third.errors
    ]
    corners = [
        ["two-point", c.tau, "∞" if c.infinite else c.size, c.size, c.floor, c.error, *_bounds(*place_of(c))]
        for c in third.corners
    ]
    head = ["scores", "τ", "M", "N", "floor", "error", "printed bound", "corrected bound"]
    return {
        LEMMA_1: csv_text(["scores", "anchor", "τ", "truth", "mean of P̂", "se", "z"], means),
        LEMMA_3: csv_text(head, [*errors, *corners]),
    }


def _bounds(tau: float, extra: int | None, unlabelled: int) -> tuple[float, float]:
    return printed(tau, extra, unlabelled), corrected(tau, extra, unlabelled)
