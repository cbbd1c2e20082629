"""The page of the truth lab: a folder of lines -> docs/truth.md; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab import store
from truepair_lab.markdown import joined, unread
from truepair_lab.reporting.answers import Answer
from truepair_lab.truth.coat import TWO_PRIORS
from truepair_lab.truth.lines import POSTERIOR, PosteriorLine, TruthLine
from truepair_lab.truth.report.csv_tables import csv_tables
from truepair_lab.truth.report.figures import truth_figures
from truepair_lab.truth.report.posterior import Trial, section, trials_of
from truepair_lab.truth.report.summary import Setting, settings_of
from truepair_lab.truth.report.tables import (
    cases_table,
    differences_table,
    draws_table,
    gradient_table,
    probability_table,
    quality_table,
)

LINES, PAGE = Path("results/truth"), Path("docs/truth.md")


def rebuild(folder: Path = LINES, out: Path = PAGE) -> Path:
    """Write the page to `out` and its figures into `figures` beside it, from the lines of a folder."""
    check_plots()
    lines, broken = store.read(folder, TruthLine)
    weighed, more = store.read(folder / POSTERIOR, PosteriorLine)
    settings, trials = settings_of(lines), trials_of(weighed)
    if not settings:
        raise InputError(f"{folder} holds no lines; `truepair-lab truth simulation` writes some.")
    figures = truth_figures(settings)
    for name, (_, svg) in figures.items():
        write_text(out.parent / "figures" / name, svg)
    drawn = {name: f"![{about}](figures/{name})" for name, (about, _) in figures.items()}
    for name, text in csv_tables(settings, trials).items():
        write_text(out.parent / "tables" / name, text)
    sections = [_QUESTION, ANSWER.of(lines, weighed), *_sections(settings, trials, drawn), _REBUILD]
    return write_text(out, joined(*sections, unread([*broken, *more])) + "\n")


def _sections(
    settings: Sequence[Setting], trials: Sequence[Trial], drawn: Mapping[str, str]
) -> Iterator[str]:
    coat = TWO_PRIORS if any(setting.case == "coat" for setting in settings) else ""
    yield joined(_COMPARED, differences_table(settings), drawn.get("truth-quality.svg", ""))
    yield joined("## The data", cases_table(settings), _DATA, coat)
    yield joined(_QUALITY, quality_table(settings))
    yield joined(_TAU, drawn.get("truth-tau.svg", ""))
    yield joined(_DRAWS, draws_table(settings), drawn.get("truth-draws.svg", ""))
    yield joined(_PROBABILITY, probability_table(settings))
    yield joined(_GRADIENT, gradient_table(settings), drawn.get("truth-gradient.svg", ""))
    yield _EFFORT
    if trials:
        yield section(trials)


_QUESTION = """\
# The truth lab

**Question.** What do losses and samplers do where every label is known? Positives are hidden, models are
trained on the rest, and everything is measured against the truth: what is drawn, what is estimated, where
the gradient points, and how good the ranking is.

Settings and epochs are chosen on a validation part of the *observed* positives; the truth chooses
nothing. Losses with a prior get the true τ, which nobody knows in practice. Every number is computed from
a line in `results/truth`."""

ANSWER = Answer(
    "b07ef3836d30",
    """\
- **DPL closes little of the gap between BPR and full supervision**, even with the true τ: 4% on the
  simulation with random exposure, 21% with popularity exposure, and -72% on Jester. On KuaiRec full
  supervision is not significantly better than BPR, and Coat has too few labels for it.
- **DPL against BPR** (NDCG@20): +.0418 on the simulation with popularity exposure, +.0055 on Coat, -.0321
  on Jester and at most .0018 on the other two. With three seeds none of them is significant after the
  correction for many comparisons (popularity exposure: p = .054; there the other 7 variants of DPL are
  significantly better than BPR).
- **The correction itself** (DPL against DPL with τ = 0) is significant nowhere; it is largest on Jester
  (-.0321) and on Coat (+.0055). Nor are ½ in place of the extra positives and each user's own τ (-.0264
  on Jester).
- **The true τ is never the best of those tried.** The best multiple of it is 0, 5, 5, 0 and 2, in the
  order of the tables; on three of the five data the true τ itself ranks lowest.
- **True negatives alone**, with no new anchor, close 62% and 64% of the gap on the two simulations and
  77% on Jester. They identify single pairs; a prior only gives the number of positives.
- **The estimate P̂.** The correction removes the bias on the simulation with random exposure (-.036
  becomes .000) and overshoots on Jester (-.017 becomes .108); it always widens the spread of a row.
- **The gradient** of BPR has a cosine of .892 to .999 with the supervised one, that of DPL .891 to 1.000.
- **Hard samplers draw positives.** DNS draws 14% to 70% hidden positives and BNS 13% to 61%, where
  uniform draws have 6% to 57%.
- **The highest NDCG@20 without labels**, picked by the truth itself: DPL with hard weights on the
  simulation with random exposure (8% of the gap closed), DPL with 5 times the true τ with popularity
  exposure (25%) and on KuaiRec, BNS on Jester (36%), DPL with twice the true τ on Coat.
