"""The texts of the page: what was done and how to read it. What was found is computed."""

INTRODUCTION = """\
# The prior

τ is the share of positives among the pairs that nobody has labelled. DPL, DCL and HCL subtract what it
says; the paper takes it from a grid. `truepair prior DATA` estimates it from the interactions alone, and
`tau="auto"` does so inside `Recommender`. This page tells how good that is where the truth is known.

```sh
truepair prior ml-100k --plot prior.svg --per-user tau.csv
```

A fifth of the pairs is hidden from a quick training, and what it says of them is compared with what it says
of the pairs nobody has.

- **Plateau**, the recommended number: the share of held-out positives rises with the score; how high it
  would rise tells how many positives are hidden. It rests on how the curve goes on where there are no data.
- **DEDPUL** and **BBE** look for a score above which all is positive. There mostly is none, so that they say
  too much: upper bounds.
- **Density** is the share of observed pairs. It is no estimate: it would be right if as many positives were
  hidden as are seen.

Where DEDPUL's number is more than four times the plateau's, or the separation (the chance that a held-out
positive scores above an unlabelled pair) is below .55, the end of the curve was not seen. Then half of
DEDPUL's number is recommended, with an interval up to the higher of the two bounds. That rule was made with
the real blocks below in view, so they do not test it. Else the interval (90%) is of the plateau: the
bootstrap over users, for every shape of the curve that is allowed.
All of it stands on one assumption, that **what is observed is a random part of what is liked**. No data
without labels can tell whether that holds."""

ADVICE = """\
## Which τ to use

1. If you tune anyway, tune τ on validation with the rest. Let the estimate be one point of the grid, and let
   the grid go far above it: the τ that ranks best may be another than the share of positives.
2. Without tuning, look at `truepair prior` first. If the end of the curve was seen, and DEDPUL and BBE are
   within twice the number, it is as good as its interval, as far as the observed part is a random one. If
   the end was not seen, the number is half of a bound: better than nothing.
3. If popular things are seen more often, as nearly everywhere, the recommended number is mostly too low.
   The upper bounds are none then: DEDPUL is about as low, and BBE may be on either side.
4. If the upper bounds are many times the number, if the separation is low, or if people chose what to rate,
   do not believe it: ask a few people about pairs that chance chose, and count."""

WORLDS = """\
## Simulated worlds

1,000 users and 1,000 items, 5% of all pairs observed, ten worlds a row, with seeds that had no part in
making the method. *By popularity*: a positive is observed with a weight that is its item's count of
positives. *Noisy* worlds have twice the noise between affinity and liking. The noise is logistic, which is
the plateau's own curve at λ = 1: a best case for it. Numbers are medians; in brackets
stands the median of |estimate − τ|/τ."""

BLOCKS = """\
## Blocks whose labels are all known

KuaiRec (positive: watched twice its length or more) and the Jester users who rated all jokes (positive: a
rating above 0). Positives are hidden by us, three seeds a row; so the exposure is known, and only the tastes
are real. Estimates below .001 are drawn at .001."""

COAT = """\
## Coat

Observed are 4 and 5 stars among the 24 coats that each person chose to rate. The truth is from the ratings
of coats that chance chose, with its own interval (binomial, 95%). What was chosen and got fewer stars counts
as negative. This is the one case here where people, not we, chose what is observed."""

USERS = """\
## Each user's own τ

Where all labels are known, a user's true prior is the share of positives among the pairs of this user that
are not observed. *Counts* are what a user has, over all items; *scaled* so that their mean is the estimated
τ. Errors are mean absolute ones in units of the true τ; *the true one for all* shows what a number that
nobody has would reach without telling users apart."""

AUTO = """\
## What it is worth in training

DPL with MF (dim 64, M = N = 5) and fixed settings near those that a search found for BPR, so that no τ had a
hand in them. Only τ differs. The epoch, and the τ of the grid {0, .003, .01, .03, .1, .2, .3, .4}, are chosen
on validation; the test part is looked at once for each source and seed. The tuned τ costs eight trainings,
the others one each and a quick one. A difference is called sure by Student's t at 95%, seed by seed, not
corrected for being many; all seeds share one split. docs/lab/truth.md tells what a wrong τ does where the
true one is known."""

REBUILD = """\
## Again

```sh
truepair lab prior-study worlds noisy kuairec jester5k coat auto-ml-100k
truepair lab prior-study auto-ml-1m auto-gowalla --device cuda
truepair lab prior-study --report
```

Each case is a JSON line in `results/prior`; what has a line is not done again, and the page is made of the
lines alone. If the method changes, delete the lines of estimates first. The data come from the catalogue
(`truepair data list`)."""
