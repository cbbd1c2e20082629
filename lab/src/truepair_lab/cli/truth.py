"""`truepair-lab truth`: what losses and samplers do where every label is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import InputError


@unpacked
def truth(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="{truepair_lab.truth.sources.CASES}, or a file of observed pairs with --truth. "
            "Without it nothing is trained, and the page is rebuilt.",
        ),
    ] = None,
    *,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="A file of true labels: user, item, rating; above 0 is positive. No observed pair may "
            "have label 0. Results are stored under the file's name and a checksum of both files.",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            help="How the observed positives are chosen: {truepair.data.simulation.EXPOSURES}. Not with "
            "--truth or coat, where nothing is hidden. [default: random]"
        ),
    ] = None,
    hide: Annotated[
        float | None,
        typer.Option(help="The share of positives to hide. Not with --truth or coat. [default: 0.5]"),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            help="The number of seeds: 0, 1, …; each hides other positives and starts another training."
        ),
    ] = 3,
    posterior: Annotated[
        bool,
        typer.Option(
            help="Instead, train full-catalogue InfoNCE with and without the weights of a first model "
            "(infonce-posterior). These results are in the folder `posterior` below --out."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder of the results, as files of JSON lines.")] = Path(
        "results/truth"
    ),
    report: Annotated[
        Path | None,
        typer.Option(help="Write the page of all results to this file, and its figures beside it."),
    ] = None,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Hide positives, train every loss, and score with all labels.

    Measured are the samples, the estimates, the directions of the gradients, the quality of the ranking, and
    the share of the gap between BPR and full supervision that each loss closes. Results that exist are not
    computed again.
    """
    from truepair_lab.truth.lines import POSTERIOR
    from truepair_lab.truth.report.page import rebuild
    from truepair_lab.truth.running import run_case
    from truepair_lab.truth.sources import Asked
    from truepair_lab.truth.weighted_infonce import run_posterior

    if data is None and report is None:
        raise InputError(
            "neither DATA nor --report is given; name data such as simulation, or a page to write."
        )
    began, made = time.perf_counter(), 0
    if data is not None:
        asked = Asked(data, exposure, hide, labels, data_dir)
        if posterior:
            made = run_posterior(asked, seeds, out / POSTERIOR, console.say)
        else:
            made = run_case(asked, seeds, out, console.say)
    page = rebuild(out, report) if report is not None else None
    text = f"{made} new lines in {time.perf_counter() - began:.0f} s, kept in {out}"
    shown = f"; {page}" if page is not None else "; --report docs/truth.md shows them"
    console.done(text + shown, {"made": made, "lines": str(out), "page": str(page) if page else None})
