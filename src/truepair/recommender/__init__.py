"""Recommender: from interactions to lists, in the caller's ids."""

from truepair.recommender.estimator import Recommender

__all__ = ["Recommender"]
