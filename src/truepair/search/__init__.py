"""Searches for parameters: trials, and what proposes them: automatic settings, and `tune` by Optuna."""

import truepair.recommender  # noqa: F401, first: its estimator imports modules of this package
