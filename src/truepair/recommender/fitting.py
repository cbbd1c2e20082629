"""Fitting: parameters and a split -> matrices and what is known about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.evaluation import Validation
from truepair.models.blend import Blend
from truepair.models.closed_forms import ClosedForm
from truepair.models.encoders import Hybrid
from truepair.models.factor_matrices import Rows, dense
from truepair.prior import prepare
from truepair.recommender.defaults import USED_BY_CLOSED_FORMS
from truepair.recommender.features.new_items import map_of
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import joined
from truepair.recommender.known_ids import ONLY_VALIDATION
from truepair.recommender.model_file import Model
from truepair.recommender.parameters import as_json
from truepair.recommender.parts import (
    ENCODER_FIELDS,
    SETTINGS,
    Parameters,
    blend_of,
    closed_form_of,
    parts_of,
    validation_share,
)
from truepair.storage.versions import package_version
from truepair.training import EpochState, FitResult, Job, Settings, fit

DATA_FACTS = ("weights", "dislikes")
"""Facts about all pairs, which change with them; what reading did stays a fact."""

_PACKAGES = ("truepair", "torch", "numpy", "pyarrow")


class Fitted(NamedTuple):
    """A fitted model and the result that it was made from."""

    model: Model
    result: FitResult


def fit_split(
    parameters: Parameters,
    split: Split,
    checkpoint: str | Path | None,
    progress: bool,
    about: Mapping[str, Any] | None = None,
    tables: FeatureTables = NO_TABLES,
) -> Fitted:
    """Learn from the train part; the validation part, if there is one, is used only for scoring."""
    device = Settings(device=parameters["device"]).torch_device()
    validation = (
        Validation(split.valid, split.train, parameters["metric"]) if split.valid is not None else None
    )
    estimated: dict[str, Any] = {}
    if (closed := closed_form_of(parameters)) is not None:
        result = solve(closed, split.train, validation, device)
    else:
        result, estimated = _train(parameters, split.train, validation, checkpoint, progress, tables)
    users, items, score = blended(parameters, result, split.train, validation, device)
    seen = joined([split.train] if split.valid is None else [split.train, split.valid])
    seen = seen.pairs_only(weights=True)
    held_out = np.flatnonzero((split.train.user_counts == 0) & (seen.user_counts > 0)).tolist()
    facts = _facts(parameters, result, split, score) | estimated | dict(about or {})
    facts |= {ONLY_VALIDATION: held_out} if held_out else {}
    popularity = split.train.item_counts
    model = Model(users, items, seen, popularity, facts, start=result.start)
    if tables.items is not None:
        is_blend = blend_of(parameters) is not None
        item_map = map_of(model, result.job.encoder, tables.items, is_blend)
        model = dataclasses.replace(model, item_map=item_map)
    return Fitted(model, result)


def solve(
    encoder: ClosedForm, train: Interactions, validation: Validation | None, device: torch.device
) -> FitResult:
    """The closed form of these interactions, with its validation score."""
    users, items = encoder.solve(train, device)
    score = None if validation is None else validation.score(users, items)
    items = items.cpu() if isinstance(items, torch.Tensor) else items
    return FitResult(users, items, "closed form", closed_form=encoder, score=score)


def _train(
    parameters: Parameters,
    train: Interactions,
    validation: Validation | None,
    checkpoint: str | Path | None,
    progress: bool,
    tables: FeatureTables,
) -> tuple[FitResult, dict[str, Any]]:
    """The trained encoder, and facts about what the loss was prepared with."""
    disliked = train.disliked is not None
    encoder, loss, sampler, settings = parts_of(parameters, len(train), train.n_users, disliked)
    encoder = tables.given_to(encoder)
    if validation is None:
        settings = dataclasses.replace(settings, patience=None)
    engine, last = parameters["engine"], parameters["stop_after"]
    on_epoch = validation if last is None else StopAfter(last, validation)
    job, facts = prepare(Job(encoder, loss, sampler, train, settings), engine=engine, progress=progress)
    can_start = not isinstance(encoder, Hybrid)  # an update would not know its features
    run = {"engine": engine, "checkpoint": checkpoint, "progress": progress}
    return fit(job, on_epoch, **run, keep_start=can_start), facts


class StopAfter:
    """An `on_epoch` whose run ends after `last_epoch`; the score is that of the validation, if any."""

    def __init__(self, last_epoch: int, validation: Validation | None) -> None:
        self.last_epoch, self.validation = last_epoch, validation
        self.metric = "validation" if validation is None else validation.metric
        self.identity = f"{'no score' if validation is None else validation.identity}, until {last_epoch}"

    def __call__(self, state: EpochState, /) -> float | None:
        """The score after this epoch."""
        return None if self.validation is None else self.validation(state)


def blended(
    parameters: Parameters,
    result: FitResult,
    train: Interactions,
    validation: Validation | None,
    device: torch.device,
) -> tuple[Rows, Rows, float | None]:
    """Users, items and validation score of the result, blended with EASE where that is asked for."""
    ease = blend_of(parameters)
    if ease is None or result.closed_form is not None:
        return result.users, result.items, result.score
    blend = Blend.of(ease, parameters["blend_weight"], train, device)
    users, items = blend.matrices(dense("users", result.users), dense("items", result.items))
    return users, items.cpu(), None if validation is None else validation.score(users, items)


def _facts(parameters: Parameters, result: FitResult, split: Split, score: float | None) -> dict[str, Any]:
    """What a model file says about how the model was made."""
    closed = result.job is None
    not_used = [name for name in parameters if name not in USED_BY_CLOSED_FORMS] if closed else []
    return {
        "parameters": {name: as_json(value) for name, value in _as_used(parameters, result.job).items()},
        "tau": None if result.job is None else as_json(getattr(result.job.loss, "tau", None)),
        "data": split.train.hash,
        **data_facts(split.train),
        "split": split.hash,
        "epoch": result.epoch,
        "engine": result.engine,
        "training loss": None if result.epoch is None else result.history[result.epoch - 1].loss,
        **({"training curve": _curve(result)} if result.history else {}),
        "clamped share": result.clamped,
        **({"not used": not_used} if not_used else {}),
        "metrics": {} if score is None else {f"validation {parameters['metric']}": score},
        "versions": {name: package_version(name) or "unknown" for name in _PACKAGES},
    }


def _curve(result: FitResult) -> dict[str, list[float | None]]:
    """The loss of each epoch, and the validation score where there is one."""
    scores = [record.score for record in result.history]
    found: dict[str, list[float | None]] = {"loss": [record.loss for record in result.history]}
    return found if all(score is None for score in scores) else {**found, "validation": scores}


def data_facts(train: Interactions) -> dict[str, Any]:
    """What reading did, the weights, and the number of dislikes; nothing of what there is not."""
    facts: dict[str, Any] = {"reading": [str(step) for step in train.history]} if train.history else {}
    weight = train.weight
    if weight is not None and len(weight) and weight.min() < weight.max():
        numbers = {"lowest": weight.min(), "mean": weight.mean(), "highest": weight.max()}
        facts["weights"] = {name: float(number) for name, number in numbers.items()}
    if train.disliked is not None:
        facts["dislikes"] = len(train.disliked)
    return facts


def _as_used(parameters: Parameters, job: Job | None) -> Mapping[str, Any]:
    """The parameters with the defaults that were used, as defaults may change one day."""
    if job is None:
        return parameters
    by_name = ENCODER_FIELDS if isinstance(parameters["encoder"], str) else ()
    return {
        **parameters,
        **{name: getattr(job.encoder, name) for name in by_name},
        **{name: getattr(job.settings, name) for name in SETTINGS},
        "validation": validation_share(parameters, job.interactions.disliked is not None),
    }
