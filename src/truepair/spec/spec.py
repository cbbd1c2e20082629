"""Spec: encoder, loss, sampler, settings, blend and hold-out of a model, checked and typed.

Parameters from Python, TOML, `--set`, trials and model files become a Spec in `Spec.of`, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_choice, check_number, check_type, check_whole
from truepair.evaluation.metrics import parse_metric
from truepair.losses import LOSSES, Loss
from truepair.models.closed_forms import ALL_ENCODERS, EASE, ClosedForm
from truepair.models.encoders import ENCODERS, Encoder
from truepair.sampling import SAMPLERS, Sampler
from truepair.spec.defaults import USED_BY_CLOSED_FORMS, default_batch_size, is_full, with_defaults
from truepair.spec.parameters import PARAMETERS, PARTS, as_json, check_finite, check_parameter
from truepair.storage.old_names import current_parameters
from truepair.training import AUTO, ENGINES, Job, Settings, check_sampler

HOLD_OUTS = ("auto", "random", "last", "time")
"""Which interactions a hold-out takes; "auto" is "last" where users have times, else "random"."""

SEARCHED = ("temperature", "popularity", "dim", "epochs", "blend")
"""What automatic settings choose where it is not given."""

_SETTINGS = [f.name for f in dataclasses.fields(Settings)]
_ENCODER_FIELDS = ("dim", "scoring", "temperature", "popularity")


@dataclass(frozen=True)
class Spec:
    """A model that can be fitted: frozen, comparable, printable as the call that repeats it.

    encoder                 trained, or a closed form, which uses no other part but `metric`
    settings                those of training; `settings_for` fills in the batch size
    batch_size              None: it depends on the data
    blend, blend_weight     EASE whose scores are added to those of the trained encoder
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
    validation: float = 0.0
    hold_out: str = "auto"
    metric: str = "ndcg@20"
    engine: str = AUTO
    stop_after: int | None = None
    searched: tuple[str, ...] = ()
    given_rate: bool = True

    # --- from parameters -------------------------------------------------------------------------------

    @staticmethod
    def of(given: Mapping[str, Any], *, disliked: bool = False, unused: str = "error") -> Spec:
        """The spec of the given parameters of a Recommender; all others have their defaults.

        Raise if one is invalid, or if one is given and has no effect; `unused="drop"` ignores the latter.
        `disliked` says whether the interactions have dislikes, which not every engine can train with.

        >>> Spec.of({"encoder": "lightgcn", "dim": 8}).encoder
        LightGCN(dim=8, scoring='cosine', temperature=0.15, popularity=0.0, hops=1)
        """
        given = current_parameters(given)
        for name in given:
            check_parameter(name)
        known = {**PARAMETERS, **given}
        closed = _closed_form(known["encoder"])
        trained = known if closed is None else {**known, "encoder": PARAMETERS["encoder"]}
        spec = _trained(with_defaults(trained, disliked), given)
        if closed is not None:
            spec = dataclasses.replace(
                spec,
                encoder=closed,
                blend=None,
                validation=0.0,
                stop_after=None,
                searched=(),
                given_rate=True,
            )
        check_finite({"loss": as_json(known["loss"])})  # of a loss that can be saved; others check their own
        without_effect = _unused(known, given, spec)
        if without_effect and unused == "drop":
            kept = {name: value for name, value in given.items() if name not in without_effect}
            return Spec.of(kept, disliked=disliked)
        for name, why in without_effect.items():
            value = "one for each user" if np.ndim(known[name]) else known[name]
            raise InputError(f"{name} = {value} has no effect: {why}.")
        return spec

    def parameters(self) -> dict[str, Any]:
        """All parameters of a Recommender that give this spec; parts are named where that says all of them.

        >>> Spec.of({"encoder": "ease", "seed": 3}).parameters()
        {'encoder': 'ease', 'metric': 'ndcg@20', 'seed': 3, 'device': 'auto'}
        """
        if isinstance(self.encoder, ClosedForm):
            settings = {"seed": self.settings.seed, "device": self.settings.device}
            return {"encoder": _named("encoder", self.encoder), "metric": self.metric, **settings}
        found = {name: getattr(self.settings, name) for name in _SETTINGS} | {
            name: getattr(self, name)
            for name in ("validation", "hold_out", "metric", "engine", "stop_after", "blend_weight")
        }
        own = {name: getattr(self.encoder, name) for name in _ENCODER_FIELDS}
        encoder = _named("encoder", self.encoder, own)
        tau = {"tau": getattr(self.loss, "tau", None)} if self.loss.uses_prior else {}
        loss = _named("loss", self.loss, tau)
        return {
            "loss": loss, "encoder": encoder, "sampler": _named("sampler", self.sampler),
            **(own if isinstance(encoder, str) else {}), **(tau if isinstance(loss, str) else {}),
            **found, "blend": self.blend, "batch_size": self.batch_size,
            "auto": bool(self.searched),
        }  # fmt: skip

    def call(self) -> str:
        """The call that repeats a fit with this spec, without a search."""
        own = self.parameters()
        parts: dict[str, Any] = {part: own[part] for part in PARTS if part != "blend" and part in own}
        usual = {**Spec.of(parts).parameters(), **{name: PARAMETERS[name] for name in parts}}
        kept = {k: v for k, v in own.items() if repr(v) != repr(usual[k]) and k != "auto"}
        if self.is_trained:
            kept["auto"] = False
        return f"Recommender({', '.join(f'{name}={value!r}' for name, value in kept.items())})"

    # --- parts -----------------------------------------------------------------------------------------

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
        raise InputError(
            f"encoder = {self.encoder} is not trained; to train, use one of {', '.join(ENCODERS)}."
        )

    def settings_for(self, n_interactions: int, n_users: int) -> Settings:
        """The settings for data of this size."""
        size = self.batch_size or default_batch_size(self.sampler, n_interactions, n_users)
        return dataclasses.replace(self.settings, batch_size=size)

    def job(self, interactions: Interactions, **more: Any) -> Job:
        """The job that trains this spec; `more` are further fields of it, such as another loss."""
        parts = {"encoder": self.trained, "loss": self.loss, "settings": None, **more}
        settings = parts.pop("settings") or self.settings_for(len(interactions), interactions.n_users)
        return Job(sampler=self.sampler, interactions=interactions, settings=settings, **parts)

    def varied(self, **changes: Any) -> Spec:
        """Another spec: `changes` are fields of the encoder, of the settings or of the spec itself."""
        encoder = {name: changes.pop(name) for name in _ENCODER_FIELDS if name in changes}
        own = {f.name for f in dataclasses.fields(self)}
        settings = {name: changes.pop(name) for name in list(changes) if name not in own}
        parts: dict[str, Any] = {**changes}
        if encoder:
            parts["encoder"] = dataclasses.replace(self.trained, **encoder)
        if settings:
            parts["settings"] = dataclasses.replace(self.settings, **settings)
        return dataclasses.replace(self, **parts)


