"""`truepair demo`: the default model against simple and published ones, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked


@unpacked
def demo(
    *,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of the report.")] = Path(
        "truepair-demo.html"
    ),
    seed: Annotated[int, typer.Option(help="The seed of all random numbers.")] = 0,
    console: Console,
) -> None:
    """Compare the default model with others, and write a report.

    The others are popularity, EASE, BPR and DPL. The data is MovieLens-100k if it is here or can be
    downloaded, else a simulated world.
    """
    from truepair.reporting.demo import run_demo

    result = run_demo(data_dir=data_dir, out=out, seed=seed, quiet=console.quiet or console.json)
    if console.json:
        console.give("", {"report": str(result.report)})
