"""Update: a fitted model and new interactions -> the model that goes on from where it is.

    known pairs and new ones  -- merged -->          what the update trains on
    known vectors             -- placed -->          rows for all users and items, with Adam's moments
    new users, new items      -- with_new_rows -->   vectors fitted against the known ones, which stay fixed
    all of them               -- fit -->             refined together for a few epochs

A closed form, and EASE in a blend, is solved again for all pairs, which is exact.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_whole
from truepair.losses import Loss
from truepair.models.scorer import Scorer
from truepair.models.start import Side, Start
from truepair.models.trend import Counts
from truepair.randomness import stream_key
from truepair.recommender.fitting import Fitted, end_of, recorded, scorer_of, solve, tau_of
from truepair.recommender.holdout import read_alike
from truepair.recommender.model import Model
from truepair.recommender.updating.merging import continued, merged
from truepair.recommender.updating.new_rows import Mask, with_new_rows
from truepair.storage.types import Json, Source
from truepair.training import FitResult, Job, fit

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
    model: Model, new: Source, epochs: int | None = None, progress: bool = False, options: Json | None = None
) -> Fitted:
    """The model after learning from its known pairs and the new ones; `model` itself does not change."""
    if model.folded:
        raise InputError("these users were folded in, and are no part of the model; update the model itself.")
    pairs, spec = read_alike(new, model.seen, options), model.spec
    if not len(pairs) and pairs.disliked is None:
        raise InputError("there are no new interactions to learn from; give at least one pair.")
    if (latest := _latest(model)) is not None:
        pairs = continued(pairs, latest)
    growth = grown(model, pairs)
    everything = growth.everything
    if spec.closed_form is not None:
        if epochs is not None:
            raise InputError(f"epochs = {epochs} has no effect: {spec.encoder} is not trained; leave it out.")
        result = solve(spec.closed_form, everything, None, model.device)
    else:
        n_epochs = EPOCHS if epochs is None else check_whole("epochs", epochs, 0)
        result = _trained(model, growth, n_epochs, progress)
    # items that have a vector by their features, and still nobody
    added = (growth.items >= 0) & model.added[growth.items] & (everything.item_counts == 0)
    scorer = _with_added(model, growth, scorer_of(spec, result, everything), added).on_cpu()
    has_pairs = everything.user_counts > 0
    recent = None if model.recent is None else _later(model.recent.take(growth.items), pairs, everything)
    return Fitted(
        dataclasses.replace(
            recorded(model, everything, _record(model, pairs, growth, result)), scorer=scorer,
            seen=everything.known(spec.reads_order), popularity=everything.item_counts,
            # the row of a closed form is made of pairs, and without any there is none
            trained=has_pairs | growth.trained_users if spec.is_trained else has_pairs,
            added=added, tau=tau_of(result), start=None if spec.has_network else result.start,
            network=result.network, item_map=None,
        ).with_recent(recent),
        result,
    )  # fmt: skip


# --- rows ----------------------------------------------------------------------------------------------


def grown(model: Model, pairs: Interactions) -> Growth:
    """The union of the model's pairs and these, and the model's rows in it."""
    everything = merged(model.seen, pairs)
    users = model.seen.user_ids.find(everything.user_ids, "user")
    items = model.seen.item_ids.find(everything.item_ids, "item")
    trained_users = (users >= 0) & model.trained[users]
    trained_items = (items >= 0) & (model.popularity > 0)[items]
    return Growth(everything, users, items, trained_users, trained_items)


def _latest(model: Model) -> float | None:
    """The time of the last event, where the model keeps times of a clock."""
    if model.recent is not None:
        return model.recent.moment
    log = model.seen.origin.log
    if log is None or log.time is None or log.time_kind == "order" or not len(log):
        return None
    return float(np.asarray(log.time).max())


def _later(known: Counts, new: Interactions, everything: Interactions) -> Counts:
    """The counts with new events, at the moment of the last one; events without times change nothing."""
    if new.time is None or new.time_kind != "clock":
        return known
    log, items = new.log, everything.item_ids.codes(new.item_ids, "item")
    counts = known.at(max(known.moment, end_of(new)))
    assert log.time is not None
    counts.add(items[log.items[log.liked]], np.asarray(log.time[log.liked]))
    return counts


def _with_added(model: Model, growth: Growth, scorer: Scorer, added: Mask) -> Scorer:
    """The scorer with the vectors and terms of added items as they were."""
    new, old = (torch.from_numpy(codes) for codes in (np.flatnonzero(added), growth.items[added]))
    items, term = scorer.items, scorer.term
    items = items.index_copy(0, new, model.scorer.items[old].to(items))
    if term is not None and model.scorer.term is not None:
        term = term.index_copy(0, new, model.scorer.term[old].to(term))
    return dataclasses.replace(scorer, items=items, term=term)


def start_of(model: Model) -> Start:
    """Where the model's training ended; by its matrices alone if it has no training state.

    Matrices of cosine scores have no lengths, and those of LightGCN are averages over the graph, from which
    the vectors cannot be computed.
    """
    if model.start is not None:
        return model.start
    encoder = model.spec.trained
    if getattr(encoder, "hops", 0):
        kind = type(encoder).__name__
        raise InputError(f"this model of {kind} has no training state. Fit it again, with validation=0.")
    users, items = model.own_vectors().contiguous(), model.scorer.items.contiguous()
    if encoder.scoring == "cosine":
        users = users * encoder.temperature
    return Start(Side(users), Side(items), network=model.network)


def _placed(start: Start, job: Job, growth: Growth) -> Start:
    """The rows of all users and items: known ones as they are, others as the encoder starts them, both with
    their moments; those of rows that were never trained are 0."""
    first = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
    users = np.where(growth.trained_users, growth.users, -1)
    items = np.where(growth.trained_items, growth.items, -1)
    placed = start.take(users, items)
    sides = [(placed.items, items, first.item)]
    sides += [] if job.encoder.reads_order else [(placed.users, users, first.user)]
    for side, rows, random in sides:
        side.vectors[torch.from_numpy(rows < 0)] = random.detach()[torch.from_numpy(rows < 0)]
    return placed


# --- training ------------------------------------------------------------------------------------------


def _trained(model: Model, growth: Growth, epochs: int, progress: bool) -> FitResult:
    """The encoder after an update of this many epochs.

    With 0, known vectors stay, and so do those of new users. New items keep what one epoch gave them: when
    they are fitted against users, they have not competed with other items, and would be in too many lists.
    """
    spec, everything = model.spec, growth.everything
    encoder, settings = spec.trained, spec.settings_for(len(everything), everything.n_users)
    if encoder.learns_from_features:
        name = spec.parameters()["encoder"]
        raise InputError(f"encoder = {name!r} cannot be updated: it does not keep features; fit it again.")
    rate, seed = RATE * settings.learning_rate, stream_key(settings.seed, model.n_updates + 1) >> 1
    settings = dataclasses.replace(
        settings, epochs=epochs or 1, learning_rate=rate, schedule="cosine", patience=None, validate_every=1,
        seed=seed,
    )  # fmt: skip
    job = spec.job(everything, loss=_with_prior(spec.loss, model, growth), settings=settings)
    start = _placed(start_of(model), job, growth)
    if settings.optimizer != "adam":
        start = start.without_moments()
    start = with_new_rows(job, start, growth.trained_users, growth.trained_items)
    begun = dataclasses.replace(job, start=start)
    result = fit(begun, engine=spec.engine, progress=progress, keep_start=True)
    if not epochs:
        assert result.start is not None
        new = torch.from_numpy(~growth.trained_items)
        start.items.vectors[new] = result.start.items.vectors[new]
        return _untrained(job, start)
    return dataclasses.replace(result, job=dataclasses.replace(result.job, start=None))  # it is large


def _untrained(job: Job, start: Start) -> FitResult:
    """The matrices of these vectors."""
    encoder = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
    encoder.begin(start)
    with torch.no_grad():
        users, items = encoder()
    # the encoder's own parameters, if it does not scale them, which require gradients outside of no_grad
    users, items = users.detach().clone(), items.detach().clone()
    return FitResult(users, items, "none", job=job, epoch=0, network=start.network, start=start)


def _with_prior(loss: Loss, model: Model, growth: Growth) -> Loss:
    """The loss with the prior of the fit; with one for each user, new users get the mean."""
    if loss.needs_items:
        raise InputError(
            f"loss = {type(loss).__name__} cannot be updated: it weighs items of the fit; fit again."
        )
    tau = model.tau
    if not isinstance(tau, tuple):
        return loss if tau is None else _fixed(loss, tau)
    values = np.append(np.asarray(tau, dtype=np.float64), np.mean(tau))  # the row -1 is the mean
    return _fixed(loss, tuple(values[growth.users].tolist()))


def _fixed(loss: Loss, tau: float | tuple[float, ...]) -> Loss:
    return dataclasses.replace(loss, tau=tau) if hasattr(loss, "tau") else loss  # type: ignore[type-var]


def _record(model: Model, pairs: Interactions, growth: Growth, result: FitResult) -> Json:
    """What this update added and how it trained."""
    everything = growth.everything
    users, items = growth.users[everything.users], growth.items[everything.items]
    known = (users >= 0) & (items >= 0) & model.seen.has(users, items)
    return {
        "new users": int(((everything.user_counts > 0) & ~growth.trained_users).sum()),
        "new items": int(((everything.item_counts > 0) & ~growth.trained_items).sum()),
        "new pairs": int((~known).sum()),
        "epochs": len(result.history),
        "training loss": result.history[-1].loss if result.history else None,
        "engine": result.engine,
        "data": pairs.hash,
    }
