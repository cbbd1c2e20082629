"""Training: a job in, fitted matrices out."""

from truepair.training.engines import AUTO, ENGINES, choose_engine
from truepair.training.fitting import check_sampler, fit, fit_many
from truepair.training.job import Job
from truepair.training.new_users import fold_in
from truepair.training.result import EpochRecord, EpochState, FitResult, OnEpoch, StopTraining
from truepair.training.settings import Settings

__all__ = [
    "AUTO",
    "ENGINES",
    "EpochRecord",
    "EpochState",
    "FitResult",
    "Job",
    "OnEpoch",
    "Settings",
    "StopTraining",
    "check_sampler",
    "choose_engine",
    "fit",
    "fit_many",
    "fold_in",
]
