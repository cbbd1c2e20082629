"""The runner for models of truepair: trials -> jobs, trained together, validated and reported."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import torch

from truepair.data.interactions import Interactions
from truepair.errors import TrainingError, TruepairError
from truepair.evaluation import Validation
from truepair.models.closed_forms import ClosedForm
from truepair.prior import ESTIMATED, prepare, with_estimated_prior
from truepair.recommender.fitting import solve
from truepair.search.domains import Flat
from truepair.search.trials import OpenTrial
from truepair.spec import Spec
from truepair.spec.parameters import resolve
from truepair.training import AUTO, EpochState, Job, StopTraining, choose_engine, fit_many


class TrainingRunner:
    """A runner that trains on `train` and reports `metric` on `valid`, without what `train` has.

    `fixed` are the parameters that all trials share, flat like the trials' own: Recommender's names, and
    dotted ones for fields of the loss, encoder and sampler, such as `"loss.tau"`.
    """

    def __init__(
        self,
        fixed: Flat,
        train: Interactions,
        valid: Interactions,
        metric: str = "ndcg@20",
        engine: str = AUTO,
    ) -> None:
        self.fixed = {**fixed, "metric": metric, "engine": engine}
        self.train, self.engine = train, engine
        self.validation = Validation(valid, train, metric)
        self.identity = self.validation.identity
        self._priors: dict[tuple[str, int], float | tuple[float, ...]] = {}

    def __call__(self, batch: Sequence[OpenTrial]) -> None:
        """Train the batch together where the engine can; a trial that cannot be trained fails alone."""
        ready: list[tuple[OpenTrial, Job]] = []
        for trial in batch:
            try:
                disliked = self.train.disliked is not None
                spec = Spec.of(resolve(trial.parameters), disliked=disliked, unused="drop")
                if spec.closed_form is not None:
                    self._solve(trial, spec.closed_form, spec.settings.torch_device())
                    continue
                job = self._with_prior(spec.job(self.train))
                choose_engine(job, self.engine)
                ready.append((trial, prepare(job, engine=self.engine).job))
            except TruepairError as error:
                trial.fail(str(error))
        if ready:
            self._train(ready)

    def _train(self, ready: Sequence[tuple[OpenTrial, Job]]) -> None:
        """Train these trials; those that train together share the seconds by those of their epochs."""
        watches, began = [_Watch(self.validation, trial) for trial, _ in ready], time.perf_counter()
        found = fit_many([job for _, job in ready], watches, engine=self.engine)
        took = time.perf_counter() - began
        epochs = [sum([each.seconds for each in getattr(result, "history", ())]) for result in found]
        for (trial, _), result, own in zip(ready, found, epochs, strict=True):
            if isinstance(result, TrainingError):
                trial.fail(str(result))
            else:
                seconds = took * own / sum(epochs) if any(epochs) else took / len(ready)
                trial.finish(result.score, result.epoch, seconds, result.engine)

    def _with_prior(self, job: Job) -> Job:
        """The job with the prior of its loss estimated, if it asks for that: once for all trials."""
        word, seed = getattr(job.loss, "tau", None), job.settings.seed
        if word not in ESTIMATED:
            return job
        if (word, seed) not in self._priors:
            estimated, _ = with_estimated_prior(job.loss, self.train, seed=seed)
            self._priors[word, seed] = vars(estimated)["tau"]
        return dataclasses.replace(job, loss=job.loss.with_prior(self._priors[word, seed]))

    def _solve(self, trial: OpenTrial, encoder: ClosedForm, device: torch.device) -> None:
        began = time.perf_counter()
        result = solve(encoder, self.train, self.validation, device)
        trial.finish(result.score, None, time.perf_counter() - began, result.engine)


class _Watch:
    """Reports the validation score of every epoch to a trial, which may stop the run."""

    def __init__(self, validation: Validation, trial: OpenTrial) -> None:
        self.validation, self.trial = validation, trial
        self.metric, self.identity = validation.metric, validation.identity

    def __call__(self, state: EpochState) -> float:
        score = self.validation(state)
        if self.trial.report(state.epoch, score):
            raise StopTraining(score)
        return score
