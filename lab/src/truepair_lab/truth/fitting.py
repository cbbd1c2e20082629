"""Fitting a treatment: one model of the lab, with settings chosen on the validation part alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product

import torch

from truepair.errors import TrainingError
from truepair.evaluation.task import Validation
from truepair.models.encoders import MF
from truepair.training import FitResult, Job, OnEpoch, Settings, fit
from truepair_lab.truth.cases import TruthCase, mask_of
from truepair_lab.truth.treatments import M, Treatment, excluded_pairs

RATES, DECAYS = (0.005,), (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)  # Adam's; weight decay

_LARGE = 1_000_000  # pairs; with more, only every second epoch is looked at
_SMALL = 10_000  # training pairs; with fewer, batches are a quarter as large: an epoch needs some steps


@dataclass(frozen=True)
class Effort:
    """How much is trained and tried; the same for every treatment."""

    epochs: int = 80
    patience: int = 8
    batch_size: int = 1024
    dim: int = 32
    rates: tuple[float, ...] = RATES
    decays: tuple[float, ...] = DECAYS

    def grid(self, case: TruthCase) -> list[Settings]:
        """The settings that are tried."""
        plain = Settings(
            epochs=self.epochs,
            batch_size=self.batch_size if len(case.train) >= _SMALL else self.batch_size // 4,
            patience=self.patience,
            validate_every=1 if case.truth.size < _LARGE else 2,
            n_extra=M,
            seed=case.seed,
            device="cpu",
        )
        pairs = product(self.rates, self.decays)
        return [replace(plain, learning_rate=rate, weight_decay=decay) for rate, decay in pairs]


@dataclass(frozen=True)
class Trial:
    """One point of the grid, and its best validation score; None where training diverged."""

    settings: Settings
    score: float | None


def search(case: TruthCase, treatment: Treatment, effort: Effort) -> list[Trial]:
    """Every point of the grid, on the case's own seed."""
    return [_trial(case, treatment, settings, effort) for settings in effort.grid(case)]


def best_of(trials: list[Trial]) -> Settings:
    """The settings of the highest validation score; of equal ones the first."""
    able = [trial for trial in trials if trial.score is not None]
    if not able:
        raise TrainingError("every setting of the grid diverged; lower the learning rates.")
    return max(able, key=lambda trial: trial.score or 0.0).settings


def _trial(case: TruthCase, treatment: Treatment, settings: Settings, effort: Effort) -> Trial:
    try:
        return Trial(settings, fit_treatment(case, treatment, settings, effort.dim).score)
    except TrainingError:
        return Trial(settings, None)


def validation_of(case: TruthCase, treatment: Treatment) -> Validation:
    """NDCG@20 on the validation part; for a supervised model, see `supervised_validation`."""
    if treatment.labels is not None:
        return supervised_validation(case)
    return Validation(case.valid, case.train, f"ndcg@{min(20, case.train.n_items)}", cold="model")


def supervised_validation(case: TruthCase) -> Validation:
    """NDCG@20 on the validation part, ranked among the spare pairs: the model knows all other labels."""
    unknown = mask_of(case.valid) | case.spare
    return Validation(case.valid, case.pairs(~unknown), f"ndcg@{min(20, case.train.n_items)}", cold="model")


def fit_treatment(
    case: TruthCase, treatment: Treatment, settings: Settings, dim: int, on_epoch: OnEpoch | None = None
) -> FitResult:
    """Train; the epoch is the best by validation. `on_epoch`, if given, must pass on the validation score."""
    on_epoch = on_epoch or validation_of(case, treatment)
    with one_thread():
        return fit(job_of(case, treatment, settings, dim), on_epoch)


def job_of(case: TruthCase, treatment: Treatment, settings: Settings, dim: int) -> Job:
    """The job of a treatment. Where labels are known, all pairs that must not be drawn are interactions, and
    some of them are anchors."""
    job = Job(
        MF(dim=dim),
        treatment.loss(case),
        treatment.sampler,
        case.train,
        replace(settings, n_unlabelled=treatment.n),
    )
    if treatment.labels is None:
        return job
    labels = treatment.labels(case)
    excluded = excluded_pairs(case, labels)
    return replace(job, interactions=excluded, anchors=labels.anchors[excluded.users, excluded.items])


@contextmanager
def one_thread() -> Iterator[None]:
    """Batches are small, and threads that wait for each other on a busy machine are slower than one."""
    before, compiled = torch.get_num_threads(), _compiled_threads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _compiled_threads(compiled)


def _compiled_threads(n: int) -> int:
    """Set Numba's threads, where there is Numba; how many there were."""
    if find_spec("numba") is None:
        return n
    import numba

    before: int = numba.get_num_threads()
    numba.set_num_threads(n)
    return before
