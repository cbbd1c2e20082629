"""`truepair backtest`: retraining, updating and popularity over time, evaluated on the next period."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import typer

import truepair as tp
from truepair.cli.configuration import Training
from truepair.cli.console import Console, to_be_continued
from truepair.cli.options import LossName, Report, SourceText, option, unpacked
from truepair.cli.sources import Reading, number_or_text
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password


@dataclass(frozen=True, kw_only=True)
class BacktestOptions:
    """Options of `backtest` alone."""

    every: str | None = option(
        "The length of a period: 7d, 12h, or a number in the unit of the times. [default: 7d]", metavar="TIME"
    )
    train: str | None = option(
        "The window that a model learns from, such as 90d. [default: everything before]", metavar="TIME"
    )
    periods: int | None = option("The last N periods. Without --every: N periods of equal size.", metavar="N")
    strategies: str = option(
        "Separated by commas: {truepair.reporting.backtesting.STRATEGIES}.",
        default="retrain,update,nothing,popularity",
    )
    settings: str = option("Choose automatic settings for the `first` period, or `each`.", default="first")
    loss: LossName = None
    checkpoint: Path | None = option(
        "A file for finished results, from which an interrupted run continues. [default: beside --out, "
        "until the report is written]",
        callback=check_output,
    )
    out: Report = None


@unpacked
def backtest(
    ctx: typer.Context,
    source: SourceText,
    args: BacktestOptions,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Replay the past: train before each period, and evaluate on it.

    Retraining, updating, doing nothing after the first period, and popularity are compared. The
    report shows quality over time, the newness of the catalogue, and the share of users and items that were
    new. With --checkpoint or --out, the same command continues after Ctrl-C.

    Example:
      truepair backtest clicks.csv --every 7d --train 90d -o backtest.html
    """
    model = training.recommender(loss=args.loss)
    shown = without_password(source)
    kept = args.checkpoint
    if kept is None and args.out is not None:
        kept = args.out.with_name(f"{args.out.name}.jsonl")
    try:
        found = tp.backtest(
            reading.read(source, console),
            model,
            every=number_or_text(args.every),
            train=number_or_text(args.train),
            periods=args.periods,
            strategies=[name.strip() for name in args.strategies.split(",")],
            settings=cast(Literal["first", "each"], args.settings),
            checkpoint=kept,
            progress=not console.quiet,
        )
    except KeyboardInterrupt:
        if kept is None:
            raise
        raise to_be_continued(ctx, f"{kept} holds the finished results") from None
    if args.out is not None:
        found.page(args.out, f"Backtest on {shown}")
        if args.checkpoint is None and kept is not None:
            kept.unlink(missing_ok=True)
    written = [f"report in {args.out}"] if args.out is not None else []
    files = {"report": args.out, "checkpoint": args.checkpoint}
    console.give("\n".join([found.table(), *written]), {"source": shown, **files, **found.to_dict()})
