"""A figure of an estimate of the prior: the input of each method, and its estimate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truepair.errors import InputError, StorageError
from truepair.prior import LEVEL, PriorEstimate
from truepair.prior.holdout_scores import Floats
from truepair.prior.ratios import threshold_ratios
from truepair.reporting.figures import STYLE, check_plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png")
_INK, _GREY = "#1c2126", "#8a939c"
_ORANGE, _BLUE, _GREEN = "#c2571a", "#0f6e8c", "#5b7f2b"


def check_plot(path: Path) -> None:
    """Raise an error if no figure can be written to `path`; call it before any work."""
    check_plots()
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} has no suffix of a figure; end the name in {' or '.join(SUFFIXES)}.")


def draw_prior(estimate: PriorEstimate, path: Path) -> None:
    """Draw the ratio of shares by threshold, and the fitted curve with its plateau, as SVG or PNG."""
    check_plot(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(11, 4.4), layout="constrained")
        _draw_ratios(drawing.add_subplot(1, 2, 1), estimate)
        _draw_curve(drawing.add_subplot(1, 2, 2), estimate)
        try:
            drawing.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}.") from error


def held_out_shares(estimate: PriorEstimate) -> tuple[Floats, Floats, Floats]:
    """Per bin: the score, the share of held-out positives among held-out and unlabelled pairs, and its fit.

    The fit is the mean of c·F over the groups of users, weighted by their numbers of pairs in the bin.
    """
    cells, curve = estimate.cells, estimate.curve
    held_out, unlabelled = cells.by_group  # [G, B]
    pairs = held_out + unlabelled
    score, log_count = np.broadcast_arrays(cells.score, cells.log_count[:, None])
    fitted = (pairs * curve.share * curve.positive(score, log_count)).sum(axis=0)
    used = pairs.sum(axis=0) > 0
    total = pairs.sum(axis=0)[used]
    return cells.score[used], held_out.sum(axis=0)[used] / total, fitted[used] / total


def _draw_ratios(axes: Axes, estimate: PriorEstimate) -> None:
    score, ratio, _ = threshold_ratios(estimate.cells)
    axes.plot(
        score, ratio, color=_BLUE, linewidth=1.8, label="share of unlabelled / share of held-out pairs above"
    )
    bbe, dedpul = estimate.methods["bbe"], estimate.methods["dedpul"]
    at = int(np.abs(ratio - bbe).argmin())
    axes.plot(score[at], ratio[at], "o", color=_BLUE, markersize=8, label=f"BBE: {bbe:.3g}")
    axes.axhline(dedpul, color=_GREEN, linestyle="--", label=f"DEDPUL: {dedpul:.3g}")
    axes.axhline(estimate.tau, color=_ORANGE, label=f"recommended: {estimate.tau:.3g}")
    low, label = max(estimate.low, 1e-9), f"interval, {LEVEL:.0%}"
    axes.axhspan(low, estimate.high, color=_ORANGE, alpha=0.15, linewidth=0, label=label)
    lowest = float(ratio[ratio > 0].min(initial=1.0))
    least = min(lowest, max(estimate.low, estimate.tau / 20, lowest / 100))  # values close to 0 are cut off
    axes.set(
        title="If pairs are observed at random, τ is at most the ratio",
        xlabel="threshold of the score",
        yscale="log",
    )
    axes.set_ylim(least / 1.5, 1.3)
    axes.legend(fontsize=8)


def _draw_curve(axes: Axes, estimate: PriorEstimate) -> None:
    score, observed, fitted = held_out_shares(estimate)
    height = estimate.curve.share
    axes.plot(score, observed, "o", color=_GREY, markersize=4, label="share of held-out positives, observed")
    axes.plot(score, fitted, color=_ORANGE, linewidth=1.8, label="fitted curve")
    top = 1.4 * max(float(observed.max()), min(height, 2 * float(observed.max())))  # room for the legend
    away = "" if height < top else ", out of view"
    axes.axhline(height, color=_INK, linewidth=1, linestyle="--", label=f"its plateau: {height:.3g}{away}")
    axes.set(
        title="A lower plateau means more hidden positives",
        xlabel="score, standardised per user",
    )
    axes.set_ylim(0, top)
    axes.legend(fontsize=8, loc="upper left")
