"""Update: a fitted model and new interactions -> the model that goes on from where it is.

    known pairs and new ones  -- merged -->          what the update trains on
    known vectors             -- placed -->          rows for all users and items, with Adam's moments
    new users, new items      -- with_new_rows -->   vectors fitted against the known ones, which stay fixed
    all of them               -- fit -->             refined together for a few epochs

A closed form, and EASE in a blend, is solved again for all pairs, which is exact.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_whole
from truepair.losses import Loss
from truepair.models.blend import trained_part
from truepair.models.encoders import Hybrid
from truepair.models.factor_matrices import Rows, dense
from truepair.models.start import Side, Start
from truepair.randomness import stream_key
from truepair.recommender.fitting import DATA_FACTS, Fitted, blended, data_facts, solve
from truepair.recommender.holdout import as_interactions
from truepair.recommender.known_ids import ADDED, added_items, history_of, user_lists
from truepair.recommender.model_file import Model, mean_prior
from truepair.recommender.parameters import from_json
from truepair.recommender.parts import SETTINGS, Parameters, as_fitted, blend_of, closed_form_of, parts_of
from truepair.recommender.updating.facts import UPDATES, with_record
from truepair.recommender.updating.merging import merged
from truepair.recommender.updating.new_rows import Mask, with_new_rows
from truepair.training import FitResult, Job, Settings, fit

EPOCHS = 5
"""Epochs of an update where none are given."""

RATE = 0.5
"""The first learning rate of an update, as a share of that of the fit; it falls to 0 along half a cosine."""


class Growth(NamedTuple):
    """All pairs, and where the model's users and items are among those of all."""

    everything: Interactions
    users: Codes  # [all users], the row of each in the model; -1 for a new one
    items: Codes  # [all items]
    trained_users: Mask  # [all users], who has a trained vector
    trained_items: Mask


def updated(
    model: Model, parameters: Parameters, new: Any, epochs: int | None = None, progress: bool = False
) -> Fitted:
    """The model after learning from its known pairs and the new ones; `model` itself does not change."""
    if "folded in" in model.facts:
        raise InputError("these users were folded in, and are no part of the model; update the model itself.")
    pairs = _new_pairs(new)
    growth = grown(model, pairs)
    parameters = as_updated(parameters, model)
    device = Settings(device=parameters["device"]).torch_device()
    if (closed := closed_form_of(parameters)) is not None:
        if epochs is not None:
            raise InputError(f"epochs = {epochs} has no effect: {closed} is not trained; leave it out.")
        result = solve(closed, growth.everything, None, device)
    else:
        n_epochs = EPOCHS if epochs is None else check_whole("epochs", epochs, 0)
        result = _trained(model, parameters, growth, n_epochs, progress)
        result = dataclasses.replace(result, items=_with_added(model, parameters, growth, result.items))
    users, items, _ = blended(parameters, result, growth.everything, None, device)
    facts = _facts(model, pairs, growth, result)
    popularity = growth.everything.item_counts
    seen = growth.everything.pairs_only(weights=True)
    return Fitted(Model(users, items, seen, popularity, facts, result.start), result)


def _new_pairs(new: Any) -> Interactions:
    pairs = as_interactions(new)
    if not len(pairs) and pairs.disliked is None:
        raise InputError("there are no new interactions to learn from; give at least one pair.")
    return pairs


def as_updated(parameters: Parameters, model: Model) -> Parameters:
    """The parameters of an update: those that the model was fitted with, on the device that is asked for."""
    stored = {
        name: v for name, v in model.facts["parameters"].items() if name in SETTINGS and name != "device"
    }
    return {
        **as_fitted(parameters, model.facts),
        **{n: v for n, v in from_json(stored).items() if n in stored},
    }


# --- rows ----------------------------------------------------------------------------------------------


def grown(model: Model, pairs: Interactions) -> Growth:
    """The union of the model's pairs and these, and the model's rows in it."""
    everything = merged(model.seen, pairs)
    users = model.seen.user_ids.find(everything.user_ids, "user")
    items = model.seen.item_ids.find(everything.item_ids, "item")
    trained_users, trained_items = history_of(model).users, model.popularity > 0
    return Growth(
        everything, users, items,
        trained_users=np.where(users >= 0, trained_users[users], False),
        trained_items=np.where(items >= 0, trained_items[items], False),
    )  # fmt: skip


def _still_added(model: Model, growth: Growth) -> Codes:
    """Items that have a vector by their features, and still nobody."""
    added = np.where(growth.items >= 0, added_items(model)[growth.items], False)
    return np.flatnonzero(added & (growth.everything.item_counts == 0))


def _with_added(model: Model, parameters: Parameters, growth: Growth, items: Rows) -> Rows:
    """The rows of all items; those of added items that nobody has stay as they were."""
    if not len(places := _still_added(model, growth)):
        return items
    before = trained_part(model.items, model.seen.n_items) if blend_of(parameters) else model.items
    rows = dense("items", items).clone()
    rows[torch.from_numpy(places)] = dense("items", before)[torch.from_numpy(growth.items[places])].to(rows)
    return rows


def start_of(model: Model, parameters: Parameters) -> Start:
    """Where the model's training ended; by its matrices alone if it has no training state.

    Matrices of cosine scores have no lengths, and those of LightGCN are averages over the graph, from which
    the vectors cannot be computed.
    """
    if model.start is not None:
        return model.start
    encoder, n = parts_of(parameters).encoder, model.seen.n_items
    if getattr(encoder, "hops", 0):
        raise InputError(
            f"this model has no training state, and the vectors of {type(encoder).__name__} cannot be "
            "computed from its matrices. It was saved without (updatable=False, or an earlier version), or a "
            "validation part chose an epoch before the last one. Fit it again, with validation=0."
        )
    is_blend = blend_of(parameters) is not None
    rows = [
        trained_part(side, n) if is_blend else dense("vectors", side) for side in (model.users, model.items)
    ]
    users, items = (row[:, : encoder.dim].contiguous() for row in rows)
    if encoder.scoring == "cosine":
        users = users * encoder.temperature
    return Start(Side(users), Side(items))


