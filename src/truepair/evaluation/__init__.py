"""Metrics per user, their means, and the significance of differences."""

from truepair.evaluation.cold import COLD
from truepair.evaluation.comparison import Comparison, compare, compare_all
from truepair.evaluation.evaluation import Validation, evaluate
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, parse_metric
from truepair.evaluation.results import Evaluation
from truepair.evaluation.statistics import holm

__all__ = [
    "CATALOGUE_METRICS",
    "COLD",
    "METRICS",
    "Comparison",
    "Evaluation",
    "Validation",
    "compare",
    "compare_all",
    "evaluate",
    "holm",
    "parse_metric",
]
