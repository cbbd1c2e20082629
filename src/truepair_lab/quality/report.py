"""The report: the contest's lines -> docs/lab/quality.md and its figure; the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import Panel, Series, check_plots, draw_dots, standalone
from truepair.reporting.page import write_text
from truepair_lab.lines import Lines, read_lines
from truepair_lab.markdown import metric_name, table
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.quality.cases import CASES, NDCG, case_title
from truepair_lab.quality.contestants import METHODS_OF, RIVALS, TRIALS, TRIALS_LARGE, title
from truepair_lab.quality.tables import Contest, aims_table, effort_table, findings, ranking_table
from truepair_lab.searching import ONE_PARAMETER
from truepair_lab.statistics import SIGNIFICANT, Mean

FIGURE = "quality.svg"
_TRAINED = [encoder for encoder in METHODS_OF if encoder != NO_ENCODER]
_SHIFTS = (-0.27, -0.09, 0.09, 0.27)  # of their dots, up and down


def rebuild_report(folder: Path, out: Path, figures: Path | None = None) -> Path:
    """Read a folder's lines and write the page; its figure goes into `figures/` beside it, unless told."""
    lines = read_lines(folder)
    if not (lines.runs or lines.trials):
        raise InputError(
            f"{folder} holds no runs and no trials; `truepair lab quality tune` and `run` write them."
        )
    figures = out.parent / "figures" if figures is None else figures
    contest = Contest(lines)
    if contest.cases:
        check_plots()
        write_text(figures / FIGURE, figure_of(contest))
    return write_text(out, report_text(lines, Path(os.path.relpath(figures, out.parent)).as_posix()))


def report_text(lines: Lines, figures: str = "figures") -> str:
    """The page as Markdown; `figures` is the way from it to the figure's folder."""
    return "\n\n".join(_sections(Contest(lines), figures)) + "\n"


def _sections(contest: Contest, figures: str) -> Iterator[str]:
    yield _INTRODUCTION
    found = findings(contest) or ["No final run has a line yet: `truepair lab quality run` adds them."]
    yield "## Findings\n\n" + "\n".join(f"- {text}" for text in found)
    yield f"## Aims\n\n{aims_table(contest)}"
    yield f"## How\n\n{_PROTOCOL}\n\n{_cases_table(contest)}"
    if contest.cases:
        yield f"## Results\n\n{_CAPTION}\n\n![{_ALT}]({figures}/{FIGURE})\n\n{_FIGURE_CAPTION}"
    for case in contest.cases:
        yield f"### {case_title(case)}\n\n{ranking_table(contest, case)}"
    yield f"## Effort\n\n{_EFFORT}\n\n{effort_table(contest)}"
    yield _REBUILD
    if contest.lines.broken:
        yield f"Lines that could not be read: {'; '.join(contest.lines.broken)}."


def _cases_table(contest: Contest) -> str:
    splits: dict[str, set[str]] = {}
    for (case, _, _), runs in contest.runs.items():
        splits.setdefault(case, set()).update(run.split for run in runs)
    rows = [
        [
            entry.title,
            f"`{name}`",
            entry.about,
            ", ".join(f"`{s}`" for s in sorted(splits.get(name, ()))) or "–",
        ]
        for name, entry in CASES.items()
    ]
    return table(["case", "name", "split and judgement", "checksum"], rows)


# --- the figure ----------------------------------------------------------------------------------------


def figure_of(contest: Contest) -> str:
    """A panel a case: the contestants with exact sampling, and lines for what people use."""
    panels = [_panel(contest, case) for case in contest.cases]
    tallest = max(len(panel.places) for panel in panels)
    return standalone(draw_dots(panels, min(2, len(panels)), 0.8 + 0.3 * tallest))


def _panel(contest: Contest, case: str) -> Panel:
    methods = list(dict.fromkeys(method for encoder in _TRAINED for method in METHODS_OF[encoder]))
    series: dict[str, Series] = {}
    for at, (encoder, shift) in enumerate(zip(_TRAINED, _SHIFTS, strict=True)):
        rows = {row: mean for row, m in enumerate(methods) if (mean := contest.mean(case, (encoder, m)))}
        series |= {title((encoder, "")): _dots(rows, shift, at)} if rows else {}
    marks = {
        title((NO_ENCODER, m)): mean.value for m in RIVALS if (mean := contest.mean(case, (NO_ENCODER, m)))
    }
    places = [title(("", method)).removeprefix("exact ") for method in methods]
    alone = sum(len(each.x) for each in series.values()) + len(marks) == 1
    steps = 3 if alone else None  # around one dot numbers are long
    return Panel(case_title(case), series, xlabel=metric_name(NDCG), places=places, marks=marks, steps=steps)


def _dots(rows: Mapping[int, Mean], shift: float, colour: int) -> Series:
    """Means with one standard deviation to each side."""
    reach = [(mean.value, mean.sd or 0.0) for mean in rows.values()]
    values, low, high = [v for v, _ in reach], [v - s for v, s in reach], [v + s for v, s in reach]
    return Series(values, [row + shift for row in rows], low, high, colour)


# --- texts ---------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# Quality: exact sampling against what people use

With exact sampling (`sampler="exact"`) nothing is drawn: a user's items are compared with the whole
catalogue. Here it meets EASE and iALS, with ItemKNN and popularity as the floor: every contestant tuned
alike, several seeds, each judged once on the test part.

Every number is computed from a line, one JSON object a run, in `results/quality`. This page is written by
`truepair lab quality report`, never by hand."""

_PROTOCOL = """\
Settings and the epoch are chosen by NDCG@20 on a validation part carved from train. Then each seed learns
from train and validation together, with the best trial's settings: the schedule of the learning rate keeps
its length, and training stops at the chosen epoch without looking at anything. Lists rank the whole
catalogue without the items of train; on KuaiRec and Coat they rank the judged pairs, whose true labels are
known.

"+ EASE" adds the scores of EASE with powers to those of a trained contestant, each with the settings that
its own search found, times a weight. "With popularity" adds γ·log(1 + users of an item) to the scores, γ
searched; in the large cases every trained contestant has that, and no weight decay.

Nothing within a contestant was chosen by a test part. But not all contestants were there from the start: the
sums, EASE with powers, popularity and dot products were thought of after others had been judged, in part
because those fell short, and tried on validation first. Dot products on KuaiRec came after the test figures
of cosines there had been seen: take that row for less than the others."""

_CAPTION = f"""\
Mean ± standard deviation over seeds on the test part; EASE, ItemKNN and popularity do not depend on a seed.
✓ is the contestant with exact sampling that validation chooses. Differences are over the same users, each
the mean of its seeds, with 95% intervals, and p by Holm's correction over all differences of a case; one is
sure where p is below {SIGNIFICANT:g}."""

_ALT = "NDCG@20 of the contestants in each case"
_FIGURE_CAPTION = """\
Dots are means with one standard deviation over seeds; upright lines are EASE and iALS."""

_EFFORT = f"""\
A search begins with {TRIALS["mf"]} trials for MF and for the reference points and {TRIALS["lightgcn"]} for
LightGCN, {TRIALS_LARGE["mf"]} and {TRIALS_LARGE["lightgcn"]} in the large cases, with {ONE_PARAMETER} where
there is one parameter and 1 where there is none. Where the best lies at an edge of a range, the range grows
and a third more are run, twice at most."""

_REBUILD = """\
## How to rebuild

```sh
truepair lab quality tune      # the searches: validation only
truepair lab quality run       # the final runs, and their comparisons
truepair lab quality report    # this page and its figure, from the lines alone
```

The same lines give the same page, byte for byte."""
