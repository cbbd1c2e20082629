"""Questions to the lines, one for each dataset and encoder (or machine) where both sides were run.

A question is answered with its direction and its p; `signs` corrects the p-values of all answers to one
question.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from truepair_lab.lines import Lines
from truepair_lab.markdown import signed
from truepair_lab.paper.presets import ENCODERS, TABLE_2
from truepair_lab.paper.report.ablation import ablation
from truepair_lab.paper.report.clean_protocol import rankings
from truepair_lab.paper.report.names import ENCODER_NAMES, METHOD_NAMES, dataset_name, model_name
from truepair_lab.paper.report.study_runs import SWEPT, study_of, swept
from truepair_lab.statistics import (
    UNKNOWN,
    Difference,
    Mean,
    corrected,
    difference,
    relative,
    sign_of,
    weighted,
)

SIMILAR = 0.01  # "similar" is within this share of the other figure; "at least as good", not below it by more
GENERALLY = 0.8  # what "generally" holds, holds in this share of the cases
SLIGHTLY = (1.0, 1.2)  # "only slightly longer": the ratio of epoch times
SEVERAL = (3.0, 5.0)  # "3-5 times longer"

Ask = Callable[[Lines], Iterator["Answer"]]
Sided = tuple[int, float | None]  # towards, p


@dataclass(frozen=True)
class Answer:
    """One question: 1 towards yes, -1 towards no; its p (None: no spread is known); and the numbers."""

    towards: int
    p: float | None
    text: str
    datasets: tuple[str, ...]
    corrected: bool = False  # p is corrected already


def signs(answers: Sequence[Answer]) -> list[int | None]:
    """1 yes, -1 no, 0 not significant, None not known; p is corrected over the answers, if not before."""
    p_values = corrected([None if answer.corrected else answer.p for answer in answers])
    pairs = zip(answers, p_values, strict=True)
    return [sign_of(answer.towards, answer.p if answer.corrected else p) for answer, p in pairs]


def _above(gap: Difference, beyond: float = 0.0) -> Sided:
    """Is it above `beyond`? Towards what, and its p."""
    return (1 if gap.value > beyond else -1), gap.p(beyond)


def _all_of(sides: Sequence[Sided]) -> Sided:
    """Yes only where all are, with the largest p. No as soon as one is, with the smallest p of those."""
    if any(p is None for _, p in sides):
        return 0, None
    no = [p for towards, p in sides if towards < 0 and p is not None]
    return (-1, min(no)) if no else (1, max(p for _, p in sides if p is not None))


# --- Tables II and III ---------------------------------------------------------------------------------

DENSE, SPARSE = ("ml-100k", "ml-1m"), ("yelp2018", "gowalla")


def _place(dataset: str, encoder: str) -> str:
    return f"{dataset_name(dataset)} {ENCODER_NAMES[encoder]}"


def _means(lines: Lines, methods: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Mean]]]:
    """For each dataset and encoder of the paper's protocol, those of the methods that were run."""
    study = study_of(lines, "paper")
    for dataset in study.datasets:
        for encoder in ENCODERS:
            found = {m: mean for m in methods if (mean := study.mean(dataset, encoder, m))}
            yield dataset, encoder, found


def better(a: str, b: str, datasets: Sequence[str] = (), encoders: Sequence[str] = ENCODERS) -> Ask:
    """Is method a better than b? On all datasets, unless some are named."""

    def ask(lines: Lines) -> Iterator[Answer]:
        for dataset, encoder, found in _means(lines, (a, b)):
            asked = encoder in encoders and (not datasets or dataset in datasets)
            if asked and len(found) == 2:
                gap = difference(found[a], found[b])
                yield Answer(*_above(gap), f"{_place(dataset, encoder)} {gap}", (dataset,))

    return ask


def infonce_at_least(lines: Lines) -> Iterator[Answer]:
    """Is InfoNCE not below BPR by more than SIMILAR?"""
    for dataset, encoder, found in _means(lines, ("infonce", "bpr")):
        if len(found) == 2:
            gap = relative(found["infonce"], found["bpr"])
            yield Answer(*_above(gap, -SIMILAR), f"{_place(dataset, encoder)} {_share(gap)}", (dataset,))


def _share(gap: Difference) -> str:
    return f"{gap.value:+.1%}" + (f" ({UNKNOWN})" if gap.error is None else f" ± {gap.error:.1%}")


