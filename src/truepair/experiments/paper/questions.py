"""Questions to the lines, one for each dataset and encoder (or machine) where both sides were run.

A question is answered with yes or no by the thresholds of `paper_cells`, and in between with neither.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from truepair.experiments.lines import Lines
from truepair.experiments.paper.cells import (
    LOSSES,
    SIMILAR,
    Difference,
    Mean,
    difference,
    study_of,
    swept,
)
from truepair.experiments.paper.clean import rankings
from truepair.experiments.paper.words import ENCODERS, METHODS, dataset_name, model_name, signed

Ask = Callable[[Lines], Iterator["Answer"]]


@dataclass(frozen=True)
class Answer:
    """One question: 1 yes, -1 no, 0 neither; and the numbers."""

    sign: int
    text: str


# --- Tables II and III ---------------------------------------------------------------------------------

BOTH = ("mf", "lightgcn")
DENSE, SPARSE = ("ml-100k", "ml-1m"), ("yelp2018", "gowalla")


def _place(dataset: str, encoder: str) -> str:
    return f"{dataset_name(dataset)} {ENCODERS[encoder]}"


def _means(lines: Lines, methods: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Mean]]]:
    """For each dataset and encoder of the paper's protocol, those of the methods that were run."""
    study = study_of(lines, "paper")
    for dataset in study.datasets:
        for encoder in BOTH:
            found = {m: mean for m in methods if (mean := study.mean(dataset, encoder, m))}
            yield dataset, encoder, found


def better(a: str, b: str, datasets: Sequence[str] = (), encoders: Sequence[str] = BOTH) -> Ask:
    """Is method a better than b? On all datasets, unless some are named."""

    def ask(lines: Lines) -> Iterator[Answer]:
        for dataset, encoder, found in _means(lines, (a, b)):
            asked = encoder in encoders and (not datasets or dataset in datasets)
            if asked and len(found) == 2:
                gap = difference(found[a], found[b])
                yield Answer(gap.sign, f"{_place(dataset, encoder)} {gap}")

    return ask


def dpl_is_best(lines: Lines) -> Iterator[Answer]:
    """Is DPL better than the best of the other losses?"""
    for dataset, encoder, found in _means(lines, LOSSES):
        others = {m: mean for m, mean in found.items() if m != "dpl"}
        if "dpl" in found and others:
            best = max(others, key=lambda m: others[m].value)
            gap = difference(found["dpl"], others[best])
            yield Answer(gap.sign, f"{_place(dataset, encoder)} {gap} to {METHODS[best]}")


def more_on_sparse(lines: Lines) -> Iterator[Answer]:
    """Is InfoNCE's relative gain over BPR larger on the sparse datasets?"""
    gains: dict[tuple[str, str], Difference] = {}
    for dataset, encoder, found in _means(lines, ("infonce", "bpr")):
        if len(found) == 2:
            gap, base = difference(found["infonce"], found["bpr"]), found["bpr"].value
            gains[dataset, encoder] = Difference(gap.value / base, gap.error and gap.error / base)
    for encoder in BOTH:
        sides = [[gains[d, encoder] for d in side if (d, encoder) in gains] for side in (SPARSE, DENSE)]
        if all(sides):
            sparse, dense = map(_average, sides)
            gap = difference(Mean(sparse.value, sparse.error, 1), Mean(dense.value, dense.error, 1))
            yield Answer(
                gap.sign, f"{ENCODERS[encoder]}: sparse {sparse.value:+.1%}, dense {dense.value:+.1%}"
            )


def _average(gaps: Sequence[Difference]) -> Difference:
    errors = [gap.error for gap in gaps]
    known = [error for error in errors if error is not None]
    error = math.hypot(*known) / len(gaps) if len(known) == len(gaps) else None
    return Difference(statistics.fmean(gap.value for gap in gaps), error)


def debiased(lines: Lines) -> Iterator[Answer]:
    """Each of DCL, HCL, DPL against each of BPR, InfoNCE; the text stands with the first of a place."""
    for dataset, encoder, found in _means(lines, LOSSES):
        pairs = [
            (a, b) for a in ("dcl", "hcl", "dpl") for b in ("bpr", "infonce") if a in found and b in found
        ]
        signs = [difference(found[a], found[b]).sign for a, b in pairs]
        won = f"{_place(dataset, encoder)} {sum(sign > 0 for sign in signs)} of {len(signs)} pairs"
        yield from (Answer(sign, "" if at else won) for at, sign in enumerate(signs))


def similar_to_bns(lines: Lines) -> Iterator[Answer]:
    """Is DPL near BNS on MovieLens-1M?"""
    for dataset, encoder, found in _means(lines, ("dpl", "bns")):
        if len(found) == 2 and (dataset, encoder) == ("ml-1m", "mf"):
            gap = difference(found["dpl"], found["bns"])
            near = abs(gap.value) < SIMILAR * max(mean.value for mean in found.values())
            yield Answer(1 if near or gap.sign == 0 else -1, f"{_place(dataset, encoder)} {gap}")


