"""Metrics per user, their averages, and whether a difference is real."""

from truepair.evaluation.comparison import Comparison, compare, compare_all
from truepair.evaluation.evaluation import Evaluation, Validation, evaluate, evaluate_split
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, parse_metric
from truepair.evaluation.statistics import bootstrap_interval, holm, sign_flip_test

__all__ = [
    "CATALOGUE_METRICS",
    "METRICS",
    "Comparison",
    "Evaluation",
    "Validation",
    "bootstrap_interval",
    "compare",
    "compare_all",
    "evaluate",
    "evaluate_split",
    "holm",
    "parse_metric",
    "sign_flip_test",
]
