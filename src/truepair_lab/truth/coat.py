"""Coat's true τ: one share for each of two pages, and the sentence that both of them tell."""

from __future__ import annotations

LEAST = 4  # of 5 stars: a positive
CHOSEN_SHARE = 24 / 300  # of all pairs: everybody chose 24 of the 300 coats to rate


def among_unlabelled(drawn: float, observed: float) -> float:
    """τ among all pairs that are not observed, from the share `drawn` among those that chance chose.

    Chance chose among the pairs that nobody had chosen; those chosen with fewer than 4 stars are negatives:

        τ = p·(1 − c)/(1 − o),  c = 24/300,  o = the share of observed pairs
    """
    return drawn * (1 - CHOSEN_SHARE) / (1 - observed)


def among_drawn(unlabelled: float, observed: float) -> float:
    """The other way round."""
    return unlabelled * (1 - observed) / (1 - CHOSEN_SHARE)


def tau_words(drawn: float, observed: float) -> str:
    """Why Coat has two true τ; the same words on either page."""
    shares = drawn, among_unlabelled(drawn, observed)
    in_lab, in_study = (f"{share:.3f}".removeprefix("0") for share in shares)
    return (
        f"Coat's true τ is {in_lab} in docs/lab/truth.md and {in_study} in docs/lab/prior.md: the first is "
        "the share of positives among the pairs that chance chose, the only ones that the lab takes for "
        "known; the second is the share among all pairs that are not observed, where those that people chose "
        f"and gave fewer than {LEAST} stars are negatives."
    )
