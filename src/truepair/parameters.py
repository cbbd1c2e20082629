"""Parameters as plain JSON, and back: what a saved model says about how it was made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from truepair.encoders import ENCODERS
from truepair.errors import check_choice
from truepair.losses import LOSSES
from truepair.sampling import SAMPLERS

_REGISTRIES: dict[str, Mapping[str, type]] = {"loss": LOSSES, "encoder": ENCODERS, "sampler": SAMPLERS}


def described(value: Any) -> Any:
    """A parameter as plain JSON: a loss, encoder or sampler becomes its kind and fields."""
    for registry in _REGISTRIES.values():
        for kind, made in registry.items():
            if type(value) is made:
                names = [f.name for f in dataclasses.fields(made)]
                fields = {name: described(getattr(value, name)) for name in names}
                return {"kind": kind, **fields}
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return list(value) if isinstance(value, tuple | list) else repr(value)


def rebuilt(name: str, value: Any) -> Any:
    """The parameter that `described` told of; only kinds in the registries can be made."""
    if not isinstance(value, dict):
        return value
    fields = {key: field for key, field in value.items() if key != "kind"}
    return _REGISTRIES[name][check_choice(name, value["kind"], _REGISTRIES[name])](**fields)
