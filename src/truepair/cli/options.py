"""Options that several commands share, and dataclasses as groups of options."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, field, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError, TruepairError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


FIRST = (
    "output", "loss", "encoder", "test", "test_after", "metric", "budget", "min_rating", "feedback",
    "missing",
)  # fmt: skip
"""Options that the help shows before the groups of the others, besides those of the command alone."""


def _check_report(path: Path | None) -> Path | None:
    if path is not None:
        from truepair.reporting.figures import check_plots

        check_plots()
    return check_output(path)


DataDir = Annotated[Path | None, typer.Option(help="Where <dataset>/<file> are. [default: TRUEPAIR_DATA]")]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file saved by `truepair fit`.")]
SourceText = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A file, a folder (Parquet or prepared), a database's URL, or a dataset."
    ),
]
TestPart = Annotated[
    str | None,
    typer.Option(metavar="SHARE|given", help="Hold out this share, or the source's own test part."),
]
TestAfter = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="Hold out what is new from this time on: 2024-06-15, or a number."),
]
OutputModel = Annotated[
    Path, typer.Option("--output", "-o", callback=check_output, help="The file to save to; it may be MODEL.")
]
Report = Annotated[
    Path | None,
    typer.Option("--out", "-o", callback=_check_report, help="The file of a report with figures."),
]
WithoutOptimizer = Annotated[
    bool,
    typer.Option(
        "--no-optimizer",
        help="Save without the state of training. The file has about a quarter of the size, and updates go "
        "on from the vectors alone.",
        rich_help_panel="Output",
    ),
]
LossName = Annotated[str | None, typer.Option(help="The loss: {truepair.losses.LOSSES} [default: {default}]")]
ColdUsers = Annotated[
    str,
    typer.Option(help="Users without a trained pair: `popular` items, `separate` leaves them out, `error`."),
]
ListLength = Annotated[int, typer.Option("-k", help="The length of each list.")]
Seed = Annotated[int, typer.Option(help="The seed of all random numbers.")]


def option(help: str, *names: str, default: object = None, **more: Any) -> Any:
    """An option as the field of a dataclass."""
    return field(default=default, metadata={"option": typer.Option(*names, help=help, **more)})


def argument(help: str, metavar: str) -> Any:
    """An argument that may be left out, as the field of a dataclass."""
    return field(default=None, metadata={"option": typer.Argument(help=help, metavar=metavar)})


def unpacked(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each dataclass among its parameters replaced by the options that are its fields."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, list[Parameter]] = {}
    parameters: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = _options_of(hints[name])
        single = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += groups.get(name, [single])

    @functools.wraps(command)
    def called(**given: object) -> None:
        for name, options in groups.items():
            given[name] = hints[name](**{each.name: given.pop(each.name) for each in options})
        command(**given)

    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _options_of(kind: type[DataclassInstance]) -> list[Parameter]:
    hints, found = get_type_hints(kind, include_extras=True), []
    panel = getattr(kind, "panel", None)
    for each in fields(kind):
        hint = Annotated[hints[each.name], each.metadata["option"]] if each.metadata else hints[each.name]
        if panel is not None:
            base, shown = get_args(hint)
            hint = Annotated[base, shown := copy(shown)]
            shown.rich_help_panel = panel
        default = Parameter.empty if each.default is MISSING else each.default
        found.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
    return found


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
            error.args = (with_options(str(error), self.params),)
            raise

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Replace the names in braces, then show the help."""
        for parameter in self.params:
            text = getattr(parameter, "help", None) or ""
            vars(parameter)["help"] = _filled(text, str(parameter.name))
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The arguments, the options that are used first, and groups of the others."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                panel = None if parameter.name in FIRST else getattr(parameter, "rich_help_panel", None)
                kind = "Options" if parameter.param_type_name == "option" else "Arguments"
                groups.setdefault(panel or kind, []).append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def option_name(name: str) -> str:
    """The option of a parameter: `--min-rating` of min_rating."""
    return f"--{name.replace('_', '-')}"


_KEYWORD = re.compile(
    r"""(?<![-\w./'"])(?<!\w\()(?P<name>\w+)(?:"""
    r"""=(?:'(?P<text>[\w.-]*)'|(?P<kinds>\{[^{}]*\})|(?P<other>"|<|…|True|False|None|-?\d+(?:\.\d+)?|))"""
    r"| = (?P<given>one of|True|(?=\S)))"
)
_UNDERSCORED = re.compile(r"(?<![-\w./])[a-z]+(?:_[a-z]+)+(?![\w/-]|\.\w)")


def with_options(message: str, parameters: Sequence[Any]) -> str:
    """The message with options for keywords of Python: `--cold popular` for cold='popular', `--time -` for
    time=False. A parameter of `Recommender` without an option of its own is set by --set."""
    from truepair.spec.parameters import PARAMETERS

    known = {each.name: each for each in parameters if each.opts[0].startswith("-")}

    def as_option(found: re.Match[str]) -> str:
        name, value = found["name"], found["text"] or found["other"] or ""
        if name not in known:
            is_set = "set" in known and name in PARAMETERS and value
            return f"--set {name}={value}" if is_set else found[0]
        option, off = max(known[name].opts, key=len), known[name].secondary_opts
        if found["given"] is not None:
            stated = found[0] if found.start() else f"{option} = "  # elsewhere it may be a word
            return option if found["given"] == "True" else f"{option} one of" if found["given"] else stated
        if found["kinds"]:
            kinds = re.sub(r"[{} ']", "", found["kinds"])
            return f"{option} {kinds.replace(':', '=')}"
        if value == "None":
            return f"{option} {'-' if known[name].metavar == 'COLUMN' else 'none'}"
        if value == "False":
            return off[0] if off else f"{option} -" if known[name].metavar == "COLUMN" else found[0]
        return option if value == "True" else f"{option} {value}".rstrip()

    text = _KEYWORD.sub(as_option, message)
    return _UNDERSCORED.sub(lambda found: option_name(found[0]) if found[0] in known else found[0], text)


def _filled(help: str, name: str) -> str:
    return re.sub(r"\{([\w.]+)\}", lambda found: _looked_up(found[1], name), help)


def _looked_up(place: str, name: str) -> str:
    if place != "default":
        module, _, registry = place.rpartition(".")
        return ", ".join(getattr(importlib.import_module(module), registry))
    from truepair.spec.defaults import FULL_CATALOGUE, SAMPLED
    from truepair.spec.parameters import PARAMETERS

    if name not in FULL_CATALOGUE:
        return str(PARAMETERS[name])
    full = "none" if FULL_CATALOGUE[name] is None else FULL_CATALOGUE[name]
    return f"{full}; {SAMPLED[name]} with other samplers"


def refuse(given: Mapping[str, object], where: str, remedy: str = "leave it out") -> None:
    """Raise for the first option that is given and has no effect there, such as "without --demo"."""
    for name, value in given.items():
        if value is not None:
            shown = name if isinstance(value, bool) else f"{name} {without_password(str(value)):.60}"
            raise InputError(f"{shown} has no effect {where}; {remedy}.")
