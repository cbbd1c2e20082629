"""The command line: which commands there are, an example of each, and what happens when one fails."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from truepair.commands import paper as paper_commands
from truepair.commands import quality as quality_commands
from truepair.commands.bench import bench
from truepair.commands.compare import compare
from truepair.commands.data import fetch, info, list_datasets
from truepair.commands.demo import demo
from truepair.commands.doctor import doctor
from truepair.commands.evaluate import evaluate
from truepair.commands.fit import fit
from truepair.commands.options import Command
from truepair.commands.prior import prior
from truepair.commands.recommend import recommend
from truepair.commands.similar import similar
from truepair.commands.theory import theory
from truepair.commands.truth import truth
from truepair.commands.tune import tune
from truepair.errors import TruepairError


class Group(TyperGroup):
    """Commands whose errors are one message on stderr: exit code 1, or 130 when interrupted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words as they were typed, for messages that tell how to go on."""
        ctx.meta.setdefault("truepair.args", list(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read stdout has seen enough
        except (TruepairError, OSError) as error:
            typer.echo(f"truepair: {error}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


_HABITS: dict[str, Any] = {"add_completion": False, "rich_markup_mode": None, "no_args_is_help": True}
_FLOW = """\b
Example:
  truepair fit clicks.csv -o model.truepair
  truepair recommend model.truepair --users ann,bob
"""
app = typer.Typer(cls=Group, pretty_exceptions_enable=False, epilog=_FLOW, **_HABITS)
datasets = typer.Typer(help="The public datasets that truepair knows by name.", **_HABITS)

paper = typer.Typer(help="The paper's tables and figures: tuned, run and reported.", **_HABITS)
quality = typer.Typer(help="Exact sampling against what people use: tuned, run and reported.", **_HABITS)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"truepair {importlib.metadata.version('truepair')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version, and exit.")
    ] = False,
) -> None:
    """Learn recommenders from what people did, without punishing what they have not seen yet."""


def _add(group: typer.Typer, name: str, command: Any, example: str) -> None:
    group.command(name, cls=Command, epilog=f"\b\nExample:\n  truepair {example}")(command)


_add(app, "demo", demo, "demo --out report.html")
app.add_typer(datasets, name="data", epilog="\b\nExample:\n  truepair data list")
_add(app, "fit", fit, "fit clicks.csv -o model.truepair --loss dpl --min-rating 4 --set loss.floor=0.1")
_add(app, "evaluate", evaluate, "evaluate model.truepair next_week.csv -k 5,10,20")
_add(app, "recommend", recommend, "recommend model.truepair -k 20 -o lists.parquet")
_add(app, "similar", similar, "similar model.truepair 50 181 -k 5")
_add(app, "compare", compare, "compare ml-100k --losses bpr,dcl,dpl --seeds 3 --min-rating 4")
_add(app, "tune", tune, "tune ml-100k --loss dpl --trials 30 --out tuning.html --save-config best.toml")
_add(app, "bench", bench, "bench training ranking --rounds 5 --out bench.json")
app.add_typer(paper, name="paper", epilog="\b\nExample:\n  truepair paper report")
app.add_typer(quality, name="quality", epilog="\b\nExample:\n  truepair quality report")
_add(app, "prior", prior, "prior ml-100k --plot prior.svg --per-user tau.csv")
_add(app, "theory", theory, "theory --quick --out theory.md")
_add(app, "truth", truth, "truth simulation --exposure popularity --report truth.md")
_add(app, "doctor", doctor, "doctor --json")
_add(datasets, "list", list_datasets, "data list --data-dir ~/datasets")
_add(datasets, "info", info, "data info ml-100k")
_add(datasets, "fetch", fetch, "data fetch ml-100k")
_add(paper, "run", paper_commands.run, "paper run --only ml-100k --studies paper,clean")
_add(paper, "tune", paper_commands.tune, "paper tune --only ml-100k --encoders mf --methods dpl")
_add(paper, "report", paper_commands.report, "paper report --lines results/paper --out docs/paper.md")
_add(quality, "tune", quality_commands.tune, "quality tune --only ml-100k --methods ease,exact-infonce")
_add(quality, "run", quality_commands.run, "quality run --only ml-100k --encoders mf --seeds 3")
_add(
    quality, "report", quality_commands.report, "quality report --lines results/quality --out docs/quality.md"
)


def main() -> None:
    """The entry point of the command `truepair`."""
    app(prog_name="truepair")