# --- the parts of a spec -----------------------------------------------------------------------------------


def _trained(known: Mapping[str, Any], given: Mapping[str, Any]) -> Spec:
    encoder, loss, sampler = _encoder(known), _loss(known), _sampler(known)
    check_sampler(loss, sampler)
    epochs, stop_after, batch_size = known["epochs"], known.get("stop_after"), known.get("batch_size")
    if stop_after is not None:
        remedy = f"There are epochs = {epochs}; raise epochs, or lower stop_after."
        stop_after = check_whole("stop_after", stop_after, 1, check_whole("epochs", epochs, 1), remedy)
    check_type("auto", known["auto"], bool, "give True or False")
    parse_metric(known["metric"])
    named = {name: known[name] for name in _SETTINGS if name in known}
    settings, searched = Settings(**named), _searched(known, given)
    return Spec(
        encoder, loss, sampler, dataclasses.replace(settings, batch_size=Settings.batch_size),
        batch_size=None if batch_size is None else settings.batch_size,
        blend=_blend(known.get("blend")),
        blend_weight=check_number("blend_weight", known["blend_weight"], 0),
        validation=check_number("validation", known["validation"], 0, 1, open_high=True),
        hold_out=check_choice("hold_out", known["hold_out"], HOLD_OUTS),
        metric=known["metric"],
        engine=check_choice("engine", known["engine"], [AUTO, *ENGINES]),
        stop_after=stop_after,
        searched=searched,
        given_rate=not searched or given.get("learning_rate") is not None,
    )  # fmt: skip


