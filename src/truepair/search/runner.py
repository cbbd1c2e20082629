"""The runner for models of truepair: trials -> jobs, trained together, validated and reported."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from truepair.data.interactions import Interactions
from truepair.errors import TrainingError, TruepairError
from truepair.evaluation import Validation
from truepair.prior import ESTIMATED, prepare_many, with_estimated_prior
from truepair.recommender.fitting import solve
from truepair.search.domains import Flat
from truepair.search.trials import Asked, run_jobs
from truepair.spec import Spec
from truepair.spec.parameters import Parameters
from truepair.training import AUTO, EpochState, Job, StopTraining, choose_engine


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
        progress: bool = False,
    ) -> None:
        self.fixed = {**fixed, "metric": metric, "engine": engine}
        self.train, self.engine, self.progress = train, engine, progress
        self.validation = Validation(valid, train, metric)
        self.identity = self.validation.identity
        self._priors: dict[tuple[str, int], float | tuple[float, ...]] = {}

    def __call__(self, batch: Sequence[Asked]) -> None:
        """Train the batch together where the engine can; a trial that cannot be trained fails alone."""
        jobs: list[tuple[Asked, Job]] = []
        for asked in batch:
            try:
                given = Parameters.of(asked.parameters).given()
                spec = Spec.of(given, disliked=self.train.disliked is not None, unused="drop")
                if spec.closed_form is not None:
                    self._solve(asked, spec)
                    continue
                job = self._with_prior(spec.job(self.train))
                choose_engine(job, self.engine)
                jobs.append((asked, job))
            except TruepairError as error:
                asked.fail(str(error))
        if jobs:
            self._train(jobs)

    def _train(self, jobs: Sequence[tuple[Asked, Job]]) -> None:
        """Train them, each with its prepared loss; a trial whose preparation fails, fails alone."""
        prepared = prepare_many([job for _, job in jobs], engine=self.engine, progress=self.progress)
        ready = list[tuple[Asked, Job]]()
        for (asked, _), each in zip(jobs, prepared, strict=True):
            if isinstance(each, TruepairError):
                asked.fail(str(each))
            else:
                ready.append((asked, each.job))
        watches = [_Watch(self.validation, asked) for asked, _ in ready]
        found = run_jobs([job for _, job in ready], watches, self.engine, self.progress)
        for (asked, _), (result, seconds) in zip(ready, found, strict=True):
            if isinstance(result, TrainingError):
                asked.fail(str(result))
            else:
                asked.finish(result.score, result.epoch, seconds, result.engine)

    def _with_prior(self, job: Job) -> Job:
        """The job with the prior of its loss estimated, if it asks for that: once for all trials."""
        word, seed = getattr(job.loss, "tau", None), job.settings.seed
        if word not in ESTIMATED:
            return job
        if (word, seed) not in self._priors:
            estimated, _ = with_estimated_prior(job.loss, self.train, seed=seed)
            self._priors[word, seed] = vars(estimated)["tau"]
        return dataclasses.replace(job, loss=job.loss.with_prior(self._priors[word, seed]))

    def _solve(self, asked: Asked, spec: Spec) -> None:
        assert spec.closed_form is not None
        began = time.perf_counter()
        result = solve(spec.closed_form, self.train, self.validation, spec.settings.torch_device())
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
