"""Parameters as plain JSON, and back: what a saved model says about how it was made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from truepair.encoders import ENCODERS
from truepair.errors import InputError, check_choice
from truepair.losses import LOSSES
from truepair.sampling import SAMPLERS

_REGISTRIES: dict[str, Mapping[str, type]] = {"loss": LOSSES, "encoder": ENCODERS, "sampler": SAMPLERS}


def described(value: Any) -> Any:
    """A parameter as plain JSON: a loss, encoder or sampler becomes its kind and fields.

    What no registry knows becomes {"unknown": …}: it can be used, but not saved.
    """
    for registry in _REGISTRIES.values():
        for kind, made in registry.items():
            if type(value) is made:
                names = [f.name for f in dataclasses.fields(made)]
                return {"kind": kind, **{name: described(getattr(value, name)) for name in names}}
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays, tensors
        return value.tolist()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return list(value) if isinstance(value, tuple | list) else {"unknown": repr(value)[:200]}


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
    kind = check_choice(name, fields.pop("kind"), _REGISTRIES[name])
    return _REGISTRIES[name][kind](**fields)
