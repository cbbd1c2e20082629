"""Versions of installed packages, and names of version 0.1 that have changed since.

Model files, configurations, journals, checkpoints and programs written for that version may still have them.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from typing import Any

from truepair.errors import InputError

PARAMETERS = {"plus": "blend", "plus_weight": "blend_weight"}
VALUES = {  # parameter -> old value -> new value; a checkpoint names the class of a sampler
    "sampler": {"exact": "full", "Exact": "Full"},
    "engine": {"rows": "full", "cpu-fast": "cpu"},
}


def package_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed.

    The version of truepair is known in a source tree that is not installed, too.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(sys.modules["truepair"].__version__) if package == "truepair" else None


def current_value(name: str, value: object) -> object:
    """The value of a parameter as it is called today; a table is named by its `kind`.

    >>> current_value("sampler", "exact"), current_value("sampler", {"kind": "exact", "columns": 8})
    ('full', {'kind': 'full', 'columns': 8})
    """
    if isinstance(value, Mapping) and "kind" in value:
        return {**value, "kind": current_value(name, value["kind"])}
    return VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def current_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, or fields of parameters, by their names of today; an error where one is given by its old
    and its new name.

    >>> current_parameters({"plus": "ease", "plus.l2": 10, "sampler": "exact"})
    {'blend': 'ease', 'blend.l2': 10, 'sampler': 'full'}
    """
    found: dict[str, Any] = {}
    for old, value in parameters.items():
        parameter, dot, field = old.partition(".")
        name = PARAMETERS.get(parameter, parameter) + dot + field
        if name in found:
            raise InputError(f"{name} is given twice; {old!r} is the same parameter under its old name.")
        found[name] = current_value(name, value)
    return found
