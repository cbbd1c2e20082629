"""The worker that a cluster starts on each rank: `truepair fit`, as torchrun starts it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from truepair.errors import InputError, TrainingError, TruepairError, check_whole

ROWS = 1 << 20
"""Rows of a cluster's table that are read at once."""


def arguments_of(
    source: str | Path, output: str | Path, use_gpu: bool, options: Mapping[str, object]
) -> list[str]:
    """The arguments of `truepair fit`; options have the names of the command line, with underscores.

    >>> arguments_of("clicks", "m.truepair", False, {"batch_size": 64, "auto": False, "set": ["seed=1"]})[3:]
    ['--quiet', '--device', 'cpu', '--batch-size', '64', '--no-auto', '--set', 'seed=1']
    """
    given = {"device": "cuda" if use_gpu else "cpu", **options}
    found = ["fit", str(source), f"--output={output}", "--quiet"]
    for name, value in given.items():
        option = name.replace("_", "-")
        if value is True or value is False:
            found.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None:
            for each in value if isinstance(value, list | tuple) else [value]:
                found += [f"--{option}", str(each)]
    return found


def cluster_module(cluster: str, name: str) -> ModuleType:
    """A module of Ray or Spark, or an error that names the extra."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"{name} cannot be imported ({error}); install {cluster} with "
            f"pip install 'truepair[{cluster.lower()}]'."
        ) from error


def train(config: Mapping[str, list[str]]) -> None:
    """On each rank, in the environment that torchrun makes: run the command; its errors are raised."""
    # by name, as torchrun does it: the commands come after this package
    typer, commands = import_module("typer"), import_module("truepair.cli.main")
    command = typer.main.get_command(commands.app)
    try:
        with command.make_context("truepair", config["arguments"]) as context:
            command.invoke(context)
    except typer.Exit as ended:
        if ended.exit_code:
            raise ended.__cause__ or TrainingError(f"truepair fit ended with {ended.exit_code}") from None


def train_or_say(config: Mapping[str, list[str]]) -> str | None:
    """The same for clusters that keep errors to their logs: what went wrong is returned."""
    try:
        train(config)
    except TruepairError as error:
        return str(error)
    return None


def fitted(output: str | Path) -> Any:
    """The model that rank 0 has written, a `Recommender`."""
    return import_module("truepair.recommender.estimator").Recommender.load(output)


def checked_arguments(
    source: str | Path, output: str | Path, workers: int, use_gpu: bool, options: Mapping[str, object]
) -> dict[str, list[str]]:
    """What each rank is given: the arguments of the command; an error for what no cluster can start."""
    check_whole("workers", workers, 1)
    if not Path(output).expanduser().parent.is_dir():
        folder = Path(output).parent
        raise InputError(f"{folder} is no folder; the model's folder must exist on all machines: make it.")
    if not Path(source).expanduser().exists():
        raise InputError(f"there is no {source}; give a prepared folder or file that all machines can read.")
    return {"arguments": arguments_of(Path(source).absolute(), Path(output).absolute(), use_gpu, options)}


@contextmanager
def worker_errors(cluster: str) -> Iterator[None]:
    """An error of a cluster's own becomes the one of the worker that caused it."""
    try:
        yield
    except Exception as error:
        causes = re.findall(r"^.*?truepair\.errors\.\w+: (.+)$", f"{error}", re.MULTILINE)
        shown = next(iter([*causes, *f"{error}".strip().splitlines()[-1:], type(error).__name__]))
        raise TrainingError(f"a worker of {cluster} failed: {shown:.500}") from error
