"""`truepair lab truth`: what losses and samplers do where every label is known."""

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
            "Without it the page is rebuilt, and nothing is trained.",
        ),
    ] = None,
    *,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--truth",
            help="A file of true labels: user, item, rating; above 0 is positive. What is observed must not "
            "be labelled 0 there. Lines are kept by the observed file's name and what both files hold.",
        ),
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(
            help="Which positives stay: {truepair.data.simulation.EXPOSURES}; random if not given. Not with "
            "--truth or coat, where nothing is hidden."
        ),
    ] = None,
    hide: Annotated[
        float | None,
        typer.Option(
            help="The share of positives that is hidden; 0.5 if not given. Not with --truth or coat."
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(help="So many seeds, 0, 1, …: of what is hidden and of training.")
    ] = 3,
    posterior: Annotated[
        bool,
        typer.Option(
            help="Train full-catalogue InfoNCE with and without weights by a first model (infonce-posterior) "
            "instead; its lines lie in the folder `posterior` below the others."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder of JSON lines.")] = Path("results/truth"),
    report: Annotated[
        Path | None, typer.Option(help="Write the page of all lines here, its figures beside it.")
    ] = None,
    data_dir: DataDir = None,
    voice: Console,
) -> None:
    """Hide positives, train every loss, and measure against the truth.

    What is drawn, what is estimated, where the gradient points, how good the ranking is, and what share of
    the gap between BPR and full supervision each loss closes. What has a line is not run again.
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
            made = run_posterior(asked, seeds, out / POSTERIOR, voice.say)
        else:
            made = run_case(asked, seeds, out, voice.say)
    page = rebuild(out, report) if report is not None else None
    text = f"{made} new lines in {time.perf_counter() - began:.0f} s, kept in {out}"
    shown = f"; {page}" if page is not None else "; --report docs/lab/truth.md shows them"
    voice.done(text + shown, {"made": made, "lines": str(out), "page": str(page) if page else None})
