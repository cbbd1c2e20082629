"""From interactions to lists, in the caller's ids: `truepair.recommender.estimator` has the `Recommender`."""
