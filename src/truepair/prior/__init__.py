"""The prior τ: the share of positives among unlabelled pairs, estimated from the interactions alone."""

from truepair.prior.estimate import ESTIMATED as ESTIMATED
from truepair.prior.estimate import LEVEL as LEVEL
from truepair.prior.estimate import METHODS as METHODS
from truepair.prior.estimate import PreparedJob as PreparedJob
from truepair.prior.estimate import PriorEstimate as PriorEstimate
from truepair.prior.estimate import estimate_prior as estimate_prior
from truepair.prior.estimate import prepare as prepare
from truepair.prior.estimate import with_estimated_prior as with_estimated_prior
