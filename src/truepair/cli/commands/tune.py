"""`truepair tune`: search for the parameters of a model, stop and go on, and a report of what mattered."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.cli.configuration import Training, read_toml
from truepair.cli.console import Voice, aligned
from truepair.cli.options import SourceText, unpacked
from truepair.cli.sources import Reading, find_source
from truepair.cli.table_files import check_output
from truepair.errors import InputError
from truepair.storage.atomic import atomic_write

if TYPE_CHECKING:
    from truepair.data.split import Split
    from truepair.recommender.estimator import Recommender
    from truepair.tuning.search import Tuning


@unpacked
def tune(
    ctx: typer.Context,
    source: SourceText,
    *,
    loss: Annotated[
        str | None, typer.Option(help="The loss: {truepair.losses.LOSSES}. [default: {default}]")
    ] = None,
    trials: Annotated[int, typer.Option(help="So many trials; pruned ones count.")] = 30,
    storage: Annotated[
        Path, typer.Option(help="The file that keeps the trials; processes may share it.")
    ] = Path("truepair-tune.journal"),
    study: Annotated[
        str | None, typer.Option(help="The study's name in it; loss-encoder-sampler if not given.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="A TOML file of what to search; what suits the loss if not given.")
    ] = None,
    together: Annotated[
        int, typer.Option(help="Train so many trials at once: on a GPU they share its kernels.")
    ] = 1,
    extensions: Annotated[
        int, typer.Option(help="Extend the space at most so often where the best lies at an edge.")
    ] = 2,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="Whether trials that lag behind end early.")
    ] = True,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE|given",
            help="Leave out this share, or the part a dataset came with, as `fit --test` does: it is for "
            "judging, and is not looked at. A dataset's own is left out anyway.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a report with figures here.")] = None,
    save_config: Annotated[
        Path | None, typer.Option(help="Write the best parameters here, for `fit --config`.")
    ] = None,
    training: Training,
    reading: Reading,
    voice: Voice,
) -> None:
    """Search for the best parameters on a validation part.

    An option or --set that names a parameter fixes it. Ctrl-C, or worse, keeps the trials that are done:
    the same command goes on from there, and started twice it works twice as fast.
    """
    from truepair.recommender.parameters import PARTS
    from truepair.tuning import check_effort, training_runner
    from truepair.tuning import tune as search
    from truepair.tuning.runner import by_fields

    _check_files(storage, out, save_config)
    check_effort(trials, together, extensions)
    fixed = by_fields(training.flat(loss=loss))
    model, searched, share = _planned(fixed, space)
    split = _read(model, share, source, test, reading, voice)
    fixed = {"loss": model.loss, "encoder": model.encoder, "sampler": model.sampler} | fixed
    if model.closed_form() is None:
        fixed["validation"] = share  # so that `fit --config` chooses the epoch as the trials did
    name = study or "-".join(str(fixed[part]) for part in PARTS if part in fixed)
    assert split.valid is not None
    runner = training_runner(fixed, split.train, split.valid, model.metric, model.engine)
    try:
        found = search(
            searched,
            runner,
            trials=trials,
            storage=storage,
            study=name,
            together=together,
            seed=model.seed,
            extensions=extensions,
            progress=not voice.quiet,
            prune=prune,
        )
    except KeyboardInterrupt:
        again = shlex.join(["truepair", *ctx.meta["truepair.args"]])
        typer.echo(f"interrupted; {storage} has the trials that are done. To go on:\n  {again}", err=True)
        raise typer.Exit(130) from None
    _tell(found, model.metric, f"Tuning {name} on {source}", out, save_config, voice, {"study": name})


def _planned(fixed: Mapping[str, Any], path: Path | None) -> tuple[Recommender, Any, float]:
    """The model as it is without a search, what is to be searched, and the share to choose by.

    All are checked before data is read.
    """
    from truepair.recommender.defaults import WITH_DRAWS
    from truepair.recommender.parameters import FIELDS, PARTS
    from truepair.tuning import check_space
    from truepair.tuning.runner import recommender_of
    from truepair.tuning.spaces import check_values, default_space

    named = {part: fixed[part] for part in ("loss", "encoder", "sampler") if part in fixed}
    space = read_space_file(path) if path is not None else default_space(**named)
    taken = {*fixed, *(FIELDS[name] for name in fixed if name in FIELDS)}
    taken |= {name for name, field in FIELDS.items() if field in fixed}
    space = {name: entry for name, entry in space.items() if name not in taken}
    _check_no_sum([*fixed, *space])
    for part in [part for part in PARTS if part in space]:
        raise InputError(
            f"the space names {part}, and a study has one {part}: its parameters are those of that one. "
            f"Run tune once for each, with --{part}."
        )
    known = {**_defaults(), **fixed}
    check_space(space, {name: value for name, value in known.items() if name not in space})
    check_values(space, fixed)
    model = recommender_of({name: value for name, value in fixed.items() if "." not in name})
    share = WITH_DRAWS["validation"] if model.validation is None else model.validation
    if not 0 < share < 1:
        raise InputError(f"validation = {share} leaves nothing to choose by; give a share such as 0.1.")
    return model, space, share


def _check_no_sum(names: Sequence[str]) -> None:
    for name in names:
        if name.partition(".")[0] in ("plus", "plus_weight"):
            raise InputError(
                f"{name} is given, and trials are judged by what is trained alone; leave it out, and give it "
                "to `truepair fit` with the parameters that are found."
            )


def read_space_file(path: Path) -> Any:
    """The space of a TOML file; names may be quoted with dots, or tables."""
    from truepair.tuning.domains import read_space

    return read_space(_entries(read_toml(path)))


def _entries(tables: Mapping[str, Any], inside: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tables.items():
        whole = f"{inside}.{name}".lstrip(".")
        is_table = isinstance(value, dict) and not {"low", "values"} & set(value)
        found |= _entries(value, whole) if is_table else {whole: value}
    return found


def _defaults() -> dict[str, Any]:
    from truepair.recommender.estimator import Recommender

    return Recommender().get_params()


def _read(
    model: Recommender, share: float, source: str, test: str | None, reading: Reading, voice: Voice
) -> Split:
    """Train and validation, the same that `fit` with this share held out learns from and chooses by."""
    from truepair.recommender.holdout import split_for_fitting

    dataset, filtered = find_source(source), reading.min_rating is not None or reading.core is not None
    if test is None and dataset is not None and dataset.has_split and not filtered:
        test = "given"
    if test is None:
        data = reading.interactions(source, progress=not voice.quiet)
        split = split_for_fitting(data, None, share, model.seed)
    else:
        split = reading.split(source, test, share, model.seed, progress=not voice.quiet)
    voice.say(f"{split.train.report()}\n{split}")
    return split


def _check_files(storage: Path, out: Path | None, config: Path | None) -> None:
    from truepair.reporting.figures import check_plots
    from truepair.tuning.lock import check_journal
    from truepair.tuning.study import check_optuna

    check_optuna()
    for path in (storage, out, config):
        if path is not None:
            check_output(path)
    check_journal(storage)
    if out is not None:
        check_plots()


def _tell(
    found: Tuning,
    metric: str,
    title: str,
    out: Path | None,
    config: Path | None,
    voice: Voice,
    more: dict[str, Any],
) -> None:
    from truepair.tuning.report import best_trials, facts, in_words, page, rows_of

    if out is not None:
        page(found, metric, title).write(out)
    if config is not None:
        with atomic_write(config) as file:
            file.write(as_toml(found.best.parameters).encode())
    told = [aligned(rows_of(found, best_trials(found), metric)), in_words(found, metric)]
    told += [f"{what} in {path}" for what, path in (("report", out), ("parameters", config)) if path]
    files = {"report": out and str(out), "config": config and str(config)}
    voice.give("\n".join(told), {"metric": metric, **more, **files, **facts(found)})


def as_toml(parameters: Mapping[str, Any]) -> str:
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
