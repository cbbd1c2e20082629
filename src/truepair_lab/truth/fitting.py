"""Fitting a treatment: one model of the lab, with settings chosen on the validation part alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product

import torch

from truepair.errors import TrainingError
from truepair.evaluation.evaluation import Validation
from truepair.models.encoders import MF
from truepair.training import ENGINES, FitResult, Job, OnEpoch, Settings, choose_engine, fit
from truepair.training.loop import Run, run_to_the_end
from truepair.training.reference.trainer import ReferenceTrainer
from truepair.training.sampled.cpu.engine import CpuTrainer
from truepair.training.trainer import Trainer
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
    """NDCG@20 on the validation part; a supervised model ranks it among what it was not told."""
    k = min(20, case.train.n_items)
    untold = mask_of(case.valid) | case.spare
    mask = mask_of(case.train) if treatment.labels is None else ~untold
    return Validation(case.valid, case.pairs(mask), f"ndcg@{k}")


def fit_treatment(
    case: TruthCase, treatment: Treatment, settings: Settings, dim: int, on_epoch: OnEpoch | None = None
) -> FitResult:
    """Train; the epoch is the best by validation. `on_epoch`, if given, must pass on the validation score."""
    on_epoch = on_epoch or validation_of(case, treatment)
    encoder, loss, sampler = MF(dim=dim), treatment.loss(case), treatment.sampler
    settings = replace(settings, n_unlabelled=treatment.n)
    with one_thread():
        if treatment.labels is None:
            return fit(encoder, loss, sampler, case.train, settings, on_epoch)
        return _fit_told(Job(encoder, loss, sampler, case.train, settings), case, treatment, on_epoch)


def _fit_told(job: Job, case: TruthCase, treatment: Treatment, on_epoch: OnEpoch) -> FitResult:
    """The engines draw from what is not among the interactions: give them all that must not be drawn."""
    assert treatment.labels is not None
    labels = treatment.labels(case)
    job = replace(job, interactions=excluded_pairs(case, labels))
    engine = choose_engine(job)
    trainer = ENGINES[engine].start(job)
    _keep_anchors(trainer, torch.from_numpy(labels.anchors.copy()), job.settings.batch_size)
    return run_to_the_end(Run(job, engine, trainer, on_epoch, None), 1, progress=False)


def _keep_anchors(trainer: Trainer, anchors: torch.Tensor, batch_size: int) -> None:
    """Only these pairs are anchors; all others of the interactions are merely never drawn."""
    if isinstance(trainer, CpuTrainer):
        users, items = trainer.anchor_users, trainer.anchor_items
        kept = anchors.numpy()[users, items]
        trainer.anchor_users, trainer.anchor_items = users[kept], items[kept]
        trainer.n_anchors = int(kept.sum())
    else:
        assert isinstance(trainer, ReferenceTrainer)
        draws = trainer.draws
        draws.anchors = draws.anchors[anchors[draws.users[draws.anchors], draws.items[draws.anchors]]]
        trainer.n_anchors = len(draws.anchors)
    trainer.steps = math.ceil(trainer.n_anchors / batch_size)


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
