"""Figures: curves and bars as SVG whose colours are those of the page, light or dark.

Only here is matplotlib imported, and only when a figure is drawn.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truepair.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# Colours that no one would choose stand for those that the page's style sheet names.
_INK, _LINE = "#010203", "#040506"
_SERIES = ("#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04")
_NAMED = {_INK: "currentColor", _LINE: "var(--line)"} | {
    colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, 1)
}
_STYLE: Any = {
    "svg.hashsalt": "truepair",  # the same figure has the same bytes
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # matplotlib carries it, so every machine draws the same
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
class Curve:
    """A line through (x, y), with one point marked if `best` is its place."""

    x: Sequence[float]
    y: Sequence[float]
    best: int | None = None


@dataclass(frozen=True)
class Bar:
    """A value and its interval."""

    value: float
    low: float
    high: float


def check_plots() -> None:
    """An error with the remedy, if figures cannot be drawn here."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("a report with figures needs matplotlib: pip install 'truepair[plots]'")


def draw_curves(panels: Mapping[str, Mapping[str, Curve]], xlabel: str) -> str:
    """One panel a title, one line a name, side by side, as SVG."""
    with _styled():
        drawing = _drawing(3.4)
        for at, (title, curves) in enumerate(panels.items(), 1):
            axes = drawing.add_subplot(1, len(panels), at)
            axes.set(title=title, xlabel=xlabel)
            axes.margins(x=0.02)
            axes.locator_params(axis="x", integer=True)
            for colour, (name, curve) in zip(_SERIES, curves.items(), strict=False):
                _draw_curve(axes, name, curve, colour)
        _draw_legend(drawing)
        return _svg(drawing)


def draw_bars(groups: Mapping[str, Mapping[str, Bar]], ylabel: str = "") -> str:
    """One group of bars a title, one bar a name, each with its interval and its value, as SVG."""
    with _styled():
        drawing = _drawing(3.6)
        axes = drawing.add_subplot()
        names = list(next(iter(groups.values())))
        width = 0.8 / len(names)
        for n, (colour, name) in enumerate(zip(_SERIES, names, strict=False)):
            places = [g + (n - (len(names) - 1) / 2) * width for g in range(len(groups))]
            _draw_bars(axes, name, places, [bars[name] for bars in groups.values()], width, colour)
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylabel=ylabel)
        axes.margins(y=0.12)
        _draw_legend(drawing)
        return _svg(drawing)


def _draw_curve(axes: Axes, name: str, curve: Curve, colour: str) -> None:
    axes.plot(curve.x, curve.y, color=colour, linewidth=1.8, label=name)
    if curve.best is not None:
        axes.plot(curve.x[curve.best], curve.y[curve.best], "o", color=colour, markersize=7)


def _draw_bars(
    axes: Axes, name: str, places: list[float], bars: list[Bar], width: float, colour: str
) -> None:
    values = [bar.value for bar in bars]
    reach = [[b.value - b.low for b in bars], [b.high - b.value for b in bars]]
    error = {"ecolor": _INK, "capsize": 3, "elinewidth": 1.2}
    axes.bar(places, values, width * 0.92, yerr=reach, error_kw=error, color=colour, label=name)
    for place, bar in zip(places, bars, strict=True):
        at, shift = (place, bar.high), (0, 3)
        axes.annotate(f"{bar.value:.3f}", at, shift, textcoords="offset points", ha="center", fontsize=8)


def _drawing(height: float) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    return Drawing(figsize=(9, height), layout="constrained")


def _draw_legend(drawing: Drawing) -> None:
    handles, names = drawing.axes[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside upper right", ncols=len(names))


def _styled() -> AbstractContextManager[None]:
    check_plots()
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _svg(drawing: Any) -> str:
    """The drawing as an SVG element for inside a page, in the page's colours."""
    sink = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawing.savefig(sink, format="svg", transparent=True, metadata=nothing)
    svg = re.sub(r"<metadata>.*?</metadata>", "", sink.getvalue(), flags=re.DOTALL)
    for colour, named in _NAMED.items():
        svg = svg.replace(colour, named)
    return svg[svg.index("<svg") :]
