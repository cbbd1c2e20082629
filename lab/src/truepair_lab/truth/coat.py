"""Coat's positives, and why two pages have two true priors for it."""

LEAST = 4  # of 5 stars: a positive
TWO_PRIORS = """\
Coat's true τ is .180 in [the truth lab](truth.md) and .169 in [the prior study](prior.md). The first is
the share of positives among the pairs that chance chose, the only labels that the truth lab takes for
known. The second is the share among all pairs that are not observed, where those that people chose and
gave fewer than 4 stars are negatives."""
