"""Encoder, loss, sampler and interactions in; fitted matrices out."""

from __future__ import annotations

from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.encoders import Encoder
from truepair.errors import check_choice
from truepair.losses import Loss
from truepair.sampling import Sampler
from truepair.training.folding import fold_in
from truepair.training.reference import fit_reference
from truepair.training.result import EpochRecord, EpochState, FitResult, Job, OnEpoch
from truepair.training.settings import Settings

ENGINES = {"reference": fit_reference}

__all__ = [
    "ENGINES",
    "EpochRecord",
    "EpochState",
    "FitResult",
    "Job",
    "OnEpoch",
    "Settings",
    "fit",
    "fit_reference",
    "fold_in",
]


def fit(
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    interactions: Interactions,
    settings: Settings | None = None,
    on_epoch: OnEpoch | None = None,
    *,
    engine: str = "reference",
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    progress: bool = False,
) -> FitResult:
    """Train with one of the `ENGINES`; see `fit_reference` for what the arguments mean."""
    chosen = ENGINES[check_choice("engine", engine, ENGINES)]
    return chosen(
        encoder,
        loss,
        sampler,
        interactions,
        settings or Settings(),
        on_epoch,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )
