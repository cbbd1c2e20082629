"""The page of the truth lab: a folder of lines -> docs/lab/truth.md; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab import store
from truepair_lab.answers import Answer
from truepair_lab.markdown import details, joined, unread
from truepair_lab.truth.coat import TWO_PRIORS
from truepair_lab.truth.lines import POSTERIOR, PosteriorLine, TruthLine
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
    settings_table,
)

LINES, PAGE = Path("results/truth"), Path("docs/lab/truth.md")


def rebuild(folder: Path = LINES, out: Path = PAGE) -> Path:
    """Write the page to `out` and its figures into `figures` beside it, from the lines of a folder."""
    check_plots()
    lines, broken = store.read(folder, TruthLine)
    weighed, more = store.read(folder / POSTERIOR, PosteriorLine)
    settings, trials = settings_of(lines), trials_of(weighed)
    if not settings:
        raise InputError(f"{folder} holds no lines; `truepair lab truth simulation` writes some.")
    figures = truth_figures(settings)
    for name, (_, svg) in figures.items():
        write_text(out.parent / "figures" / name, svg)
    drawn = {name: f"![{about}](figures/{name})" for name, (about, _) in figures.items()}
    sections = [_QUESTION, ANSWER.of(lines, weighed), *_sections(settings, trials, drawn), _TRIED, _REBUILD]
    return write_text(out, joined(*sections, unread([*broken, *more])) + "\n")


def _sections(
    settings: Sequence[Setting], trials: Sequence[Trial], drawn: Mapping[str, str]
) -> Iterator[str]:
    coat = TWO_PRIORS if any(setting.case == "coat" for setting in settings) else ""
    yield joined(_COMPARED, differences_table(settings), drawn.get("truth-quality.svg", ""))
    yield joined("## The data", cases_table(settings), _DATA, coat)
    yield _QUALITY
    for setting in settings:
        yield f"### {setting.title}\n\n{quality_table(setting)}"
    yield joined(_TAU, drawn.get("truth-tau.svg", ""))
    yield joined(_DRAWS, draws_table(settings), drawn.get("truth-draws.svg", ""))
    yield _PROBABILITY
    for setting in settings:
        yield f"### P on {setting.title}\n\n{probability_table(setting)}"
    yield joined(_GRADIENT, gradient_table(settings), drawn.get("truth-gradient.svg", ""))
    yield joined(_EFFORT, details("What validation chose", settings_table(settings)))
    if trials:
        yield section(trials)


_QUESTION = """\
# The truth lab

**Question.** What do losses and samplers do where every label is known? Positives are hidden, models are
trained on the rest, and everything is measured against the truth: what is drawn, what is estimated, where
the gradient points, and how good the ranking is.

Settings and epochs are chosen on a validation part of the *observed* positives; the truth chooses
nothing. Losses with a prior get the true τ, which nobody knows in practice. Except for the prototypes at
the end, every number is computed from a line in `results/truth`."""

ANSWER = Answer(
    "b07ef3836d30",
    """\
- **DPL closes little of the gap between BPR and full supervision**, even with the true τ: 4% on the
  simulation with random exposure, 21% with popularity exposure, and -72% on Jester. On KuaiRec full
  supervision is not significantly better than BPR, and Coat has too few labels for it.
- **DPL against BPR** (NDCG@20): significantly better on the simulation with popularity exposure (+.0418)
  and on Coat (+.0055), significantly worse on Jester (-.0321), no significant difference on the other
  two.
- **The correction itself** (DPL against DPL with τ = 0) is significant on Coat (+.0055) and on Jester
  (-.0321) only. ½ in place of the extra positives makes no significant difference anywhere; each user's
  own τ is significantly worse on Jester (-.0264) and makes no significant difference elsewhere.
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
  InfoNCE), significantly worse on Coat (-.0073), and not significantly different on the other three. With
  the estimated τ they are better on both simulations (+.0087, +.0202) and worse on Jester (-.0023) and
  Coat (-.0092). On Coat validation chose inner products for the weights and cosines for InfoNCE; with
  cosines for both, the differences are not significant (-.0010, -.0009). With the true τ, validation has
  the sign of the truth on 4 of 5 data; not on Coat.""",
)

_COMPARED = """\
## DPL and its parts

