"""`truepair-lab quality`: full-catalogue training against what people use, tuned, run and reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.cli.configuration import assignment
from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import check_whole
from truepair.storage.atomic import atomic_write
from truepair_lab.cli.study import COMMAS, Figures, Lines, Out, Part, Work, write_page

if TYPE_CHECKING:
    from truepair_lab.quality.running import Selection

Only = Annotated[str | None, typer.Option(help="Cases ({truepair_lab.quality.cases.CASES})" + COMMAS)]
Encoders = Annotated[
    str | None, typer.Option(help="Encoders ({truepair_lab.quality.contestants.ENCODERS})" + COMMAS)
]
Methods = Annotated[
    str | None, typer.Option(help="Methods ({truepair_lab.quality.contestants.METHODS})" + COMMAS)
]
FOLDER = Path("results/quality")


@unpacked
def tune(
    *,
    only: Only = None,
    encoders: Encoders = None,
    methods: Methods = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Fix a parameter of all trained models, such as encoder.dim=64. Use a separate --lines "
            "folder for such a study. May be repeated.",
        ),
    ] = None,
    lines: Lines = FOLDER,
    part: Part = False,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Search for the best settings of each model.

    Every model gets the same number of trials, scored on validation data only. A search that was interrupted
    continues when the command is run again. Several processes may share a search.
    """
    from truepair_lab.quality import running

    selected = _selected(only, encoders, methods, None, data_dir, dict(map(assignment, given or [])))
    work = Work("quality", lines)
    running.tune_all(selected, lines, console.say, progress=not (console.quiet or part))
    if not part:
        work.finish(["tune", *selected.words()], console)


@unpacked
def run(
    *,
    only: Only = None,
    encoders: Encoders = None,
    methods: Methods = None,
    seeds: Annotated[
        int | None, typer.Option(help="The number of training seeds: 0, 1, … [default: 5]")
    ] = None,
    lines: Lines = FOLDER,
    part: Part = False,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Train, evaluate and compare the models with their best settings.

    The settings are the best of the trials in --lines, or else those that come with truepair. Results that
    exist are not computed again.
    """
    from truepair_lab.quality import running
    from truepair_lab.quality.comparisons import compare_case

    seeds = None if seeds is None else check_whole("seeds", seeds, 1, 1000)
    selected = _selected(only, encoders, methods, seeds, data_dir)
    work = Work("quality", lines)
    running.run_all(selected, lines, console.say)
    if not part:
        for case in selected.cases:
            compare_case(case, lines, console.say)
        work.finish(["run", *selected.words()], console)


@unpacked
def report(
    *,
    lines: Lines = FOLDER,
    out: Out = Path("docs/quality.md"),
    figures: Figures = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Write the best settings and their scores to this file too, as JSON."),
    ] = None,
    console: Console,
) -> None:
    """Write the page of the comparison from its results."""
    from truepair_lab.quality.part_scores import read_contest
    from truepair_lab.quality.report import rebuild_report
    from truepair_lab.quality.settled import settled_text

    def rebuild() -> Path:
        page = rebuild_report(lines, out, figures)
        if settings is not None:
            with atomic_write(settings) as file:
                file.write(settled_text(read_contest(lines)).encode())
        return page

    write_page(lines, rebuild, console)


def _selected(
    only: str | None,
    encoders: str | None,
    methods: str | None,
    seeds: int | None,
    data_dir: Path | None,
    given: dict[str, Any] | None = None,
) -> Selection:
    from truepair_lab.paper.running.steps import checked
    from truepair_lab.quality.cases import CASES
    from truepair_lab.quality.contestants import ENCODERS, METHODS
    from truepair_lab.quality.running import Selection

    return Selection(
        checked("case", only, CASES),
        checked("encoder", encoders, ENCODERS),
        checked("method", methods, METHODS),
        seeds,
        data_dir,
        given or {},
    )
