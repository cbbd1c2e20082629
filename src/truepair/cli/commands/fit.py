"""`truepair fit`: train a model on interactions and save it."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import typer

import truepair as tp
from truepair.cli.configuration import Training
from truepair.cli.console import Console, Ranks, to_be_continued
from truepair.cli.interruption import EXIT_CODE
from truepair.cli.options import (
    LossName,
    OutputModel,
    SourceText,
    TestAfter,
    TestPart,
    WithoutOptimizer,
    option,
    refuse,
)
from truepair.cli.sources import Reading, described
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError
from truepair.storage.types import Json


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of `fit` alone."""

    output: OutputModel
    loss: LossName = None
    test: TestPart = None
    test_after: TestAfter = None
    item_features: str | None = option(
        "A file or URL#table for --encoder hybrid.", metavar="TABLE", rich_help_panel="Training"
    )
    user_features: str | None = option(
        "A file or URL#table for --encoder hybrid.", metavar="TABLE", rich_help_panel="Training"
    )
    checkpoint: Path | None = option(
        "The checkpoint file. [default: <output>.checkpoint]", rich_help_panel="Training"
    )
    budget: str | None = option(
        "The time for automatic settings and training: 90s, 2min, 1h30min. [default: the search may do 2.5 "
        "times the work of a full training, as counted in advance]",
        metavar="TIME",
    )
    no_optimizer: WithoutOptimizer = False


def fit(
    ctx: typer.Context,
    source: SourceText,
    args: FitOptions,
    training: Training,
    reading: Reading,
    console: Console,
) -> None:
    """Train a model on a file, a database or a dataset, and save it.

    After Ctrl-C, the same command continues from the checkpoint. Started by torchrun, the processes train
    one model together (--engine distributed): torchrun --nproc-per-node 2 -m truepair fit …

    Example:
      truepair fit clicks.csv -o model.truepair --min-rating 4 --set encoder.temperature=0.2
      truepair fit sqlite:///shop.db --query 'select user_id, item_id from clicks' -o model.truepair
    """
    ranks = Ranks.here()
    console = ranks.console(console)
    model = training.recommender(loss=args.loss)
    ranks.prepare(model, args.budget)
    kept = _checkpoint(model, args.output, args.checkpoint)
    data: tp.Interactions | tp.Split
    has_test = args.test is not None or args.test_after is not None
    if has_test:
        data = reading.split(source, args.test, args.test_after, model, console)
    else:
        data = reading.prepared_split(source) or reading.interactions(source, not console.quiet)
        console.say(described(data))
    if before := _left(kept):
        console.say(f"continuing from {next(iter(before))}")
    try:
        tables = {"item_features": args.item_features, "user_features": args.user_features}
        model.fit(data, budget=args.budget, checkpoint=kept, progress=not console.quiet, **tables)
        if not ranks.is_first:
            return
        tested = _tested(model, cast("tp.Split", data)) if has_test else {}
        model.save(args.output, updatable=not args.no_optimizer)
    except KeyboardInterrupt:
        for left, what in _left(kept).items() if ranks.is_first else ():
            raise to_be_continued(ctx, f"{left} holds {what}") from None
        if ranks.is_first:
            typer.echo("interrupted before the end of the first run or epoch; nothing is kept.", err=True)
        raise typer.Exit(EXIT_CODE) from None
    for left in _left(kept):
        with contextlib.suppress(OSError):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    facts = {"source": without_password(source), "model": str(args.output), **_facts(model)}
    console.done(_summary(model, tested, args.output), {**facts, "test": tested})


def _checkpoint(model: tp.Recommender, output: Path, given: Path | None) -> Path | None:
    """The checkpoint file; None for a closed form."""
    if (closed := model.spec.closed_form) is not None:
        refuse({"--checkpoint": given}, f"with {closed}, which is not trained")
        return None
    kept = given or output.with_name(output.name + ".checkpoint")
    if model.engine != "distributed" or not kept.is_dir():  # there it is a folder
        check_output(kept)
    if kept == output:
        raise InputError(f"--checkpoint and --output are both {output}; use two different files.")
    return kept


