"""The page's figures: what was found, as panels, and each set of panels as an SVG file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from truepair.reporting.figures import standalone
from truepair_lab.reporting.drawing import Panel, Series, draw_dots, draw_lines
from truepair_lab.theory.lemma1 import ANCHORS, DRAWN, TAUS
from truepair_lab.theory.lemma2 import SHIPPED
from truepair_lab.theory.lemma3 import corrected, printed, simple
from truepair_lab.theory.results import Gap, Identity, Lemma1, Lemma2, Lemma3, Results

_SHOWN_TAUS = (0.01, 0.1, 0.3)
_DESIGN_TITLES = {"N": "N grows, M = ∞", "M": "M grows, N = ∞", "M = N": "both grow, M = N"}
_SHOWN_WRONG = {"no division by 1 − τ": "no division", "½ for the extra positives": "½ for the extra"}


@dataclass(frozen=True)
class Figure:
    """A figure: its file, what it shows, its caption, and how it is drawn."""

    file: str
    alt: str
    caption: str
    draw: Callable[[], str]

    def svg(self) -> str:
        """A file of its own; needs matplotlib."""
        return standalone(self.draw())


def theory_figures(results: Results) -> dict[str, Figure]:
    """The figures by their files."""
    made = [
        _z_scores(results.lemma1),
        _wrong(results.lemma1),
        _gaps(results.lemma2),
        _bounds(results.lemma3),
        _violations(results.lemma3),
        _identity(results.identity),
    ]
    return {figure.file: figure for figure in made}


def _plain(
    x: Sequence[float], y: Sequence[float], colour: int, hollow: bool = False, joined: bool = True
) -> Series:
    return Series(x, y, y, y, colour, hollow=hollow, joined=joined)


# --- Lemma 1 -------------------------------------------------------------------------------------------


def _z_scores(found: Lemma1) -> Figure:
    panels: list[Panel] = []
    for name in dict.fromkeys(mean.population for mean in found.means):
        series = {}
        for colour, anchor in enumerate((*ANCHORS, DRAWN)):
            zs = [m.z for m in found.means if (m.population, m.anchor) == (name, anchor)]
            places = [at + (colour - 1.5) * 0.15 for at in range(len(zs))]
            series[f"anchor {anchor}"] = _plain(places, zs, colour, joined=False)
        label = "(mean − truth)/se" if len(panels) % 3 == 0 else ""
        spans = {"within the bound": (-found.bound, found.bound, 4)}
        panels.append(Panel(name, series, "τ", label, [f"{tau:g}" for tau in TAUS], spans=spans))
    caption = (
        f"The mean of P̂ over {found.rows:,} rows against the truth, in standard errors, for "
        f"{len(found.means)} cells. Shaded: within the bound, ± {found.bound:.2f}."
    )
    return Figure("theory-lemma1.svg", "z-scores of every cell", caption, lambda: draw_lines(panels, 3))


def _wrong(found: Lemma1) -> Figure:
    names = ["the shipped loss", *(wrong.name for wrong in found.wrong)]
    series = {}
    for colour, tau in enumerate(_SHOWN_TAUS):
        place = TAUS.index(tau) - 1
        right = max(abs(m.z) for m in found.means if m.tau == tau and m.anchor != DRAWN)
        values = [right, *(wrong.by_tau[place] for wrong in found.wrong)]
        rows = [at + (colour - 1) * 0.2 for at in range(len(names))]
        series[f"τ = {tau:g}"] = Series(values, rows, values, values, colour)
    panel = Panel(
        "",
        series,
        "largest |z| over populations and fixed anchors",
        "",
        names,
        marks={"bound": found.bound},
        log="x",
    )
    caption = "Estimators that are wrong on purpose, under the same test. Right of the line they are caught."
    return Figure(
        "theory-wrong.svg", "largest |z| of wrong estimators", caption, lambda: draw_dots([panel], 1, 3.2)
    )


# --- Lemma 2 -------------------------------------------------------------------------------------------


def _gaps(found: Lemma2) -> Figure:
    name = found.gaps[0].population
    panels: list[Panel] = []
    for design, title in _DESIGN_TITLES.items():
        points = [g for g in found.gaps if (g.population, g.design, g.estimator) == (name, design, SHIPPED)]
        panels.append(Panel(title, _measures(points), "M or N", "" if panels else "gap", log="xy"))
    series = {}
    for colour, estimator in zip((0, 2, 3), (SHIPPED, *_SHOWN_WRONG), strict=True):
        points = [
            g for g in found.gaps if (g.population, g.design, g.estimator) == (name, "M = N", estimator)
        ]
        label = _SHOWN_WRONG.get(estimator, "mean |gap|")
        series[label] = _plain([g.size for g in points], [g.gap for g in points], colour)
    panels.append(Panel("wrong estimators, M = N", series, "M or N", "mean |gap|", log="xy"))
    caption = (
        f"Loss − supervised loss for {name} scores, τ = {found.tau:g}, {found.rows:,} rows a point. Dashed: "
        "the exponents −½ and −1, through the last point."
    )
    return Figure("theory-lemma2.svg", "the gap over M and N", caption, lambda: draw_lines(panels, 2))


def _measures(points: Sequence[Gap]) -> Mapping[str, Series]:
    sizes = [g.size for g in points]
    kept = [g for g in points if g.bias > 0]
    series = {
        "mean |gap|": _plain(sizes, [g.gap for g in points], 0),
        "mean gap": Series(
            [g.size for g in kept],
            [g.bias for g in kept],
            [max(g.bias - 2 * g.bias_se, g.bias / 10) for g in kept],
            [g.bias + 2 * g.bias_se for g in kept],
            1,
        ),
    }
    for colour, (exponent, last) in enumerate(((-0.5, points[-1].gap), (-1.0, kept[-1].bias))):
        line = [last * (size / sizes[-1]) ** exponent for size in sizes]
        series[f"_{exponent}"] = _plain(
            sizes, line, colour, hollow=True
        )  # matplotlib's legend leaves out _names
    return series


# --- Lemma 3 -------------------------------------------------------------------------------------------


def _bounds(found: Lemma3) -> Figure:
    tau = 0.1
    seen = {e.unlabelled: e.error for e in found.errors if e.tau == tau and e.extra == e.unlabelled}
    hard = {c.size: c.error for c in found.corners if (c.tau, c.floor, c.infinite) == (tau, "shipped", False)}
    sizes = sorted({*seen, *hard})
    series = {
        "cosine scores": _plain(list(seen), list(seen.values()), 1),
        "worst two-point scores": _plain(list(hard), list(hard.values()), 0),
        "printed bound": _plain(sizes, [printed(tau, n, n) for n in sizes], 3, hollow=True),
        "simple bound": _plain(sizes, [simple(tau, n, n) for n in sizes], 2, hollow=True),
    }
    panel = Panel(f"τ = {tau:g}", series, "M = N", "mean |error| of the loss", log="xy")
    return Figure(
        "theory-lemma3.svg",
        "observed errors and the bounds",
        "What is observed lies far below every bound.",
        lambda: draw_lines([panel], 1),
    )


def _violations(found: Lemma3) -> Figure:
    ratios = {}
    for colour, tau in enumerate((0.98, 0.9, 0.5, 0.1)):
        place = (tau, "shipped", True)
        worst = {c.size: c.error for c in found.corners if (c.tau, c.floor, c.infinite) == place}
        values = [error / printed(tau, None, n) for n, error in worst.items()]
        ratios[f"τ = {tau:g}"] = _plain(list(worst), values, colour)
    panel = Panel("M = ∞", ratios, "N", "worst error / printed bound", marks={"the bound": 1.0}, log="xy")
    ratio = corrected(0.98, 1, 1) / printed(0.98, 1, 1)
    caption = (
        "Scores of two values, the worst of each N. Above the line, the bound as printed is broken; the "
        f"corrected one is {ratio:.0f} times larger at τ = .98 and never is."
    )
    return Figure(
        "theory-violations.svg",
        "the worst errors against the printed bound",
        caption,
        lambda: draw_lines([panel], 1),
    )


# --- the identity --------------------------------------------------------------------------------------


def _identity(found: Identity) -> Figure:
    ends = [min(found.auc_pu), max(found.auc_pu)]
    line = [(end - found.tau / 2) / (1 - found.tau) for end in ends]
    auc = {
        "a model": _plain(found.auc_pu, found.auc_pn, 1, joined=False),
        "affine map": _plain(ends, line, 0, hollow=True),
    }
    loss = {"a model": _plain(found.loss_plain, found.loss_debiased, 1, joined=False)}
    weights = {}
    for colour, weight in enumerate(found.weights[-3:], 2):  # of five colours two are in the other panels
        kept = [(m, w) for m, w in zip(weight.means, weight.weights, strict=True) if w > 0]
        weights[f"τ = {weight.tau:g}"] = _plain([m for m, _ in kept], [w for _, w in kept], colour)
    panels = [
        Panel("AUC of random models", auc, "AUC_PU", "AUC_PN"),
        Panel("loss of the same models", loss, "loss with τ = 0", f"loss with τ = {found.tau:g}"),
        Panel("weight of an anchor", weights, "mean σ(s⁺−s)", "ratio to τ = 0", log="y"),
    ]
    caption = (
        "Left: at the level of the AUC every model lies on one line. Middle: at the level of the loss they "
        "do not. Right: what the correction does to the gradient, with the extra positives' mean at ½: an "
        "anchor that is seldom above the unlabelled gains weight, until the floor takes all of it away "
        "(no point drawn)."
    )
    return Figure(
        "theory-identity.svg", "the affine map, the loss, the weights", caption, lambda: draw_lines(panels, 3)
    )