± is the standard deviation over seeds. Bold differences are significant (Student's t over seeds, seed by
seed, not corrected for being many)."""

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

A list ranks the judged pairs of a user; on Coat it has fewer than 20, so recall@20 is 1. On Coat the
judged pairs are the same for every seed, so significance is about the chance in training alone. Below the
losses are BPR models that know labels:

- *true negatives only*: observed anchors, and draws that are true negatives;
- *fully supervised*: hidden positives are anchors too;
- neither of these touches a judged pair. *Judged ones too*: the same models with the labels of the judged
  pairs as well. They have seen the answers, and show what such a model can memorise.

“Gap closed” is (loss − BPR) / (labelled model − BPR) by NDCG@20, where full supervision is significantly
better than BPR."""

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
Bias is the mean over anchors, spread the standard deviation of one row's P̂. BNS has one draw, so its
spread does not compare. Losses other than DPL have no P̂ but the plain mean.

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
the same seven weight decays from 3e-6 to 3e-3, up to 80 epochs with a patience of 8; KuaiRec is validated
every second epoch. InfoNCE, DCL and HCL have temperature 1, HCL and DPL with hard weights β = 1; DCL and
HCL have the floor of their originals; BNS keeps 1 of 5 candidates for a row, as published. Nothing else
was tuned. Models that know the judged labels take the settings of those that do not. A weight decay at an
end of what was tried is marked: a wider grid might serve it better."""

_TRIED = """\
## What else was tried

Prototypes of other corrections, outside the library. These numbers come from no line: most are of one
seed and fewer weight decays, and the truth itself picked among them, so they are leads, not results.
NDCG@20, BPR under the same conditions in brackets. ℓ is BPR's loss; the sum of σ needs no τ; P is a
pair's chance to be positive; τ_i is an item's own prior, from its count.

| correction | simulation | by popularity | KuaiRec | Jester | Coat |
| --- | --- | --- | --- | --- | --- |
| (mean_n ℓ − τ·mean_m ℓ)/(1−τ), ≥ 0: unbiased for BPR | .6713 (.6702) | | | .6353 (.6765) | as DPL |
| mean_n σ(s_n−s⁺) | .6777 (.6697) | .4452 (.4235) | .3989 (.3989) | .6623 (.6765) | .6596 (.6597) |
| weights 1 − P(positive) from the row's own scores | .6682 (.6702) | | | .6848 (.6765) | |
| draws by 1 − P(positive) of the prior's curve | .6697 (.6702) | .4629 (.4235) | | .6571 (.6765) | |
| never draws where that P(positive) > ½ | .6705 (.6702) | .4737 (.4235) | | .6686 (.6765) | |
| draws by 1 − τ_i | .6566 (.6702) | .4004 (.4235) | .3986 (.3989) | .6981 (.6793) | .6696 (.6597) |
| hard weights with τ raised | no gain | | no gain | | |

None is ahead everywhere, so none was added. The draws show why: the held-out curve takes a third of the
hidden positives out of what is drawn from in the first column (τ falls from 8.9% to 5.7%), and the
ranking does not move, because the hardest true negatives go with them. A pair's score cannot separate a
hidden positive from a negative of the same score, so a weight by score and τ alone changes the shape of
the loss, not what is known. What true negatives bring is knowledge about single pairs, and that has to
come from elsewhere. With [full-catalogue training](truth-full-catalogue.md) forty more were tried; one of
them became the loss `infonce-posterior`, above."""

_REBUILD = """\
## How to rebuild

```sh
truepair lab truth simulation                        # adds the lines that are missing
truepair lab truth simulation --exposure popularity
truepair lab truth simulation --posterior --seeds 9  # weights by a first model
truepair lab truth --report docs/lab/truth.md        # this page and its figures, from the lines alone
```

The same lines give the same page."""
