"""The report's figures: what the lines say, as panels, and each panel set as an SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from truepair.reporting.figures import draw_bands, standalone
from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name
from truepair_lab.paper.presets import DATA, ENCODERS, METHODS, NO_ENCODER, REFERENCES, TABLE_2
from truepair_lab.paper.report.clean_protocol import rankings
from truepair_lab.paper.report.names import ENCODER_NAMES, METHOD_NAMES, dataset_name, in_order
from truepair_lab.paper.report.published import published
from truepair_lab.paper.report.questions import SEVERAL, SLIGHTLY
from truepair_lab.paper.report.study_runs import NDCG, SWEPT, study_of, swept
from truepair_lab.reporting.drawing import Panel, Series, draw_columns, draw_dots
from truepair_lab.statistics import Mean

TIMED = ("dpl", "dpl-hard", "bns")
_LETTERS = {"M": "M, extra positives", "N": "N, unlabelled items", "tau": "τ, the prior"}


@dataclass(frozen=True)
class Figure:
    """A figure of the report: its file, what it shows, its caption, and its panels."""

    file: str
    alt: str
    caption: str
    panels: Sequence[Panel]
    how: str  # "bands", "dots", "columns"
    columns: int

    def svg(self) -> str:
        """A file of its own; needs matplotlib."""
        if self.how == "bands":
            return standalone(draw_bands(self.panels, self.columns))
        if self.how == "columns":
            return standalone(draw_columns(self.panels, self.columns))
        tallest = max(len(panel.places) for panel in self.panels)
        return standalone(draw_dots(self.panels, self.columns, 0.8 + 0.3 * tallest))


def report_figures(lines: Lines) -> dict[str, Figure]:
    """The figures for which there are lines."""
    figures = [_published(lines), _clean(lines), _sweep(lines), _time(lines)]
    return {figure.file: figure for figure in figures if figure.panels}


# --- M, N, τ -------------------------------------------------------------------------------------------


def _sweep(lines: Lines) -> Figure:
    study = study_of(lines, "sweep")
    panels = []
    for metric in ("precision@5", NDCG):
        for letter, label in _LETTERS.items():
            points = {e: swept(study, letter, e, metric) for e in ENCODERS}
            series = {
                ENCODER_NAMES[e]: _band(found, at) for at, (e, found) in enumerate(points.items()) if found
            }
            panels.append(
                Panel("", series, xlabel=label, ylabel=metric_name(metric) if letter == "M" else "")
            )
    caption = (
        f"{dataset_name(SWEPT)}, the authors' settings with one of M, N, τ varied; mean and standard "
        "deviation over seeds, best test epoch (optimistic). The paper claims: a larger M helps, from 0 to 1 "
        "most; a larger N helps MF and hurts LightGCN; over τ, quality rises and then falls."
    )
    alt = "P@5 and NDCG@20 over M, N and τ, for MF and LightGCN"
    return Figure("paper-sweep.svg", alt, caption, panels if study.cells else [], "bands", 3)


def _band(points: Sequence[tuple[float, Mean]], colour: int) -> Series:
    means = [mean for _, mean in points]
    return Series([x for x, _ in points], [mean.value for mean in means], *_reach(means), colour)


def _reach(means: Sequence[Mean]) -> tuple[list[float], list[float]]:
    """One standard deviation to each side, where a cell has one of its own."""
    spreads = [(mean.sd or 0.0) if mean.n > 1 else 0.0 for mean in means]
    values = [mean.value for mean in means]
    low = [v - s for v, s in zip(values, spreads, strict=True)]
    return low, [v + s for v, s in zip(values, spreads, strict=True)]


# --- this run and the paper; the clean ranking -----------------------------------------------------------


def _dots(rows: Mapping[int, Mean], shift: float, colour: int, hollow: bool = False) -> Series:
    means = list(rows.values())
    values = [mean.value for mean in means]
    return Series(values, [row + shift for row in rows], *_reach(means), colour, hollow=hollow)


def _published(lines: Lines) -> Figure:
    study = study_of(lines, "paper")
    names = (*TABLE_2, "bns", "dpl-hard")
    panels = []
    for dataset in study.datasets:
        series: dict[str, Series] = {}
        for at, (e, shift) in enumerate(zip(ENCODERS, (-0.17, 0.17), strict=True)):
            own = {row: mean for row, m in enumerate(names) if (mean := study.mean(dataset, e, m))}
            paper = {
                row: Mean(printed.trusted, None, 1)
                for row, m in enumerate(names)
                if (printed := published(dataset, e, m, NDCG)) and printed.trusted is not None
            }
            series |= {f"{ENCODER_NAMES[e]}, run here": _dots(own, shift, at)} if own else {}
            series |= (
                {f"{ENCODER_NAMES[e]}, the paper": _dots(paper, shift, at, hollow=True)} if paper else {}
            )
        places = [METHOD_NAMES[m] for m in names]
        panels.append(Panel(dataset_name(dataset), series, xlabel=metric_name(NDCG), places=places))
    caption = (
        "The authors' settings, best test epoch (optimistic on both sides); filled: run here, with "
        "one standard deviation over seeds; hollow: the paper. Doubted cells are left out."
    )
    return Figure("paper-published.svg", "NDCG@20 here and in the paper", caption, panels, "dots", 2)


def _clean(lines: Lines) -> Figure:
    panels = []
    for dataset, ranking in rankings(lines).items():
        found = dict(ranking.models)
        series: dict[str, Series] = {}
        for at, (e, shift) in enumerate(zip(ENCODERS, (-0.17, 0.17), strict=True)):
            rows = {row: found[e, m] for row, m in enumerate(METHODS) if (e, m) in found}
            series |= {ENCODER_NAMES[e]: _dots(rows, shift, at)} if rows else {}
        marks = {
            METHOD_NAMES[m]: found[NO_ENCODER, m].value
            for m in REFERENCES
            if m != "popularity" and (NO_ENCODER, m) in found
        }
        places = [METHOD_NAMES[m] for m in METHODS]
        panels.append(
            Panel(dataset_name(dataset), series, xlabel=metric_name(NDCG), places=places, marks=marks)
        )
    caption = (
        "Clean runs: equal tuning on validation, and one look at the test part. Dots are means with one "
        "standard deviation over seeds; vertical lines are reference points that draw no samples (popularity "
        "is far to the left of them, and only in the tables)."
    )
    return Figure("paper-clean.svg", "NDCG@20 of all methods in the clean runs", caption, panels, "dots", 2)


# --- time ----------------------------------------------------------------------------------------------


def _time(lines: Lines) -> Figure:
    timed = [t for t in lines.timings if t.encoder == "mf" and t.method in TIMED]
    panels = []
    for where in sorted({(t.device, t.engine, t.batch_size) for t in timed}):
        ratios = {
            (t.dataset, t.method): t.ratio for t in timed if (t.device, t.engine, t.batch_size) == where
        }
        panels.append(_time_panel(f"{where[0]}: {where[1]}, batch {where[2]:,}", ratios))
    caption = (
        "Seconds of an epoch with MF, as ratios to BPR in the same process. The bands are the paper's "
        f"claims: DPL “only slightly longer” (drawn up to {SLIGHTLY[1]:g}), BNS “3-5 times”."
    )
    return Figure("paper-time.svg", "Epoch times as ratios to BPR", caption, panels, "columns", 1)


def _time_panel(title: str, ratios: Mapping[tuple[str, str], float]) -> Panel:
    datasets = sorted({d for d, _ in ratios}, key=in_order(DATA))
    methods = [m for m in TIMED if any(of == m for _, of in ratios)]
    series = {}
    for at, method in enumerate(methods):
        shift = (at - (len(methods) - 1) / 2) * 0.8 / len(methods)
        found = {row: ratios[d, method] for row, d in enumerate(datasets) if (d, method) in ratios}
        values = list(found.values())
        places = [row + shift for row in found]
        series[METHOD_NAMES[method]] = Series(places, values, values, values, TIMED.index(method))
    spans = {
        "the paper: DPL": (*SLIGHTLY, TIMED.index("dpl")),
        "the paper: BNS": (*SEVERAL, TIMED.index("bns")),
    }
    names = [dataset_name(d) for d in datasets]
    return Panel(title, series, ylabel="ratio to BPR", places=names, marks={"BPR": 1.0}, spans=spans)
