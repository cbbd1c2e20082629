"""`truepair-lab prior-study`: how good estimates of the prior are where it is known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import InputError


@unpacked
def prior_study(
    studies: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY...", help="The studies to run: {truepair_lab.prior_study.running.EVERY}."
        ),
    ] = None,
    *,
    lines: Annotated[Path, typer.Option(help="The folder of the results, as files of JSON lines.")] = Path(
        "results/prior"
    ),
    report: Annotated[
        Path | None,
        typer.Option(help="Write the page of all results to this file, and its figures beside it."),
    ] = None,
    device: Annotated[str, typer.Option(help="The device to train on: auto, cpu or cuda.")] = "auto",
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Check estimates of the prior on data where it is known.

    Models are then trained with the estimates. Results that exist are not computed again.
    """
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # batches are small; threads would wait for each other
    from truepair_lab.prior_study.report import rebuild
    from truepair_lab.prior_study.running import run

    if not studies and report is None:
        raise InputError("there is nothing to do: name a study, or give --report docs/prior.md.")
    made = run(studies or (), lines, console.say, data_dir, device)
    page = None if report is None else rebuild(lines, report)
    text = f"{made} new lines in {lines}" + ("" if page is None else f"; written: {page}")
    console.done(text, {"made": made, "lines": str(lines), "page": None if page is None else str(page)})
