"""Console: remarks on stderr, results on stdout as text or JSON; Ranks: which of several processes prints."""

from __future__ import annotations

import json as json_text
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import typer

import truepair as tp
from truepair.cli.interruption import EXIT_CODE
from truepair.cli.options import option, refuse
from truepair.errors import InputError
from truepair.reporting.page import text_table
from truepair.storage.plain_values import as_text


@dataclass(frozen=True)
class Console:
    """Where a command writes; its fields are options of every command."""

    panel: ClassVar = "Output"

    quiet: bool = option("Print no progress and no remarks, only errors.", "--quiet", "-q", default=False)
    json: bool = option("Print the result to stdout as JSON.", "--json", default=False)

    def say(self, text: str) -> None:
        """Print a remark to stderr."""
        if not self.quiet:
            typer.echo(text, err=True)

    def give(self, text: str, data: object) -> None:
        """Print the result to stdout: the text, or with --json the data."""
        typer.echo(
            json_text.dumps(data, ensure_ascii=False, indent=2, default=as_text) if self.json else text
        )

    def done(self, text: str, data: object) -> None:
        """`give`, for a command whose result is a file: --quiet suppresses the text."""
        if self.json or not self.quiet:
            self.give(text, data)


class Ranks(NamedTuple):
    """Which of how many processes this one is, by the environment that torchrun makes."""

    rank: int = 0
    size: int = 1

    @staticmethod
    def here() -> Ranks:
        """Those of this process."""
        rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
        return Ranks(int(rank), int(size)) if rank.isdecimal() and size.isdecimal() else Ranks()

    @property
    def is_first(self) -> bool:
        """Whether this process prints the result and writes the model."""
        return self.rank == 0

    def console(self, console: Console) -> Console:
        """One that prints nothing, on all ranks but the first."""
        return console if self.is_first else replace(console, quiet=True, json=False)

    def prepare(self, model: tp.Recommender, budget: str | None) -> None:
        """Several processes train with engine "distributed"; raise for what they cannot do together."""
        if self.size == 1:
            return
        if model.spec.closed_form is not None:
            raise InputError(f"{model.spec.closed_form} is not trained by {self.size} processes; start one.")
        if model.engine == "auto":
            model.set_params(engine="distributed")
        if model.engine != "distributed":
            raise InputError(
                f"engine = {model.engine!r} trains in one process, and {self.size} were started; use "
                "--engine distributed, or start one."
            )
        refuse({"--budget": budget}, f"with {self.size} processes, whose clocks differ")


def to_be_continued(ctx: typer.Context, what: str) -> typer.Exit:
    """Say that the command was interrupted, and how to continue; the result is to be raised."""
    again = shlex.join(["truepair", *ctx.meta["truepair.args"]])
    typer.echo(f"interrupted; {what}. To continue:\n  {again}", err=True)
    return typer.Exit(EXIT_CODE)


def aligned(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as a text table; numbers are aligned to the right.

    >>> print(aligned([{"item": "tea", "score": 0.5}, {"item": "jam", "score": 12.25}]))
    item    score
    tea    0.5000
    jam   12.2500
    """
    if not rows:
        return ""
    return text_table(_column(name, [row[name] for row in rows]) for name in rows[0])


def _column(name: str, values: list[object]) -> tuple[list[str], bool]:
    cells = [name, *(f"{value:.4f}" if isinstance(value, float) else as_text(value) for value in values)]
    return cells, all(isinstance(value, int | float) for value in values)
