"""`truepair-lab paper`: the paper's tables and figures, tuned, run and reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import check_whole
from truepair.storage.atomic import atomic_write
from truepair_lab.cli.study import COMMAS, Figures, Lines, Out, Part, Work, write_page

if TYPE_CHECKING:
    from truepair_lab.paper.running.steps import Selection

Only = Annotated[str | None, typer.Option(help="Datasets ({truepair_lab.paper.presets.DATA})" + COMMAS)]
Studies = Annotated[str | None, typer.Option(help="Studies ({truepair_lab.paper.presets.STUDIES})" + COMMAS)]
Encoders = Annotated[
    str | None, typer.Option(help="Encoders ({truepair_lab.paper.presets.ENCODERS}, - for none)" + COMMAS)
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods ({truepair_lab.paper.presets.METHODS}, {truepair_lab.paper.presets.REFERENCES})"
        + COMMAS
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(help="The number of processes. [default: 1 with a GPU, else one per core, at most 8]"),
]
FOLDER = Path("results/paper")


@unpacked
def run(
    *,
    only: Only = None,
    studies: Studies = None,
    encoders: Encoders = None,
    methods: Methods = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="The number of training seeds: 0, 1, … [default: 3 or 5, depending on the study]"),
    ] = None,
    lines: Lines = FOLDER,
    processes: Processes = None,
    part: Part = False,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Run the studies of the paper that have no results yet.

    The clean protocol uses the best settings of the trials in --lines, or else the settings that come with
    truepair.
    """
    from truepair_lab.paper.running import steps

    chosen = only, studies, encoders, methods
    seeds = None if seeds is None else check_whole("seeds", seeds, 1, 1000)
    selected = _selected(chosen, seeds, processes, 1, data_dir)
    work = Work("paper", lines)
    if selected.processes > 1:
        steps.in_processes("run", selected, lines, console.say)
        steps.run_timings(selected, lines, console.say)
    else:
        steps.run(selected, lines, console.say)
    if not part:
        steps.compare(selected, lines, console.say)
        work.finish(_words("run", selected), console)


@unpacked
def tune(
    *,
    only: Only = None,
    encoders: Encoders = None,
    methods: Methods = None,
    lines: Lines = FOLDER,
    processes: Processes = None,
    settings: Annotated[
        Path | None, typer.Option(help="Write the best settings of all trials to this file, as JSON.")
    ] = None,
    together: Annotated[
        int, typer.Option(help="The number of trials trained at once on a GPU; faster on small datasets.")
    ] = 1,
    part: Part = False,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Search for the settings of the clean protocol.

    Every method gets the same number of trials, scored on validation data only. A search that was
    interrupted continues when the command is run again.
    """
    from truepair_lab.lines import read_lines
    from truepair_lab.paper.running import steps
    from truepair_lab.paper.running.plan import settings_text

    selected = _selected((only, None, encoders, methods), None, processes, together, data_dir)
    work = Work("paper", lines)
    if selected.processes > 1:
        steps.in_processes("tune", selected, lines, console.say)
    else:
        steps.tune(selected, lines, console.say, progress=not (console.quiet or part))
    if settings is not None:
        with atomic_write(settings) as file:
            file.write(settings_text(read_lines(lines)).encode())
    if not part:
        work.finish(_words("tune", selected), console)


@unpacked
def report(
    *,
    lines: Lines = FOLDER,
    out: Out = Path("docs/paper.md"),
    figures: Figures = None,
    console: Console,
) -> None:
    """Write the page of the paper's study from its results."""
    from truepair_lab.paper.report.page import rebuild_report

    write_page(lines, lambda: rebuild_report(lines, out, figures), console)


def _selected(
    chosen: tuple[str | None, str | None, str | None, str | None],
    seeds: int | None,
    processes: int | None,
    together: int,
    data_dir: Path | None,
) -> Selection:
    from truepair_lab.paper import presets
    from truepair_lab.paper.running.steps import Selection, checked, default_processes

    only, studies, encoders, methods = chosen
    return Selection(
        checked("dataset", only, presets.DATA),
        checked("study", studies, presets.STUDIES),
        checked("encoder", encoders, (*presets.ENCODERS, presets.NO_ENCODER)),
        checked("method", methods, (*presets.METHODS, *presets.REFERENCES)),
        seeds,
        data_dir,
        default_processes() if processes is None else check_whole("processes", processes, 1),
        check_whole("together", together, 1),
    )


def _words(step: str, selected: Selection) -> list[str]:
    return [step, *selected.words(step), f"--processes={selected.processes}"]
