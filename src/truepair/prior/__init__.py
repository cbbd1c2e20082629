"""The prior τ: how many unlabelled pairs are positive after all, and which, from the interactions alone."""

from truepair.prior.estimate import LEVEL, METHODS, PriorEstimate, estimate_prior
from truepair.prior.preparation import ESTIMATED, Prepared, prepare, prepare_many, with_estimated_prior

__all__ = [
    "ESTIMATED",
    "LEVEL",
    "METHODS",
    "Prepared",
    "PriorEstimate",
    "estimate_prior",
    "prepare",
    "prepare_many",
    "with_estimated_prior",
]
