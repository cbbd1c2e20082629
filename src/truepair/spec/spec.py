"""Spec: encoder, loss, sampler, settings, blend and hold-out of a model, checked and typed.

Parameters from Python, TOML, `--set`, trials and model files become a Spec in `Spec.of`, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice, check_number, check_type, check_whole
from truepair.evaluation.metrics import parse_metric
from truepair.losses import LOSSES, Loss
from truepair.models.closed_forms import EASE, ClosedForm, Popular
from truepair.models.encoders import ENCODERS, Encoder
from truepair.models.trend import Trend, popularity_of
from truepair.sampling import Sampler
from truepair.spec.defaults import (
    MOST_HISTORIES,
    USED_BY_CLOSED_FORMS,
    Given,
    default_batch_size,
    is_full,
    with_defaults,
)
from truepair.spec.parameters import PARAMETERS, PARTS, as_json, check_finite, check_names
from truepair.storage.types import Json
from truepair.storage.versions import current_parameters
from truepair.training import AUTO, ENGINES, Job, Settings, check_sampler

HOLD_OUTS = ("auto", "random", "last", "time")
"""Which interactions a hold-out takes; "auto" is "last" where users have times, else "random"."""

SEARCHED = ("temperature", "popularity", "dim", "epochs", "blend", "trend")
"""What automatic settings choose where it is not given."""

_SETTINGS = tuple(f.name for f in dataclasses.fields(Settings) if f.name != "batch_size")
_ENCODER_FIELDS = ("dim", "scoring", "temperature", "popularity")
_OBJECTS: dict[str, tuple[type | tuple[type, ...], str]] = {  # part -> its classes, and what to give
    "encoder": ((Encoder, ClosedForm), "one of {}, or an object such as MF(dim=64)"),
    "loss": (Loss, "one of {}, or an object such as DPL(tau=0.05)"),
    "sampler": (Sampler, "one of {}, or an object such as DNS()"),
    "blend": (EASE, "'{}', an object such as EASE(l2=500), or None"),
    "trend": (Trend, "'{}', an object such as Trend(('7d',), (0.5,)), or 'none'"),
}


@dataclass(frozen=True)
class Spec:
    """A model that can be fitted: frozen, comparable, printable as the call that repeats it.

    encoder                 trained, or a closed form, which uses no other part but `metric`
    settings                those of training; `settings_for` fills in the batch size
    batch_size              None: it depends on the data
    blend, blend_weight     EASE whose scores are added to those of the trained encoder
    trend                   what is popular at the moment of a list, added to the scores of any encoder
    validation, hold_out    the share of the interactions that is held out to choose the epoch, and which
    metric                  of the validation
    stop_after              the last epoch; the learning rate follows the schedule of all
    searched                what automatic settings choose before the fit
    given_rate              whether the learning rate is given: otherwise the search has its own
    """

    encoder: Encoder | ClosedForm
    loss: Loss
    sampler: Sampler
    settings: Settings
    batch_size: int | None = None
    blend: EASE | None = None
    blend_weight: float = 1.0
    trend: Trend | None = None
    validation: float = 0.0
    hold_out: str = "auto"
    metric: str = "ndcg@20"
    engine: str = AUTO
    stop_after: int | None = None
    searched: tuple[str, ...] = ()
    given_rate: bool = True

    # --- from parameters -------------------------------------------------------------------------------

    @staticmethod
    def of(given: Given, *, disliked: bool = False, unused: str = "error") -> Spec:
        """The spec of the given parameters of a Recommender; all others have their defaults.

        Raise if one is invalid, or if one is given and has no effect; `unused="drop"` ignores the latter.
        `disliked` says whether the interactions have dislikes, which not every engine can train with.

        >>> Spec.of({"encoder": "lightgcn", "dim": 8}).encoder
        LightGCN(dim=8, scoring='cosine', temperature=0.15, popularity=0.0, hops=1)
        """
        given = current_parameters(given)
        check_names(given)
        given = {name: value for name, value in given.items() if repr(value) != repr(PARAMETERS[name])}
        known = with_defaults({**PARAMETERS, **given}, disliked)
        encoder, loss = _part("encoder", known), _part("loss", known)
        spec, reasons = _checked(known, given, encoder, loss), _without_effect(known, given, encoder, loss)
        used = {name: value for name, value in given.items() if name not in reasons}
        if unused == "drop" and len(used) < len(given):
            return Spec.of(used, disliked=disliked)
        for name, why in reasons.items():
            if name in given:
                value = "one for each user" if np.ndim(known[name]) else known[name]
                raise InputError(f"{name} = {value} has no effect: {why}.")
        return spec

    def parameters(self) -> Json:
        """All parameters of a Recommender that give this spec; parts are named where that says all of them.

        >>> Spec.of({"encoder": "ease", "seed": 3}).parameters()
        {'encoder': 'ease', 'metric': 'ndcg@20', 'seed': 3, 'device': 'auto'}
        """
        if isinstance(self.encoder, ClosedForm):
            settings = {"seed": self.settings.seed, "device": self.settings.device}
            is_own = self.trend == _own_trend(self.encoder)
            trend = {} if is_own else {"trend": self.trend}
            return {
                "encoder": _named("encoder", self.encoder, {}), **trend, "metric": self.metric, **settings,
            }  # fmt: skip
        own = {name: getattr(self.encoder, name) for name in _ENCODER_FIELDS}
        encoder = _named("encoder", self.encoder, own)
        tau = {"tau": getattr(self.loss, "tau", None)} if self.loss.uses_prior else {}
        loss = _named("loss", self.loss, tau)
        return {
            "loss": loss, "encoder": encoder, "sampler": _named("sampler", self.sampler, {}),
            **(own if isinstance(encoder, str) else {}), **(tau if isinstance(loss, str) else {}),
            **vars(self.settings),
            "validation": self.validation, "hold_out": self.hold_out, "metric": self.metric,
            "engine": self.engine, "stop_after": self.stop_after, "blend_weight": self.blend_weight,
            "blend": self.blend, "trend": self.trend, "batch_size": self.batch_size,
            "auto": bool(self.searched),
        }  # fmt: skip

    def call(self) -> str:
        """The call that repeats a fit with this spec, without a search."""
        own = self.parameters()
        parts = {part: value for part, value in own.items() if part in ("loss", "encoder", "sampler")}
        usual, arguments = {**Spec.of(parts).parameters(), "auto": True}, []
        for name, value in {**own, "auto": isinstance(self.encoder, ClosedForm)}.items():
            if repr(value) != repr(PARAMETERS[name] if name in parts else usual[name]):
                arguments.append(f"{name}={value!r}")
        return f"Recommender({', '.join(arguments)})"

    # --- parts -----------------------------------------------------------------------------------------

    @property
    def reads_order(self) -> bool:
        """Whether the order of a history says something about its user."""
        return (self.trend is not None and self.trend.own > 0) or self.has_network

    @property
    def has_network(self) -> bool:
        """Whether a network over events in order gives the vectors of users."""
        return isinstance(self.encoder, Encoder) and self.encoder.reads_order

    @property
    def closed_form(self) -> ClosedForm | None:
        """The encoder, if it is a closed form."""
        return self.encoder if isinstance(self.encoder, ClosedForm) else None

    @property
    def is_trained(self) -> bool:
        """Whether the encoder is trained."""
        return isinstance(self.encoder, Encoder)

    @property
    def trained(self) -> Encoder:
        """The encoder that is trained; raise if it is a closed form."""
        if isinstance(self.encoder, Encoder):
            return self.encoder
        raise InputError(f"encoder = {self.encoder} is not trained; use one of {', '.join(ENCODERS)}.")

    def settings_for(self, n_interactions: int, n_users: int) -> Settings:
        """The settings for data of this size."""
        if self.batch_size is None and self.has_network:
            size = min(max(n_users // 16, 8), MOST_HISTORIES)
        else:
            size = self.batch_size or default_batch_size(self.sampler, n_interactions, n_users)
        return dataclasses.replace(self.settings, batch_size=size)

    def job(self, interactions: Interactions, **more: Any) -> Job:
        """The job that trains this spec; `more` are further fields of it, such as another loss."""
        parts = {"encoder": self.trained, "loss": self.loss, "settings": None, **more}
        settings = parts.pop("settings") or self.settings_for(len(interactions), interactions.n_users)
        return Job(sampler=self.sampler, interactions=interactions, settings=settings, **parts)

    def varied(self, **changes: Any) -> Spec:
        """Another spec: `changes` are fields of the encoder, of the settings or of the spec itself."""
        for part, names in (("encoder", _ENCODER_FIELDS), ("settings", _SETTINGS)):
            own = {name: changes.pop(name) for name in names if name in changes}
            if own:
                changes[part] = dataclasses.replace(getattr(self, part), **own)
        return dataclasses.replace(self, **changes)

    def with_half_life(self, half_life: str | float | None) -> Spec:
        """The same popularity with another half-life."""
        encoder = Popular(half_life)
        return dataclasses.replace(self, encoder=encoder, trend=_own_trend(encoder))


# --- the parts of a spec -----------------------------------------------------------------------------------


def _own_trend(encoder: ClosedForm) -> Trend | None:
    """The trend that is all of the scores of popularity with a half-life."""
    half_life = encoder.half_life if isinstance(encoder, Popular) else None
    return None if half_life in (None, "auto") else popularity_of(half_life)


def _part(part: str, known: Given) -> Any:
    """A part that is given as an object or by name; by name, it has the parameters that are fields of it."""
    value, kinds, (base, remedy) = known[part], PARTS[part], _OBJECTS[part]
    if not isinstance(value, str):
        check_type(part, value, base, f"give {remedy.format(', '.join(kinds))}")
        return value
    kind = kinds[check_choice(part, value, kinds)]
    if issubclass(kind, Encoder):
        return kind(**{name: known[name] for name in _ENCODER_FIELDS})
    return kind(**({"tau": known["tau"]} if issubclass(kind, Loss) and kind.uses_prior else {}))


def _checked(known: Given, given: Given, encoder: Encoder | ClosedForm, loss: Loss) -> Spec:
    """The spec of checked parameters; `given` are those that are not the defaults."""
    if not isinstance(known["loss"], str):
        check_finite({"loss": as_json(loss)})  # of a loss that can be saved; others check their own
    settings = Settings(**{name: known[name] for name in _SETTINGS})
    sampler = _part("sampler", known)
    pool = getattr(sampler, "pool", None)
    if isinstance(known["sampler"], str) and pool is not None and pool <= settings.n_unlabelled:
        sampler = dataclasses.replace(sampler, pool=2 * settings.n_unlabelled)
    check_sampler(loss, sampler)
    stop_after, batch_size = known.get("stop_after"), known.get("batch_size")
    if stop_after is not None:
        remedy = f"There are epochs = {settings.epochs}; raise epochs, or lower stop_after."
        stop_after = check_whole("stop_after", stop_after, 1, settings.epochs, remedy)
    check_type("auto", known["auto"], bool, "give True or False")
    parse_metric(known["metric"])
    # no search for other losses, samplers and encoder objects, nor after a search, which sets `stop_after`
    is_searched = (
        known["auto"] and known["loss"] == "infonce" and is_full(sampler) and stop_after is None
        and isinstance(known["encoder"], str) and isinstance(encoder, Encoder) and encoder.scoring == "cosine"
        and not encoder.reads_order
    )  # fmt: skip
    searched = tuple(name for name in SEARCHED if name not in given) if is_searched else ()
    trend = None if known.get("trend") in (None, "none") else _part("trend", known)
    if isinstance(encoder, ClosedForm):
        if trend is not None and trend.own:
            raise InputError(f"trend.own = {trend.own} has no effect: {encoder} has no vectors; set it to 0.")
        own_trend = _own_trend(encoder)
        if own_trend is not None and trend not in (None, own_trend):
            raise InputError(f"trend = {trend} has no effect: {encoder} has its own; leave one of them out.")
        trend = trend or own_trend
    searched = () if searched == ("trend",) else searched  # it needs a run of its own
    return Spec(
        encoder, loss, sampler, settings,
        batch_size=None if batch_size is None else check_whole("batch_size", batch_size, 1),
        blend=None if known.get("blend") in (None, "none") else _part("blend", known),
        blend_weight=check_number("blend_weight", known["blend_weight"], 0),
        trend=trend,
        validation=check_number("validation", known["validation"], 0, 1, open_high=True),
        hold_out=check_choice("hold_out", known["hold_out"], HOLD_OUTS),
        metric=known["metric"],
        engine=check_choice("engine", known["engine"], [AUTO, *ENGINES]),
        stop_after=stop_after,
        searched=searched,
        given_rate=not searched or "learning_rate" in given,
    )  # fmt: skip


def _named(part: str, value: object, fields: Given) -> object:
    """The name of a part, if the name and these fields say all of it; else the part itself."""
    for name, kind in PARTS[part].items():
        if type(value) is kind and repr(kind(**fields)) == repr(value):
            return name
    return value


def _without_effect(known: Given, given: Given, encoder: Encoder | ClosedForm, loss: Loss) -> dict[str, str]:
    """The parameters that have no effect if they are given, each with the reason and the remedy.

    A closed form has no loss, no sampler and no training; the seed is that of a split.
    """
    if isinstance(encoder, ClosedForm):
        why = f"encoder = {encoder} is not trained; leave it out, or use one of {', '.join(ENCODERS)}"
        return {name: why for name in given if name not in USED_BY_CLOSED_FORMS}
    reasons: dict[str, str] = {}
    if "tau" in given and not loss.uses_prior:
        others = ", ".join(name for name, other in LOSSES.items() if other.uses_prior)
        reasons["tau"] = f"loss = {known['loss']!r} has no prior; losses with a prior: {others}"
    elif not isinstance(known["loss"], str):
        reasons["tau"] = _set_on_object("loss", loss)
    if "blend" not in given:
        reasons["blend_weight"] = "there is no blend; leave it out, or add blend='ease'"
    if not isinstance(known["encoder"], str):
        reasons |= dict.fromkeys(_ENCODER_FIELDS, _set_on_object("encoder", encoder))
    if encoder.reads_order:
        why = (
            "trains no vectors of users, and all item vectors in each step; leave it out, or use weight_decay"
        )
        reasons |= dict.fromkeys(("l2_users", "l2_items"), f"encoder = {known['encoder']!r} {why}")
    sampler = f"sampler = {known['sampler']!r}"
    if is_full(known["sampler"]):
        why = f"{sampler} compares with all items; leave it out, or use a sampler that draws"
        reasons |= dict.fromkeys(("n_extra", "n_unlabelled"), why)
    else:
        why = f"{sampler} draws items, one of them disliked; leave it out, or use sampler='full'"
        reasons["dislike_weight"] = why
    return reasons


def _set_on_object(part: str, value: object) -> str:
    kind = type(value).__name__
    return f"{part} = {kind}(…) has its own; set it on the object, or choose the {part} by name"
