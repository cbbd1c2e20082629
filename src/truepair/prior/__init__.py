"""The prior τ: the share of positives among unlabelled pairs, estimated from the interactions alone."""

from truepair.prior.estimate import LEVEL, METHODS, PriorEstimate, estimate_prior
from truepair.prior.preparation import ESTIMATED, PreparedJob, prepare, prepare_many, with_estimated_prior

__all__ = [
    "ESTIMATED",
    "LEVEL",
    "METHODS",
    "PreparedJob",
    "PriorEstimate",
    "estimate_prior",
    "prepare",
    "prepare_many",
    "with_estimated_prior",
]
