"""Fitting: a spec and a split -> a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import clock_times
from truepair.evaluation import Validation
from truepair.models.closed_forms import ClosedForm
from truepair.models.factor_matrices import dense
from truepair.models.scorer import Scorer, closed_scorer, trained_scorer
from truepair.models.trend import Counts, Trend, lengths_of
from truepair.prior import prepare
from truepair.recommender.features.new_items import map_of
from truepair.recommender.features.tables import NO_TABLES, FeatureTables
from truepair.recommender.holdout import joined
from truepair.recommender.model import UPDATES, Model
from truepair.spec import Spec
from truepair.storage.types import Json
from truepair.storage.versions import package_version
from truepair.training import EpochState, FitResult, fit

_PACKAGES = ("truepair", "torch", "numpy", "pyarrow")


class Fitted(NamedTuple):
    """A fitted model and the result that it was made from."""

    model: Model
    result: FitResult


def fit_split(
    spec: Spec,
    split: Split,
    checkpoint: str | Path | None,
    progress: bool,
    about: Json | None = None,
    tables: FeatureTables = NO_TABLES,
) -> Fitted:
    """Learn from the train part; the validation part, if there is one, is used only for scoring."""
    train = split.train
    validation = Validation(split.valid, train, spec.metric) if split.valid is not None else None
    facts: Json = {}
    if spec.closed_form is not None:
        result = solve(spec.closed_form, train, validation, spec.settings.torch_device())
    else:
        result, facts = _train(spec, train, validation, checkpoint, progress, tables)
        spec = dataclasses.replace(spec, batch_size=result.job.settings.batch_size)
    scorer = scorer_of(spec, result, train)
    seen = (train if split.valid is None else joined([train, split.valid])).known(spec.reads_order)
    model = Model(
        dataclasses.replace(spec, searched=()), scorer.on_cpu(), seen, train.item_counts,
        trained=train.user_counts > 0, added=np.zeros(train.n_items, dtype=bool),
        tau=tau_of(result), start=result.start, network=result.network, data=train.hash,
    )  # fmt: skip
    if spec.trend is not None:
        model = model.with_recent(recent_counts(spec.trend, train))
    score = result.score
    if validation is not None and (spec.blend is not None or spec.trend is not None):
        score = validation.score(*model.scorer.matrices())
    if split.valid is not None and spec.reads_order:  # lists are those after what was held out
        model = model.as_of(seen, train)
    model = dataclasses.replace(model, facts=_facts(spec, result, split, score) | facts | dict(about or {}))
    if tables.items is not None:
        model = dataclasses.replace(model, item_map=map_of(model, tables.items))
    return Fitted(model, result)


def recent_counts(trend: Trend, train: Interactions) -> Counts:
    """How often items occurred lately, as of the last event."""
    clock_times(train, "a trend")
    return Counts.of(train.log, end_of(train), lengths_of(trend.half_lives, train.log))


def end_of(interactions: Interactions) -> float:
    """The moment after the last event."""
    return float(np.nextafter(float(np.asarray(interactions.log.time).max()), np.inf))


def solve(
    encoder: ClosedForm, train: Interactions, validation: Validation | None, device: torch.device
) -> FitResult:
    """The closed form of these interactions, with its validation score."""
    users, items = encoder.solve(train, device)
    score = None if validation is None else validation.score(users, items)
    items = items.cpu() if isinstance(items, torch.Tensor) else items
    return FitResult(users, items, "closed form", closed_form=encoder, score=score)


def _train(
    spec: Spec,
    train: Interactions,
    validation: Validation | None,
    checkpoint: str | Path | None,
    progress: bool,
    tables: FeatureTables,
) -> tuple[FitResult, Json]:
    """The trained encoder, and facts about what the loss was prepared with."""
    encoder = tables.given_to(spec.trained)
    settings = spec.settings_for(len(train), train.n_users)
    if validation is None:
        settings = dataclasses.replace(settings, patience=None)
    on_epoch = validation if spec.stop_after is None else StopAfter(spec.stop_after, validation)
    run: Json = {"engine": spec.engine, "progress": progress}
    job, facts = prepare(spec.job(train, encoder=encoder, settings=settings), **run)
    # an update would not know its features; that of a network starts from its weights
    can_start = not encoder.learns_from_features and not encoder.reads_order
    return fit(job, on_epoch, **run, checkpoint=checkpoint, keep_start=can_start), facts


class StopAfter:
    """An `on_epoch` whose run ends after `last_epoch`; the score is that of the validation, if any."""

    def __init__(self, last_epoch: int, validation: Validation | None) -> None:
        self.last_epoch, self.validation = last_epoch, validation
        self.metric = "validation" if validation is None else validation.metric
        self.identity = f"{'no score' if validation is None else validation.identity}, until {last_epoch}"

    def __call__(self, state: EpochState, /) -> float | None:
        """The score after this epoch."""
        return None if self.validation is None else self.validation(state)


def scorer_of(spec: Spec, result: FitResult, train: Interactions) -> Scorer:
    """The scorer of a result, with EASE where the spec blends it in; EASE's weights are on the device."""
    if result.closed_form is not None:
        scorer = closed_scorer(result.users, result.items)
        if scorer.term is None or spec.trend is None:
            return scorer
        return dataclasses.replace(scorer, term=torch.zeros_like(scorer.term))  # the trend says all
    users, items = dense("users", result.users), dense("items", result.items)
    scorer = trained_scorer(users, items, bool(spec.trained.popularity))
    if spec.trend is not None:
        own = spec.trend.own_part(scorer.items, train.log)
        scorer = dataclasses.replace(scorer, users=scorer.users + own)
    return scorer if spec.blend is None else blended(scorer, spec, train)


