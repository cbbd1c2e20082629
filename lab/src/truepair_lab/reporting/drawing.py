"""Figures of the lab: those of the product, with reference lines, bands, hollow marks and horizontal dots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truepair.reporting import figures
from truepair.reporting.figures import COLOURS, INK, MARKERS, draw_panels, reach
from truepair.storage.types import Json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Series(figures.Series):
    """`hollow` marks results of others; `joined` is whether a line connects the points."""

    hollow: bool = False
    joined: bool = True


@dataclass(frozen=True)
class Panel(figures.Panel):
    """A pair of axes with reference lines and bands."""

    series: Mapping[str, Series]
    marks: Mapping[str, float] = field(default_factory=dict)
    spans: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)  # low, high, colour
    steps: int | None = None  # the most intervals between ticks along x; for dots


def draw_lines(panels: Sequence[Panel], columns: int) -> str:
    """Points, joined or not, on linear or logarithmic axes; hollow series are dashed, `marks` horizontal."""
    return draw_panels(panels, columns, 3.0, _draw_lines)


def draw_dots(panels: Sequence[Panel], columns: int, height: float) -> str:
    """Values along x, names along y, thin lines from low to high; `marks` are vertical lines. As SVG."""
    return draw_panels(panels, columns, height, _draw_dots)


def draw_columns(panels: Sequence[Panel], columns: int) -> str:
    """Bars at named positions with their values above; `spans` are reference bands. As SVG."""
    return draw_panels(panels, columns, 3.2, _draw_columns)


def _draw_lines(axes: Axes, panel: Panel) -> None:
    for name, (low, high, colour) in panel.spans.items():
        axes.axhspan(low, high, color=COLOURS[colour], alpha=0.12, linewidth=0, label=name)
    for name, series in panel.series.items():
        look: Json = {"color": COLOURS[series.colour], "linewidth": 1.3, "label": name}
        if series.hollow:
            axes.plot(series.x, series.y, linestyle=(0, (4, 3)), **look)
            continue
        marker = MARKERS[series.colour] + ("-" if series.joined else "")
        axes.plot(series.x, series.y, marker, markersize=3.5, **look)
        axes.vlines(series.x, series.low, series.high, color=COLOURS[series.colour], linewidth=1)
    for dash, (name, value) in zip(_DASHES, panel.marks.items(), strict=False):
        axes.axhline(value, color=INK, linewidth=1, linestyle=dash, label=name)
    if panel.places:
        axes.set_xticks(range(len(panel.places)), list(panel.places))


def _draw_dots(axes: Axes, panel: Panel) -> None:
    for dash, (name, value) in zip(_DASHES, panel.marks.items(), strict=False):
        axes.axvline(value, color=INK, linewidth=1, linestyle=dash, label=name)
    for name, series in panel.series.items():
        colour = COLOURS[series.colour]
        look: Json = {
            "color": colour,
            "markerfacecolor": "none" if series.hollow else colour,
            "markersize": 6,
        }
        marker = MARKERS[series.colour]
        axes.errorbar(
            series.x, series.y, xerr=reach(series, series.x), fmt=marker, elinewidth=1.2, label=name, **look
        )
    if panel.steps is not None:
        axes.locator_params(axis="x", nbins=panel.steps)
    axes.set_yticks(range(len(panel.places)), list(panel.places))
    axes.set_ylim(len(panel.places) - 0.5, -0.5)
    axes.grid(visible=True, axis="both")


def _draw_columns(axes: Axes, panel: Panel) -> None:
    for name, (low, high, colour) in panel.spans.items():
        axes.axhspan(low, high, color=COLOURS[colour], alpha=0.18, linewidth=0, label=name)
    width = 0.8 / max(len(panel.series), 1)
    for name, series in panel.series.items():
        axes.bar(series.x, series.y, width * 0.92, color=COLOURS[series.colour], label=name)
        for x, y in zip(series.x, series.y, strict=True):
            axes.annotate(f"{y:.2f}", (x, y), (0, 2), textcoords="offset points", ha="center", fontsize=8)
    for name, value in panel.marks.items():
        axes.axhline(value, color=INK, linewidth=1, label=name)
    axes.set_xticks(range(len(panel.places)), list(panel.places))
    axes.margins(y=0.1)
