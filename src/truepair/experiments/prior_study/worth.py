"""What estimates are worth: each user's own τ, and τ in training, in sentences made of the lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from truepair.experiments.prior_study.auto import SETUPS, SOURCES
from truepair.experiments.prior_study.groups import Group
from truepair.experiments.prior_study.lines import AutoLine, Line
from truepair.experiments.prior_study.tables import auto_lines_of, number


def rank_words(groups: Sequence[Group]) -> str:
    """Which users have more hidden, against what their counts say."""
    known = [(group.title, group.per_user("rank own"), group.per_user("rank density")) for group in groups]
    each = [
        f"{title} {own:.2f} against {counts:.2f}"
        for title, own, counts in known
        if own is not None and counts is not None
    ]
    return (
        "**Each user's own τ**: rank correlation with the users' true priors, against that of plain counts: "
        f"{'; '.join(each)}."
        if each
        else ""
    )


def error_words(groups: Sequence[Group]) -> str:
    """How near each user's own τ is, against simpler answers."""
    known = [group for group in groups if group.per_user("error own") is not None]
    if not known:
        return ""
    wins = {
        name: sum((g.per_user("error own") or 0.0) < (g.per_user(f"error {name}") or 0.0) for g in known)
        for name in ("one", "scaled", "density")
    }
    return (
        f"**As numbers**, each user's own τ has a lower mean error than one estimated τ for all in "
        f"{wins['one']} of {len(known)} settings, than plain counts in {wins['density']}, and than counts "
        f"scaled to the estimated τ in {wins['scaled']}. Where the level is wrong, so is everybody's."
    )


def training_words(lines: Sequence[Line], name: str) -> str:
    """DPL on one dataset, by where its τ is from."""
    found = {source: own for source, own in auto_lines_of(lines, name).items() if own}
    if "tuned" not in found:
        return ""
    means = {source: float(np.mean([line.ndcg for line in own])) for source, own in found.items()}
    taus = {source: float(np.mean([line.tau for line in own])) for source, own in found.items()}
    told = ", ".join(
        f"{SOURCES[source]} {means[source]:.4f} (τ = {number(taus[source])})" for source in found
    )
    spreads = [float(np.ptp([line.ndcg for line in own])) for own in found.values()]
    return (
        f"**DPL on {SETUPS[name].title}**, test NDCG@20 by where τ is from: {told}. The means lie within "
        f"{max(means.values()) - min(means.values()):.4f} of each other, the seeds of one source within "
        f"{max(spreads):.4f}. {_grid(found['tuned'])}"
    )


def _grid(tuned: Sequence[AutoLine]) -> str:
    """How much validation had to choose from, and whether it chose an end."""
    scores = [[score for _, score in line.grid if score is not None] for line in tuned]
    apart = max((max(own) - min(own) for own in scores if own), default=0.0)
    ends = sum(line.tau in (line.grid[0][0], line.grid[-1][0]) for line in tuned if line.grid)
    return (
        f"On validation the whole grid lies within {apart:.4f}, and the best τ at an end of it for {ends} of "
        f"{len(tuned)} seeds."
    )
