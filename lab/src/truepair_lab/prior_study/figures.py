"""Figures of the study, drawn from the lines alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from truepair.reporting.figures import standalone
from truepair_lab.prior_study.auto import SETUPS, SOURCES
from truepair_lab.prior_study.cases import DENSITY
from truepair_lab.prior_study.groups import BLOCKS, METHOD_NAMES, WORLDS, Group, estimate_of
from truepair_lab.prior_study.lines import EstimateLine, Line
from truepair_lab.prior_study.tables import auto_lines_of
from truepair_lab.reporting.drawing import Panel, Series, draw_dots, draw_lines

_DRAWN = ("recommended", "dedpul", "bbe")
_FOOT = 1e-3  # the least that is drawn: what is next to 0 has no place on a logarithmic axis
_TRUTH = 3  # the colour of what is true


def figures_of(groups: Sequence[Group], lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """File -> (what it shows, SVG), for those there are lines of."""
    worlds = [group for group in groups if group.study in WORLDS]
    blocks = [group for group in groups if group.study in BLOCKS]
    known = [group for group in groups if group.per_user("rank own") is not None]
    trained = [name for name in SETUPS if any(auto_lines_of(lines, name).values())]
    drawn: dict[str, tuple[str, bool, Callable[[], str]]] = {
        "prior-worlds.svg": (
            "estimates over the true τ in simulated worlds: medians, and the range over seeds",
            bool(worlds),
            lambda: draw_lines([_world_panel(group) for group in worlds], 3),
        ),
        "prior-blocks.svg": (
            "estimates over the share of positives that was hidden, where all labels are known",
            bool(blocks),
            lambda: draw_lines([_block_panel(group) for group in blocks], 2),
        ),
        "prior-users.svg": (
            "each user's τ: rank correlation with the truth, and error in units of the true τ",
            bool(known),
            lambda: draw_dots(_user_panels(known), 2, 3.4),
        ),
        "prior-auto.svg": (
            "test NDCG@20 of DPL by where its τ is from",
            bool(trained),
            lambda: draw_dots(
                [_auto_panel(lines, name, name == trained[0]) for name in trained], len(trained), 2.8
            ),
        ),
    }
    return {name: (about, standalone(draw())) for name, (about, able, draw) in drawn.items() if able}


def _world_panel(group: Group) -> Panel:
    levels = group.by_level()
    truth = [level.median(lambda line: line.tau) for level in levels]
    series = {METHOD_NAMES[name]: _ranged(levels, truth, name) for name in _DRAWN}
    series["the truth"] = Series(truth, truth, truth, truth, _TRUTH, hollow=True)
    return Panel(group.title, series, "true τ", "estimate", marks={"observed density": DENSITY}, log="xy")


def _ranged(levels: Sequence[Group], x: Sequence[float], name: str) -> Series:
    """Medians with the range over seeds; what is next to 0 is drawn at the foot."""

    def estimate(line: EstimateLine) -> float:
        return max(estimate_of(line, name), _FOOT)

    each = [level.over(estimate) for level in levels]
    return Series(
        x,
        [float(np.median(values)) for values in each],
        [min(values) for values in each],
        [max(values) for values in each],
        _DRAWN.index(name),
    )


def _block_panel(group: Group) -> Panel:
    levels = group.by_level()
    x = [level.lines[0].level for level in levels]
    series = {METHOD_NAMES[name]: _ranged(levels, x, name) for name in _DRAWN}
    truth = [level.median(lambda line: line.tau) for level in levels]
    series["the truth"] = Series(x, truth, truth, truth, _TRUTH, hollow=True)
    return Panel(group.title, series, "share of positives hidden", "τ", log="y")


def _user_panels(groups: Sequence[Group]) -> list[Panel]:
    places = [group.title for group in groups]
    rank = {"each user's own": "rank own", "counts": "rank density"}
    error = {"each user's own": "error own", "counts, scaled": "error scaled", "one for all": "error one"}
    colours = {"each user's own": 0, "counts": 1, "counts, scaled": 1, "one for all": 2}

    def panel(title: str, names: dict[str, str], places: Sequence[str]) -> Panel:
        series = {}
        for at, (label, name) in enumerate(names.items()):
            values = [group.per_user(name) or 0.0 for group in groups]
            rows = [row + 0.2 * (at - (len(names) - 1) / 2) for row in range(len(groups))]
            series[label] = Series(values, rows, values, values, colours[label])
        return Panel(title, series, places=places)

    return [
        panel("Rank correlation with the true priors", rank, places),
        panel("Mean absolute error / τ", error, [""] * len(places)),
    ]


def _auto_panel(lines: Sequence[Line], name: str, named: bool) -> Panel:
    """A row a source, also where it has no line: the rows of all panels are named once, on the left."""
    found = {source: own for source, own in auto_lines_of(lines, name).items() if own}
    each = [[line.ndcg for line in own] for own in found.values()]
    means = [float(np.mean(values)) for values in each]
    rows = [list(SOURCES).index(source) for source in found]
    series = Series(means, rows, [min(v) for v in each], [max(v) for v in each], 0)
    return Panel(
        SETUPS[name].title, {"mean, and range over seeds": series}, "NDCG@20",
        places=[label if named else "" for label in SOURCES.values()],
    )  # fmt: skip
