"""`truepair fit`: learn a model from interactions and save it."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.cli.configuration import Training
from truepair.cli.console import Voice
from truepair.cli.options import SourceText, unpacked
from truepair.cli.sources import Reading
from truepair.cli.table_files import check_output
from truepair.errors import InputError

if TYPE_CHECKING:
    from truepair.data.split import Split
    from truepair.recommender.estimator import Recommender


@unpacked
def fit(
    ctx: typer.Context,
    source: SourceText,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to save the model to.")],
    loss: Annotated[
        str | None, typer.Option(help="The loss: {truepair.losses.LOSSES}. [default: {default}]")
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|given",
            help="Hold out this share, or the part a dataset came with, and judge the model on it, once.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Where to keep what is learnt so far; <output>.checkpoint if not given."),
    ] = None,
    training: Training,
    reading: Reading,
    voice: Voice,
) -> None:
    """Learn a model from a file or a dataset, and save it.

    Ctrl-C keeps what is learnt so far; the same command goes on from there.
    """
    check_output(output)
    model = training.recommender(loss=loss)
    kept = _checkpoint(model, output, checkpoint)
    data = _read(model, source, test, reading, voice)
    if kept is not None and kept.exists():
        voice.say(f"going on from {kept}")
    try:
        model.fit(data, checkpoint=kept, progress=not voice.quiet)
        tested = _tested(model, data) if test is not None else {}
        model.save(output)
    except KeyboardInterrupt:
        _tell_how_to_go_on(kept, ctx.meta["truepair.args"])
        raise typer.Exit(130) from None
    if kept is not None:
        with contextlib.suppress(OSError):
            kept.unlink()
    told = {"source": source, "model": str(output), **_facts(model), "test": tested}
    voice.done(_summary(model, tested, output), told)


def _checkpoint(model: Recommender, output: Path, given: Path | None) -> Path | None:
    """Where to keep what is learnt so far; None for an encoder that is found at once."""
    if (closed := model.closed_form()) is not None:
        if given is not None:
            raise InputError(f"--checkpoint {given}: {closed} is found at once, without one; leave it out.")
        return None
    kept = given or output.with_name(output.name + ".checkpoint")
    check_output(kept)
    if kept == output:
        raise InputError(f"--checkpoint and --output are both {output}; give each a file of its own.")
    return kept


def _read(model: Recommender, source: str, test: str | None, reading: Reading, voice: Voice) -> Any:
    if test is None:
        data = reading.interactions(source, progress=not voice.quiet)
        voice.say(data.report())
        return data
    share = model.held_out
    split = reading.split(source, test, share, model.seed, progress=not voice.quiet)
    voice.say(f"{split.train.report()}\n{split}")
    return split


def _tested(model: Recommender, split: Split) -> dict[str, Any]:
    """The metric on the test part; it goes into the model's facts too."""
    from truepair.evaluation import evaluate_split, parse_metric

    _, k = parse_metric(model.metric)
    found = evaluate_split(model.users_, model.items_, split, on="test", ks=[k])
    model.facts_["metrics"][f"test {model.metric}"] = found.mean(model.metric)
    low, high = found.interval(model.metric)
    return {"users": found.n_users, "metrics": found.means, "metric": model.metric, "interval": [low, high]}


def _facts(model: Recommender) -> dict[str, Any]:
    result, seen = model.result_, model.seen_
    return {
        "users": seen.n_users,
        "items": seen.n_items,
        "pairs": len(seen),
        "epoch": result.epoch,
        "epochs": len(result.history),
        "stopped_early": result.stopped_early,
        **{name.replace(" ", "_"): model.facts_[name] for name in ("training loss", "clamped share", "tau")},
        "metrics": model.facts_["metrics"],
        "parameters": model.facts_["parameters"],
    }


def _summary(model: Recommender, tested: dict[str, Any], output: Path) -> str:
    lines = [repr(model.result_)]
    if prior := model.facts_.get("prior"):
        each = ", each user's own around it" if prior["asked"] == "per-user" else ""
        lines.append(f"prior τ {prior['tau']:g}{each}, estimated; from {prior['low']:g} to {prior['high']:g}")
    if told := model.facts_.get("posterior"):
        levels = told["quantiles"]
        lines.append(
            f"weights by a first model (separation {told['separation']:g}): "
            f"P of being positive {told['mean']:g} in the mean, {levels['0.5']:g} at the median, "
            f"{levels['0.99']:g} at 99%"
        )
    if model.result_.score is not None:
        lines.append(f"validation {model.metric} {model.result_.score:.4f} (it chose the epoch)")
        if model.added() is not None:
            whole = model.facts_["metrics"][f"validation {model.metric}"]
            lines.append(f"validation {model.metric} {whole:.4f} with EASE's scores added")
    if tested:
        low, high = tested["interval"]
        mean = tested["metrics"][model.metric]
        lines.append(f"test {model.metric} {mean:.4f} [{low:.4f}, {high:.4f}], {tested['users']:,} users")
    return "\n".join([*lines, f"saved to {output}"])


def _tell_how_to_go_on(kept: Path | None, args: list[str]) -> None:
    if kept is not None and kept.exists():
        text = f"interrupted; {kept} has what was learnt. To go on:\n  {shlex.join(['truepair', *args])}"
    else:
        text = "interrupted before the first epoch was over; there is nothing to go on from."
    typer.echo(text, err=True)