def dpl_is_best(lines: Lines) -> Iterator[Answer]:
    """Is DPL better than each of the other four? Asked where all five were run."""
    for dataset, encoder, found in _means(lines, TABLE_2):
        if len(found) == len(TABLE_2):
            gaps = {m: difference(found["dpl"], mean) for m, mean in found.items() if m != "dpl"}
            best = min(gaps, key=lambda m: gaps[m].value)
            text = f"{_place(dataset, encoder)} {gaps[best]} to {METHOD_NAMES[best]}"
            yield Answer(*_all_of([_above(gap) for gap in gaps.values()]), text, (dataset,))


def more_on_sparse(lines: Lines) -> Iterator[Answer]:
    """Is InfoNCE's relative gain over BPR larger on the sparse datasets?"""
    gains: dict[tuple[str, str], Difference] = {}
    for dataset, encoder, found in _means(lines, ("infonce", "bpr")):
        if len(found) == 2:
            gains[dataset, encoder] = relative(found["infonce"], found["bpr"])
    for encoder in ENCODERS:
        run = [[d for d in side if (d, encoder) in gains] for side in (SPARSE, DENSE)]
        if all(run):
            sparse, dense = (weighted(*((1 / len(ds), gains[d, encoder]) for d in ds)) for ds in run)
            text = f"{ENCODER_NAMES[encoder]}: sparse {_share(sparse)}, dense {_share(dense)}"
            yield Answer(*_above(weighted((1, sparse), (-1, dense))), text, (*run[0], *run[1]))


def debiased(lines: Lines) -> Iterator[Answer]:
    """Each of DCL, HCL, DPL against each of BPR, InfoNCE; the text stands with the first of a place."""
    for dataset, encoder, found in _means(lines, TABLE_2):
        pairs = [
            (a, b) for a in ("dcl", "hcl", "dpl") for b in ("bpr", "infonce") if a in found and b in found
        ]
        gaps = [difference(found[a], found[b]) for a, b in pairs]
        won = f"{_place(dataset, encoder)} above in {sum(gap.value > 0 for gap in gaps)} of {len(gaps)} pairs"
        for at, gap in enumerate(gaps):
            yield Answer(*_above(gap), "" if at else won, (dataset,))


def similar_to_bns(lines: Lines) -> Iterator[Answer]:
    """Is DPL within SIMILAR of BNS on MovieLens-1M?"""
    for dataset, encoder, found in _means(lines, ("dpl", "bns")):
        if len(found) == 2 and (dataset, encoder) == ("ml-1m", "mf"):
            gap = relative(found["dpl"], found["bns"])
            above, below = _above(gap, -SIMILAR), _above(gap, SIMILAR)
            within = _all_of([above, (-below[0], below[1])])
            yield Answer(*within, f"{_place(dataset, encoder)} {_share(gap)}", (dataset,))


def lightgcn_at_least(lines: Lines) -> Iterator[Answer]:
    """Is DPL with LightGCN not below DPL with MF by more than SIMILAR?"""
    study = study_of(lines, "paper")
    for dataset in study.datasets:
        graph, flat = study.mean(dataset, "lightgcn", "dpl"), study.mean(dataset, "mf", "dpl")
        if graph and flat:
            gap = relative(graph, flat)
            yield Answer(*_above(gap, -SIMILAR), f"{dataset_name(dataset)} {_share(gap)}", (dataset,))


def hard_needs_tau(lines: Lines) -> Iterator[Answer]:
    """With hard samples, is the raised τ better than none? By the last epoch of the ablation."""
    for (dataset, encoder), parts in ablation(lines).items():
        for variant, name in (("hard", "soft weights"), ("dns", "top N")):
            raised, none = parts.get(variant), parts.get(f"{variant}-alone")
            if raised and none and raised.last and none.last:
                gap = difference(raised.last, none.last)
                tau = "τ raised" + raised.what.partition("τ raised")[2]
                yield Answer(
                    *_above(gap), f"{_place(dataset, encoder)} {name}, {tau} - τ = 0: {gap}", (dataset,)
                )


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
                text = f"{ENCODER_NAMES[encoder]}, {parameter} = {low:g} to {high:g}: {gap}"
                yield Answer(*_above(difference(first, last) if falls else gap), text, (SWEPT,))

    return ask


