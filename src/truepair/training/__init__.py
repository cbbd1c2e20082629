"""Encoder, loss, sampler and interactions in; fitted matrices out."""

from truepair.training.reference import fit_reference
from truepair.training.result import EpochRecord, EpochState, FitResult, Job, OnEpoch
from truepair.training.settings import Settings

ENGINES = {"reference": fit_reference}

__all__ = ["ENGINES", "EpochRecord", "EpochState", "FitResult", "Job", "OnEpoch", "Settings", "fit_reference"]
