"""Metrics per user, their means, and the significance of differences."""

from truepair.evaluation.comparison import Comparison as Comparison
from truepair.evaluation.comparison import compare as compare
from truepair.evaluation.comparison import compare_all as compare_all
from truepair.evaluation.evaluation import evaluate as evaluate
from truepair.evaluation.metrics import CATALOGUE_METRICS as CATALOGUE_METRICS
from truepair.evaluation.metrics import METRICS as METRICS
from truepair.evaluation.metrics import parse_metric as parse_metric
from truepair.evaluation.results import Evaluation as Evaluation
from truepair.evaluation.task import Validation as Validation
