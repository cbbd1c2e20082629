"""The prior τ: how many unlabelled pairs are positive after all, and which, from the interactions alone."""

from truepair.prior.estimate import LEVEL, METHODS, PriorEstimate, estimate_prior
from truepair.prior.filling import ESTIMATED, Prepared, prepared, prepared_many, with_estimated_prior

__all__ = [
    "ESTIMATED",
    "LEVEL",
    "METHODS",
    "Prepared",
    "PriorEstimate",
    "estimate_prior",
    "prepared",
    "prepared_many",
    "with_estimated_prior",
]
