"""Tuning: a search for parameters that can be stopped and continued, and shared by many processes."""

from truepair.tuning.domains import Choice, Powers, Range, Space, When
from truepair.tuning.recommender_search import SearchPlan, plan_search, tune
from truepair.tuning.runner import training_runner
from truepair.tuning.search_loop import SHAPES, Runner, Tuning, check_effort, check_space, run_search
from truepair.tuning.trials import Asked, Trial

__all__ = [
    "SHAPES",
    "Asked",
    "Choice",
    "Powers",
    "Range",
    "Runner",
    "SearchPlan",
    "Space",
    "Trial",
    "Tuning",
    "When",
    "check_effort",
    "check_space",
    "plan_search",
    "run_search",
    "training_runner",
    "tune",
]
