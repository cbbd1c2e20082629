"""Conclusions: what the lines say, in plain words; each number is computed, and may be uncomfortable."""

from __future__ import annotations

from collections.abc import Sequence

from truepair_lab.markdown import percent, share
from truepair_lab.prior_study.auto import SETUPS
from truepair_lab.prior_study.cases import STUDIES
from truepair_lab.prior_study.groups import METHOD_NAMES, WORLDS, Group, agrees
from truepair_lab.prior_study.lines import EstimateLine, Line
from truepair_lab.prior_study.trained import prior_words, training_words
from truepair_lab.prior_study.worth import error_words, rank_words
from truepair_lab.truth import coat


def conclusions(groups: Sequence[Group], lines: Sequence[Line]) -> list[str]:
    """Those for which there are lines."""
    of = {(group.study, group.exposure): group for group in groups}
    sentences = [
        _errors(of.get(("worlds", "random")), "Where a random part of what is liked is observed"),
        _errors(of.get(("noisy", "random")), "The same, where tastes explain less"),
        _short(of.get(("worlds", "popularity"))),
        *(_block(of.get((name, exposure))) for name in ("kuairec", "jester5k") for exposure in _CHOSEN),
        _coat(of.get(("coat", "self"))),
        _real(groups),
        _unseen(groups),
        _agreement(groups),
        _bounds(groups),
        rank_words(groups),
        error_words(groups),
        *(training_words(lines, name) for name in SETUPS),
        prior_words(lines),
    ]
    return [sentence for sentence in sentences if sentence]


_CHOSEN = ("random", "popularity")


def _errors(group: Group | None, what: str) -> str:
    if group is None:
        return ""
    each = ", ".join(f"{told} {percent(group.error(name))}" for name, told in METHOD_NAMES.items())
    return (
        f"**{what}** ({group.title}), the median relative error is: {each}. The interval holds the true τ in "
        f"{_share(group)}."
    )


def _share(group: Group) -> str:
    return f"{group.held} of {len(group.lines)} cases ({group.held / len(group.lines):.0%}; it claims 90%)"


def _short(group: Group | None) -> str:
    """What popularity does to the recommended number."""
    if group is None:
        return ""
    each = ", ".join(
        f"{level.ratio('told'):.2f} at τ = {level.lines[0].level:g}" for level in group.by_level()
    )
    closest = min(METHOD_NAMES, key=group.error)
    return (
        f"**Where popular items are observed more often** ({group.title}), the estimate over the truth is "
        f"{each}. The interval holds the truth in {_share(group)}: it knows of chance, not of how the "
        f"observed part was chosen. Of the methods {METHOD_NAMES[closest]} is closest there "
        f"({percent(group.error(closest))} off), which does not make it right elsewhere."
    )


def _block(group: Group | None) -> str:
    if group is None:
        return ""
    each = ", ".join(
        f"{level.ratio('told'):.2f} with {percent(level.lines[0].level)} hidden" for level in group.by_level()
    )
    held = f"The interval holds the truth in {_share(group)}."
    return f"**{group.title}**: the estimate over the truth is {each}. {held}"


def _coat(group: Group | None) -> str:
    if group is None:
        return ""
    first, told = group.lines[0], ", ".join(share(line.told) for line in group.lines)
    bounds = ", ".join(f"{METHOD_NAMES[name]} {share(first.methods[name])}" for name in ("dedpul", "bbe"))
    warning = min(max(line.methods["bbe"], line.methods["dedpul"]) / line.told for line in group.lines)
    return (
        f"**Coat**, where people chose what to rate: the truth is {share(first.tau)}, the number that is "
        f"recommended {told} for the seeds, and {group.held} of {len(group.lines)} intervals hold the truth; "
        f"with the first seed {bounds}. A separation of "
        f"{group.median(lambda line: line.separation):.2f} warns of nothing; that the higher bound is "
        f"{warning:.0f} times the number or more does."
    )


def coat_words(group: Group) -> str:
    """Why docs/lab/truth.md has another τ for Coat."""
    first = group.lines[0]
    return coat.tau_words(coat.among_drawn(first.tau, first.observed), first.observed)


def _unseen(groups: Sequence[Group]) -> str:
    """Where the recommended number is not the curve's."""
    lines = [line for group in groups for line in group.lines]
    blind = [line for line in lines if not line.seen]
    if not blind:
        return ""
    where = sorted({STUDIES[line.study].title for line in blind})
    curve, told = ([one(line) / line.tau for line in blind] for one in (_plateau, _recommended))
    return (
        f"**Where the end of the curve was not seen**, {len(blind)} of {len(lines)} cases "
        f"({', '.join(where)}), "
        f"half of DEDPUL's number is recommended, {min(told):.2f} to {max(told):.2f} times the truth. The "
        f"plateau itself is {min(curve):.2f} to {max(curve):.2f} times the truth there: it may run up to 1 "
        "and say that nothing is hidden."
    )


def _plateau(line: EstimateLine) -> float:
    return line.methods["plateau"]


def _recommended(line: EstimateLine) -> float:
    return line.told


def _real(groups: Sequence[Group]) -> str:
    """Simulated tastes against real ones, both observed at random."""
    parts = {
        what: [g for g in groups if g.exposure == "random" and (g.study in WORLDS) == simulated]
        for what, simulated in (("simulated tastes", True), ("real ones", False))
    }
    told = [
        f"with {what} {sum(g.held for g in own)} of {sum(len(g.lines) for g in own)}"
        for what, own in parts.items()
        if own
    ]
    return (
        "**Real tastes**: observed at random, as the interval assumes, it holds the truth "
        f"{', '.join(told)}. But with real ones it is wide where the end of the curve was not seen. The "
        "worlds are of the kind that the method was made with."
        if len(told) == 2
        else ""
    )


def _agreement(groups: Sequence[Group]) -> str:
    """Whether the estimate can be told to be good without the truth."""
    lines = [line for group in groups if group.exposure == "random" for line in group.lines]
    parts = {
        agree: [line.told / line.tau for line in lines if agrees(line) == agree] for agree in (True, False)
    }
    if not all(parts.values()):
        return ""
    ranges = {agree: f"{min(own):.2f} to {max(own):.2f}" for agree, own in parts.items()}
    real = [line for group in groups if group.study not in WORLDS for line in group.lines]
    return (
        "**What to look at**: where the end of the curve was seen, both upper bounds are within twice the "
        "share, and what is observed is a "
        f"random part, the estimate is {ranges[True]} times the truth in all {len(parts[True])} cases; where "
        f"they are not, {ranges[False]} times in {len(parts[False])}. On real data they are in "
        f"{sum(map(agrees, real))} of {len(real)} cases."
    )


def _bounds(groups: Sequence[Group]) -> str:
    """Whether the upper bounds are ones."""
    parts = {
        "observed at random": [line for g in groups if g.exposure == "random" for line in g.lines],
        "otherwise": [line for g in groups if g.exposure != "random" for line in g.lines],
    }
    told = [
        f"{what}, DEDPUL lies above the truth in {_above(own, 'dedpul')} and BBE in {_above(own, 'bbe')} of "
        f"{len(own)} cases"
        for what, own in parts.items()
        if own
    ]
    return f"**The upper bounds**: {'; '.join(told)}." if told else ""


def _above(lines: Sequence[EstimateLine], method: str) -> int:
    return sum(line.methods[method] >= line.tau for line in lines)
