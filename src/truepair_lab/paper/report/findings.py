"""Findings: the lines in plain words, every number computed."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator

from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name, short
from truepair_lab.paper.report.ablation import Part, ablation
from truepair_lab.paper.report.bars import AUTHORS, reached
from truepair_lab.paper.report.cells import NDCG, study_of
from truepair_lab.paper.report.claims import CLAIMS, MARKS, OURS
from truepair_lab.paper.report.clean import Ranking, rankings
from truepair_lab.paper.report.names import ENCODER_NAMES, dataset_name, model_name
from truepair_lab.paper.report.published import PUBLISHED, published
from truepair_lab.paper.report.questions import better, clean_dpl_over_bpr, signs
from truepair_lab.statistics import difference

BY_ITEMS = ("ease", "itemknn", "popularity")  # without vectors of people and items
KINDS = {
    "ml-100k": "small and dense",
    "ml-1m": "larger and dense",
    "yahoo-r3": "small, few items",
    "yelp2018": "large and sparse",
    "gowalla": "large and very sparse",
}


def findings(lines: Lines) -> list[str]:
    """What there is to remember, a sentence or two each; what was not run is not spoken of."""
    parts = (_bars, _closeness, _dpl_and_bpr, _best_clean, _references, _parts, _tally)
    return [sentence for part in parts for sentence in part(lines)]


def _bars(lines: Lines) -> Iterator[str]:
    run = [bar for bar in reached(lines) if bar.met() is not None]
    if run:
        alone, met = sum(bool(bar.met(AUTHORS)) for bar in run), sum(bool(bar.met()) for bar in run)
        yield (
            f"Of the paper's own DPL figures that were run against, {met} of {len(run)} are reached: {alone} "
            f"with the authors' settings, {met - alone} more with tuned ones. Both sides are optimistic."
        )


def _closeness(lines: Lines) -> Iterator[str]:
    study = study_of(lines, "paper")
    gaps = []
    for row in PUBLISHED:
        ours, printed = study.mean(*row), published(*row, NDCG)
        if ours and printed and printed.trusted:
            gaps.append(ours.value / printed.trusted - 1)
    if gaps:
        middle, least, most = statistics.median(gaps), min(gaps), max(gaps)
        yield (
            f"With the authors' settings, our {metric_name(NDCG)} differs from the paper's by a median of "
            f"{middle:+.1%} over {len(gaps)} cells, from {least:+.1%} to {most:+.1%}."
        )


def _dpl_and_bpr(lines: Lines) -> Iterator[str]:
    asked = {"with the authors' settings": better("dpl", "bpr"), "tuned alike (clean)": clean_dpl_over_bpr}
    told = []
    for when, ask in asked.items():
        found = Counter(sign for sign in signs(list(ask(lines))) if sign is not None)
        if found:
            told.append(
                f"{when} it is better in {found[1]} of {found.total()} cases and worse in {found[-1]}"
            )
    if told:
        yield f"DPL against BPR of the same encoder: {'; '.join(told)}."


def _best_clean(lines: Lines) -> Iterator[str]:
    best = [
        f"{dataset_name(name)} {model_name(*ranking.models[0][0])} ({ranking.models[0][1]})"
        for name, ranking in rankings(lines).items()
        if ranking.models
    ]
    if best:
        yield f"The best {metric_name(NDCG)} of the clean runs: {', '.join(best)}."


def _references(lines: Lines) -> Iterator[str]:
    found: dict[int | None, list[str]] = defaultdict(list)
    for name, ranking in rankings(lines).items():
        trained, solved = ranking.best(reference=False), ranking.best(reference=True)
        gap = ranking.gap(trained, solved) if trained and solved else None
        if gap:
            found[gap.sign].append(dataset_name(name))
    words = {1: "beats it", -1: "is beaten", 0: "cannot be told from it", None: "was not compared with it"}
    told = "; ".join(f"{how} on {', '.join(found[sign])}" for sign, how in words.items() if sign in found)
    if told:
        yield f"The best model trained on samples against the best reference point: {told}."


def _parts(lines: Lines) -> Iterator[str]:
    words = {
        "half": "replacing the positive-positive term by ½",
        "tau=0": "leaving out the correction (τ = 0)",
        "n-alone": "BPR with as many unlabelled items",
        "hard": "hard weights with τ raised",
    }
    for (dataset, encoder), parts in ablation(lines).items():
        changes = [f"{what} {change}" for name, what in words.items() if (change := _change(parts, name))]
        if changes:
            place = f"{dataset_name(dataset)} {ENCODER_NAMES.get(encoder, encoder)}"
            yield f"{place}, {metric_name(NDCG)} of the last epoch against plain DPL: {', '.join(changes)}."


def _change(parts: dict[str, Part], name: str) -> str | None:
    part, base = parts.get(name), parts.get("dpl")
    if part is None or base is None or part.last is None or base.last is None:
        return None
    gap = difference(part.last, base.last)
    return f"{gap}" + (" (no sure difference)" if gap.sign == 0 else "")


def _tally(lines: Lines) -> Iterator[str]:
    marks = Counter(claim.judge(lines).mark for claim in CLAIMS)
    told = ", ".join(f"{marks[mark]} “{mark}”" for mark in MARKS if marks[mark])
    yield f"Of the paper's {len(CLAIMS)} claims as we list them: {told}."
    for claim in OURS:
        verdict = claim.judge(lines)
        if verdict.mark != "not tested":
            reach = f", {verdict.reach}" if verdict.reach else ""
            yield f"{claim.text}: {verdict.mark} (cases: {verdict.numbers.partition(':')[0]}{reach})."


# --- what to use when ----------------------------------------------------------------------------------


def advice(lines: Lines) -> list[str]:
    """For each dataset of the clean runs: what was best, and what is as good."""
    return [_advised(ranking) for ranking in rankings(lines).values() if ranking.models]


def _advised(ranking: Ranking) -> str:
    (best, mean), *others = ranking.models
    like = f"Data like {dataset_name(ranking.dataset)}"
    kind = f" ({KINDS[ranking.dataset]})" if ranking.dataset in KINDS else ""
    told = f"{like}{kind}: **{model_name(*best)}**, {metric_name(NDCG)} {short(mean.value)}."
    gaps = {model_name(*m): gap for m, _ in others if (gap := ranking.gap(m, best))}
    even = [name for name, gap in gaps.items() if gap.sign == 0]
    unknown = [name for name, gap in gaps.items() if gap.sign is None]
    told += f" Not surely worse: {', '.join(even)}." if even else ""
    told += f" Lower, but not compared over users: {', '.join(unknown)}." if unknown else ""
    told += "" if even or unknown else " Nothing else that was run is as good."
    small = next((model for model, _ in others if model[1] not in BY_ITEMS), None)
    gap = ranking.gap(small, best) if small and best[1] in BY_ITEMS else None
    if small and gap:
        told += f" Where an item-by-item matrix is too large: {model_name(*small)}, {gap.text}."
    return told
