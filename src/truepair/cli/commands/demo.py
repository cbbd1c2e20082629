"""`truepair demo`: the default model against simple and published ones, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Voice
from truepair.cli.options import DataDir, unpacked


@unpacked
def demo(
    *,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the report.")] = Path(
        "truepair-demo.html"
    ),
    seed: Annotated[int, typer.Option(help="The seed of every draw.")] = 0,
    voice: Voice,
) -> None:
    """Compare the default model with popularity, EASE, BPR and DPL, and write a report.

    The data is MovieLens-100k if it is available, else a simulated world.
    """
    from truepair.reporting.demo import run_demo

    told = run_demo(data_dir=data_dir, out=out, seed=seed, quiet=voice.quiet or voice.json)
    if voice.json:
        voice.give("", {"report": str(told.report)})
