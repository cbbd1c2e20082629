"""The report: the contest's lines -> docs/quality.md and its figure; the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from truepair.errors import InputError
from truepair.evaluation.comparison import SIGNIFICANT
from truepair.reporting.figures import check_plots, standalone
from truepair.reporting.page import write_text
from truepair_lab.lines import Lines
from truepair_lab.markdown import details, joined, metric_name, table, unread
from truepair_lab.quality.cases import CASES, NDCG, case_title, n_parts
from truepair_lab.quality.contestants import (
    BLEND_SUFFIX,
    CHEBYCF_FAMILY,
    EASE_FAMILY,
    FAMILIES,
    IALS_FAMILY,
    SWEEPS,
    TRIALS,
    Model,
    title,
)
from truepair_lab.quality.part_scores import ContestLines, read_contest
from truepair_lab.quality.tables import (
    Contest,
    aims_table,
    chosen_table,
    debiasing_table,
    effort_table,
    families_table,
    ranking_table,
    trials_table,
)
from truepair_lab.reporting.answers import Answer
from truepair_lab.reporting.drawing import Panel, Series, draw_dots
from truepair_lab.searching import ONE_PARAMETER
from truepair_lab.statistics import Mean

FIGURE = "quality.svg"


def rebuild_report(folder: Path, out: Path, figures: Path | None = None) -> Path:
    """Read a folder's lines and write the page; its figure goes into `figures/` beside it by default."""
    lines = read_contest(folder)
    if not (lines.runs or lines.trials):
        raise InputError(
            f"{folder} holds no runs and no trials; `truepair-lab quality tune` and `run` write them."
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
    parts = lines.parts if isinstance(lines, ContestLines) else ()
    yield ANSWER.of(lines.runs, lines.trials, lines.contrasts, parts)
    if not contest.cases:
        yield "No final run has a line yet: `truepair-lab quality run` adds them."
    else:
        yield f"{families_table(contest)}\n\n{chosen_table(contest)}"
    yield f"## Aims\n\n{aims_table(contest)}"
    if debiasing := debiasing_table(contest):
        yield DEBIASING.of(lines.runs, lines.trials, lines.contrasts, parts) + f"\n\n{debiasing}"
    yield f"## Protocol\n\n{_PROTOCOL}\n\n{_cases_table(contest)}"
    if contest.cases:
        yield f"## Results\n\n{_CAPTION}\n\n![{_ALT}]({figures}/{FIGURE})\n\n{_FIGURE_CAPTION}"
    for case in contest.cases:
        yield f"### {case_title(case)}\n\n{ranking_table(contest, case)}"
    if contest.former:
        tables = [f"#### {case_title(case)}\n\n{ranking_table(contest, case)}" for case in contest.former]
        yield "\n\n".join(["### Former protocol", _FORMER, details("Both cases", "\n\n".join(tables))])
    yield "\n\n".join(filter(None, ["## Effort", _EFFORT, trials_table(contest), effort_table(contest)]))
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

_COLOURS = {"MF, LightGCN": 0, "blends with EASE": 1, EASE_FAMILY: 2, IALS_FAMILY: 3, CHEBYCF_FAMILY: 4}


_SHOWN = 0.85  # of the best contestant's score


def figure_of(contest: Contest) -> str:
    """A panel a case: the contestants of the families that were run, the best first."""
    panels = [_panel(contest, case) for case in contest.cases]
    tallest = max(len(panel.places) for panel in panels)
    return standalone(draw_dots(panels, min(2, len(panels)), 0.8 + 0.24 * tallest))


def _panel(contest: Contest, case: str) -> Panel:
    """A row for each contestant of a family; those that are far below the best would hide all differences."""
    compared = {model for models in FAMILIES.values() for model in models}
    ranked = [(model, mean) for model, mean in contest.models(case) if model in compared]
    best = max((mean.value for _, mean in ranked), default=0.0)
    ranked = [(model, mean) for model, mean in ranked if mean.value >= _SHOWN * best]
    series = {
        group: _dots(
            {row: mean for row, (model, mean) in enumerate(ranked) if _group(model) == group}, colour
        )
        for group, colour in _COLOURS.items()
        if any(_group(model) == group for model, _ in ranked)
    }
    places = [title(model).replace("full-catalogue ", "") for model, _ in ranked]
    steps = 3 if len(ranked) == 1 else 4  # around one dot numbers are long
    return Panel(case_title(case), series, xlabel=metric_name(NDCG), places=places, steps=steps)


def _group(model: Model) -> str:
    """The group of a contestant in the figure."""
    if model[0].endswith(BLEND_SUFFIX):
        return "blends with EASE"
    return next(
        (f for f in (EASE_FAMILY, IALS_FAMILY, CHEBYCF_FAMILY) if model in FAMILIES[f]), "MF, LightGCN"
    )


def _dots(rows: Mapping[int, Mean], colour: int) -> Series:
    """Means with one standard deviation to each side."""
    reach = [mean.reach for mean in rows.values()]
    values, low, high = [mean.value for mean in rows.values()], [a for a, _ in reach], [b for _, b in reach]
    return Series(values, list(rows), low, high, colour)


# --- texts ---------------------------------------------------------------------------------------------

_QUESTION = """\
# The quality contest: full-catalogue training against what people use

**Question.** With full-catalogue training (`sampler="full"`) a user's items are compared with the whole
catalogue, and nothing is drawn. Is it better than EASE, iALS and ChebyCF when every contestant is tuned with
the same effort?

Every number is computed from a JSON line of a run in `results/quality`. `truepair-lab quality report`
writes this page."""

ANSWER = Answer(
    "2880a94a3318",
    """\
Full-catalogue training beats EASE, with and without degree exponents, iALS and ChebyCF significantly on
MovieLens-1M, Gowalla and Yelp2018: by .0044 to .0065 over EASE with degree exponents, by .0051 to .0111
over iALS and by .0034 to .0118 over ChebyCF. On MovieLens-1M only its blends with EASE do; InfoNCE alone
is significantly below EASE with degree exponents there. On Gowalla InfoNCE alone does not differ
significantly from EASE with degree exponents.

On MovieLens-100k, KuaiRec and Coat it does not differ significantly from EASE or iALS; on MovieLens-100k it
beats ChebyCF by .0138. On MovieLens-100k iALS has .4565, and full-catalogue training chooses .4548
(p = .516). On KuaiRec popularity alone has .4003, the best contestant .4052.

Of the six aims four are met: both on Gowalla and both on Yelp2018, by blends with EASE, of InfoNCE-posterior
and of BSL. Both on MovieLens are missed: by .0009 on MovieLens-1M (LightGCN with DPL with hard weights +
EASE) and by .0002 on MovieLens-100k (LightGCN with PSL + EASE). On the test part of MovieLens-100k six
contestants are above the aim, but validation does not choose them; on that of MovieLens-1M none is, the best
has .4295.

On Gowalla and Yelp2018 the contestants that train had 35 and 33 trials, the weights of blends 36 and 34, EASE
48 and 47, iALS and ChebyCF 48 each. On the other cases EASE, iALS and ChebyCF have more trials than the
contestants that train. All contestants that train have 5 seeds.""",
)

DEBIASING = Answer(
    "2880a94a3318",
    """\
DPL and InfoNCE-posterior expect positives among the unlabelled items and correct for them. **With MF neither
beats InfoNCE significantly anywhere**, with or without EASE. Of 74 differences 3 are significant gains, all
with LightGCN, of .0007 to .0012; 21 are significant losses. The correction itself, DPL with hard weights
against the same with τ = 0, is a significant gain in no case where it was measured, and a significant loss of
.0001 on Yelp2018.

- DPL with hard weights and a margin is significantly above InfoNCE on Gowalla with LightGCN, by .0012, and by
  .0007 if both are blended with EASE. With MF it is .0010 above, and so is the same model with τ = 0, that
  is, without the correction, by .0011; neither is significant. So the gain is that of hard weights and a
  margin; with τ = 0 LightGCN was not run. On Yelp2018 it is significantly worse: by .0008 with MF, by .0008
  with LightGCN, by .0007 and .0006 in their blends with EASE, and by .0007 with τ = 0. On KuaiRec it is
  significantly worse with LightGCN, by .0046. Elsewhere it does not differ significantly.
- DPL with equal weights is significantly worse on MovieLens-100k, MovieLens-1M, Gowalla and Yelp2018, by
  .0231 to .0924 with MF. On KuaiRec and Coat it does not differ significantly with MF.
- InfoNCE-posterior is significantly above InfoNCE on MovieLens-1M with LightGCN, by .0009, and differs
  significantly nowhere else.

Where full-catalogue training beats its rivals, validation chooses a blend of a debiased loss twice: DPL with
hard weights on MovieLens-1M (with LightGCN, .0003 above the blend of InfoNCE) and InfoNCE-posterior on
Gowalla (.0005 above). Neither difference is significant. On Yelp2018 it chooses BSL.

On Gowalla and Yelp2018 these contestants had few trials; τ = 0 has the settings of DPL. A loss there is no
evidence against a better tuned DPL. Of the three gains the first figures had 1 and 3 seeds; the others were
run because of them. One of them, on Gowalla, has p = .049. The interval leaves out the spread over seeds,
which is .0001 for InfoNCE.

What to do: use InfoNCE, the default, and let a blend with EASE be tried. If there is time to tune, try
`loss="bsl"`, `loss="dpl-hard"` with a margin and `loss="infonce-posterior"` as further losses, and let
validation decide. Do not expect a better list from τ.""",
    "Where debiasing beats plain softmax",
)

_FORMER = """\
Until now the validation part of Gowalla and Yelp2018 was drawn at random. Their test parts are the ends of
the histories, so validation was unlike test. On Gowalla it chose t = .074 for InfoNCE, the last tenth of each
history t = .1, and NDCG@20 on the test part is .1632 in place of .1583. On Yelp2018 it is .0621 in place of
.0622, with 14 trials of InfoNCE in place of 20. The lines of the former protocol are kept as they were."""

_PROTOCOL = f"""\
A search scores its trials by NDCG@20 on a validation part of train, and chooses the epoch by it. The
validation part is made like the test part: at random where test is random, and the last tenth of each user's
train pairs on Gowalla and Yelp2018, whose test parts are the ends of the histories.

Where validation is random, the best settings of each search are then scored on further validation parts of
the same size, drawn from train and validation together with other seeds: {n_parts("ml-1m")} parts in all.
Their mean chooses the settings of a contestant, and the contestant of a family. A history has one end, so on
Gowalla and Yelp2018 the first part chooses, and the further parts are draws of its users with replacement.
Then each seed learns from train and validation together: the learning rate keeps its schedule, and training
stops at the chosen epoch. Each model is evaluated on the test part once. Lists rank the whole catalogue
without the items of train; on KuaiRec and Coat they rank the judged pairs, whose true labels are known.

One validation part alone would often have chosen other settings. These are evaluated too, with fewer seeds,
after every choice was made; they decide nothing. The standard deviation of their test scores over the parts
is the spread of the choice. It is the error of a choice by one part, so that it is rather too large for a
choice by the mean of several. The interval of a difference has it beside the error over users: squares are
added, degrees of freedom are Satterthwaite's, p is Student's. On Gowalla and Yelp2018 the spread tells how
much the choice depends on the users, not on the pairs that are held out, so that it is rather too small.

Four families are compared: full-catalogue training, EASE (with and without degree exponents), iALS with
regularisation scaled by frequency, solved exactly (`truepair_lab/paper/ials.py`), and ChebyCF, a
polynomial filter on the graph of items (`truepair_lab/paper/chebycf.py`). “iALS of implicit” has one
regularisation for all and 16 fixed sweeps; it is an earlier contestant, of which no values of users were
kept.

“+ EASE” adds the scores of EASE with degree exponents to those of a trained contestant, each with the
settings of its own search, times a weight. “With popularity” adds γ·log(1 + users of an item) to the
scores, with γ searched; in the large cases every trained contestant has that, and no weight decay.

On Gowalla and Yelp2018 the contestants below “Not searched” have the settings of InfoNCE, and their own
parameters in the middle of their ranges; LightGCN has the settings of MF with the same loss there, and the
hops and the epoch of its InfoNCE. All contestants were written down before their first final run, in
`results/quality/settled-tail.json`; after more of the search (InfoNCE from 10 trials to 14, the weight of its
blend, LightGCN) again, in `settled-tail-search.json`; and after the searches of PSL, InfoNCE-posterior and
DPL with hard weights and of the weights of their blends, in `settled-tail-losses.json` and
`settled-tail-blends.json`. Each file was followed by final runs, so that test figures were known when the
search went on, by its own rule: InfoNCE kept its settings on Gowalla (then 3 seeds, .1632) and changed them
on Yelp2018 (then .0619); the other losses kept the middle of their ranges, with other epochs, and had been
evaluated there with one seed, apart from InfoNCE-posterior on Gowalla. The blends of the two losses that were
best on validation came last: DPL with hard weights and PSL on Gowalla, PSL and InfoNCE-posterior on Yelp2018.
The search of InfoNCE was started anew, as its state was not kept; its first 8 trials repeat those of before
to the fifth digit, and the lines have the second run.

Late contestants came after all of that, in every case: LightGCN, more losses and more blends. They take over
settings and have few trials (`truepair_lab/quality/late.py`). EASE, iALS and ChebyCF got more trials at the
same time. All settings were written down before these runs, in `settled-late.json` and
`settled-late-coat.json`. Blends have the settings of EASE that were known before its search went on. On
MovieLens four settings like those that the plain call finds compete within “InfoNCE with popularity”: the
plain call had been better on the test part of MovieLens-100k (.4558) than the contestants. Validation judged
them as all others. Four things are to be known of these runs:

- On Gowalla and Yelp2018 training multiplied matrices in TF32, to fit into the time; evaluation did not. The
  trial of InfoNCE, repeated, had .1095 on validation with TF32 and .1096 without on Gowalla, .0498 and .0498
  on Yelp2018.
- On Gowalla and Yelp2018 the settings that other draws of users would choose were run for what the families
  choose, not for every contestant. Where they were not, an interval leaves the spread of the choice out, and
  is too narrow: also those of LightGCN with the debiased losses.
- LightGCN takes over lines of MF that are older than one parameter, a temperature. By mistake its trials with
  InfoNCE, PSL and BSL on MovieLens and Coat, and with InfoNCE on KuaiRec, had another value of it. Their hops
  and epochs were thus chosen wrongly, and the final runs, of which those on MovieLens-100k, KuaiRec and Coat
  were made, are taken out of the lines. The searches were made again with the right value, their settings
  written down again, and these contestants run; so their test parts were used twice. On MovieLens-100k
  validation now chooses one of them.
- Trying out the program evaluated four contestants on Coat with trainings of 5 epochs or searches of 3
  trials. That decided nothing.

Late contestants that are far below the best on the first part were not scored on the further ones: BSL, DPL
and their blends with MF on MovieLens-1M, LightGCN with BSL, DPL with hard weights and InfoNCE-posterior
there, LightGCN with DPL on MovieLens-100k, and on KuaiRec LightGCN's other blends and LightGCN with the
debiased losses. No family can choose them. LightGCN with InfoNCE-posterior on MovieLens-100k was scored there
only after its test figures were known, as time had run out before; it is not chosen.

Last of all came LightGCN with DPL on MovieLens-1M, the blends of LightGCN with BSL, DPL and InfoNCE-posterior
there (`settled-late-ml-1m.json` was written before their runs), and further seeds on Gowalla and Yelp2018,
without TF32. Validation now chooses one of these blends on MovieLens-1M, which has .4291 on the test part;
the one that it chose before has .4295.

Nothing within a contestant was chosen by a test part of this protocol. But test parts had been looked at
before. The blends, EASE with degree exponents, popularity, dot products and iALS with scaled
regularisation were added after others had been judged; they were tried on validation first. Dot products
on KuaiRec came after the test figures of cosines there had been seen: give that row less weight. The
choice by several parts, too, replaced a choice by the first part alone after test figures had been seen.
By the first part full-catalogue training would choose LightGCN with InfoNCE-posterior + EASE on
MovieLens-100k. On Coat iALS was first evaluated by mistake with settings that were chosen among 33 of its
407 trials at that time; these runs are not in the lines and decided nothing. On MovieLens-100k iALS was
first evaluated with the choice among its first 66 trials (.4534). The search then went on, by the same
rule, to the number of trials that the other families have. The settings that had been scored on the
further parts by then stayed candidates; without them the choice is the same.

On Gowalla and Yelp2018 the former protocol had evaluated its contestants on the same test parts. A prototype
of MF with InfoNCE, t = .1 and γ = .85, had been evaluated on Gowalla's test part (.1951 / .1632), and so had
ChebyCF with its published settings (.1941 / .1617). The validation by the end of the histories was
introduced after that. The search of InfoNCE began with t = .1 and γ = .8, the best of four runs with d = 256
on Gowalla's validation part, whose lines were not kept; it found nothing better on Gowalla. The search
of ChebyCF began with the settings that are published for Gowalla, and kept them there."""

_CAPTION = f"""\
Mean ± standard deviation over seeds on the test part; EASE, ChebyCF, ItemKNN and popularity do not depend on
a seed. “Validation” is the score of the chosen settings on the first part, “all parts” their mean over the
parts. ✓ is what a family chooses. Differences are over the same users, each the mean of its seeds, with 95%
intervals that include the spread of the choice, and p by Holm's correction over all differences between
contestants of a case; bold ones are significant (p below {SIGNIFICANT:g}). The table of families at the top
is corrected by itself. `results/quality/values-*.npz` has the values of users."""

_ALT = "NDCG@20 of the contestants in each case"
_FIGURE_CAPTION = """\
Dots are means with one standard deviation over seeds, the best contestant first. ItemKNN, popularity and
contestants below 85% of the best (DPL without hard weights in most cases) are left out."""

_EFFORT = f"""\
A search of the first contestants begins with {TRIALS["mf"]} trials, 20 on Gowalla and Yelp2018 with random
validation, with {ONE_PARAMETER} where there is one parameter and 1 where there is none. Where the best lay at
an edge of a range, the range grew and a third more were run, twice at most. Late contestants have 2 or 3
trials (LightGCN), 4 to 8 (blends; 40 with the settings of EASE) or 2 to 9 (losses of MF). EASE, iALS and
ChebyCF then got at least as many trials as the contestants that train have in all, by the same search
(Optuna's TPE after 8 random trials), in ranges that are wide from the start; where the journal of a search
was gone, it went on from its lines. Weights of blends train nothing and are counted apart. A trial that was
interrupted counts in the table. A trial of iALS has up to {SWEEPS["small"]} sweeps (16 on Gowalla and
Yelp2018 with random validation), scored every 2 (4).

On Gowalla and Yelp2018 all searches together had less than an hour on one H200. iALS has up to
{SWEEPS["large"]} sweeps there, scored every 4, and d = 512."""

_REBUILD = """\
## How to rebuild

```sh
truepair-lab quality tune      # the searches: validation only
truepair-lab quality run       # the final runs, and their comparisons
truepair-lab quality report    # this page and its figure, from the lines alone
```

The same lines give the same page."""
