"""`truepair backtest`: retraining, updating and popularity over time, judged on the next period."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from truepair.cli.configuration import Training
from truepair.cli.console import Console
from truepair.cli.options import SourceText, unpacked
from truepair.cli.sources import Reading, described
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password


@unpacked
def backtest(
    ctx: typer.Context,
    source: SourceText,
    *,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="The length of a period: 7d, 12h, 2w, or a number in the unit of the time column. "
            "[default: 7d]",
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="The window that a model learns from, such as 90d. [default: everything before]",
        ),
    ] = None,
    periods: Annotated[
        int | None,
        typer.Option(
            help="The last so many periods. Without --every: cut the time into so many periods with equally "
            "many pairs."
        ),
    ] = None,
    strategies: Annotated[
        str,
        typer.Option(help="Separated by commas: {truepair.reporting.backtesting.STRATEGIES}."),
    ] = "retrain,update,nothing,popularity",
    settings: Annotated[
        str,
        typer.Option(help="Automatic settings: chosen for the `first` period and kept, or for `each`."),
    ] = "first",
    loss: Annotated[
        str | None, typer.Option(help="The loss: {truepair.losses.LOSSES}. [default: {default}]")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="A file for finished results, from which an interrupted run continues. [default: beside "
            "--out, until the report is written]"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file of a report with figures.")
    ] = None,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Replay the past: train before each period, and judge on it.

    Retraining, updating, doing nothing after the first period, and popularity are judged side by side. The
    report shows quality over time, the newness of the catalogue, and the share of people and items that were
    new. With --checkpoint or --out, the same command continues after Ctrl-C.
    """
    from truepair.reporting.backtesting import backtest as run

    _check_files(out, checkpoint)
    model = training.recommender(loss=loss)
    pairs = reading.interactions(source, not console.quiet)
    console.say(described(pairs))
    shown = without_password(source)
    kept = checkpoint if checkpoint is not None or out is None else out.with_name(f"{out.name}.jsonl")
    options: Any = {
        "settings": settings,
        "periods": periods,
        "checkpoint": kept,
        "progress": not console.quiet,
    }
    names = [name.strip() for name in strategies.split(",")]
    try:
        found = run(pairs, model, every=_length(every), train=_length(train), strategies=names, **options)
    except KeyboardInterrupt:
        if kept is None:
            raise
        again = shlex.join(["truepair", *ctx.meta["truepair.args"]])
        typer.echo(f"interrupted; {kept} holds the finished results. To continue:\n  {again}", err=True)
        raise typer.Exit(130) from None
    if out is not None:
        found.page(out, f"Backtest on {shown}")
        if checkpoint is None and kept is not None:
            kept.unlink(missing_ok=True)
    written = [f"report in {out}"] if out is not None else []
    files = {"report": out and str(out), "checkpoint": checkpoint and str(checkpoint)}
    console.give("\n".join([found.table(), *written]), {"source": shown, **files, **found.to_dict()})


def _check_files(out: Path | None, checkpoint: Path | None) -> None:
    """Before any work is done."""
    for path in (out, checkpoint):
        if path is not None:
            check_output(path)
    if out is not None:
        from truepair.reporting.figures import check_plots

        check_plots()


def _length(text: str | None) -> str | float | None:
    """A number without a unit is one in the unit of the time column."""
    try:
        return text if text is None else float(text)
    except ValueError:
        return text
