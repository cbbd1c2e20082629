"""The report: the contest's lines -> docs/lab/quality.md and its figure; the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from truepair.errors import InputError
from truepair.evaluation.comparison import SIGNIFICANT
from truepair.reporting.figures import Panel, Series, check_plots, draw_dots, standalone
from truepair.reporting.page import write_text
from truepair_lab.answers import Answer
from truepair_lab.lines import Lines, read_lines
from truepair_lab.markdown import joined, metric_name, table, unread
from truepair_lab.paper.presets import NO_ENCODER
from truepair_lab.quality.cases import CASES, NDCG, case_title
from truepair_lab.quality.contestants import BASELINES, METHODS_OF, TRIALS, TRIALS_LARGE, title
from truepair_lab.quality.tables import Contest, aims_table, chosen_table, effort_table, ranking_table
from truepair_lab.searching import ONE_PARAMETER
from truepair_lab.statistics import Mean

FIGURE = "quality.svg"
_TRAINED = [encoder for encoder in METHODS_OF if encoder != NO_ENCODER]
_SHIFTS = (-0.27, -0.09, 0.09, 0.27)  # of their dots, up and down


def rebuild_report(folder: Path, out: Path, figures: Path | None = None) -> Path:
    """Read a folder's lines and write the page; its figure goes into `figures/` beside it by default."""
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
    """The page as Markdown; `figures` is the path from it to the figure's folder."""
    return "\n\n".join(_sections(Contest(lines), figures)) + "\n"


def _sections(contest: Contest, figures: str) -> Iterator[str]:
    yield _QUESTION
    lines = contest.lines
    yield ANSWER.of(lines.runs, lines.trials, lines.contrasts)
    yield chosen_table(contest) or "No final run has a line yet: `truepair lab quality run` adds them."
    yield f"## Aims\n\n{aims_table(contest)}"
    yield f"## Protocol\n\n{_PROTOCOL}\n\n{_cases_table(contest)}"
    if contest.cases:
        yield f"## Results\n\n{_CAPTION}\n\n![{_ALT}]({figures}/{FIGURE})\n\n{_FIGURE_CAPTION}"
    for case in contest.cases:
        yield f"### {case_title(case)}\n\n{ranking_table(contest, case)}"
    yield f"## Effort\n\n{_EFFORT}\n\n{effort_table(contest)}"
    yield joined(_REBUILD, unread(lines.broken))


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
    """A panel a case: the trained contestants, and lines for the baselines."""
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
        title((NO_ENCODER, m)): mean.value for m in BASELINES if (mean := contest.mean(case, (NO_ENCODER, m)))
    }
    places = [title(("", method)).removeprefix("full-catalogue ") for method in methods]
    alone = sum(len(each.x) for each in series.values()) + len(marks) == 1
    steps = 3 if alone else None  # around one dot numbers are long
    return Panel(case_title(case), series, xlabel=metric_name(NDCG), places=places, marks=marks, steps=steps)


def _dots(rows: Mapping[int, Mean], shift: float, colour: int) -> Series:
    """Means with one standard deviation to each side."""
    reach = [(mean.value, mean.sd or 0.0) for mean in rows.values()]
    values, low, high = [v for v, _ in reach], [v - s for v, s in reach], [v + s for v, s in reach]
    return Series(values, [row + shift for row in rows], low, high, colour)


# --- texts ---------------------------------------------------------------------------------------------

_QUESTION = """\
# The quality contest: full-catalogue training against what people use

**Question.** With full-catalogue training (`sampler="full"`) a user's items are compared with the whole
catalogue, and nothing is drawn. Is it better than EASE and iALS when every contestant is tuned with the
same effort?

Every number is computed from a JSON line of a run in `results/quality`. `truepair lab quality report`
writes this page."""

ANSWER = Answer(
    "8d6361cf22ba",
    """\
Full-catalogue training beats both EASE and iALS significantly on MovieLens-1M, Gowalla and Yelp2018,
blended with EASE. On MovieLens-100k, KuaiRec and Coat it does not differ significantly from either. On
KuaiRec popularity alone ranks as well as the best. Of six aims two are met; the others are missed by
.0002 to .0031.""",
)

_PROTOCOL = """\
Settings and epoch are chosen by NDCG@20 on a validation part of train. Then each seed learns from train
and validation together, with the settings of the best trial: the learning rate keeps its schedule, and
training stops at the chosen epoch. Each model is evaluated on the test part once. Lists rank the whole
catalogue without the items of train; on KuaiRec and Coat they rank the judged pairs, whose true labels
are known.

“+ EASE” adds the scores of EASE with powers to those of a trained contestant, each with the settings of
its own search, times a weight. “With popularity” adds γ·log(1 + users of an item) to the scores, with γ
searched; in the large cases every trained contestant has that, and no weight decay.

Nothing within a contestant was chosen by a test part. But the blends, EASE with powers, popularity and
dot products were added after others had been judged, partly because those fell short; they were tried on
validation first. Dot products on KuaiRec came after the test figures of cosines there had been seen: give
that row less weight."""

_CAPTION = f"""\
Mean ± standard deviation over seeds on the test part; EASE, ItemKNN and popularity do not depend on a
seed. ✓ is the trained contestant that validation chooses. Differences are over the same users, each the
mean of its seeds, with 95% intervals and p by Holm's correction over all differences of a case; bold ones
are significant (p below {SIGNIFICANT:g})."""

_ALT = "NDCG@20 of the contestants in each case"
_FIGURE_CAPTION = """\
Dots are means with one standard deviation over seeds; vertical lines are EASE and iALS."""

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

The same lines give the same page."""
