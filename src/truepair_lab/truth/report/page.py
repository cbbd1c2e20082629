"""The page of the truth lab: a folder of lines -> docs/lab/truth.md; the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from truepair.errors import InputError
from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab import store
from truepair_lab.truth.lines import POSTERIOR, PosteriorLine, TruthLine
from truepair_lab.truth.report.conclusions import coat_words, conclusions, edge_words
from truepair_lab.truth.report.figures import truth_figures
from truepair_lab.truth.report.posterior import Trial, section, trials_of
from truepair_lab.truth.report.summary import Setting, settings_of
from truepair_lab.truth.report.tables import (
    cases_table,
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
    about = {name: told for name, (told, _) in figures.items()}
    return write_text(out, "\n\n".join(_sections(settings, trials, about)) + "\n")


def _sections(settings: Sequence[Setting], trials: Sequence[Trial], about: dict[str, str]) -> Iterator[str]:
    def figure(name: str) -> str:
        return f"![{about[name]}](figures/{name})" if name in about else "There is no line to draw here."

    yield _INTRODUCTION
    yield "## Conclusions\n\n" + "\n".join(f"- {told}" for told in conclusions(settings))
    yield "\n\n".join(["## The data", cases_table(settings), _DATA, *filter(None, [coat_words(settings)])])
    yield _QUALITY
    yield figure("truth-quality.svg")
    for setting in settings:
        yield f"### {setting.title}\n\n{quality_table(setting)}"
    yield _TAU + "\n\n" + figure("truth-tau.svg")
    yield _DRAWS + "\n\n" + draws_table(settings) + "\n\n" + figure("truth-draws.svg")
    yield _PROBABILITY
    for setting in settings:
        yield f"### P on {setting.title}\n\n{probability_table(setting)}"
    yield _GRADIENT + "\n\n" + gradient_table(settings) + "\n\n" + figure("truth-gradient.svg")
    chosen = _details("What validation chose", settings_table(settings))
    yield "\n\n".join([_SETTINGS, edge_words(settings), chosen])
    if trials:
        yield section(trials)
    yield _TRIED
    yield _REBUILD


def _details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


_INTRODUCTION = """\
# The truth lab

What do losses and samplers really do, where every label is known? Positives are hidden, models are trained
on the rest, and everything is measured against the truth: what is drawn, what is estimated, where the
gradient points, and how good the ranking is.

Settings and epochs are chosen on a validation part of the *observed* positives; the truth chooses nothing.
Losses with a prior are told the true τ, which nobody has in life. But for the prototypes at the end, every
number is computed from a line in `results/truth`; `truepair lab truth` writes them and this page."""

_DATA = """\
- **Simulation.** A world of tastes and traits; 14% of all pairs are positive.
- **KuaiRec.** The fully observed block of short videos; positive is a video watched twice its length or more.
- **Jester.** The users who rated all 100 jokes; positive is a rating above 0. More than half of all
  pairs are.
- **Coat.** Learnt from: 4 or 5 stars among the 24 ratings that a user chose to give. Known: the 16 that
  chance chose. Everything that needs a label is measured on those pairs alone. A fully supervised model
  would have to learn from the labels that judge it, and 16 a user are too few to divide: there is none.

Where all labels are known, half of the positives are hidden, by chance or in favour of popular items. About
half of the pairs that are not observed judge the rankings, positives and negatives. What is hidden, held
out and (but for Coat) judged is drawn anew for each seed, as is the model's start. τ is the share of
positives among the pairs that training takes for unlabelled and whose label is known. Of a block these are
all but the pairs learnt from, so the validation part counts as hidden; docs/lab/prior.md takes it for
observed, and its τ of a block is lower."""

_QUALITY = """\
## Ranking quality against true labels

