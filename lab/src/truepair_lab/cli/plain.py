"""`truepair-lab plain`: the plain `Recommender()` against tuned EASE and tuned iALS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import check_whole
from truepair_lab.cli.study import COMMAS, Lines, Out

Only = Annotated[str | None, typer.Option(help="Cases ({truepair_lab.plain.cases.CASES})" + COMMAS)]
Contest = Annotated[Path, typer.Option(help="The folder of the contest's results, with tuned baselines.")]
FOLDER, CONTEST = Path("results/plain"), Path("results/quality")


@unpacked
def tune(*, only: Only = None, lines: Lines = FOLDER, data_dir: DataDir = None, console: Console) -> None:
    """Tune EASE and iALS where the contest does not have the case.

    Trials are scored on validation data only. A search that was interrupted continues when the command is
    run again.
    """
    from truepair_lab.plain.running import tune_all

    tune_all(_cases(only), lines, data_dir, console.say, progress=not console.quiet)
    console.done(f"kept in {lines}", {"lines": str(lines)})


@unpacked
def run(
    *,
    only: Only = None,
    seeds: Annotated[int | None, typer.Option(help="The number of seeds: 0, 1, … [default: 5 or 3]")] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Nothing else runs on this machine: the times count.")
    ] = False,
    lines: Lines = FOLDER,
    contest: Contest = CONTEST,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Fit and evaluate the plain Recommender.

    The baselines that were tuned here are run as well, and a fit of iALS is timed. Results that exist
    are not computed again.
    """
    from truepair_lab.plain.running import run_all

    seeds = None if seeds is None else check_whole("seeds", seeds, 1, 1000)
    made = run_all(_cases(only), seeds, lines, contest, data_dir, alone, console.say)
    text = f"{made} new calls, kept in {lines}; `truepair-lab plain report` shows them"
    console.done(text, {"made": made, "lines": str(lines)})


@unpacked
def report(
    *,
    lines: Lines = FOLDER,
    contest: Contest = CONTEST,
    out: Out = Path("docs/plain.md"),
    console: Console,
) -> None:
    """Write the page of the comparison from its results."""
    from truepair_lab.plain.report import rebuild_report

    page = rebuild_report(lines, contest, out)
    console.done(str(page), {"page": str(page)})


def _cases(only: str | None) -> tuple[str, ...]:
    from truepair_lab.paper.running.steps import checked
    from truepair_lab.plain.cases import CASES

    return checked("case", only, CASES)
