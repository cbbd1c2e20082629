"""`truepair tune` and `backtest`: many fits, whose finished results are kept, and a report of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import typer

import truepair as tp
from truepair.cli.configuration import Training, read_toml
from truepair.cli.console import Console, aligned, to_be_continued
from truepair.cli.options import LossName, Report, SourceText, TestAfter, TestPart, option
from truepair.cli.sources import Reading, number_or_text
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password
from truepair.storage.atomic import atomic_write
from truepair.storage.types import Json

if TYPE_CHECKING:
    from truepair.search.domains import Space


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """Options of `tune` alone."""

    loss: LossName = None
    trials: int = option("The number of trials in all: the default, pruned and failed ones too.", default=30)
    storage: Path = option(
        "The journal of the trials; several processes may share it.",
        default=Path("truepair-tune.journal"),
        callback=check_output,
    )
    study: str | None = option("The name of the study in the journal. [default: loss-encoder-sampler]")
    space: Path | None = option("A TOML file of what to search. By default it depends on the loss.")
    together: int = option("Train this many trials at once; on a GPU this is faster.", default=1)
    extensions: int = option("Extend the space at most this often, if the best is at its edge.", default=2)
    prune: bool = option("Stop trials that are worse than the median.", default=True)
    test: TestPart = None
    test_after: TestAfter = None
    out: Report = None
    save_config: Path | None = option(
        "A TOML file for the best parameters, for `fit --config`; written after each better trial.",
        callback=check_output,
    )


def tune(
    ctx: typer.Context,
    source: SourceText,
    args: TuneOptions,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Search for the best parameters on a validation part.

    Trial 0 is the default: what `fit` does with the same options, automatic settings included (--no-auto:
    fixed ones), but without a blend or a trend. So the best is never worse on validation. An option or --set
    that names a parameter fixes it. Finished trials are kept: after Ctrl-C the same command continues, and
    several processes with the same command share the work. `fit --config` with the saved parameters learns
    from all interactions, the validation part included, for the number of epochs that was best. The test part
    is not used; that of a dataset is always left out.

    Example:
      truepair tune ml-100k --loss dpl --trials 30 --out tuning.html --save-config best.toml
    """
    from truepair.recommender.tuning import plan_search
    from truepair.search.journal import check_journal, check_optuna
    from truepair.search.running import check_effort

    check_optuna()
    check_journal(args.storage)
    effort = check_effort(args.trials, args.together, args.extensions)
    space = None if args.space is None else read_space_file(args.space)
    plan = plan_search(training.flat(loss=args.loss), space)
    test = args.test or (None if args.test_after else reading.test_of(source))
    split = reading.split(source, test, args.test_after, plan.model, console, plan.validation)
    name, metric, config = args.study or plan.name, plan.model.metric, args.save_config
    try:
        found = plan.run(
            split,
            storage=args.storage,
            study=name,
            prune=args.prune,
            progress=not console.quiet,
            on_best=None if config is None else lambda found: _write_config(found, config),
            **effort,
        )
    except KeyboardInterrupt:
        raise to_be_continued(ctx, f"{args.storage} holds the finished trials") from None
    from truepair.reporting.tuning import best_trials, facts, in_words, page, rows_of

    if args.out is not None:
        page(found, metric, f"Tuning {name} on {without_password(source)}").write(args.out)
    if config is not None:
        _write_config(found, config)
    lines = [aligned(rows_of(found, best_trials(found), metric)), in_words(found, metric)]
    lines += [f"{what} in {path}" for what, path in (("report", args.out), ("parameters", config)) if path]
    files = {"report": args.out, "config": config}
    console.give("\n".join(lines), {"metric": metric, "study": name, **files, **facts(found)})


def read_space_file(path: Path) -> Space:
    """The space of a TOML file; dotted names are quoted, or tables."""
    from truepair.search.domains import read_space

    return read_space(_entries(read_toml(path)))


def _entries(tables: Json, inside: str = "") -> Json:
    found: Json = {}
    for name, value in tables.items():
        whole = f"{inside}.{name}".lstrip(".")
        is_table = isinstance(value, dict) and not {"low", "values"} & set(value)
        found |= _entries(value, whole) if is_table else {whole: value}
    return found


def _write_config(found: tp.Tuning, path: Path) -> None:
    with atomic_write(path) as file:
        file.write(as_toml(found.parameters()).encode())


def as_toml(parameters: Json) -> str:
    """Flat parameters as TOML that `fit --config` reads.

    >>> print(as_toml({"loss": "dpl", "loss.tau": 0.05, "patience": None}), end="")
    loss = "dpl"
    "loss.tau" = 0.05
    patience = "none"
    """
    lines = []
    for name, value in parameters.items():
        key = json.dumps(name) if "." in name else name
        lines.append(f"{key} = {json.dumps('none' if value is None else value, ensure_ascii=False)}\n")
    return "".join(lines)


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
    strategies: str | None = option(
        "Separated by commas: {truepair.reporting.backtesting.STRATEGIES}. [default: all]", metavar="NAMES"
    )
    settings: str = option("Choose automatic settings for the `first` period, or `each`.", default="first")
    loss: LossName = None
    checkpoint: Path | None = option(
        "A file for finished results, from which an interrupted run continues. [default: beside --out, "
        "until the report is written]",
        callback=check_output,
    )
    out: Report = None


def backtest(
    ctx: typer.Context,
    source: SourceText,
    args: BacktestOptions,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Replay the past: train before each period, and evaluate on it.

    Compared are retraining, the same without a trend, updating, doing nothing after the first period, and
    what is popular, of all time and lately. The report shows quality over time, the newness of the catalogue,
    and the share of users and items that were new. With --checkpoint or --out, the same command continues
    after Ctrl-C.

    Example:
      truepair backtest clicks.csv --every 7d --train 90d -o backtest.html
    """
    model = training.recommender(loss=args.loss)
    from truepair.reporting.backtesting import STRATEGIES

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
            strategies=[name.strip() for name in (args.strategies or ",".join(STRATEGIES)).split(",")],
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