def _searched(known: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[str, ...]:
    """What automatic settings choose; nothing for other losses, samplers and encoders, and after a search.

    `stop_after` is what a search sets, so that the parameters that come with it are settled.
    """
    plain = (
        known["auto"] and known["loss"] == "infonce" and is_full(known["sampler"])
        and isinstance(known["encoder"], str) and known["scoring"] == "cosine"
        and known.get("stop_after") is None
    )  # fmt: skip
    unset = [name for name in SEARCHED if given.get(name) is None]
    return tuple(unset) if plain else ()


def _encoder(known: Mapping[str, Any]) -> Encoder:
    encoder = known["encoder"]
    if isinstance(encoder, str):
        kind = ENCODERS[check_choice("encoder", encoder, ALL_ENCODERS)]
        return kind(**{name: known[name] for name in _ENCODER_FIELDS})
    names = ", ".join(ALL_ENCODERS)
    check_type("encoder", encoder, Encoder, f"give one of {names}, or an object such as MF(dim=64)")
    return cast(Encoder, encoder)


def _loss(known: Mapping[str, Any]) -> Loss:
    loss = known["loss"]
    if isinstance(loss, str):
        kind = LOSSES[check_choice("loss", loss, LOSSES)]
        return kind(**({"tau": known["tau"]} if kind.uses_prior else {}))
    check_type("loss", loss, Loss, f"give one of {', '.join(LOSSES)}, or an object such as DPL(tau=0.05)")
    return cast(Loss, loss)


def _sampler(known: Mapping[str, Any]) -> Sampler:
    """The sampler; one given by name that selects from a pool gets a pool that is large enough."""
    sampler = known["sampler"]
    if not isinstance(sampler, str):
        names = ", ".join(SAMPLERS)
        check_type("sampler", sampler, Sampler, f"give one of {names}, or an object such as DNS()")
        return cast(Sampler, sampler)
    made = SAMPLERS[check_choice("sampler", sampler, SAMPLERS)]()
    pool = getattr(made, "pool", None)
    if pool is None or pool > known["n_unlabelled"]:
        return made
    return dataclasses.replace(made, pool=2 * known["n_unlabelled"])  # type: ignore[type-var]


def _closed_form(encoder: object) -> ClosedForm | None:
    """The encoder, given by name or as an object, if it is a closed form."""
    kind = ALL_ENCODERS.get(encoder) if isinstance(encoder, str) else None
    if kind is not None and issubclass(kind, ClosedForm):
        return kind()
    return encoder if isinstance(encoder, ClosedForm) else None


def _blend(blend: Any) -> EASE | None:
    if blend is None or blend == "none":
        return None
    if isinstance(blend, str):
        blend = PARTS["blend"][check_choice("blend", blend, PARTS["blend"])]()
    check_type("blend", blend, EASE, "give 'ease', an object such as EASE(l2=500), or None")
    return cast(EASE, blend)


def _named(part: str, value: object, fields: Mapping[str, Any] | None = None) -> Any:
    """The name of a part, if the name and these fields say all of it; else the part itself."""
    for name, kind in PARTS[part].items():
        if type(value) is kind and repr(kind(**(fields or {}))) == repr(value):
            return name
    return value


# --- parameters without effect -----------------------------------------------------------------------------


def _unused(known: Mapping[str, Any], given: Collection[str], spec: Spec) -> dict[str, str]:
    """The given parameters that have no effect, each with the reason and the remedy.

    A closed form has no loss, no sampler and no training; the seed is that of a split.
    """
    given = [name for name in given if repr(known[name]) != repr(PARAMETERS[name])]
    if not spec.is_trained:
        why = f"encoder = {spec.encoder} is not trained; leave it out, or use one of {', '.join(ENCODERS)}"
        return {name: why for name in given if name not in USED_BY_CLOSED_FORMS}
    sampler = known["sampler"]
    alone = "" if "blend" in given else "there is no blend; leave it out, or add blend='ease'"
    reasons = {"tau": _prior_unused(known["loss"]), "blend_weight": alone}
    if not isinstance(known["encoder"], str):
        reasons |= dict.fromkeys(_ENCODER_FIELDS, _set_on_object("encoder", known["encoder"]))
    if not is_full(sampler):
        reasons["dislike_weight"] = (
            f"sampler = {sampler!r} draws items, one of them disliked; leave it out, or use sampler='full'"
        )
    else:
        why = f"sampler = {sampler!r} compares with all items; leave it out, or use a sampler that draws"
        reasons |= dict.fromkeys(("n_extra", "n_unlabelled"), why)
    return {name: why for name, why in reasons.items() if why and name in given}


def _prior_unused(loss: object) -> str:
    """Why a prior given with this loss has no effect; empty if it has."""
    kind = LOSSES[loss] if isinstance(loss, str) else type(loss)
    if kind.uses_prior:  # type: ignore[attr-defined]
        return "" if isinstance(loss, str) else _set_on_object("loss", loss)
    others = ", ".join(name for name, other in LOSSES.items() if other.uses_prior)
    return f"loss = {loss!r} has no prior; losses with a prior: {others}"


def _set_on_object(part: str, value: object) -> str:
    kind = type(value).__name__
    return f"{part} = {kind}(…) has its own; set it on the object, or choose the {part} by name"
