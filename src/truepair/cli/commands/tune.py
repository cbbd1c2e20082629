"""`truepair tune`: search for the parameters of a model, and report which of them mattered."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truepair.cli.configuration import Training, read_toml
from truepair.cli.console import Console, aligned
from truepair.cli.options import SourceText, unpacked
from truepair.cli.sources import Reading, described, find_source
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password
from truepair.storage.atomic import atomic_write

if TYPE_CHECKING:
    from truepair.data.split import Split
    from truepair.recommender.estimator import Recommender
    from truepair.search.domains import Space
    from truepair.search.running import Tuning
    from truepair.storage.types import Json


@unpacked
def tune(
    ctx: typer.Context,
    source: SourceText,
    *,
    loss: Annotated[
        str | None, typer.Option(help="The loss: {truepair.losses.LOSSES}. [default: {default}]")
    ] = None,
    trials: Annotated[
        int, typer.Option(help="The number of trials in all: the default, pruned and failed ones included.")
    ] = 30,
    storage: Annotated[
        Path, typer.Option(help="The journal of the trials; several processes may share it.")
    ] = Path("truepair-tune.journal"),
    study: Annotated[
        str | None, typer.Option(help="The name of the study in the journal. [default: loss-encoder-sampler]")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="A TOML file of what to search. By default it depends on the loss.")
    ] = None,
    together: Annotated[
        int, typer.Option(help="Train this many trials at once; on a GPU this is faster.")
    ] = 1,
    extensions: Annotated[
        int, typer.Option(help="Extend the space at most this often, if the best lies at an edge of it.")
    ] = 2,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Stop trials early that are worse than the median.")
    ] = True,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|given",
            help="Leave out this share, or the test part of the dataset, as `fit --test` does; it is not "
            "used by the search. The test part of a dataset is always left out.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file of a report with figures.")
    ] = None,
    save_config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file for the best parameters, for `fit --config`; written after each better trial."
        ),
    ] = None,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Search for the best parameters on a validation part.

    Trial 0 is the model without a search, so that the best is never worse on validation. An option or --set
    that names a parameter fixes it. Finished trials are kept: after Ctrl-C the same command continues, and
    several processes with the same command share the work. `fit --config` with the saved parameters learns
    from all pairs, the validation part included, for the number of epochs that was best.
    """
    from truepair.search.running import check_effort
    from truepair.search.tune import plan_search

    _check_files(storage, out, save_config)
    check_effort(trials, together, extensions)
    plan = plan_search(training.flat(loss=loss), None if space is None else read_space_file(space))
    split = _read(plan.model, plan.validation, source, test, reading, console)
    name, shown = study or plan.name, not console.quiet
    options: Json = {"together": together, "extensions": extensions, "prune": prune, "progress": shown}
    if save_config is not None:
        options["on_best"] = lambda found: _write_config(found, save_config)
    try:
        found = plan.run(split, trials=trials, storage=storage, study=name, **options)
    except KeyboardInterrupt:
        again = shlex.join(["truepair", *ctx.meta["truepair.args"]])
        typer.echo(f"interrupted; {storage} holds the finished trials. To continue:\n  {again}", err=True)
        raise typer.Exit(130) from None
    from truepair.search.report import best_trials, facts, in_words, page, rows_of

    metric = plan.model.metric
    if out is not None:
        page(found, metric, f"Tuning {name} on {without_password(source)}").write(out)
    if save_config is not None:
        _write_config(found, save_config)
    lines = [aligned(rows_of(found, best_trials(found), metric)), in_words(found, metric)]
    lines += [f"{what} in {path}" for what, path in (("report", out), ("parameters", save_config)) if path]
    files = {"report": out and str(out), "config": save_config and str(save_config)}
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


def _read(
    model: Recommender, share: float, source: str, test: str | None, reading: Reading, console: Console
) -> Split:
    """The train and validation parts, as `fit` makes them with this validation share."""
    from truepair.recommender.holdout import split_for_fitting

    dataset, filtered = find_source(source), reading.min_rating is not None or reading.core is not None
    if test is None and dataset is not None and dataset.has_split and not filtered:
        test = "given"
    if test is None:
        data = reading.interactions(source, progress=not console.quiet)
        split = split_for_fitting(data, None, share, model.seed, model.hold_out)
    else:
        split = reading.split(source, test, share, model.seed, model.hold_out, progress=not console.quiet)
    console.say(described(split))
    return split


def _check_files(storage: Path, out: Path | None, config: Path | None) -> None:
    from truepair.reporting.figures import check_plots
    from truepair.search.journal import check_journal, check_optuna

    check_optuna()
    for path in (storage, out, config):
        if path is not None:
            check_output(path)
    check_journal(storage)
    if out is not None:
        check_plots()


def _write_config(found: Tuning, path: Path) -> None:
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
