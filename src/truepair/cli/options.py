"""Options that several commands share, and dataclasses as groups of options."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from truepair.errors import InputError, TruepairError

DataDir = Annotated[
    Path | None,
    typer.Option(help="The folder that holds <dataset>/<file>. [default: TRUEPAIR_DATA]"),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file saved by `truepair fit`.")]
SourceText = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A file, a folder of Parquet files, a prepared folder, the URL of a database, or the name of a "
        "dataset.",
    ),
]
WithoutOptimizer = Annotated[
    bool,
    typer.Option(
        "--no-optimizer",
        help="Save without the state of training. The file has about a quarter of the size, and updates go "
        "on from the vectors alone.",
    ),
]
ListLength = Annotated[int, typer.Option("-k", help="The length of each list.")]


def unpacked(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each dataclass among its parameters replaced by the options that are its fields."""
    hints = get_type_hints(command, include_extras=True)
    kinds: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        single = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += _options_of(kinds[name]) if name in kinds else [single]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        for name, kind in kinds.items():
            fields = [field.name for field in dataclasses.fields(kind)]
            given[name] = kind(**{field: given.pop(field) for field in fields})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _options_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(kind)
    ]


class Command(TyperCommand):
    """A command whose help names registries and defaults of the library, which is loaded only to show it.

    `{truepair.losses.LOSSES}` becomes the names in that registry, `{default}` the default of the parameter.
    Its errors advise options: what the library calls cold='popular' is `--cold popular` here.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except TruepairError as error:
            options = {parameter.name: f"--{parameter.name.replace('_', '-')}" for parameter in self.params}
            error.args = (_with_options(str(error), options),)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Replace the names in braces, then show the help."""
        for parameter in self.params:
            parameter.help = _filled(parameter)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def _with_options(message: str, options: Mapping[str, str]) -> str:
    """The message with `--cold popular` for cold='popular', and `--cold one of` for cold = one of."""

    def option(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        return f"{options[name]} {value or ''}" if name in options else found[0]

    return re.sub(r"\b(\w+)(?:='([\w.-]+)'| = (?=one of ))", option, message)


def _filled(parameter: Any) -> str:
    return re.sub(
        r"\{([\w.]+)\}",
        lambda found: _looked_up(found[1], parameter.name),
        getattr(parameter, "help", "") or "",
    )


def _looked_up(place: str, name: str) -> str:
    if place == "default":
        if name in importlib.import_module("truepair.spec.defaults").FULL_CATALOGUE:
            return _by_sampler(name)
        return str(getattr(importlib.import_module("truepair.recommender.estimator").Recommender, name))
    module, _, registry = place.rpartition(".")
    return ", ".join(getattr(importlib.import_module(module), registry))


def _by_sampler(name: str) -> str:
    module = importlib.import_module("truepair.spec.defaults")
    full, sampled = module.FULL_CATALOGUE[name], module.SAMPLED[name]
    return f"{'none' if full is None else full}; {sampled} with a sampler that draws"


def whole_numbers(what: str, text: str) -> tuple[int, ...]:
    """The numbers in a text such as "5,10,20"."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{what} = {text!r} is not a list of whole numbers, such as 5,10,20.") from None
