"""Bars: what DPL reached here, against the paper's own best figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name, short, signed, table
from truepair_lab.paper.report.names import ENCODER_NAMES, METHOD_NAMES, NOT_RUN, dataset_name
from truepair_lab.paper.report.published import BARS, HARD_COUNTS, PUBLISHED
from truepair_lab.paper.report.study_runs import NDCG, OTHER_TEXT, Study, study_of
from truepair_lab.statistics import Mean

AUTHORS, TUNED = "paper", "paper-tuned"
SHOWN = tuple((study, method) for study in (AUTHORS, TUNED) for method in ("dpl", "dpl-hard"))


@dataclass(frozen=True)
class Reached:
    """A bar of the paper, the methods that count for it, and what was reached: (study, method)."""

    dataset: str
    encoder: str
    bar: float
    counted: tuple[str, ...]
    found: Mapping[tuple[str, str], tuple[Mean, str]]  # the mean, and the mark of other settings

    def best(self, *studies: str) -> float | None:
        """The best of the methods that count, in these studies (both, if none is named)."""
        of = [
            mean.value
            for (study, method), (mean, _) in self.found.items()
            if method in self.counted and study in (studies or (AUTHORS, TUNED))
        ]
        return max(of, default=None)

    def met(self, *studies: str) -> bool | None:
        """Whether the bar is reached; None where nothing that counts was run."""
        best = self.best(*studies)
        return None if best is None else best >= self.bar


def reached(lines: Lines) -> list[Reached]:
    """Every bar, with the authors' settings and with tuned ones."""
    studies = study_of(lines, AUTHORS), study_of(lines, TUNED)
    return [_reached(studies, d, e) for d, e in BARS]


def _reached(studies: tuple[Study, Study], dataset: str, encoder: str) -> Reached:
    counted = ("dpl", "dpl-hard") if dataset in HARD_COUNTS else ("dpl",)
    bar = PUBLISHED[dataset, encoder, "dpl"][NDCG]
    of = {study.name: study for study in studies}
    found = {
        (name, method): (mean, of[name].mark(dataset, encoder, method))
        for name, method in SHOWN
        if (mean := of[name].mean(dataset, encoder, method))
    }
    return Reached(dataset, encoder, bar, counted, found)


def bars_table(lines: Lines) -> str:
    """NDCG@20 against the paper's own DPL."""
    bars = reached(lines)
    settings = {AUTHORS: "authors' settings", TUNED: "tuned"}
    shown = [f"{METHOD_NAMES[method]}, {settings[study]}" for study, method in SHOWN]
    head = ["dataset", "encoder", "bar", *shown, "counts", "best - bar", "met"]
    others = any(mark for bar in bars for _, mark in bar.found.values())
    parts = [table(head, map(_row, bars)), _CAPTION, *([OTHER_TEXT] if others else [])]
    return "\n\n".join(parts)


_CAPTION = (
    f"{metric_name(NDCG)}; a bar is the figure of the paper's DPL. On MovieLens DPL alone counts, on Gowalla "
    "and Yelp2018 the better of DPL and DPL with hard samples. As optimistic as the bars: the test part "
    "chooses the epoch, the setting and the method."
)


def _row(r: Reached) -> list[object]:
    shown = [f"{r.found[key][0]}{r.found[key][1]}" if key in r.found else NOT_RUN for key in SHOWN]
    best, met = r.best(), {True: "yes", False: "**no**", None: NOT_RUN}[r.met()]
    gap = NOT_RUN if best is None else signed(best - r.bar)
    counts = " or ".join(METHOD_NAMES[method] for method in r.counted)
    return [dataset_name(r.dataset), ENCODER_NAMES[r.encoder], short(r.bar), *shown, counts, gap, met]
