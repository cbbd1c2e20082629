"""The page docs/theory.md and its figures, from the results alone; the same bytes each time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from truepair.reporting.figures import check_plots
from truepair.reporting.page import write_text
from truepair_lab.markdown import joined, table
from truepair_lab.theory.figures import theory_figures
from truepair_lab.theory.results import Results
from truepair_lab.theory.running import verdicts
from truepair_lab.theory.tables import (
    clamp_table,
    corner_table,
    csv_tables,
    error_text,
    exponent_table,
    limit_table,
    means_table,
    stopped_table,
    wrong_table,
)

PAGE = Path("docs/theory.md")


def write_page(results: Results, out: Path, figures: Path | None = None) -> Path:
    """Write the page to `out` and its figures into `figures`, or `figures/` beside it."""
    check_plots()
    folder = out.parent / "figures" if figures is None else figures
    for name, figure in theory_figures(results).items():
        write_text(folder / name, figure.svg())
    for name, text in csv_tables(results).items():
        write_text(out.parent / "tables" / name, text)
    return write_text(out, page_text(results, Path(os.path.relpath(folder, out.parent)).as_posix()))


def page_text(results: Results, figures: str = "figures") -> str:
    """The page as Markdown; `figures` is the path from it to the figures' folder."""
    return "\n\n".join(_sections(results, figures)) + "\n"


def _sections(results: Results, figures: str) -> Iterator[str]:
    def figure(name: str) -> str:
        drawn = theory_figures(results)[f"theory-{name}.svg"]
        return f"![{drawn.alt}]({figures}/{drawn.file})\n\n{drawn.caption}"

    first, second, third = results.lemma1, results.lemma2, results.lemma3
    yield _INTRODUCTION + _quick(results)
    answer = _ANSWER if all(check.holds for check in verdicts(results)) else ""
    yield joined("## Answer", answer, _verdicts(results))
    yield _LEMMA_1
    yield from (means_table(first), figure("lemma1"))
    yield _WRONG_1
    yield from (wrong_table(first), figure("wrong"), _HALF, _CLAMP, clamp_table(first))
    yield _LEMMA_2
    yield from (exponent_table(second), figure("lemma2"), _STOPPED, stopped_table(second))
    yield from (_LIMIT, limit_table(second))
    yield _LEMMA_3
    yield from (figure("lemma3"), error_text(third), _CORNERS)
    yield from (figure("violations"), corner_table(third), _SIMPLE)
    yield _IDENTITY
    yield from (figure("identity"), _LOSS_LEVEL, _REBUILD)


def _quick(results: Results) -> str:
    note = "\n\nThese are the results of a quick run: wider errors, less power, a smaller search."
    return note if results.quick else ""


def _verdicts(results: Results) -> str:
    rows = [[c.part, c.claim, c.seen, "yes" if c.holds else "**no**"] for c in verdicts(results)]
    return table(["", "claim", "what was seen", "holds"], rows)


_INTRODUCTION = """\
# The theory, checked by experiment

**Question.** Do the paper's three lemmas about its estimator hold for the loss as it is programmed? Each
is tested on scores whose truth is known: positives, true negatives and the share τ of hidden positives
are chosen, the truth is computed without draws (sums in float64), and the loss is `truepair.losses.DPL`
itself. Estimators that are wrong on purpose go through the same tests and must be caught.

For an anchor with score s⁺, M extra positives s' and N unlabelled scores s:

    P̂ = ( mean_n σ(s⁺−s_n) − τ·mean_m σ(s⁺−s'_m) ) / (1−τ)
    P = E_{s⁻} σ(s⁺−s⁻)
    loss = −log max(P̂, floor)

What is wrong in the paper's text and formulas is on [a page of its own](errata.md)."""

_ANSWER = """\
Lemma 1 holds: the estimator is unbiased for every anchor, as long as the floor does not bind. Lemma 2
holds: the mean absolute gap falls as size^−½ and the mean gap as size^−1. Lemma 3 holds with a factor
1/(1−τ) that the printed bound lacks; the printed one fails for τ near 1, and all bounds are far above
what is observed. At the level of the AUC the correction is an affine map and changes no order among
models; at the level of the loss it does change it."""

_LEMMA_1 = """\
## Lemma 1: the estimator is right on average

Unlabelled items are a mix of hidden positives and true negatives; take the hidden
positives' part out, and on average what is left is the probability against true negatives. It holds for
each anchor, and so for the mean over anchors, which is the smooth AUC. (The paper calls it the AUC *risk*;
it is the AUC.)

Five pairs of distributions (normal, logistic, skewed, with many ties, bounded like cosines), six priors,
four kinds of anchor (the lowest tenth of the positives, the middle, the highest tenth, drawn anew for each
row). M and N are large enough for P̂ to be positive in every row, since the floor is no part of the lemma.
The test: the largest |z| of all cells stays below Bonferroni's bound for a false alarm in one of a thousand
runs. The last column is the bias that a cell would show with probability 99%, at worst."""

_WRONG_1 = """\
### Estimators that are wrong on purpose"""

_HALF = """\
½ in place of the extra positives is a special case: wrong for nearly every fixed anchor, right for the mean
over drawn ones, because two independent positives compare at ½ on average. It is why the correction says
nothing at the level of the AUC (see below), and why the lemma alone cannot separate DPL from `DPLHalf`."""