def _placed(start: Start, job: Job, growth: Growth) -> Start:
    """The rows of all users and items: known ones as they are, others as the encoder starts them, both with
    their moments; those of rows that were never trained are 0."""
    first = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
    users = np.where(growth.trained_users, growth.users, -1)
    items = np.where(growth.trained_items, growth.items, -1)
    placed = start.take(users, items)
    for side, rows, random in ((placed.users, users, first.user), (placed.items, items, first.item)):
        side.vectors[torch.from_numpy(rows < 0)] = random.detach()[torch.from_numpy(rows < 0)]
    return placed


# --- training ------------------------------------------------------------------------------------------


def _trained(model: Model, parameters: Parameters, growth: Growth, epochs: int, progress: bool) -> FitResult:
    """The encoder after an update of so many epochs; 0 only gives vectors to those who have none."""
    pairs = growth.everything
    encoder, loss, sampler, settings = parts_of(
        parameters, len(pairs), pairs.n_users, pairs.disliked is not None
    )
    if isinstance(encoder, Hybrid):
        raise InputError(
            "a model with encoder = 'hybrid' cannot be updated: it does not keep the features that its "
            "vectors are sums of. Fit it again with its features; `add_items` adds new items."
        )
    settings = dataclasses.replace(
        settings,
        epochs=max(epochs, 1),
        learning_rate=RATE * settings.learning_rate,
        schedule="cosine",
        patience=None,
        validate_every=1,
        seed=stream_key(settings.seed, len(model.facts.get(UPDATES, [])) + 1) >> 1,
    )
    loss = _with_prior(loss, model, growth)
    job = Job(encoder, loss, sampler, growth.everything, settings)
    start = _placed(start_of(model, parameters), job, growth)
    if settings.optimizer != "adam":
        start = start.without_moments()
    start = with_new_rows(job, start, growth.trained_users, growth.trained_items)
    if not epochs:
        return _untrained(job, start)
    begun = dataclasses.replace(job, start=start)
    result = fit(begun, engine=parameters["engine"], progress=progress, keep_start=True)
    return dataclasses.replace(result, job=dataclasses.replace(result.job, start=None))  # it is large


def _untrained(job: Job, start: Start) -> FitResult:
    """The matrices of these vectors."""
    encoder = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
    with torch.no_grad():
        encoder.user.copy_(start.users.vectors)
        encoder.item.copy_(start.items.vectors)
        users, items = encoder()
    # the encoder's own parameters, if it does not scale them, which require gradients outside of no_grad
    users, items = users.detach().clone(), items.detach().clone()
    return FitResult(users, items, "none", job=job, epoch=0, start=start)


def _with_prior(loss: Loss, model: Model, growth: Growth) -> Loss:
    """The loss with the prior of the fit; with one for each user, new users get the mean."""
    if loss.needs_items:
        raise InputError(
            f"loss = {type(loss).__name__} cannot be updated: its weights of items were prepared for the "
            "data of the fit; fit again, or use the loss 'infonce'."
        )
    tau = model.facts["tau"]
    if not isinstance(tau, list):
        return loss if tau is None else _fixed(loss, tau)
    values = np.append(np.asarray(tau, dtype=np.float64), mean_prior(tau))  # the row -1 is the mean
    return _fixed(loss, tuple(values[growth.users].tolist()))


def _fixed(loss: Loss, tau: Any) -> Loss:
    return dataclasses.replace(loss, tau=tau) if hasattr(loss, "tau") else loss  # type: ignore[type-var]


# --- facts ---------------------------------------------------------------------------------------------


def _facts(model: Model, pairs: Interactions, growth: Growth, result: FitResult) -> dict[str, Any]:
    """The facts of the model with a record of this update.

    Scores of the earlier matrices are left out: these are other ones.
    """
    everything = growth.everything
    record = {
        "new users": int(((everything.user_counts > 0) & ~growth.trained_users).sum()),
        "new items": int(((everything.item_counts > 0) & ~growth.trained_items).sum()),
        "new pairs": int((~_known_pairs(model, growth)).sum()),
        "epochs": len(result.history),
        "training loss": result.history[-1].loss if result.history else None,
        "engine": result.engine,
        "data": pairs.hash,
    }
    facts = {name: v for name, v in model.facts.items() if name not in ("split", *DATA_FACTS)}
    has_pairs = everything.user_counts > 0
    # the row of a closed form is made of pairs, and without any there is none
    lists = user_lists(has_pairs | growth.trained_users if result.job is not None else has_pairs, has_pairs)
    tau = {} if result.job is None else {"tau": _plain_prior(getattr(result.job.loss, "tau", None))}
    facts |= {**tau, "data": everything.hash, "metrics": {}, **lists, **data_facts(everything)}
    facts.pop(ADDED, None)
    if len(added := _still_added(model, growth)):
        facts[ADDED] = added.tolist()
    return with_record(facts, record)


def _known_pairs(model: Model, growth: Growth) -> Mask:
    """Which of all pairs the model had before."""
    users, items = growth.users[growth.everything.users], growth.items[growth.everything.items]
    return np.asarray((users >= 0) & (items >= 0) & model.seen.has(users, items))


def _plain_prior(tau: Any) -> Any:
    return list(tau) if isinstance(tau, tuple) else tau
