"""`truepair lab paper`: the paper's tables and figures, tuned, run and reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import DataDir, unpacked
from truepair.errors import check_whole
from truepair.storage.atomic import atomic_write

if TYPE_CHECKING:
    from truepair_lab.paper.running.steps import Selection

_COMMAS = ", separated by commas. [default: all]"
Only = Annotated[str | None, typer.Option(help="Datasets ({truepair_lab.paper.presets.DATA})" + _COMMAS)]
Studies = Annotated[str | None, typer.Option(help="Studies ({truepair_lab.paper.presets.STUDIES})" + _COMMAS)]
Encoders = Annotated[
    str | None, typer.Option(help="Encoders ({truepair_lab.paper.presets.ENCODERS}, - for none)" + _COMMAS)
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods ({truepair_lab.paper.presets.METHODS}, {truepair_lab.paper.presets.REFERENCES})"
        + _COMMAS
    ),
]
Lines = Annotated[Path, typer.Option(help="The folder of the results, as files of JSON lines.")]
Processes = Annotated[
    int | None,
    typer.Option(help="The number of processes. [default: 1 with a GPU, else one per core, at most 8]"),
]
Part = Annotated[
    bool, typer.Option("--part", hidden=True, help="One of several processes: no comparisons, no session.")
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
    began, before = time.perf_counter(), steps.count_lines(lines)
    if selected.processes > 1:
        steps.in_processes("run", selected, lines, console.say)
        steps.run_timings(selected, lines, console.say)
    else:
        steps.run(selected, lines, console.say)
    if not part:
        steps.compare(selected, lines, console.say)
        _finish("run", selected, lines, before, began, console)


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
    began, before = time.perf_counter(), steps.count_lines(lines)
    if selected.processes > 1:
        steps.in_processes("tune", selected, lines, console.say)
    else:
        steps.tune(selected, lines, console.say, progress=not (console.quiet or part))
    if settings is not None:
        with atomic_write(settings) as file:
            file.write(settings_text(read_lines(lines)).encode())
    if not part:
        _finish("tune", selected, lines, before, began, console)


@unpacked
def report(
    *,
    lines: Lines = FOLDER,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, as Markdown.")] = Path(
        "docs/lab/paper.md"
    ),
    figures: Annotated[
        Path | None, typer.Option(help="The folder for the figures. [default: `figures` beside the page]")
    ] = None,
    console: Console,
) -> None:
    """Write the page of the paper's study from its results."""
    from truepair_lab.lines import read_lines
    from truepair_lab.paper.report.page import rebuild_report

    for text in read_lines(lines).broken:
        console.say(f"left out: {text}")
    page = rebuild_report(lines, out, figures)
    console.done(str(page), {"page": str(page)})


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


def _finish(step: str, selected: Selection, lines: Path, before: int, began: float, console: Console) -> None:
    from truepair_lab.paper.running import steps

    made, seconds = steps.count_lines(lines) - before, time.perf_counter() - began
    asked = f"paper {step} {' '.join(selected.words(step))} --processes={selected.processes}"
    steps.keep_session(lines, asked, made, began)
    text = f"{made} new lines in {seconds:.0f} s, kept in {lines}; `truepair lab paper report` shows them"
    console.done(text, {"made": made, "seconds": seconds, "lines": str(lines)})
