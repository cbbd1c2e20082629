"""The runner for our own models: trials -> jobs, trained together, each validated and told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TrainingError, TruepairError
from truepair.evaluation import Validation
from truepair.losses import Loss
from truepair.models.closed_forms import ClosedForm
from truepair.prior import ESTIMATED, prepare_many, with_estimated_prior
from truepair.recommender.closed_fit import Solved
from truepair.recommender.defaults import given_over, usual
from truepair.recommender.estimator import Recommender
from truepair.recommender.parameters import FIELDS, PARTS, assembled, current_name
from truepair.training import (
    AUTO,
    EpochState,
    FitResult,
    Job,
    Settings,
    StopTraining,
    choose_engine,
    fit_many,
)
from truepair.tuning.trials import Asked


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
        """Train the batch at once where the engine can; what cannot be trained fails alone."""
        jobs: list[tuple[Asked, Job]] = []
        for asked in batch:
            try:
                model = recommender_of(asked.parameters)
                if (closed := model.closed_form()) is not None:
                    self._solve(asked, closed, Settings(device=model.device).torch_device())
                    continue
                encoder, loss, sampler, settings = model.job(len(self.train))
                loss = self._with_prior(loss, settings.seed)
                job = Job(encoder, loss, sampler, self.train, settings)
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
        """The jobs with what first models tell, where losses need them; one that has none fails alone."""
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
        """A model without training: its one score."""
        began = time.perf_counter()
        solved = Solved(*encoder.solve(self.train, device), encoder, None, 0.0)
        asked.finish(self.validation(solved), None, time.perf_counter() - began, solved.engine)


class _Watch:
    """After an epoch: the score, told to the trial, which may have to stop."""

    def __init__(self, validation: Validation, asked: Asked) -> None:
        self.validation, self.asked = validation, asked
        self.metric, self.identity = validation.metric, validation.identity

    def __call__(self, state: EpochState) -> float:
        score = self.validation(state)
        if self.asked.report(state.epoch, score):
            raise StopTraining(score)
        return score


def recommender_of(parameters: Mapping[str, Any]) -> Recommender:
    """The recommender of flat parameters.

    A loss, encoder or sampler of which no field is named stays a name, so that `tau`, `dim` and the usual
    pool count; where one is named, they and the usual values count for the other fields.
    """
    given = {name: current_name(name, value) for name, value in parameters.items()}
    flat = {**{part: getattr(Recommender, part) for part in PARTS}, **given}
    known = given_over(usual(flat["sampler"], flat["loss"]), flat)
    by_name = {part: flat.pop(part) for part in PARTS if not any(key.startswith(f"{part}.") for key in flat)}
    for name, place in FIELDS.items():
        if name in known and place not in flat and _has_field(flat, place):
            flat[place] = known[name]
            flat.pop(name, None)
    return Recommender().set_params(**assembled(flat), **by_name)


def by_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Flat parameters with `dim`, `scoring`, `temperature` and `tau` named as the fields that they are.

    >>> by_fields({"loss": "dpl", "tau": 0.1, "epochs": 5})
    {'loss': 'dpl', 'epochs': 5, 'loss.tau': 0.1}
    """
    flat, parts = dict(parameters), {part: getattr(Recommender, part) for part in PARTS}
    for name, place in FIELDS.items():
        if flat.get(name) is not None and place not in flat and _has_field({**parts, **flat}, place):
            flat[place] = flat.pop(name)
    return flat


def _has_field(flat: Mapping[str, Any], place: str) -> bool:
    """Whether the part is there, and of a kind that has this field."""
    part, name = place.split(".")
    kind = flat.get(part)
    if kind is not None and not isinstance(kind, str):
        raise InputError(f"{part} = {kind!r} must be a name where its fields are named.")
    return kind is not None and hasattr(assembled({part: kind})[part], name)


def _shares(found: Sequence[FitResult | TrainingError]) -> list[float]:
    """Each run's part of the time; those of a group share it."""
    times = [0.0 if isinstance(one, TrainingError) else sum(r.seconds for r in one.history) for one in found]
    return [each / max(sum(times), 1e-9) for each in times]
