"""The command line: all commands, an example of each, and the exit codes."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from truepair.cli.commands.data import demo, doctor, fetch, info, list_datasets, prepare
from truepair.cli.commands.evaluate import compare, evaluate
from truepair.cli.commands.fit import fit
from truepair.cli.commands.plan import plan
from truepair.cli.commands.prior import prior
from truepair.cli.commands.recommend import recommend, similar
from truepair.cli.commands.serve import export, import_files, rollback, serve
from truepair.cli.commands.tune import backtest, tune
from truepair.cli.commands.update import add_items, update
from truepair.cli.console import Ranks
from truepair.cli.interruption import EXIT_CODE, interrupt_raises
from truepair.cli.options import Command, unpacked
from truepair.data.sources.sql_urls import without_password
from truepair.errors import TruepairError
from truepair.storage.types import Json
from truepair.storage.versions import package_version

_USAGE_ERROR: Any = typer.BadParameter.__base__  # typer does not export it


class Group(TyperGroup):
    """Commands whose errors are one message on stderr: exit code 1, or 130 when interrupted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the arguments as typed, without passwords, for messages that show how to continue."""
        ctx.meta.setdefault("truepair.args", [without_password(text) for text in args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            with interrupt_raises():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of stdout has closed it
        except (TruepairError, OSError) as error:
            ranks = Ranks.here()
            who = "truepair" if ranks.size == 1 else f"truepair (rank {ranks.rank})"
            typer.echo(f"{who}: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(EXIT_CODE) from None
        except _USAGE_ERROR as error:  # its message repeats arguments
            error.message = without_password(error.message)
            raise


HABITS: Json = {"add_completion": False, "rich_markup_mode": None, "no_args_is_help": True}
_FLOW = """\b
Example:
  truepair fit clicks.csv -o model.truepair
  truepair recommend model.truepair --users ann,bob
"""
app = typer.Typer(cls=Group, pretty_exceptions_enable=False, epilog=_FLOW, **HABITS)
datasets = typer.Typer(help="The public datasets that truepair knows by name.", **HABITS)


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"truepair {package_version('truepair')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn recommenders from clicks, plays and purchases: unseen items are not treated as dislikes."""


_COMMANDS = (
    demo, fit, prepare, plan, evaluate, update, recommend, similar, serve, rollback, export, import_files,
    add_items, compare, backtest, tune, prior, doctor,
)  # fmt: skip
"""The commands in the order of the help; the docstring of each ends with an example, which has its name."""
_DATASET_COMMANDS = (list_datasets, info, fetch)
for group, start, commands in ((app, "truepair", _COMMANDS), (datasets, "truepair data", _DATASET_COMMANDS)):
    for command in commands:
        text, _, example = inspect.cleandoc(command.__doc__ or "").partition("\nExample:\n")
        name = example.removeprefix(f"  {start} ").split()[0]
        epilog = f"\b\nExample:\n{example}"
        group.command(name, cls=Command, help=text, epilog=epilog)(unpacked(command))
app.add_typer(datasets, name="data", epilog="\b\nExample:\n  truepair data list")


def main() -> None:
    """The commands, from the arguments of the process; `truepair.__main__` is the entry point."""
    app(prog_name="truepair")
