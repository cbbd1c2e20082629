"""The prior τ: how many unlabelled pairs are positive after all, from the interactions alone."""

from truepair.prior.estimate import LEVEL, METHODS, PriorEstimate, estimate_prior
from truepair.prior.filling import ESTIMATED, with_estimated_prior

__all__ = ["ESTIMATED", "LEVEL", "METHODS", "PriorEstimate", "estimate_prior", "with_estimated_prior"]
