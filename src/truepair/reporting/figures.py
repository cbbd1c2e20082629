"""Figures: curves and bars as SVG in the colours of the page, light or dark.

matplotlib is imported only when a figure is drawn.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from truepair.errors import InputError
from truepair.storage.types import Json

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Placeholder colours, which are replaced by the names in the page's style sheet.
_INK, _LINE = "#010203", "#040506"
_SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04", "#0a0b05")
_NAMED = {_INK: "currentColor", _LINE: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, 1)
}
_PER_ROW = 3  # panels in a row
# The colours of the light page, for SVG files without a style sheet.
_ON_WHITE = {
    "currentColor": "#1c2126",
    "var(--line)": "#d5dae0",
    "var(--series-1)": "#c2571a",
    "var(--series-2)": "#0f6e8c",
    "var(--series-3)": "#5b7f2b",
    "var(--series-4)": "#7a4fa3",
    "var(--series-5)": "#7d6b52",
}
_MARKERS = ("o", "s", "^", "D", "v")
_DASHES = ("-", "--", ":", "-.")
_STYLE: Any = {
    "svg.hashsalt": "truepair",  # equal figures have equal bytes
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # included in matplotlib, so that every machine draws the same
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _LINE,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.7,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Points:
    """Points (x, y), with one of them marked and `line` behind them. Strings as x are categories."""

    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    best: int | None = None
    line: Sequence[float] | None = None
    log: bool = False


@dataclass(frozen=True)
class Series:
    """Points, for some figures with intervals (low, high); `colour` is an index.

    `hollow` marks results of others, `joined` is whether a line connects the points, `best` is the index of a
    point to mark.
    """

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    hollow: bool = False
    joined: bool = True
    best: int | None = None


@dataclass(frozen=True)
class Panel:
    """A pair of axes: series by name, optional names of the positions 0, 1, …, and reference lines."""

    title: str
    series: Mapping[str, Series]
    xlabel: str = ""
    ylabel: str = ""
    places: Sequence[str] = ()
    marks: Mapping[str, float] = field(default_factory=dict)
    spans: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)  # low, high, colour
    log: str = ""  # "x", "y" or "xy": these axes are logarithmic
    steps: int | None = None  # the most intervals between ticks along x; for dots


def check_plots() -> None:
    """Raise an error with the remedy if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("a report with figures needs matplotlib; install it: pip install 'truepair[plots]'")


def draw_curves(panels: Sequence[Panel]) -> str:
    """Lines along whole numbers, panels side by side, as SVG."""
    return _panels(panels, len(panels), 3.0, _draw_curves)


def draw_bars(panel: Panel) -> str:
    """Groups of bars at the named places: one bar a series, with its interval and its value, as SVG."""
    return _panels([panel], 1, 3.2, _draw_bars)


