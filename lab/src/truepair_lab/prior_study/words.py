"""The texts of the page: the question, the answer, and how to read each table."""

from truepair_lab.reporting.answers import Answer

QUESTION = """\
# The prior study

**Question.** τ is the share of positives among the pairs that nobody has labelled. `truepair prior DATA`
estimates it from the interactions alone, and `tau="auto"` does so inside `Recommender`. How good is the
estimate where the truth is known, and what is it worth in training?"""

ANSWER = Answer(
    "a2d4b6ab2c96",
    """\
1. **Observed at random, the estimate is good.** Its median error is 3% in simulated worlds and 15% in
   noisy ones, and the interval holds the truth in 80 of 80 simulated cases and 17 of 18 with real tastes;
   there it is wide.
2. **Where popular items are observed more often, it is too low**: 0.20 to 0.34 of the truth in the
   median, and the interval holds the truth in 0 of 40 simulated cases. It accounts for chance, not for
   how the observed part was chosen. On KuaiRec by popularity it holds in 3 of 9 cases, on Jester in 9 of
   9.
3. **On Coat, where people chose what to rate**, the truth is .169 and the estimates are .0176, .0345 and
   .0335; 2 of 3 intervals hold the truth. The separation of 0.77 is no warning, and a BBE of 5 times the
   estimate or more is none either: see below.
4. **When to trust it.** Where the end of the curve was seen, DEDPUL and BBE are within twice the
   estimate and the observed part is random, the estimate is 0.91 to 1.27 times the truth in all 42 cases;
   otherwise it is 0.63 to 2.96 times in 56. On real data the bounds agree in 0 of 39 cases. Where the end
   was not seen (27 of 159 cases), half of DEDPUL's number is recommended, 0.20 to 1.43 times the truth;
   the plateau would be 0.00 to 0.71 times.
5. **DEDPUL and BBE are upper bounds only if the observed pairs are a random part.** In all 98 cases that
   were observed at random they are above the truth; in small worlds BBE is, and DEDPUL in 86 of 96.
   Elsewhere DEDPUL is in 12 and BBE in 35 of 61 cases; in the simulated worlds observed by popularity DEDPUL
   is in 0 and BBE in 17 of 40.
6. **Each user's own τ** ranks users as well as their counts do, not better. As a number it has a lower
   mean error than one estimated τ for all in 7 of 7 settings, than plain counts in 7, and than counts
   scaled to the estimate in 5.
7. **In training, the estimate is not the τ that ranks best.** On MovieLens-1M the tuned τ is 27 times the
   estimate and significantly better by .0159; on MovieLens-100k (16 times) and Gowalla (3.1 times) the
   difference is not significant. On MovieLens the best τ is the highest tried, .4, for every seed, so a
   higher one might rank better. Read as a prior, the tuned τ would mean 8.4, 12 and 33 hidden positives
   for each observed one (the estimate says 0.53, 0.44 and 11): a τ picked for its ranking is a setting of
   the loss, not a measurement.

**Which τ to use.** If you tune, tune τ as well, with the estimate as one point of a grid that goes far
above it. Without tuning, look at the interval of `truepair prior` first. If popular items are seen more
often, as almost everywhere, or if people chose what to rate, expect the number to be too low. Nothing in
the data shows it: where the number matters, label some randomly chosen pairs and count.""",
)

SUMMARY = """\
## Summary

Over all levels and seeds of a setting. Errors are medians of |estimate − τ|/τ. Levels are the true τ (.01,
.03, .1, .3) in worlds and the share hidden (.2, .5, .8) in blocks. “Bounds agree”: the end of the curve
was seen, and DEDPUL and BBE are within twice the estimate. The interval claims 90%.
Every case and method: [tables/prior-estimates.csv](tables/prior-estimates.csv)."""

METHOD = """\
## Method

A fifth of the pairs is held out of a quick training, and their scores are compared with those of the
unlabelled pairs.

- **Plateau**, the recommended number: the share of held-out positives rises with the score, and the
  height it would reach shows how many positives are hidden.
- **DEDPUL** and **BBE** look for a score above which all is positive. There mostly is none, so they are
  too high: upper bounds, if the observed pairs are a random part of the positives.
- **Density** is the share of observed pairs.

Where DEDPUL's number is more than four times the plateau's, or the separation (the chance that a held-out
positive scores above an unlabelled pair) is below .55, the end of the curve was not seen. Then half of
DEDPUL's number is recommended, with an interval up to the higher of the two. That rule was made with the
real blocks below in view, so they do not test it. Otherwise the interval (90%) is the bootstrap over
users, for every allowed shape of the curve. All of it assumes that **the observed pairs are a random part
of the positives**. No data without labels can show whether that holds."""

WORLDS = """\
## Simulated worlds

1,000 users and 1,000 items, 5% of all pairs observed, ten worlds a level, with seeds that had no part in
making the method. *By popularity*: a positive is observed with a weight that is its item's count of
positives. *Noisy* worlds have twice the noise between affinity and liking. The noise is logistic, which
is the plateau's own curve at λ = 1: a best case for it."""

BLOCKS = """\
## Blocks whose labels are all known

KuaiRec (positive: watched twice its length or more) and the Jester users who rated all jokes (positive: a
rating above 0). Positives were hidden by this study, three seeds a level; only the tastes are real.
Estimates below .001 are drawn at .001."""

COAT = """\
## Coat

Observed are 4 and 5 stars among the 24 coats that each person chose to rate. The truth is from the
ratings of coats that chance chose, with a binomial interval at 95%."""

WARNING = """\
## There is no warning

`truepair prior` once gave no number if the separation was below .55, if the scores reached no plateau, or if
a bound was 5 times the estimate or more. *Wrong* is an estimate of more than twice the truth or less than
half of it. The criteria fired in 70% of the wrong cases and in 50% of the others; in small worlds (six seeds
a level) in 86% and 75%. Such a warning says next to nothing, so there is none. A threshold of one number is
no better: BBE is 5 times the estimate or more in 38% of the wrong large cases and in 8% of the others, but in
small worlds that are observed at random in 39% and 33%.

The interval is what to look at. In small worlds it is often wide, from nearly 0 to the higher bound, and
holds the truth in 95 of 96 cases if the pairs were observed at random, in 77 of 96 if by popularity."""

USERS = """\
## Each user's own τ

Where all labels are known, a user's true prior is the share of positives among the pairs of this user
that are not observed. *Counts* are what a user has, over all items; *scaled* so that their mean is the
estimated τ. Errors are mean absolute ones in units of the true τ; *the true one for all* shows what the
true τ would reach without telling users apart."""

AUTO = """\
## What the estimate is worth in training

DPL with MF (dim 64, M = N = 5) and fixed settings near those that a search found for BPR, so that no τ
had a part in them. The epoch and the tuned τ are chosen on validation; the test part is evaluated once
for each source and seed. Bold differences are significant: Student's t, seed by seed, with p corrected by
Holm over the differences of a dataset. All seeds share one split."""

REBUILD = """\
## How to rebuild

```sh
truepair-lab prior-study worlds noisy kuairec jester5k coat auto-ml-100k    # adds the lines that are missing
truepair-lab prior-study small small-noisy tiny tiny-noisy
truepair-lab prior-study auto-ml-1m auto-gowalla --device cuda
truepair-lab prior-study --report docs/prior.md                             # this page, from the lines alone
```

Each case is a JSON line in `results/prior`. If the method changes, delete the lines of estimates first."""
