"""Encoder, loss, sampler and interactions in; fitted matrices out."""

from truepair.training.engines import AUTO, ENGINES, check_sampler, choose_engine, fit, fit_many
from truepair.training.new_users import fold_in
from truepair.training.result import EpochRecord, EpochState, FitResult, Job, OnEpoch, StopTraining
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