def draw_points(panels: Mapping[str, Points], ylabel: str) -> str:
    """Panels, one per title, three in a row, with a common y axis, as SVG."""
    with _style_context():
        rows = -(-len(panels) // _PER_ROW)
        drawing, first = _drawing(2.4 * rows), None
        for at, (title, points) in enumerate(panels.items()):
            axes = drawing.add_subplot(rows, _PER_ROW, at + 1, sharey=first)
            first = first or axes
            axes.set(title=title, ylabel=ylabel if at % _PER_ROW == 0 else "")
            _draw_points(axes, points)
        return _svg(drawing)


def _draw_points(axes: Axes, points: Points) -> None:
    if points.log:
        axes.set_xscale("log")
        axes.minorticks_off()
    if points.line is not None:
        axes.plot(points.x, points.line, color=_SERIES[1], linewidth=1.5)
    axes.plot(points.x, points.y, "o", color=_SERIES[1], markersize=3.5, alpha=0.7)
    if points.best is not None:
        axes.plot(points.x[points.best], points.y[points.best], "o", color=_SERIES[0], markersize=7)
    axes.margins(x=0.08)


def draw_bands(panels: Sequence[Panel], columns: int) -> str:
    """Lines through points, each with a band from low to high, as SVG."""
    return _panels(panels, columns, 2.6, _draw_band)


def draw_lines(panels: Sequence[Panel], columns: int) -> str:
    """Points, joined or not, on linear or logarithmic axes; hollow series are dashed, `marks` horizontal."""
    return _panels(panels, columns, 3.0, _draw_lines)


def draw_dots(panels: Sequence[Panel], columns: int, height: float) -> str:
    """Values along x, names along y, thin lines from low to high; `marks` are vertical lines. As SVG."""
    return _panels(panels, columns, height, _draw_dots)


def draw_columns(panels: Sequence[Panel], columns: int) -> str:
    """Bars at named positions with their values above; `spans` are reference bands. As SVG."""
    return _panels(panels, columns, 3.2, _draw_columns)


def standalone(svg: str) -> str:
    """The SVG as a separate file: fixed colours on white, readable on light and dark pages."""
    for named, colour in _ON_WHITE.items():
        svg = svg.replace(named, colour)
    head, rest = svg.split(">", 1)
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>\n {white}{rest}'


def _panels(panels: Sequence[Panel], columns: int, height: float, draw: Callable[[Axes, Panel], None]) -> str:
    """The panels in rows, with a common legend."""
    rows = -(-len(panels) // columns)
    with _style_context():
        drawing = _drawing(height * rows + 0.4)
        for at, panel in enumerate(panels, 1):
            axes = drawing.add_subplot(rows, columns, at)
            axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
            draw(axes, panel)
        _draw_legend(drawing)
        return _svg(drawing)


def _draw_band(axes: Axes, panel: Panel) -> None:
    for name, series in panel.series.items():
        colour = _SERIES[series.colour]
        axes.plot(series.x, series.y, _MARKERS[series.colour] + "-", color=colour, markersize=4, label=name)
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.2, linewidth=0)
    whole = all(float(x).is_integer() for series in panel.series.values() for x in series.x)
    axes.locator_params(axis="x", integer=whole)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    _set_scales(axes, panel.log)
    for name, (low, high, colour) in panel.spans.items():
        axes.axhspan(low, high, color=_SERIES[colour], alpha=0.12, linewidth=0, label=name)
    for name, series in panel.series.items():
        look: Json = {"color": _SERIES[series.colour], "linewidth": 1.3, "label": name}
        if series.hollow:
            axes.plot(series.x, series.y, linestyle=(0, (4, 3)), **look)
            continue
        marker = _MARKERS[series.colour] + ("-" if series.joined else "")
        axes.plot(series.x, series.y, marker, markersize=3.5, **look)
        axes.vlines(series.x, series.low, series.high, color=_SERIES[series.colour], linewidth=1)
    for dash, (name, value) in zip(_DASHES, panel.marks.items(), strict=False):
        axes.axhline(value, color=_INK, linewidth=1, linestyle=dash, label=name)
    if panel.places:
        axes.set_xticks(range(len(panel.places)), list(panel.places))


def _set_scales(axes: Axes, log: str) -> None:
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if log:
        axes.minorticks_off()


def _draw_dots(axes: Axes, panel: Panel) -> None:
    _set_scales(axes, panel.log)
    for dash, (name, value) in zip(_DASHES, panel.marks.items(), strict=False):
        axes.axvline(value, color=_INK, linewidth=1, linestyle=dash, label=name)
    for name, series in panel.series.items():
        colour = _SERIES[series.colour]
        look: Json = {
            "color": colour,
            "markerfacecolor": "none" if series.hollow else colour,
            "markersize": 6,
        }
        marker = _MARKERS[series.colour]
        axes.errorbar(
            series.x, series.y, xerr=_reach(series, series.x), fmt=marker, elinewidth=1.2, label=name, **look
        )
    if panel.steps is not None:
        axes.locator_params(axis="x", nbins=panel.steps)
    axes.set_yticks(range(len(panel.places)), list(panel.places))
    axes.set_ylim(len(panel.places) - 0.5, -0.5)
    axes.grid(visible=True, axis="both")


def _draw_columns(axes: Axes, panel: Panel) -> None:
    for name, (low, high, colour) in panel.spans.items():
        axes.axhspan(low, high, color=_SERIES[colour], alpha=0.18, linewidth=0, label=name)
    width = 0.8 / max(len(panel.series), 1)
    for name, series in panel.series.items():
        axes.bar(series.x, series.y, width * 0.92, color=_SERIES[series.colour], label=name)
        for x, y in zip(series.x, series.y, strict=True):
            axes.annotate(f"{y:.2f}", (x, y), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    for name, value in panel.marks.items():
        axes.axhline(value, color=_INK, linewidth=1, label=name)
    axes.set_xticks(range(len(panel.places)), list(panel.places))
    axes.margins(y=0.1)


def _reach(series: Series, middle: Sequence[float]) -> list[list[float]]:
    """How far the interval reaches below and above the middle."""
    below = [max(m - low, 0.0) for m, low in zip(middle, series.low, strict=True)]
    return [below, [max(high - m, 0.0) for m, high in zip(middle, series.high, strict=True)]]


def _draw_curves(axes: Axes, panel: Panel) -> None:
    axes.margins(x=0.02)
    axes.locator_params(axis="x", integer=True)
    for name, series in panel.series.items():
        colour = _SERIES[series.colour]
        axes.plot(series.x, series.y, color=colour, linewidth=1.8, label=name)
        if series.best is not None:
            axes.plot(series.x[series.best], series.y[series.best], "o", color=colour, markersize=7)


def _draw_bars(axes: Axes, panel: Panel) -> None:
    width = 0.8 / len(panel.series)
    for n, (name, series) in enumerate(panel.series.items()):
        places = [x + (n - (len(panel.series) - 1) / 2) * width for x in series.x]
        look: Json = {"color": _SERIES[series.colour], "label": name}
        error = {"ecolor": _INK, "capsize": 3, "elinewidth": 1.2}
        axes.bar(places, series.y, width * 0.92, yerr=_reach(series, series.y), error_kw=error, **look)
        for place, y, high in zip(places, series.y, series.high, strict=True):
            axes.annotate(
                f"{y:.3f}", (place, high), (0, 3), textcoords="offset points", ha="center", fontsize=8
            )
    axes.set_xticks(range(len(panel.places)), list(panel.places))
    axes.margins(y=0.12)


def _drawing(height: float) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    return Drawing(figsize=(9, height), layout="constrained")


def _draw_legend(drawing: Drawing) -> None:
    found: dict[str, Artist] = {}
    for axes in drawing.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    drawing.legend(list(found.values()), list(found), loc="outside upper right", ncols=min(len(found), 6))


def _style_context() -> AbstractContextManager[None]:
    check_plots()
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _svg(drawing: Drawing) -> str:
    """The drawing as an SVG element for a page, in the page's colours."""
    sink = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawing.savefig(sink, format="svg", transparent=True, metadata=nothing)
    svg = re.sub(r"<metadata>.*?</metadata>", "", sink.getvalue(), flags=re.DOTALL)
    for colour, named in _NAMED.items():
        svg = svg.replace(colour, named)
    return svg[svg.index("<svg") :]
