"""Figures: curves and bars as SVG in the colours of the page, light or dark.

matplotlib is imported only when a figure is drawn.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from truepair.errors import InputError
from truepair.storage.types import Json

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Placeholder colour -> its name in the page's style sheet, and its colour in files without one
_THEME = {
    "#010203": ("currentColor", "#1c2126"),
    "#040506": ("var(--line)", "#d5dae0"),
    "#0a0b01": ("var(--series-1)", "#c2571a"),
    "#0a0b02": ("var(--series-2)", "#0f6e8c"),
    "#0a0b03": ("var(--series-3)", "#5b7f2b"),
    "#0a0b04": ("var(--series-4)", "#7a4fa3"),
    "#0a0b05": ("var(--series-5)", "#7d6b52"),
    "#0a0b06": ("var(--series-6)", "#a8325e"),
    "#0a0b07": ("var(--series-7)", "#3d4f9f"),
}
INK, _LINE, *COLOURS = _THEME
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
STYLE: Any = {
    "svg.hashsalt": "truepair",  # equal figures have equal bytes
    "font.family": "DejaVu Sans",  # included in matplotlib, so that every machine draws the same
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_STYLE: Any = STYLE | {
    "svg.fonttype": "path",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": _LINE,
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}


@dataclass(frozen=True)
class Series:
    """Points, for some figures with intervals (low, high); `colour` is an index.

    `best` is the index of a point to mark, and `line` has the values of a line behind the points.
    """

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: int = 0
    best: int | None = None
    line: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """A pair of axes: series by name, and optional names of the positions 0, 1, … along x.

    A name that begins with `_` is not in the legend.
    """

    title: str
    series: Mapping[str, Series]
    xlabel: str = ""
    ylabel: str = ""
    places: Sequence[str] = ()
    log: str = ""  # "x", "y" or "xy": these axes are logarithmic


P = TypeVar("P", bound=Panel)


def check_plots() -> None:
    """Raise an error with the remedy if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("a report with figures needs matplotlib; install it: pip install 'truepair[plots]'")


def draw_bars(panel: Panel) -> str:
    """Groups of bars at the named places: one bar a series, with its interval and its value, as SVG."""
    return draw_panels([panel], 1, 3.2, _draw_bars)


def draw_bands(panels: Sequence[Panel], columns: int) -> str:
    """Lines through points, each with a band from low to high, as SVG."""
    return draw_panels(panels, columns, 2.6, _draw_band)


def draw_points(panels: Sequence[Panel]) -> str:
    """Points with the best one marked, three panels in a row with a common y axis, as SVG."""
    return draw_panels(panels, 3, 2.4, _draw_points, same_y=True)


def standalone(svg: str) -> str:
    """The SVG as a separate file: fixed colours on white, readable on light and dark pages."""
    for named, colour in _THEME.values():
        svg = svg.replace(named, colour)
    head, rest = svg.split(">", 1)
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>\n {white}{rest}'


def draw_panels(
    panels: Sequence[P], columns: int, height: float, draw: Callable[[Axes, P], None], same_y: bool = False
) -> str:
    """The panels in rows as SVG, with a common legend; `height` is that of a row, in inches."""
    check_plots()
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    rows = -(-len(panels) // columns)
    legend = any(not name.startswith("_") for panel in panels for name in panel.series)
    with matplotlib.rc_context(_STYLE):
        drawing, first = Drawing(figsize=(9, height * rows + 0.4 * legend), layout="constrained"), None
        for at, panel in enumerate(panels, 1):
            axes = drawing.add_subplot(rows, columns, at, sharey=first)
            first = axes if same_y and first is None else first
            axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
            for axis in panel.log:
                axes.set(**{f"{axis}scale": "log"})
                axes.minorticks_off()
            draw(axes, panel)
        if legend:
            _draw_legend(drawing)
        return _svg(drawing)


def _draw_points(axes: Axes, panel: Panel) -> None:
    for series in panel.series.values():
        if series.line:
            axes.plot(series.x, series.line, color=COLOURS[1], linewidth=1.5)
        axes.plot(series.x, series.y, "o", color=COLOURS[1], markersize=3.5, alpha=0.7)
        if series.best is not None:
            axes.plot(series.x[series.best], series.y[series.best], "o", color=COLOURS[0], markersize=7)
    axes.margins(x=0.08)


def _draw_band(axes: Axes, panel: Panel) -> None:
    for name, series in panel.series.items():
        colour = COLOURS[series.colour]
        axes.plot(series.x, series.y, MARKERS[series.colour] + "-", color=colour, markersize=4, label=name)
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.2, linewidth=0)
    whole = all(float(x).is_integer() for series in panel.series.values() for x in series.x)
    axes.locator_params(axis="x", integer=whole)


def reach(series: Series, middle: Sequence[float]) -> list[list[float]]:
    """How far the interval reaches below and above the middle."""
    below = [max(m - low, 0.0) for m, low in zip(middle, series.low, strict=True)]
    return [below, [max(high - m, 0.0) for m, high in zip(middle, series.high, strict=True)]]


def _draw_bars(axes: Axes, panel: Panel) -> None:
    width = 0.8 / len(panel.series)
    for n, (name, series) in enumerate(panel.series.items()):
        places = [x + (n - (len(panel.series) - 1) / 2) * width for x in series.x]
        look: Json = {"color": COLOURS[series.colour], "label": name}
        error = {"ecolor": INK, "capsize": 3, "elinewidth": 1.2}
        axes.bar(places, series.y, width * 0.92, yerr=reach(series, series.y), error_kw=error, **look)
        for place, y, high in zip(places, series.y, series.high, strict=True):
            axes.annotate(
                f"{y:.3f}", (place, high), (0, 3), textcoords="offset points", ha="center", fontsize=8
            )
    axes.set_xticks(range(len(panel.places)), list(panel.places))
    axes.margins(y=0.12)


def _draw_legend(drawing: Drawing) -> None:
    found: dict[str, Artist] = {}
    for axes in drawing.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    drawing.legend(list(found.values()), list(found), loc="outside upper right", ncols=min(len(found), 6))


def _svg(drawing: Drawing) -> str:
    """The drawing as an SVG element for a page, in the page's colours."""
    sink = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawing.savefig(sink, format="svg", transparent=True, metadata=nothing)
    svg = re.sub(r"<metadata>.*?</metadata>", "", sink.getvalue(), flags=re.DOTALL)
    for placeholder, (named, _) in _THEME.items():
        svg = svg.replace(placeholder, named)
    return svg[svg.index("<svg") :]
