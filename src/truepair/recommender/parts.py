"""The objects that the parameters of a Recommender stand for: encoder, loss, sampler, settings, blend."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from truepair.errors import InputError, check_choice, check_number, check_type, check_whole
from truepair.evaluation import parse_metric
from truepair.losses import LOSSES, Loss
from truepair.models.closed_forms import ALL_ENCODERS, CLOSED, EASE, ClosedForm
from truepair.models.encoders import ENCODERS, Encoder
from truepair.recommender.defaults import PARTS_BY_DEFAULT, default_batch_size, unused, with_defaults
from truepair.recommender.holdout import HOLD_OUTS
from truepair.recommender.parameters import PARTS, as_json, check_finite, from_json
from truepair.sampling import SAMPLERS, Sampler
from truepair.training import AUTO, ENGINES, Settings, check_sampler

SETTINGS = [f.name for f in dataclasses.fields(Settings)]
ENCODER_FIELDS = ("dim", "scoring", "temperature", "popularity")  # parameters of an encoder given by name
Parameters = Mapping[str, Any]  # all parameters of a Recommender, by name


class Parts(NamedTuple):
    """All that a run depends on besides the interactions."""

    encoder: Encoder
    loss: Loss
    sampler: Sampler
    settings: Settings


def parts_of(parameters: Parameters, n_pairs: int = 0, n_users: int = 0, disliked: bool = False) -> Parts:
    """The checked encoder, loss, sampler and settings; defaults depend on the size of the interactions, and
    on whether there are dislikes."""
    known = with_defaults(parameters, disliked)
    if (closed := closed_form_of(parameters)) is not None:
        raise InputError(f"encoder = {closed} is not trained; to train, use one of {', '.join(ENCODERS)}.")
    encoder, loss, sampler = _encoder(known), _loss(known), _sampler(known)
    check_sampler(loss, sampler)
    blend_of(parameters)
    check_choice("engine", known["engine"], [AUTO, *ENGINES])
    check_type("auto", known.get("auto", True), bool, "give True or False")
    check_number("validation", known["validation"], 0, 1, open_high=True)
    check_choice("hold_out", known.get("hold_out", "auto"), HOLD_OUTS)
    parse_metric(known["metric"])
    if known.get("stop_after") is not None:
        remedy = f"There are epochs = {known['epochs']}; raise epochs, or lower stop_after."
        check_whole("stop_after", known["stop_after"], 1, check_whole("epochs", known["epochs"], 1), remedy)
    settings = {name: known.get(name) for name in SETTINGS}
    if settings["batch_size"] is None:
        settings["batch_size"] = default_batch_size(sampler, n_pairs, n_users)
    return Parts(encoder, loss, sampler, Settings(**cast(dict[str, Any], settings)))


def _encoder(known: Parameters) -> Encoder:
    encoder = known["encoder"]
    if isinstance(encoder, str):
        kind = ENCODERS[check_choice("encoder", encoder, ALL_ENCODERS)]
        return kind(**{name: known[name] for name in ENCODER_FIELDS})
    names = ", ".join(ALL_ENCODERS)
    check_type("encoder", encoder, Encoder, f"give one of {names}, or an object such as MF(dim=64)")
    return cast(Encoder, encoder)


def _loss(known: Parameters) -> Loss:
    loss = known["loss"]
    if isinstance(loss, str):
        kind = LOSSES[check_choice("loss", loss, LOSSES)]
        return kind(**({"tau": known["tau"]} if kind.uses_prior else {}))
    check_type("loss", loss, Loss, f"give one of {', '.join(LOSSES)}, or an object such as DPL(tau=0.05)")
    return cast(Loss, loss)


def _sampler(known: Parameters) -> Sampler:
    """The sampler; one given by name that selects from a pool gets a pool that is large enough."""
    sampler = known["sampler"]
    if not isinstance(sampler, str):
        check_type(
            "sampler", sampler, Sampler, f"give one of {', '.join(SAMPLERS)}, or an object such as DNS()"
        )
        return cast(Sampler, sampler)
    made = SAMPLERS[check_choice("sampler", sampler, SAMPLERS)]()
    pool = getattr(made, "pool", None)
    if pool is None or pool > known["n_unlabelled"]:
        return made
    return dataclasses.replace(made, pool=2 * known["n_unlabelled"])  # type: ignore[type-var]


def closed_form_of(parameters: Parameters) -> ClosedForm | None:
    """The encoder, if it is a closed form."""
    encoder = parameters["encoder"]
    if isinstance(encoder, str) and encoder in CLOSED:
        encoder = CLOSED[encoder]()
    return encoder if isinstance(encoder, ClosedForm) else None


def blend_of(parameters: Parameters) -> EASE | None:
    """The closed form that is blended with the trained encoder."""
    check_number("blend_weight", parameters["blend_weight"], 0)
    blend = parameters["blend"]
    if blend == "none":
        return None
    if isinstance(blend, str):
        blend = PARTS["blend"][check_choice("blend", blend, PARTS["blend"])]()
    if blend is not None:
        check_type("blend", blend, EASE, "give 'ease', an object such as EASE(l2=500), or None")
    return cast(EASE | None, blend)


def as_fitted(parameters: Parameters, facts: Mapping[str, Any]) -> Parameters:
    """The parameters with the encoder's fields and the blend that a model was fitted with, by its facts.

    Automatic settings are in the facts only.
    """
    names = (*ENCODER_FIELDS, "blend", "blend_weight", "optimizer", "l2_users", "weight_decay")
    stored = {name: value for name, value in facts.get("parameters", {}).items() if name in names}
    return {**parameters, **{name: value for name, value in from_json(stored).items() if name in stored}}


def validation_share(parameters: Parameters, disliked: bool = False) -> float:
    """The share of the pairs that `fit` holds out to choose the epoch."""
    if closed_form_of(parameters) is not None:
        return 0.0  # there is no epoch to choose
    return float(with_defaults(parameters, disliked)["validation"])


def check_parameters(parameters: Parameters, given: Collection[str]) -> None:
    """Raise if a parameter is invalid, or if a given one has no effect."""
    closed = closed_form_of(parameters)
    trained = {} if closed is None else {"encoder": PARTS_BY_DEFAULT["encoder"]}
    parts_of({**parameters, **trained})
    check_finite({"loss": as_json(parameters["loss"])})  # of a loss that can be saved; others check their own
    for name, why in unused(parameters, given, closed).items():
        value = "one for each user" if np.ndim(parameters[name]) else parameters[name]
        raise InputError(f"{name} = {value} has no effect: {why}.")