def blended(scorer: Scorer, spec: Spec, train: Interactions) -> Scorer:
    """The scorer with the weights of the blend, solved for these interactions."""
    assert spec.blend is not None
    _, weights = spec.blend.solve(train, spec.settings.torch_device())
    weights = dense("items", weights).mul_(spec.blend_weight)
    return dataclasses.replace(scorer, history=train.weighted_csr(), weights=weights)


def tau_of(result: FitResult) -> float | tuple[float, ...] | None:
    """The prior that was trained with."""
    tau = None if result.job is None else getattr(result.job.loss, "tau", None)
    found: float | list[float] | None = None if tau is None else np.asarray(tau, np.float64).tolist()
    return tuple(found) if isinstance(found, list) else found


def _facts(spec: Spec, result: FitResult, split: Split, score: float | None) -> Json:
    """What a model file says about how the model was made."""
    scores = [record.score for record in result.history]
    curve: Json = {"loss": [record.loss for record in result.history]}
    curve |= {"validation": scores} if scores.count(None) < len(scores) else {}
    return {
        "data": split.train.hash,
        **data_facts(split.train),
        "split": split.hash,
        "epoch": result.epoch,
        "engine": result.engine,
        "training loss": None if result.epoch is None else result.history[result.epoch - 1].loss,
        **({"training curve": curve} if scores else {}),
        "clamped share": result.clamped,
        "metrics": {} if score is None else {f"validation {spec.metric}": score},
        "versions": {name: package_version(name) or "unknown" for name in _PACKAGES},
    }


def data_facts(train: Interactions) -> Json:
    """What reading did, the weights, and the number of dislikes; nothing of what there is not."""
    facts: Json = {"reading": [str(step) for step in train.history]} if train.history else {}
    weight = train.weight
    if weight is not None and len(weight) and weight.min() < weight.max():
        numbers = {"lowest": weight.min(), "mean": weight.mean(), "highest": weight.max()}
        facts["weights"] = {name: float(number) for name, number in numbers.items()}
    if train.disliked is not None:
        facts["dislikes"] = len(train.disliked)
    return facts


def recorded(model: Model, data: Interactions, record: Json) -> Model:
    """The model with a record of a change after which it knows these interactions; its parts are as before.

    Facts about scores of the earlier matrices are left out, and so is the split; what reading did stays one.
    """
    facts = {
        name: value for name, value in model.facts.items() if name not in ("split", "weights", "dislikes")
    }
    facts |= {"data": data.hash, "metrics": {}, **data_facts(data)}
    return dataclasses.replace(
        model, data=data.hash, n_updates=model.n_updates + 1,
        new_pairs=model.new_pairs + record.get("new pairs", 0),
        facts={**facts, UPDATES: [*facts.get(UPDATES, []), record]},
    )  # fmt: skip
