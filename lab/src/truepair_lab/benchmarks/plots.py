"""Plots of what `scaling` measured: a panel an axis, a line an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truepair.errors import InputError
from truepair.reporting.figures import check_plots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
_STYLE: Any = {"svg.hashsalt": "truepair", "font.family": "DejaVu Sans"}  # equal figures have equal bytes


def check_plot(path: Path) -> None:
    """An error where no plot can be drawn into `path`, before any work is done for it."""
    check_plots()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} is no plot that can be drawn; end it in {', '.join(SUFFIXES)}.")


def draw_scaling(data: Mapping[str, Any], path: Path) -> None:
    """Milliseconds an epoch by what varies, both axes logarithmic: a line of slope 1 is proportional growth.

    `data` is what `scaling` leaves in `Outcome.data`.
    """
    check_plot(path)
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        drawing = _drawn(data)
        drawing.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)


def _drawn(data: Mapping[str, Any]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    engines = list(dict.fromkeys(engine for axis in data.values() for engine in axis["engines"]))
    drawing = Figure(figsize=(3.2 * max(len(data), 1), 3.2), layout="constrained")
    for at, axis in enumerate(data.values(), 1):
        axes = drawing.add_subplot(1, len(data), at)
        for engine, curve in axis["engines"].items():
            milliseconds = [1e3 * seconds for seconds in curve["seconds"]]
            axes.plot(curve["x"], milliseconds, "o-", color=f"C{engines.index(engine)}", label=engine)
        title = f"an epoch by {axis['label']}"
        axes.set(xscale="log", yscale="log", xlabel=axis["label"], title=title)
        axes.set_xticks(axis_values(axis), [f"{x:,}" for x in axis_values(axis)], rotation=30)
        axes.yaxis.set_major_locator(LogLocator(subs=_subs(axis)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.grid(visible=True, linewidth=0.5)
    if drawing.axes:
        drawing.axes[0].set_ylabel("ms an epoch")
        named = drawing.axes[0].get_legend_handles_labels()
        drawing.legend(*named, loc="outside lower center", ncols=len(engines), frameon=False)
    return drawing


def _subs(axis: Mapping[str, Any]) -> tuple[int, ...]:
    """The digits that have a tick: more where the values span less than a factor of four."""
    seconds = [s for curve in axis["engines"].values() for s in curve["seconds"]]
    return (1, 2, 5) if max(seconds) >= 4 * min(seconds) else tuple(range(1, 10))


def axis_values(axis: Mapping[str, Any]) -> list[int]:
    """The values of an axis, over all engines."""
    return sorted({x for curve in axis["engines"].values() for x in curve["x"]})
