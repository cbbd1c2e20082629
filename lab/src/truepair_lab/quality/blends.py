"""Blends of a trained contestant and EASE, both as their own searches found them; a weight is searched, and
in some small cases the settings of EASE with it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.errors import InputError, TruepairError
from truepair.evaluation import Validation
from truepair.models.closed_forms import EASE
from truepair.models.factor_matrices import Rows, dense
from truepair.models.scorer import Scorer
from truepair.prior import PreparedJob, prepare
from truepair.recommender.estimator import Recommender
from truepair.search.trials import OpenTrial
from truepair.training import EpochState, FitResult, Job, StopTraining, fit_many
from truepair_lab.lines import digest
from truepair_lab.quality.settled import STOP, blend_parameters, final_parameters

Parameters = Mapping[str, Any]
BEFORE = {"encoder.temperature": 1.0}  # of lines that were written before it was among the parameters


class StopAfter:
    """An `on_epoch` that ends a run after this epoch, and looks at nothing."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, state: EpochState, /) -> None:
        """No score."""
        if state.epoch >= self.epoch:
            raise StopTraining


Fitted = tuple[Any, Tensor, FitResult]  # users, items, and the run that they are from


def trained(parameters: Parameters, train: Interactions, seed: int) -> Fitted:
    """A run with these parameters that ends after their `stop_after`, with what is added to it."""
    (found,) = trained_together([(parameters, seed)], train)
    if isinstance(found, TruepairError):
        raise found
    return found


def trained_together(
    asked: Sequence[tuple[Parameters, int]], train: Interactions
) -> Iterator[Fitted | TruepairError]:
    """Runs with these parameters and seeds, trained at once where the engine can; an error in place of each
    that fails. A blend and its trained part are one run."""
    jobs: dict[str, tuple[Job, StopAfter]] = {}
    for parameters, seed in asked:
        jobs.setdefault(run_key(parameters, seed), _job(parameters, train, seed))
    ready = [_prepared(job) for job, _ in jobs.values()]
    fitting = [(each.job, stop) for each, (_, stop) in zip(ready, jobs.values(), strict=True)
               if isinstance(each, PreparedJob)]  # fmt: skip
    fitted = iter(fit_many([job for job, _ in fitting], [stop for _, stop in fitting]))
    results = [next(fitted) if isinstance(each, PreparedJob) else each for each in ready]
    of_key = dict(zip(jobs, results, strict=True))
    for parameters, seed in asked:
        result = of_key[run_key(parameters, seed)]
        yield result if isinstance(result, TruepairError) else _with_ease(parameters, result, train)


def _prepared(job: Job) -> PreparedJob | TruepairError:
    """The job with a complete loss, or the error of completing it."""
    try:
        return prepare(job)
    except TruepairError as error:
        return error


def run_key(parameters: Parameters, seed: int) -> str:
    """A checksum of what is trained: without what a blend adds."""
    return digest({name: parameters[name] for name in parameters if not name.startswith("plus")} | {"": seed})


def _job(parameters: Parameters, train: Interactions, seed: int) -> tuple[Job, StopAfter]:
    parameters = dict(parameters)
    stop = StopAfter(parameters.pop(STOP))
    # it is asked after every epoch: the chosen one need not be one that was validated
    job = Recommender.of(BEFORE | parameters | {"validate_every": 1}).job(train)
    return replace(job, settings=replace(job.settings, seed=seed)), stop


def _with_ease(parameters: Parameters, result: FitResult, train: Interactions) -> Fitted:
    """The matrices on the device; of a blend, with EASE."""
    model = Recommender.of(BEFORE | {name: parameters[name] for name in parameters if name != STOP})
    device, ease = model.job(train).settings.torch_device(), model.spec.blend
    if ease is None:
        return result.users.to(device), result.items.to(device), result
    return *_blended(result.users, result.items, ease, model.blend_weight, train, device), result


def _blended(
    users: Tensor, items: Tensor, ease: EASE, weight: float, train: Interactions, device: torch.device
) -> tuple[Rows, Tensor]:
    """The matrices of a blend of these trained matrices and EASE, on the device."""
    history, weights = _solved_ease(ease, train, device)
    rows, columns = Scorer(users, items, history=history, weights=weights * weight).matrices()
    return rows, dense("items", columns)


@lru_cache(maxsize=2)
def _solved_ease(ease: EASE, train: Interactions, device: torch.device) -> tuple[sp.csr_array, Tensor]:
    """The histories and EASE's weights, kept: all blends of a case have the same."""
    history, weights = ease.solve(train, device)
    assert isinstance(history, sp.csr_array)
    return history, dense("items", weights)


class BlendRunner:
    """Trials of a weight: both models are fitted once, and every trial blends and evaluates them."""

    def __init__(
        self,
        parts: Sequence[Parameters],
        train: Interactions,
        judge: Validation,
        searched: Collection[str] = (),
    ) -> None:
        """`parts` are the best settings of the run and of EASE; settings of EASE may be searched, too."""
        run, ease = parts
        self.fixed = {n: v for n, v in blend_parameters(run, ease).items() if n not in searched}
        self.run, self.train, self.judge, self.identity = run, train, judge, judge.identity

    def __call__(self, batch: Sequence[OpenTrial]) -> None:
        """One after the other."""
        for asked in batch:
            began = time.perf_counter()
            try:
                score = self.judge.score(*self._blend(asked.parameters))
            except TruepairError as error:
                asked.fail(str(error))
                continue
            _, _, result = self._run
            asked.finish(score, self.run["epoch"], time.perf_counter() - began, result.engine)

    @cached_property
    def _run(self) -> Fitted:
        return trained(final_parameters(self.run), self.train, seed=0)

    def _blend(self, parameters: Parameters) -> tuple[Any, Tensor]:
        users, items, _ = self._run
        model = Recommender.of({**BEFORE, **parameters})
        form = model.spec.blend
        assert form is not None
        torch.cuda.empty_cache()  # matrices of the trial before, as large as EASE's
        return _blended(users, items, form, model.blend_weight, self.train, items.device)


def best_of(settings: Mapping[Any, Mapping[str, Any]], place: tuple[str, str, str]) -> Mapping[str, Any]:
    """The best settings of a part; an error if it was not searched yet."""
    if place not in settings:
        raise InputError(
            f"{' '.join(place)} has no settings yet; `truepair-lab quality tune` finds them first."
        )
    return settings[place]
