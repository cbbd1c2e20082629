"""Tables of the study, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from truepair_lab.markdown import csv_text, percent, share, short, table
from truepair_lab.prior_study.auto import SETUPS, SOURCES
from truepair_lab.prior_study.groups import METHOD_NAMES, Group, agrees, estimate_of, is_wrong, warned
from truepair_lab.prior_study.lines import AutoLine, EstimateLine, Line
from truepair_lab.statistics import Mean, bold, significant

BESIDE = ("none", "tuned")  # the sources that every other is compared with

_ANSWERS = {
    "own": "each user's own",
    "scaled": "counts, scaled",
    "density": "counts",
    "one": "one for all",
    "true": "the true one for all",
}


def summary_table(groups: Sequence[Group]) -> str:
    """A row a setting, over all its levels and seeds: errors, coverage, and whether the bounds hold."""
    head = ["observed", "cases", *(f"error, {name}" for name in METHOD_NAMES.values())]
    head += [
        "estimate / τ",
        "its medians by level",
        "interval holds τ",
        "DEDPUL ≥ τ",
        "BBE ≥ τ",
        "end of curve not seen",
        "bounds agree",
    ]
    rows = []
    for group in groups:
        ratios = group.over(lambda line: line.estimate / line.tau)
        counts = [
            group.n_covered,
            *(sum(line.methods[name] >= line.tau for line in group.lines) for name in ("dedpul", "bbe")),
            sum(not line.seen for line in group.lines),
            sum(map(agrees, group.lines)),
        ]
        errors = [percent(group.error(name)) for name in METHOD_NAMES]
        ends = f"{min(ratios):.2f} to {max(ratios):.2f}"
        levels = ", ".join(f"{level.ratio('recommended'):.2f}" for level in group.by_level())
        rows.append([group.title, str(len(group.lines)), *errors, ends, levels, *map(str, counts)])
    return table(head, rows, numbers=True)


def warning_table(groups: Sequence[Group]) -> str:
    """How often the former warning fired where an estimate is wrong, and where it is not."""
    rows = [[group.title, *_warnings(group.lines)] for group in groups]
    rows.append(["all", *_warnings([line for group in groups for line in group.lines])])
    return table(["observed", "cases", "wrong", "fired if wrong", "fired if not"], rows, numbers=True)


def _warnings(lines: Sequence[EstimateLine]) -> list[str]:
    parts = [[line for line in lines if is_wrong(line) == wrong] for wrong in (True, False)]
    fired = [f"{sum(map(warned, part))} of {len(part)}" for part in parts]
    return [str(len(lines)), str(len(parts[0])), *fired]


def estimates_csv(groups: Sequence[Group]) -> str:
    """Every case: the truth and what each method says."""
    head = ["observed", "level", "seed", "true τ", *METHOD_NAMES.values(), "low", "high", "separation"]
    rows = [
        [
            *(group.title, line.level, line.seed, line.tau),
            *(estimate_of(line, name) for name in METHOD_NAMES),
            *(line.low, line.high, line.separation),
        ]
        for group in groups
        for line in group.lines
    ]
    return csv_text(head, rows)


def coat_table(group: Group) -> str:
    """Every seed, for there is one case only."""
    head = ["seed", "true τ", *METHOD_NAMES.values(), "interval", "separation"]
    rows = [
        [
            str(line.seed),
            f"{share(line.tau)} [{share(line.tau_low)}, {share(line.tau_high)}]",
            *(share(estimate_of(line, name)) for name in METHOD_NAMES),
            f"{share(line.low)} to {share(line.high)}",
            f"{line.separation:.2f}",
        ]
        for line in group.lines
    ]
    return table(head, rows, numbers=True)


def users_table(groups: Sequence[Group]) -> str:
    """Rank correlations, and errors in units of the true τ; means over seeds and levels."""
    head = ["observed", "rank, own", "rank, counts", *(f"error, {name}" for name in _ANSWERS.values())]
    names = ["rank own", "rank density", *(f"error {name}" for name in _ANSWERS)]
    rows = []
    for group in groups:
        found = [group.per_user(name) for name in names]
        if None not in found:
            rows.append([group.title, *(f"{value:.2f}" for value in found if value is not None)])
    return table(head, rows, numbers=True)


def auto_lines_of(lines: Iterable[Line], name: str) -> dict[str, list[AutoLine]]:
    """The trainings on one dataset, by source."""
    known = [line for line in lines if isinstance(line, AutoLine) and line.dataset == name]
    return {source: [line for line in known if line.source == source] for source in SOURCES}


def auto_table(lines: Sequence[Line]) -> str:
    """τ and test NDCG@20 by source; differences from no correction and from the tuned τ, seed by seed."""
    rows = []
    for name, setup in SETUPS.items():
        found = auto_lines_of(lines, name)
        if not any(found.values()):
            rows.append([setup.title, "not run", "", "", "", ""])
        for source, title in SOURCES.items():
            if found[source]:
                rows.append([setup.title, title, *_auto_cells(found, source)])
    head = ["dataset", "τ from", "τ", "NDCG@20", "less no correction", "less the tuned"]
    return table(head, rows, numbers=True)


def difference(found: Mapping[str, Sequence[AutoLine]], a: str, b: str) -> Mean | None:
    """NDCG@20 of one source less that of another, seed by seed; None where no seed has both."""
    of = {source: {line.seed: line.ndcg for line in found.get(source, ())} for source in (a, b)}
    return Mean.of(of[a][seed] - of[b][seed] for seed in sorted(of[a].keys() & of[b].keys()))


def significant_pairs(found: Mapping[str, Sequence[AutoLine]]) -> frozenset[tuple[str, str]]:
    """The (a, b) of a dataset's sources that differ significantly, in both orders."""
    pairs = [(a, b) for a in SOURCES for b in BESIDE if a != b and (a, b) != (BESIDE[1], BESIDE[0])]
    apart = significant({pair: difference(found, *pair) for pair in pairs})
    return apart | {(b, a) for a, b in apart}


