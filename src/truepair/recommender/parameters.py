"""Parameters as plain JSON, and back: what a saved model says about how it was made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from truepair.errors import InputError, check_choice
from truepair.losses import LOSSES
from truepair.models.closed_forms import ALL_ENCODERS, EASE
from truepair.sampling import OLD_NAMES as OLD_SAMPLERS
from truepair.sampling import SAMPLERS
from truepair.training.engines import OLD_NAMES as OLD_ENGINES

# what has fields of its own, and the kinds of each by name
PARTS: dict[str, Mapping[str, type]] = {
    "loss": LOSSES,
    "encoder": ALL_ENCODERS,
    "sampler": SAMPLERS,
    "plus": {"ease": EASE},
}
FIELDS = {  # fields that are parameters of Recommender too, for parts that are given by name
    "dim": "encoder.dim",
    "scoring": "encoder.scoring",
    "temperature": "encoder.temperature",
    "popularity": "encoder.popularity",
    "tau": "loss.tau",
}


OLD_NAMES: dict[str, Mapping[str, str]] = {"sampler": OLD_SAMPLERS, "engine": OLD_ENGINES}


def current_name(parameter: str, value: Any) -> Any:
    """The value; a name of an older version becomes the one of today.

    >>> current_name("sampler", "exact"), current_name("engine", "rows")
    ('full', 'full')
    """
    return OLD_NAMES.get(parameter, {}).get(value, value) if isinstance(value, str) else value


def described(value: Any) -> Any:
    """A parameter as plain JSON: a loss, encoder or sampler becomes its kind and fields.

    What no registry knows becomes {"unknown": …}: it can be used, but not saved.
    """
    for registry in PARTS.values():
        for kind, made in registry.items():
            if type(value) is made:
                names = _field_names(made)
                return {"kind": kind, **{name: described(getattr(value, name)) for name in names}}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, tensors
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return list(value) if isinstance(value, tuple | list) else {"unknown": repr(value)[:200]}


def assembled(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Recommender's parameters from flat ones: a dotted name is a field of the loss, encoder or sampler.

    >>> assembled({"loss": "dpl", "loss.tau": 0.1, "encoder": "mf", "encoder.dim": 8, "epochs": 5})["loss"]
    DPL(tau=0.1, floor=0.01, clamp='hard', margin=0.0)
    """
    whole = {name: value for name, value in flat.items() if "." not in name}
    for name, registry in PARTS.items():
        fields = {key.split(".", 1)[1]: value for key, value in flat.items() if key.startswith(f"{name}.")}
        if isinstance(whole.get(name), str):
            whole[name] = current_name(name, whole[name])
            whole[name] = _made(name, registry[check_choice(name, whole[name], registry)], fields)
        elif fields:
            raise InputError(
                f"{name}.{next(iter(fields))} was given without {name}; name one of {', '.join(registry)}."
            )
    for name in flat:
        if "." in name:
            check_choice("the part before the dot", name.split(".", 1)[0], list(PARTS))
    return whole


def _made(name: str, kind: type, fields: Mapping[str, Any]) -> Any:
    """A value of this kind; an unknown field is an error that lists the fields it has."""
    for field in fields:
        check_choice(f"a field of {name}", field, _field_names(kind))
    return kind(**fields)


def _field_names(kind: type) -> list[str]:
    """The fields that somebody gives; one without a repr is filled in by training, and not kept."""
    return [f.name for f in dataclasses.fields(kind) if f.repr]


def check_saveable(parameters: Mapping[str, Any]) -> None:
    """An error if a described parameter could not be rebuilt on loading."""
    for name, value in parameters.items():
        if isinstance(value, dict) and "unknown" in value:
            raise InputError(
                f"{name} = {value['unknown']} cannot be saved; add its class to the registry that names "
                "such values (LOSSES, ENCODERS, SAMPLERS)."
            )


def rebuilt(name: str, value: Any) -> Any:
    """The parameter that `described` told of; only kinds in the registries can be made."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    fields = {key: tuple(field) if isinstance(field, list) else field for key, field in value.items()}
    kind = check_choice(name, current_name(name, fields.pop("kind")), PARTS[name])
    return PARTS[name][kind](**fields)
