"""`truepair compare` and `demo`: models on one split, and which differences are significant."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

import truepair as tp
from truepair.cli.configuration import Training
from truepair.cli.console import Console, aligned
from truepair.cli.options import DataDir, Seed, SourceText, TestPart, option, unpacked
from truepair.cli.sources import Reading
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError, check_choice
from truepair.storage.types import Json

_DEMO = Path("truepair-demo.html")

_ON_PARAMETERS = (
    "losses share their parameters: the defaults, which were not chosen for each loss, and the given "
    "options; `truepair tune --loss NAME` finds a loss's own"
)


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of `compare` alone."""

    losses: str = option(
        "Losses, or encoders without training, separated by commas; the first is the baseline: "
        "{truepair.losses.LOSSES}; {truepair.models.closed_forms.CLOSED}.",
        default="bpr,dpl",
    )
    seeds: int = option("Train each loss with this many seeds, and average.", default=1, min=1)
    test: TestPart = None


@unpacked
def compare(
    source: SourceText, args: CompareOptions, training: Training, reading: Reading, console: Console
) -> None:
    """Compare losses, and models without training, on one split.

    Losses share their parameters: the defaults, which were not chosen for each loss, and the given options.
    `truepair tune --loss NAME` finds a loss's own. Each fitted model is evaluated once on the test part;
    without --test it is the given one, else a share of 0.2. A validation part, if one is held out, chooses
    the epoch; with the default sampler `full` none is held out, and the last epoch is used.

    Example:
      truepair compare ml-100k --losses bpr,dcl,dpl --seeds 3 --min-rating 4
    """
    from truepair.data.split import counted

    models = _models(training, [name.strip() for name in args.losses.split(",")], console)
    trained = [model for model in models.values() if model.spec.closed_form is None]  # checks all parameters
    first = (trained or list(models.values()))[0]  # closed forms hold nothing out
    test = args.test or reading.test_of(source) or "0.2"
    split = reading.split(source, test, first, console)
    runs = {name: _run(name, model, split, args.seeds, console) for name, model in models.items()}
    merged = {name: mean_over_seeds([found for _, found in those]) for name, those in runs.items()}
    first_found = next(iter(merged.values()))
    against = {one.a: one for one in tp.compare_all(merged, first.metric, baseline=next(iter(models)))}
    rows = [_row(name, merged[name], against.get(name), first.metric) for name in models]
    users = f"{first_found.n_users:,} users, {counted(args.seeds, 'seed')} a loss"
    notes = [f"95% intervals over {users}; p by sign flips, corrected by Holm; the baseline is the first"]
    notes += [_ON_PARAMETERS] if trained else []
    if trained and args.seeds == 1:
        notes.append("one training run per loss: --seeds 3 averages over random seeds")
    if cold := len(first_found.cold_users):
        notes.append(f"{cold:,} of the users have no trained pair; they get the most popular items")
    facts = {
        name: {
            "mean": found.mean(first.metric),
            "interval": list(found.interval(first.metric)),
            "metrics": {**found.means, **found.catalogue},
            "groups": found.groups,
            "runs": [{**facts, "test": one.mean(first.metric)} for facts, one in runs[name]],
            "against_baseline": {**asdict(against[name]), "verdict": against[name].verdict}
            if name in against
            else None,
        }
        for name, found in merged.items()
    }
    whole = {"split": split.hash, "metric": first.metric, "seeds": args.seeds, "losses": facts}
    console.give("\n".join([aligned(rows), *notes]), {"source": without_password(source), **whole})


def _models(training: Training, names: list[str], console: Console) -> dict[str, tp.Recommender]:
    from truepair.losses import LOSSES
    from truepair.models.closed_forms import CLOSED
    from truepair.spec.defaults import USED_BY_CLOSED_FORMS

    if any(text.partition("=")[0].strip() == "loss" for text in training.set or []):
        raise InputError("--set loss=… has no effect here; name the losses with --losses.")
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"losses = {','.join(names)!r} must name two or more different losses.")
    for name in names:
        check_choice("losses", name, [*LOSSES, *CLOSED])
    if training.auto is not None:
        raise InputError(
            "--auto and --no-auto have no effect here: automatic settings are those of one loss, and losses "
            "are compared with fixed ones. Leave them out."
        )
    flats = {name: {"auto": False, **training.flat(loss=name)} for name in names if name in LOSSES}
    without_prior = [name for name in flats if not LOSSES[name].uses_prior]
    for name in without_prior if len(without_prior) < len(flats) else ():  # if no loss has one, fit raises
        for tau in [key for key in ("tau", "loss.tau") if key in flats[name]]:
            console.say(f"{name} has no prior: {tau} = {flats[name].pop(tau)} is ignored for it")
    used = USED_BY_CLOSED_FORMS if flats else None  # beside losses, not what only training uses
    for name in names:
        if name in CLOSED:
            flat = training.flat(encoder=name)
            flats[name] = {key: flat[key] for key in flat if used is None or key in used}
    return {name: tp.Recommender.of(flats[name]) for name in names}


def _run(
    name: str, model: tp.Recommender, split: tp.Split, seeds: int, console: Console
) -> list[tuple[Json, tp.Evaluation]]:
    """For each seed the facts of the training, and the evaluation."""
    from truepair.evaluation import parse_metric

    _, k = parse_metric(model.metric)
    start, found = model.seed, []
    # a closed form does not depend on a seed
    for seed in range(start, start + (seeds if model.spec.closed_form is None else 1)):
        console.say(f"{name}, seed {seed}")
        model.set_params(seed=seed).fit(split, progress=not console.quiet)
        facts = {"seed": seed, "epoch": model.result_.epoch, "validation": model.result_.score}
        found.append((facts, model.evaluate(split, ks=(k,))))
    return found


def mean_over_seeds(found: list[tp.Evaluation]) -> tp.Evaluation:
    """One evaluation whose values are, user by user, the means of those given."""
    import numpy as np

    per_user = {name: np.mean([one.per_user[name] for one in found], axis=0) for name in found[0].per_user}
    over_all = {name: float(np.mean([one.catalogue[name] for one in found])) for name in found[0].catalogue}
    return replace(found[0], per_user=per_user, catalogue=over_all)


def _row(name: str, found: tp.Evaluation, one: tp.Comparison | None, metric: str) -> Json:
    low, high = found.interval(metric)
    return {
        "loss": name,
        metric: found.mean(metric),
        "interval": f"[{low:.4f}, {high:.4f}]",
        "difference": "" if one is None else f"{one.difference:+.4f} [{one.low:+.4f}, {one.high:+.4f}]",
        "p": "" if one is None else f"{one.p_corrected:.4f}",
        "verdict": "baseline" if one is None else one.verdict,
    }


@unpacked
def demo(
    *,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of the report.")] = _DEMO,
    seed: Seed = 0,
    console: Console,
) -> None:
    """Compare the default model with others, and write a report.

    The others are popularity, EASE, BPR and DPL. The data is MovieLens-100k if it is here or can be
    downloaded, else simulated.

    Example:
      truepair demo --out report.html
    """
    from truepair.reporting.demo import run_demo

    result = run_demo(data_dir=data_dir, out=out, seed=seed, quiet=console.quiet or console.json)
    if console.json:
        console.give("", {"report": str(result.report)})