- **Weights by a first model** (`infonce-posterior`) against InfoNCE. With the true τ they are
  significantly better on the simulation with random exposure (+.0092, 24% of the gap to supervised
  InfoNCE) and not significantly different on the other four (Coat: -.0073, p = .058). With the estimated
  τ they are significantly better on both simulations (+.0087, +.0202); the losses on Jester (-.0023) and
  Coat (-.0092) are not significant. On Coat validation chose inner products for the weights and cosines
  for InfoNCE; with cosines for both, the differences are -.0010 and -.0009. With the true τ, validation
  has the sign of the truth on 4 of 5 data; not on Coat.""",
)

_COMPARED = """\
## DPL and its parts

± is the standard deviation over seeds. Bold differences are significant: Student's t, seed by seed, with p
corrected by Holm over all differences on the same data, here and in the table of ranking quality. With
three seeds that takes a difference of many standard deviations."""

_DATA = """\
- **Simulation.** A world of tastes and traits; 14% of all pairs are positive.
- **KuaiRec.** The fully observed block of short videos; positive is a video watched twice its length or
  more.
- **Jester.** The users who rated all 100 jokes; positive is a rating above 0: more than half of all
  pairs.
- **Coat.** Learnt from: 4 or 5 stars among the 24 ratings that a user chose to give. Known: the 16 that
  chance chose, and only those are measured on. They are too few to train a supervised model as well.

Where all labels are known, half of the positives are hidden, at random or in favour of popular items.
About half of the pairs that are not observed judge the rankings, positives and negatives. What is hidden,
held out and (except for Coat) judged is drawn anew for each seed, as is the start of the model. τ is the
share of positives among the pairs that training takes for unlabelled and whose label is known. The
validation part counts as hidden here and as observed in [the prior study](prior.md), whose τ of a block
is therefore lower."""

_QUALITY = """\
## Ranking quality against true labels

A list ranks the judged pairs of a user. The first row is BPR's NDCG@20; the others are differences to it,
and in brackets the share that they close of the gap between BPR and full supervision, where that one is
significantly better. On Coat the judged pairs are the same for every seed, so significance is about the
chance in training alone. At the end are BPR models that know labels:

- *true negatives only*: observed anchors, and draws that are true negatives;
- *fully supervised*: hidden positives are anchors too;
- neither of these touches a judged pair. *Judged ones too*: the same models with the labels of the judged
  pairs as well. They have seen the answers, and show what such a model can memorise.

[tables/truth-metrics.csv](tables/truth-metrics.csv) has recall@20, AUC and the gap to true negatives."""

_TAU = """\
## A wrong τ

DPL with ½, 2 and 5 times the true τ (at most 0.9), and with τ = 0. Bands are the standard deviation over
seeds."""

_DRAWS = """\
## What is drawn

The share of drawn “unlabelled” items that are positive in truth, at BPR's best epoch. DNS and BNS keep 5
of 25 candidates; popularity draws in proportion to it. A user with many positives has many rows, so even
uniform draws find more positives than τ says."""

_PROBABILITY = """\
## The estimated probability

P of an anchor is the mean of σ(s⁺ − s) over all true negatives of its user. The estimate P̂ of a row has
5 draws and 5 extra positives; “without correction” is the mean over the draws alone, at the same model.
Bias is the mean over anchors, spread the standard deviation of one row's P̂. The table is of DPL;
[tables/truth-probability.csv](tables/truth-probability.csv) has the other losses.

The correction takes extra positives, which were trained on, for a sample of the hidden ones. Where a
model generalises little, hidden positives score hardly above negatives: the plain mean is then hardly
biased, and the correction overshoots, even with the true τ."""

_GRADIENT = """\
## The gradient

Cosine · length ratio of the training gradient against the supervised one: the same loss with τ = 0 and
true negatives as draws, at the treatment's best epoch, for the same anchors. 1.000 · 1.00 is perfect.
Both are freed of the draws' noise by multiplying independent halves; “noise” is 1 − the cosine of two
halves."""

_EFFORT = """\
## Effort

Every treatment: MF with 32 factors, Adam at 0.005, M = N = 5, batches of 1,024 (256 below 10,000 pairs),
the same seven weight decays from 3e-6 to 3e-3, up to 80 epochs with a patience of 8. InfoNCE, DCL and HCL
have temperature 1, HCL and DPL with hard weights β = 1; nothing else was tuned. Models that know the
judged labels take the settings of those that do not. What validation chose:
[tables/truth-settings.csv](tables/truth-settings.csv) and
[tables/truth-posterior-settings.csv](tables/truth-posterior-settings.csv) for the next section, with a mark
where it lies at an end of what was tried. Other corrections that were tried are in
[the truth lab over the full catalogue](truth-full-catalogue.md#with-drawn-items)."""

_REBUILD = """\
## How to rebuild

```sh
truepair-lab truth simulation                        # adds the lines that are missing
truepair-lab truth simulation --exposure popularity
truepair-lab truth simulation --posterior --seeds 9  # weights by a first model
truepair-lab truth --report docs/truth.md            # this page, its figures and tables, from the lines alone
```

The same lines give the same page."""