A list ranks the judged pairs of a user. ± is the standard deviation over seeds; a difference in bold is
sure at 95% (Student's t over seeds, seed by seed, not corrected for being many). A seed hides, holds out
and judges other pairs, but for Coat, whose judged pairs are always the same: “surely” is there about the
chance in training alone. Below the losses stand models that are told labels, all
with BPR's loss:

- *true negatives only*: observed anchors, and draws that are true negatives;
- *fully supervised*: hidden positives are anchors too;
- neither of these ever touches a judged pair. *Judged ones too* are the same models with the labels of the
  judged pairs as well: they have seen the answers, and show what such a model can hold in memory.

“Of the way” is (loss − BPR) / (told − BPR), by NDCG@20, where the told model is surely better than BPR. A
list of Coat holds fewer than 20 pairs, so its recall@20 is 1."""

_TAU = """\
## A wrong τ

DPL told ½, 2 and 5 times the true τ (never more than 0.9), and none. In the tables, “DPL with ½” has ½ in
place of the mean over the extra positives. The bands are the standard deviation
over seeds."""

_DRAWS = """\
## What is drawn

The share of drawn “unlabelled” items that the user in truth likes, at BPR's best epoch. DNS and BNS keep 5
of 25 candidates, popularity draws in proportion to it. It is counted row by row: a user with many
positives has many rows, so even uniform draws find more positives than τ says."""

_PROBABILITY = """\
## The estimated probability

P of an anchor is the mean of σ(s⁺ − s) over all true negatives of its user. The estimate P̂ of a row has 5
draws and 5 extra positives. “Without correction” is the mean over the draws alone, at the same model. Bias
is the mean over anchors, spread the standard deviation of one row's P̂. BNS has one draw, so its spread does
not compare. Losses other than DPL and its kin have no P̂ but the plain mean.

The correction takes extra positives, which were trained on, for a sample of the hidden ones. Where a model
generalises little, hidden positives score hardly above negatives: the plain mean is then hardly biased,
and the correction overshoots, with the true τ too."""

_GRADIENT = """\
## The gradient

Cosine · length ratio of the training gradient against the supervised one: the same loss with τ = 0 and
true negatives as draws, at the treatment's best epoch, for the same anchors. 1.000 · 1.00 is perfect. Both
are freed of the draws' noise by multiplying independent halves; “noise” is 1 − the cosine of two halves."""

_SETTINGS = """\
## Effort

Every treatment: MF with 32 factors, Adam at 0.005, M = N = 5, batches of 1,024 (of 256 below 10,000 pairs),
the same seven weight decays from 3e-6 to 3e-3, up to 80 epochs with a patience of 8. Of KuaiRec every second
epoch is looked at. InfoNCE, DCL and HCL have temperature 1, HCL and DPL with hard weights β = 1; DCL and HCL
have the floor of their originals; BNS keeps 1 of 5 candidates for a row, as published. Nothing else was
tuned. Models that are told the judged labels take the settings of those that are not."""

_TRIED = """\
## What else was tried

Corrections that might close more, as prototypes outside the library. These numbers come from no line: most
are of one seed and fewer weight decays, and the truth itself picked among them, so read them as leads, not
as results. NDCG@20, BPR under the same conditions in brackets. ℓ is BPR's loss; the sum of σ needs no τ; P
is a pair's chance to be positive; τ_i is an item's own prior, from its count.

| correction | simulation | by popularity | KuaiRec | Jester | Coat |
| --- | --- | --- | --- | --- | --- |
| (mean_n ℓ − τ·mean_m ℓ)/(1−τ), ≥ 0: unbiased for BPR | .6713 (.6702) | | | .6353 (.6765) | as DPL |
| mean_n σ(s_n−s⁺) | .6777 (.6697) | .4452 (.4235) | .3989 (.3989) | .6623 (.6765) | .6596 (.6597) |
| weights 1 − P(positive) from the row's own scores | .6682 (.6702) | | | .6848 (.6765) | |
| draws by 1 − P(positive) of the prior's curve | .6697 (.6702) | .4629 (.4235) | | .6571 (.6765) | |
| never draws where that P(positive) > ½ | .6705 (.6702) | .4737 (.4235) | | .6686 (.6765) | |
| draws by 1 − τ_i | .6566 (.6702) | .4004 (.4235) | .3986 (.3989) | .6981 (.6793) | .6696 (.6597) |
| hard weights with τ raised | no gain | | no gain | | |

None is ahead everywhere, so none of these was added. The draws tell why: the held-out curve takes a third
of the hidden positives out of what is drawn from in the first column (τ falls from 8.9% to 5.7%), and the
ranking does not move, since it takes out the hardest true negatives with them. A pair's score cannot tell
a hidden positive from a negative of the same score, so whatever weighs by score and τ alone changes the
shape of the loss, not what is known. What true negatives bring (the rows above) is knowledge about single
pairs, and that has to come from elsewhere. [With nothing drawn](truth-exact.md) forty more were tried; one
of them became the loss `infonce-posterior`, above.
"""

_REBUILD = """\
## How to rebuild

```sh
truepair lab truth simulation                        # adds the lines that are missing
truepair lab truth simulation --exposure popularity
truepair lab truth simulation --posterior --seeds 9  # weights by a first model
truepair lab truth --report docs/lab/truth.md            # this page and its figures, from the lines alone
```

The same lines give the same page, byte for byte."""