_CLAMP = """\
### What the floor costs

The logarithm of P̂ ≤ 0 does not exist, so the loss has a floor (.01 by default), which the paper does not
mention. Rows below it are lifted, so the mean of what the loss uses is too high. Normal scores, drawn
anchors:"""

_LEMMA_2 = """\
## Lemma 2: with many samples the loss becomes the supervised one

Let M and N grow, and the loss becomes −log P, what full labels would give. The lemma says
that, not how fast. Measured: the mean absolute gap of a row falls as size^−½, as an average's error must;
the mean gap, which is what is left after averaging over many rows, as size^−1, since it comes from the
curvature of the logarithm. It is above zero: on few samples the loss is too high (where the floor does not
bind). M = ∞ or N = ∞ is one score that has the exact mean. The mean gap is measured as the mean of d +
(e^−d − 1), d the gap of a row: by Lemma 1 what is added has mean zero, and it takes away nearly all noise.

Exponents fitted in the logarithms from size 32 on, with 95% intervals; tolerance .05 for the gap and its
standard deviation, .1 for the mean (four standard errors where that is more)."""

_STOPPED = """\
Wrong estimators approach something else, so their gap stops to shrink. Exponents over the last four sizes:"""

_LIMIT = """\
### The limit itself

L_sup by quadrature, what the loss reaches at the largest M = N, and BPR with true negatives. L_sup and that
BPR are not the same thing: L_sup = −E log E σ is below −E E log σ by Jensen's inequality. So DPL with many
samples does not become BPR with true negatives, though the paper introduces it as a corrected BPR."""

_LEMMA_3 = """\
## Lemma 3: a bound for the error

For cosine scores, in [−1, 1], the mean absolute error of the loss is at most a constant
times 1/√N + τ/√M.

    printed      e²·√(2π/N) + e²·τ·√(2π/M)
    corrected    the same, divided by 1−τ
    simple       ((e²−1)/(2(1−τ)))·(1/√N + τ/√M), where the floor of the loss is 1/(1+e²)

The printed one lost the factor 1/(1−τ) where its proof bounds (1−τ)·P from below by 1/(1+e²) instead of
(1−τ)/(1+e²). At the τ of practice this changes little, and both are far from what happens."""

_CORNERS = """\
### Looking for violations

Populations whose scores are all −1 or +1 spread as much as scores can. There the error is a finite sum, so
it is exact. Over shares of +1 among positives and among negatives, the worst of each (τ, M, N) with the
shipped floor, as error / printed bound; bold where the bound is broken:"""

_SIMPLE = """\
The lemma has two more conditions that it does not name. For τ below 2/(1+e²) = .238 every P̂ of cosine
scores is positive, whatever is drawn: with s⁺ ≥ −1, σ(s⁺−1) ≥ .238·σ(s⁺+1). Above that there are cosine
scores for which P̂ ≤ 0 has positive probability; without a floor the error then has no mean, and no bound
can hold. And the second half of the proof needs a lower bound of P̂ itself, not only of its mean; a floor
at 1/(1+e²), which no true P of cosine scores is below, gives one. With it the proof is short: log is
(1+e²)-Lipschitz above the floor, |max(P̂, floor) − P| ≤ |P̂ − P|, and E|P̂ − P| ≤ (w/(2(1−τ)))·(1/√N +
τ/√M), as no mean of n values in an interval of width w = (e²−1)/(e²+1) has a standard deviation above
w/(2√n). That is the simple bound, 5.8 times below the corrected one, which it thereby proves (with the
shipped floor, .01, that one is only observed). The statement's “with probability at least 1 − δ” has no δ
in its bound: it is a bound of an expectation."""

_IDENTITY = """\
## The identity: at the level of the AUC the correction is an affine map

σ(a) + σ(−a) = 1. Over all ordered pairs of positives, an item with itself included (½), the mean of σ(s −
s') is therefore exactly ½, for *any* model. With all positives among the unlabelled items, AUC_PU = τ/2 +
(1−τ)·AUC_PN, and

    AUC_PN = (AUC_PU − τ/2) / (1−τ)

An affine map with a positive slope: it changes no order among models, and a model that is best by the
biased AUC is best by the true one. It rests on one assumption: labelled and hidden positives are alike.
Where people see, and so label, some positives rather than others, the mean is not ½ and the map is another
one."""

_LOSS_LEVEL = """\
The loss takes a logarithm for each anchor before it averages, and there the correction does change the
order of models. In the gradient it is a weight: ∂loss/∂mean_n σ = −1/(mean_n σ − τ·mean_m σ), in place of
−1/mean_n σ. Through that weight anchors that are seldom above the unlabelled count more than they would
with τ = 0, those at the top nearly the same. (The extra positives have a term of their own, τ times as
large.) Whether that helps is for the experiments to say: [the paper, run again](paper.md)."""

_REBUILD = """\
## How to rebuild

```sh
truepair-lab theory --save results/theory.json --out docs/theory.md    # run the checks: about a minute
truepair-lab theory --load results/theory.json --out docs/theory.md    # the page again, no checks
```

The same results give the same page."""
