"""The runner for models of truepair: trials -> jobs, trained together, validated and reported."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from truepair.data.interactions import Interactions
from truepair.errors import TrainingError, TruepairError
from truepair.evaluation import Validation
from truepair.losses import Loss
from truepair.models.closed_forms import ClosedForm
from truepair.prior import ESTIMATED, prepare_many, with_estimated_prior
from truepair.recommender.estimator import Recommender
from truepair.recommender.fitting import solve
from truepair.spec import Spec
from truepair.training import (
    AUTO,
    EpochState,
    FitResult,
    Job,
    StopTraining,
    choose_engine,
    fit_many,
)
from truepair.search.trials import Asked


def training_runner(
    fixed: Mapping[str, Any],
    train: Interactions,
    valid: Interactions,
    metric: str = "ndcg@20",
    engine: str = AUTO,
    progress: bool = False,
) -> TrainingRunner:
    """A runner that trains on `train` and reports `metric` on `valid`, without what `train` has.

    `fixed` are the parameters that all trials share, flat like the trials' own: Recommender's names, and
    dotted ones for fields of the loss, encoder and sampler, such as `"loss.tau"`.
    """
    return TrainingRunner(fixed, train, valid, metric, engine, progress)


class TrainingRunner:
    """See `training_runner`."""

    def __init__(
        self,
        fixed: Mapping[str, Any],
        train: Interactions,
        valid: Interactions,
        metric: str,
        engine: str,
        progress: bool,
    ) -> None:
        self.fixed = {**fixed, "metric": metric, "engine": engine}
        self.train, self.progress = train, progress
        self.validation = Validation(valid, train, metric)
        self.identity = self.validation.identity
        self._priors: dict[tuple[object, int], Any] = {}

    def __call__(self, batch: Sequence[Asked]) -> None:
        """Train the batch together where the engine can; a trial that cannot be trained fails alone."""
        jobs: list[tuple[Asked, Job]] = []
        for asked in batch:
            try:
                model = Recommender.of(asked.parameters)
                spec = Spec.of(model.given(), disliked=self.train.disliked is not None, unused="drop")
                if spec.closed_form is not None:
                    self._solve(asked, spec.closed_form, spec.settings.torch_device())
                    continue
                job = spec.job(self.train, loss=self._with_prior(spec.loss, spec.settings.seed))
                choose_engine(job, self.fixed["engine"])
                jobs.append((asked, job))
            except TruepairError as error:
                asked.fail(str(error))
        if jobs:
            self._train(jobs)

    def _train(self, jobs: Sequence[tuple[Asked, Job]]) -> None:
        began = time.perf_counter()
        jobs = self._prepared(jobs)
        watches = [_Watch(self.validation, asked) for asked, _ in jobs]
        found = fit_many(
            [job for _, job in jobs], watches, engine=self.fixed["engine"], progress=self.progress
        )
        took = time.perf_counter() - began
        for (asked, _), result, share in zip(jobs, found, _shares(found), strict=True):
            if isinstance(result, TrainingError):
                asked.fail(str(result))
            else:
                asked.finish(result.score, result.epoch, took * share, result.engine)

    def _prepared(self, jobs: Sequence[tuple[Asked, Job]]) -> list[tuple[Asked, Job]]:
        """The jobs with prepared losses; a trial whose preparation fails, fails alone."""
        found = prepare_many([job for _, job in jobs], engine=self.fixed["engine"], progress=self.progress)
        ready = []
        for (asked, _), each in zip(jobs, found, strict=True):
            if isinstance(each, TruepairError):
                asked.fail(str(each))
            else:
                ready.append((asked, each.job))
        return ready

    def _with_prior(self, loss: Loss, seed: int) -> Loss:
        """The loss with its prior estimated, if it asks for that: once for all trials."""
        word = getattr(loss, "tau", None)
        if word not in ESTIMATED:
            return loss
        if (word, seed) not in self._priors:
            filled, _ = with_estimated_prior(loss, self.train, seed=seed)
            self._priors[word, seed] = getattr(filled, "tau", None)
        return loss.with_prior(self._priors[word, seed])

    def _solve(self, asked: Asked, encoder: ClosedForm, device: torch.device) -> None:
        began = time.perf_counter()
        result = solve(encoder, self.train, self.validation, device)
        asked.finish(result.score, None, time.perf_counter() - began, result.engine)


class _Watch:
    """Reports the validation score of every epoch to a trial, which may stop the run."""

    def __init__(self, validation: Validation, asked: Asked) -> None:
        self.validation, self.asked = validation, asked
        self.metric, self.identity = validation.metric, validation.identity

    def __call__(self, state: EpochState) -> float:
        score = self.validation(state)
        if self.asked.report(state.epoch, score):
            raise StopTraining(score)
        return score


def _shares(found: Sequence[FitResult | TrainingError]) -> list[float]:
    """The share of the time that each run took; runs that trained together share it."""
    times = [0.0 if isinstance(one, TrainingError) else sum(r.seconds for r in one.history) for one in found]
    return [each / max(sum(times), 1e-9) for each in times]