def _apart(
    found: Mapping[str, Sequence[AutoLine]], pair: tuple[str, str], shown: frozenset[tuple[str, str]]
) -> str:
    mean = None if pair[0] == pair[1] else difference(found, *pair)
    return "" if mean is None else bold(mean.text(sign=True), pair in shown)


def _auto_cells(found: Mapping[str, Sequence[AutoLine]], source: str) -> list[str]:
    own = found[source]
    shown = significant_pairs(found)
    differences = [_apart(found, (source, other), shown) for other in BESIDE]
    return [tau_text(own), str(Mean.of(line.ndcg for line in own)), *differences]


def tau_text(own: Sequence[AutoLine]) -> str:
    """The τ of a source, or their range over seeds."""
    low, high = (share(end(line.tau for line in own)) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def grid_means(tuned: Sequence[AutoLine]) -> dict[float, float]:
    """Each τ of the grid and its validation NDCG@20, mean over seeds; without those that diverged for one."""
    found: dict[float, list[float | None]] = {}
    for line in tuned:
        for tau, score in line.grid:
            found.setdefault(tau or 0.0, []).append(score)
    kept = {tau: [s for s in scores if s is not None] for tau, scores in sorted(found.items())}
    return {tau: float(np.mean(own)) for tau, own in kept.items() if len(own) == len(found[tau])}


def grid_table(lines: Sequence[Line]) -> str:
    """Validation NDCG@20 by τ, a row for each dataset that was run; the highest is bold."""
    every = {name: grid_means(auto_lines_of(lines, name)["tuned"]) for name in SETUPS}
    known = {name: means for name, means in every.items() if means}
    taus = sorted({tau for means in known.values() for tau in means})
    rows = [[SETUPS[name].title, *(_scored(means, tau) for tau in taus)] for name, means in known.items()]
    return (
        table(["validation NDCG@20", *(f"τ = {share(tau)}" for tau in taus)], rows, numbers=True)
        if rows
        else ""
    )


def _scored(means: Mapping[float, float], tau: float) -> str:
    if tau not in means:
        return "–"
    return bold(short(means[tau]), means[tau] == max(means.values()))