def _left(checkpoint: Path | None) -> dict[Path, str]:
    """What an interrupted fit left to continue from: its files, and what is in them."""
    if checkpoint is None:
        return {}
    from truepair.search.settings_file import settings_file

    settings = settings_file(checkpoint)
    kept = {checkpoint: "the finished epochs", settings: "the automatic settings, or the runs so far"}
    return {path: what for path, what in kept.items() if path.exists()}


def _tested(model: tp.Recommender, split: tp.Split) -> Json:
    """The metrics of the test part; they are added to the facts of the model, too."""
    from truepair.evaluation import parse_metric

    _, k = parse_metric(model.metric)
    found = model.evaluate(split, ks=(k,))
    name, interval = f"test {model.metric}", list(found.interval(model.metric))
    model.facts_["metrics"][name] = found.mean(model.metric)
    model.facts_["intervals"] = {name: interval}
    facts = {"users": found.n_users, "metrics": found.means, "groups": found.groups}
    return {**facts, "metric": model.metric, "interval": interval}


def _facts(model: tp.Recommender) -> Json:
    result, seen = model.result_, model.seen_
    return {
        "users": seen.n_users,
        "items": seen.n_items,
        "pairs": len(seen),
        "epoch": result.epoch,
        "epochs": len(result.history),
        "stopped_early": result.stopped_early,
        **{name.replace(" ", "_"): model.facts_[name] for name in ("training loss", "clamped share")},
        "tau": model.model_.tau,
        "metrics": model.facts_["metrics"],
        "parameters": model.model_.parameters_json(),
        "automatic": model.facts_.get("automatic"),
    }


def _summary(model: tp.Recommender, tested: Json, output: Path) -> str:
    lines = [*_on_automatic(model.facts_.get("automatic")), repr(model.result_)]
    if prior := model.facts_.get("prior"):
        each = ", with a value for each user" if prior["asked"] == "per-user" else ""
        lines.append(f"estimated prior τ {prior['tau']:g}{each}; from {prior['low']:g} to {prior['high']:g}")
    if model.result_.score is not None:
        lines.append(f"validation {model.metric} {model.result_.score:.4f} (used to choose the epoch)")
        if model.spec.blend is not None:
            whole = model.facts_["metrics"][f"validation {model.metric}"]
            lines.append(f"validation {model.metric} {whole:.4f} of the blend with EASE")
    if tested:
        low, high = tested["interval"]
        mean = tested["metrics"][model.metric]
        lines.append(f"test {model.metric} {mean:.4f} [{low:.4f}, {high:.4f}], {tested['users']:,} users")
        groups = tested["groups"] if tested["groups"]["without history"]["users"] else {}
        lines += [f"  {name}: {g['users']:,} users, {g[model.metric]:.4f}" for name, g in groups.items()]
    return "\n".join([*lines, f"saved to {output}"])


def _on_automatic(facts: Json | None) -> list[str]:
    """What was chosen automatically, how, and how to repeat it without the search."""
    if facts is None:
        return []
    if "skipped" in facts:
        return [f"automatic settings were skipped, and fixed ones used: {facts['skipped']}"]
    chosen = ", ".join(f"{name} {_shown(value)}" for name, value in facts["chosen"].items())
    runs = f"{len(facts['trials'])} runs on held-out interactions, {facts['seconds']:.0f} s"
    return [f"automatic settings by {runs}: {chosen}", f"to repeat without the search: {facts['repeat']}"]


def _shown(value: object) -> str:
    if not isinstance(value, dict):
        return f"{value:g}"
    fields = ", ".join(f"{name} {each:g}" for name, each in value.items() if name != "kind")
    return f"{value['kind']} ({fields})"