def lightgcn_at_least(lines: Lines) -> Iterator[Answer]:
    """Is DPL better with LightGCN than with MF?"""
    study = study_of(lines, "paper")
    for dataset in study.datasets:
        graph, plain = study.mean(dataset, "lightgcn", "dpl"), study.mean(dataset, "mf", "dpl")
        if graph and plain:
            gap = difference(graph, plain)
            yield Answer(gap.sign, f"{dataset_name(dataset)} {gap}")


# --- M, N, τ and time ----------------------------------------------------------------------------------

P5 = "precision@5"  # the metric of the paper's figure


def rises(parameter: str, encoders: Sequence[str], falls: bool = False) -> Ask:
    """Is the largest value of a sweep better than the smallest (or worse)?"""

    def ask(lines: Lines) -> Iterator[Answer]:
        for encoder in encoders:
            points = swept(study_of(lines, "sweep"), parameter, encoder, P5)
            if len(points) > 1:
                (low, first), (high, last) = points[0], points[-1]
                gap = difference(last, first)
                text = f"{ENCODERS[encoder]}, {parameter} = {low:g} to {high:g}: {gap}"
                yield Answer(-gap.sign if falls else gap.sign, text)

    return ask


def first_step(lines: Lines) -> Iterator[Answer]:
    """Is M = 0 to 1 a sure step up, and the largest of the sweep?"""
    for encoder in BOTH:
        points = swept(study_of(lines, "sweep"), "M", encoder, P5)
        if [x for x, _ in points[:2]] == [0, 1]:
            steps = [difference(b[1], a[1]) for a, b in itertools.pairwise(points)]
            largest = steps[0].value >= max(step.value for step in steps)
            sign = steps[0].sign if largest or steps[0].sign < 1 else -1
            rest = max((step.value for step in steps[1:]), default=0.0)
            yield Answer(sign, f"{ENCODERS[encoder]}: {steps[0]}, largest later step {signed(rest)}")


def inverted_u(lines: Lines) -> Iterator[Answer]:
    """Both ends of the sweep are surely below its best, which lies inside."""
    for encoder in BOTH:
        points = swept(study_of(lines, "sweep"), "tau", encoder, P5)
        if len(points) > 2:
            best = max(points, key=lambda point: point[1].value)
            ends = [difference(best[1], points[at][1]) for at in (0, -1)]
            inside = best not in (points[0], points[-1])
            text = f"{ENCODERS[encoder]}: best at τ = {best[0]:g}, above the ends by {ends[0]} and {ends[1]}"
            yield Answer(min(end.sign for end in ends) if inside else -1, text)


def takes(method: str, low: float, high: float) -> Ask:
    """Does an epoch with MF take so many times BPR's?"""

    def ask(lines: Lines) -> Iterator[Answer]:
        for t in sorted(lines.timings, key=lambda t: (t.device, t.engine, t.dataset, t.batch_size)):
            if t.method == method and t.encoder == "mf":
                text = f"{dataset_name(t.dataset)} {t.ratio:.2f} ({t.engine} on {t.device})"
                yield Answer(1 if low <= t.ratio <= high else -1, text)

    return ask


# --- our own questions ---------------------------------------------------------------------------------


def clean_dpl_over_bpr(lines: Lines) -> Iterator[Answer]:
    """Tuned alike, is DPL better than BPR of the same encoder?"""
    for dataset, ranking in rankings(lines).items():
        for encoder in BOTH:
            gap = ranking.gap((encoder, "dpl"), (encoder, "bpr"))
            if gap:
                yield Answer(gap.sign, f"{_place(dataset, encoder)} {gap.text}")


def clean_dpl_best(lines: Lines) -> Iterator[Answer]:
    """Tuned alike, is DPL better than the best of the other losses of its encoder?"""
    for dataset, ranking in rankings(lines).items():
        for encoder in BOTH:
            others = [m for (e, m), _ in ranking.models if e == encoder and m in LOSSES and m != "dpl"]
            gap = ranking.gap((encoder, "dpl"), (encoder, others[0])) if others else None
            if gap:
                yield Answer(gap.sign, f"{_place(dataset, encoder)} {gap.text} to {METHODS[others[0]]}")


def beats_reference(lines: Lines) -> Iterator[Answer]:
    """Is the best model trained on samples better than the better of EASE and iALS?"""
    for dataset, ranking in rankings(lines).items():
        strong = [model for model, _ in ranking.models if model[1] in ("ease", "ials")]
        trained = ranking.best(reference=False)
        gap = ranking.gap(trained, strong[0]) if trained and strong else None
        if gap and trained:
            names = f"{model_name(*trained)} - {model_name(*strong[0])}"
            yield Answer(gap.sign, f"{dataset_name(dataset)}, {names}: {gap.text}")
