"""Figures of the truth lab, drawn from the lines alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from truepair.reporting.figures import draw_bands, standalone
from truepair_lab.reporting.drawing import Panel, Series, draw_dots
from truepair_lab.statistics import Mean
from truepair_lab.truth.report.summary import BASELINE, Setting, title
from truepair_lab.truth.report.tables import SAMPLERS
from truepair_lab.truth.treatments import PROBED, TREATMENTS

_STEPS = 4  # intervals between ticks: numbers such as −0.005 are wide
_SHOWN = ("bpr", "dpl", "dpl-hard", "bns")  # in curves, where four lines are enough
_FACTORS = {"dpl-tau-0": 0.0, "dpl-tau-half": 0.5, "dpl": 1.0, "dpl-tau-2": 2.0, "dpl-tau-5": 5.0}

Figures = dict[str, tuple[str, str]]
"""File -> (what it shows, SVG)."""


def truth_figures(settings: Sequence[Setting]) -> Figures:
    """Those for which there are lines."""
    drawn: dict[str, tuple[str, Callable[[Sequence[Setting]], str]]] = {
        "truth-quality.svg": ("NDCG@20 against true labels, less BPR's, by loss", _quality),
        "truth-draws.svg": ("share of draws that are in truth positive, along training, by sampler", _draws),
        "truth-gradient.svg": ("cosine of training and supervised gradient, along training", _gradient),
        "truth-tau.svg": (
            "NDCG@20 of DPL, less BPR's, by the given τ as a multiple of the true one",
            _tau,
        ),
    }
    found = {name: (about, draw(settings)) for name, (about, draw) in drawn.items()}
    return {name: (about, standalone(svg)) for name, (about, svg) in found.items() if svg}


def _quality(settings: Sequence[Setting]) -> str:
    names = [n for n in TREATMENTS if n != BASELINE and any(n in setting.by_name for setting in settings)]
    if not names:
        return ""
    panels = [_gains(setting, names) for setting in settings if set(names) & set(setting.by_name)]
    return draw_dots(panels, 2, 0.9 + 0.24 * len(names))


def _gains(setting: Setting, names: Sequence[str]) -> Panel:
    found = [(place, setting.gain(name)) for place, name in enumerate(names)]
    have = [(place, gain) for place, gain in found if gain is not None]
    series = Series(
        x=[gain.value for _, gain in have],
        y=[place for place, _ in have],
        low=[gain.reach[0] for _, gain in have],
        high=[gain.reach[1] for _, gain in have],
        colour=1,
    )
    goals = {
        "BPR": Mean(0.0, None, 1),
        "true negatives only": setting.gain("clean-draws"),
        "fully supervised": setting.gain("supervised"),
    }
    marks = {name: goal.value for name, goal in goals.items() if goal is not None}
    places = [title(name) for name in names]
    shown = {"NDCG@20 − BPR's, ± standard deviation": series}
    return Panel(setting.title, shown, places=places, marks=marks, steps=_STEPS)


def _draws(settings: Sequence[Setting]) -> str:
    panels = []
    for setting in settings:
        series = {
            SAMPLERS[name]: _along(setting, BASELINE, f"share {name}", colour)
            for colour, name in enumerate(PROBED)
        }
        panels.append(Panel(setting.title, series, xlabel="epoch of BPR", ylabel="share positive"))
    return draw_bands(panels, min(len(panels), 3)) if panels else ""


def _gradient(settings: Sequence[Setting]) -> str:
    panels = []
    for setting in settings:
        named = [(colour, name) for colour, name in enumerate(_SHOWN) if name in setting.by_name]
        series = {title(name): _along(setting, name, "cosine", colour) for colour, name in named}
        panels.append(Panel(setting.title, series, xlabel="epoch", ylabel="cosine"))
    return draw_bands(panels, min(len(panels), 3)) if panels else ""


def _along(setting: Setting, name: str, measure: str, colour: int) -> Series:
    """A measure at the epochs that were probed on every seed, the best one aside: it differs by seed."""
    found: dict[int, list[float]] = {}
    for line in setting.by_name.get(name, []):
        for epoch, probe in line.probes[:-1]:
            value = probe.get(measure)
            if value is not None:
                found.setdefault(epoch, []).append(value)
    epochs = sorted(found)
    means = [float(np.mean(found[epoch])) for epoch in epochs]
    reach = [float(np.std(found[epoch])) for epoch in epochs]
    low, high = ([m + side * r for m, r in zip(means, reach, strict=True)] for side in (-1, 1))
    return Series(epochs, means, low, high, colour)


def _tau(settings: Sequence[Setting]) -> str:
    panels = []
    for setting in settings:
        points = [(factor, setting.gain(name)) for name, factor in _FACTORS.items()]
        have = [(factor, mean) for factor, mean in points if mean is not None]
        series = Series(
            [factor for factor, _ in have],
            [mean.value for _, mean in have],
            [mean.reach[0] for _, mean in have],
            [mean.reach[1] for _, mean in have],
            1,
        )
        panel = Panel(setting.title, {"DPL": series}, "given τ / true τ", "NDCG@20 − BPR's")
        panels += [panel] if have else []
    return draw_bands(panels, min(len(panels), 3)) if panels else ""