def first_step(lines: Lines) -> Iterator[Answer]:
    """Is M = 0 to 1 a step up, and larger than the largest later one?"""
    for encoder in ENCODERS:
        points = swept(study_of(lines, "sweep"), "M", encoder, P5)
        if [x for x, _ in points[:2]] == [0, 1]:
            means = [mean for _, mean in points]
            steps = [difference(b, a) for a, b in itertools.pairwise(means)]
            sides, rest = [_above(steps[0])], 0.0
            if len(steps) > 1:
                at = max(range(1, len(steps)), key=lambda i: steps[i].value)
                sides, rest = [*sides, _above(_first_over(means, at))], steps[at].value
            text = f"{ENCODER_NAMES[encoder]}: {steps[0]}, largest later step {signed(rest)}"
            yield Answer(*_all_of(sides), text, (SWEPT,))


def _first_over(means: Sequence[Mean], at: int) -> Difference:
    """The first step less step `at`; where they share a point, it counts twice."""
    weights = dict.fromkeys(range(len(means)), 0)
    for place, weight in ((1, 1), (0, -1), (at + 1, -1), (at, 1)):
        weights[place] += weight
    return weighted(*((weight, means[place]) for place, weight in weights.items() if weight))


def inverted_u(lines: Lines) -> Iterator[Answer]:
    """Are both ends of the sweep below the best that lies between them?"""
    for encoder in ENCODERS:
        points = swept(study_of(lines, "sweep"), "tau", encoder, P5)
        if len(points) > 2:
            best = max(points[1:-1], key=lambda point: point[1].value)
            ends = [difference(best[1], points[at][1]) for at in (0, -1)]
            where = f"best between the ends at τ = {best[0]:g}"
            text = f"{ENCODER_NAMES[encoder]}: {where}, above them by {ends[0]} and {ends[1]}"
            yield Answer(*_all_of([_above(end) for end in ends]), text, (SWEPT,))


def takes(method: str, low: float, high: float) -> Ask:
    """Does an epoch with MF take so many times BPR's?"""

    def ask(lines: Lines) -> Iterator[Answer]:
        for t in sorted(lines.timings, key=lambda t: (t.device, t.engine, t.dataset, t.batch_size)):
            if t.method == method and t.encoder == "mf":
                text = f"{dataset_name(t.dataset)} {t.ratio:.2f} ({t.engine} on {t.device})"
                yield Answer(1 if low <= t.ratio <= high else -1, 0.0, text, (t.dataset,))

    return ask


# --- questions beside the paper ------------------------------------------------------------------------


def clean_dpl_over_bpr(lines: Lines) -> Iterator[Answer]:
    """Tuned alike, is DPL better than BPR of the same encoder?"""
    for dataset, ranking in rankings(lines).items():
        for encoder in ENCODERS:
            gap = ranking.gap((encoder, "dpl"), (encoder, "bpr"))
            if gap:
                side = 1 if gap.value > 0 else -1
                text = f"{_place(dataset, encoder)} {gap.text}"
                yield Answer(side, gap.p, text, (dataset,), gap.corrected)


def clean_dpl_best(lines: Lines) -> Iterator[Answer]:
    """Tuned alike, is DPL better than each other loss of its encoder? Asked where all five were run."""
    for dataset, ranking in rankings(lines).items():
        for encoder in ENCODERS:
            others = [m for (e, m), _ in ranking.models if e == encoder and m in TABLE_2 and m != "dpl"]
            gaps = [gap for m in others if (gap := ranking.gap((encoder, "dpl"), (encoder, m)))]
            if len(gaps) == len(TABLE_2) - 1:
                sides: list[Sided] = [(1 if gap.value > 0 else -1, gap.p) for gap in gaps]
                text = f"{_place(dataset, encoder)} {gaps[0].text} to {METHOD_NAMES[others[0]]}"
                yield Answer(*_all_of(sides), text, (dataset,), all(gap.corrected for gap in gaps))


def beats_reference(lines: Lines) -> Iterator[Answer]:
    """Is the best model trained on samples better than the better of EASE and iALS?"""
    for dataset, ranking in rankings(lines).items():
        strong = [model for model, _ in ranking.models if model[1] in ("ease", "ials")]
        trained = ranking.best(reference=False)
        gap = ranking.gap(trained, strong[0]) if trained and strong else None
        if gap and trained:
            names = f"{model_name(*trained)} - {model_name(*strong[0])}"
            side = 1 if gap.value > 0 else -1
            text = f"{dataset_name(dataset)}, {names}: {gap.text}"
            yield Answer(side, gap.p, text, (dataset,), gap.corrected)
