"""What an estimate is worth in training: the lines of one dataset as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from truepair_lab.markdown import share, short
from truepair_lab.prior_study.auto import SETUPS, SOURCES
from truepair_lab.prior_study.lines import AutoLine, Line
from truepair_lab.prior_study.tables import auto_lines_of, grid_means, tau_text
from truepair_lab.statistics import Mean

Found = Mapping[str, Sequence[AutoLine]]


def training_words(lines: Sequence[Line], name: str) -> str:
    """DPL on one dataset by where its τ is from, and what follows for the estimate; empty without a grid."""
    found = {source: own for source, own in auto_lines_of(lines, name).items() if own}
    if "tuned" not in found:
        return ""
    told = ", ".join(
        f"{SOURCES[source]} {short(_mean(own))} (τ = {tau_text(own)})" for source, own in found.items()
    )
    sentences = [_estimate(found), _grid(found["tuned"])]
    return (
        f"**DPL on {SETUPS[name].title}**, test NDCG@20 by where τ is from: {told}. "
        f"{' '.join(filter(None, sentences))}"
    )


def difference(found: Found, a: str, b: str) -> Mean | None:
    """NDCG@20 of one source less that of another, seed by seed; None where no seed has both."""
    of = {source: {line.seed: line.ndcg for line in found.get(source, ())} for source in (a, b)}
    apart = tuple(of[a][seed] - of[b][seed] for seed in sorted(of[a].keys() & of[b].keys()))
    return Mean.of(apart)


def _estimate(found: Found) -> str:
    """The estimated τ against none and against the tuned one, and what the seeds can tell."""
    none, tuned = (difference(found, "auto", other) for other in ("none", "tuned"))
    if none is None or tuned is None:
        return ""
    return (
        f"The estimate is {_signed(none)} against no correction and {_signed(tuned)} against the tuned τ: "
        f"{_verdict(tuned)}{_apart(found)}."
    )


def _verdict(tuned: Mean) -> str:
    if not tuned.is_significant:
        return "these seeds tell no difference between the estimate and the tuned τ"
    return (
        "it does not find the τ that ranks best"
        if tuned.value < 0
        else "it ranks better than what validation chose"
    )


def _apart(found: Found) -> str:
    """How far the two numbers are from each other."""
    auto, tuned = (float(np.mean([line.tau for line in found[source]])) for source in ("auto", "tuned"))
    return f"; the tuned τ is {tuned / auto:.2g} times the estimate" if auto > 0 and tuned > 0 else ""


def _grid(tuned: Sequence[AutoLine]) -> str:
    """How much validation had to choose from, and whether it chose an end."""
    means = grid_means(tuned)
    if len(means) < 2:
        return ""
    taus, scores = list(means), list(means.values())
    rises = "rises all along the grid" if all(np.diff(scores) > 0) else "does not rise all along the grid"
    return (
        f"On validation NDCG@20 {rises} of τ, and lies between {short(min(scores))} and "
        f"{short(max(scores))}{_end(tuned, 'lowest', taus[0])}{_end(tuned, 'highest', taus[-1])}."
    )


def _end(tuned: Sequence[AutoLine], end: str, tau: float) -> str:
    """Whether the grid ends where the best is."""
    times = sum(line.tau == tau for line in tuned)
    beyond = f"; the best τ is the {end} tried, {share(tau)}, for {times} of {len(tuned)} seeds"
    return "" if not times else beyond + (", and a higher one might rank better" if end == "highest" else "")


def _signed(mean: Mean) -> str:
    return mean.text(sign=True) + (" (sure)" if mean.is_significant else " (not sure)")


def _mean(own: Sequence[AutoLine]) -> float:
    return float(np.mean([line.ndcg for line in own]))


def prior_words(lines: Sequence[Line]) -> str:
    """What the tuned τ would mean as a prior: τ·(1 − d)/d hidden for each observed pair, d the density."""
    every = {setup.title: auto_lines_of(lines, name) for name, setup in SETUPS.items()}
    told = [
        f"{_hidden(found, 'tuned'):.2g} on {title} (the estimate says {_hidden(found, 'auto'):.2g})"
        for title, found in every.items()
        if all(found[source] for source in ("density", "auto", "tuned"))
    ]
    return (
        "**What the tuned τ is**: read as a prior, it would say that for each observed pair so many "
        f"positives are hidden: {', '.join(told)}. The true number is not known there. A τ that is picked "
        "for its ranking is a setting of the loss like others, and no measurement of the share of positives."
        if told
        else ""
    )


def _hidden(found: Found, source: str) -> float:
    density = found["density"][0].tau
    return float(np.mean([line.tau for line in found[source]])) * (1 - density) / density
