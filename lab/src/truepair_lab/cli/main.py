"""The commands of `truepair-lab`, and an example of each."""

from __future__ import annotations

from typing import Any

import typer

from truepair.cli.main import HABITS, Group
from truepair.cli.options import Command
from truepair_lab.cli import paper as paper_commands
from truepair_lab.cli import plain as plain_commands
from truepair_lab.cli import quality as quality_commands
from truepair_lab.cli.bench import bench
from truepair_lab.cli.prior_study import prior_study
from truepair_lab.cli.theory import theory
from truepair_lab.cli.truth import truth

app = typer.Typer(
    cls=Group,
    pretty_exceptions_enable=False,
    help="The research behind truepair: studies and benchmarks.",
    epilog="\b\nExample:\n  truepair-lab paper report",
    **HABITS,
)
paper = typer.Typer(help="Reproduce the paper's tables and figures.", **HABITS)
quality = typer.Typer(
    help="Compare full-catalogue training with EASE, iALS, ItemKNN and popularity.", **HABITS
)
plain = typer.Typer(help="Compare the plain Recommender() with tuned EASE and tuned iALS.", **HABITS)


def add(group: typer.Typer, name: str, command: Any, example: str) -> None:
    """Add a command to a group, with an example below its help."""
    group.command(name, cls=Command, epilog=f"\b\nExample:\n  truepair-lab {example}")(command)


app.add_typer(paper, name="paper", epilog="\b\nExample:\n  truepair-lab paper report")
add(app, "theory", theory, "theory --quick --out theory.md")
add(app, "truth", truth, "truth simulation --exposure popularity --report truth.md")
app.add_typer(
    quality,
    name="quality",
    short_help="Compare full-catalogue training with EASE, iALS and others.",
    epilog="\b\nExample:\n  truepair-lab quality report",
)
app.add_typer(
    plain,
    name="plain",
    short_help="Compare the plain Recommender() with tuned EASE and iALS.",
    epilog="\b\nExample:\n  truepair-lab plain report",
)
add(app, "prior-study", prior_study, "prior-study worlds --report docs/prior.md")
add(app, "bench", bench, "bench training ranking --rounds 5 --out bench.json")
add(paper, "run", paper_commands.run, "paper run --only ml-100k --studies paper,clean")
add(paper, "tune", paper_commands.tune, "paper tune --only ml-100k --encoders mf --methods dpl")
add(paper, "report", paper_commands.report, "paper report --lines results/paper --out docs/paper.md")
add(quality, "tune", quality_commands.tune, "quality tune --only ml-100k --methods ease,exact-infonce")
add(quality, "run", quality_commands.run, "quality run --only ml-100k --encoders mf --seeds 3")
add(
    quality,
    "report",
    quality_commands.report,
    "quality report --lines results/quality --out docs/quality.md",
)
add(plain, "tune", plain_commands.tune, "plain tune --only jester")
add(plain, "run", plain_commands.run, "plain run --only ml-100k --alone")
add(plain, "report", plain_commands.report, "plain report --lines results/plain --out docs/plain.md")


def main() -> None:
    """The commands, from the arguments of the process; `truepair_lab.__main__` is the entry point."""
    app(prog_name="truepair-lab")
