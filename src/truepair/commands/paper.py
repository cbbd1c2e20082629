"""`truepair paper`: the paper's tables and figures, tuned, run and reported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truepair.commands.options import DataDir, unpacked
from truepair.commands.voice import Voice
from truepair.commands.writing import replacing
from truepair.errors import check_whole

if TYPE_CHECKING:
    from truepair.experiments.paper.steps import Asked

_COMMAS = ", with commas between; all if not given."
Only = Annotated[str | None, typer.Option(help="Datasets ({experiments.paper.presets.DATA})" + _COMMAS)]
Studies = Annotated[str | None, typer.Option(help="Studies ({experiments.paper.presets.STUDIES})" + _COMMAS)]
Encoders = Annotated[
    str | None, typer.Option(help="Encoders ({experiments.paper.presets.ENCODERS}, - for none)" + _COMMAS)
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods ({experiments.paper.presets.METHODS}, {experiments.paper.presets.REFERENCES})" + _COMMAS
    ),
]
Lines = Annotated[Path, typer.Option(help="The folder of JSON lines that every result is kept in.")]
Processes = Annotated[int, typer.Option(help="So many processes at once, each with its share of the CPUs.")]
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
    seeds: Annotated[int, typer.Option(help="So many training seeds: 0, 1, ….")] = 5,
    lines: Lines = FOLDER,
    processes: Processes = 1,
    part: Part = False,
    data_dir: DataDir = None,
    voice: Voice,
) -> None:
    """Run the paper's studies; what is done is not run again.

    The clean protocol's settings are the best of the trials in the lines' folder, else truepair's own.
    """
    from truepair.experiments.paper import steps

    began = time.perf_counter()
    asked = _asked(only, studies, encoders, methods, check_whole("seeds", seeds, 1, 1000), data_dir)
    if check_whole("processes", processes, 1) > 1:
        count = steps.in_processes("run", asked, lines, processes, voice.say)
        count += steps.run_timings(asked, lines, voice.say)
    else:
        count = steps.run(asked, lines, voice.say)
    if not part:
        steps.compare(asked, lines, voice.say)
        steps.keep_session(lines, "run", asked, count, began)
        seconds = time.perf_counter() - began
        told = f"{count} runs in {seconds:.0f} s, kept in {lines}; `truepair paper report` shows them"
        voice.done(told, {"runs": count, "seconds": seconds, "lines": str(lines)})


@unpacked
def tune(
    *,
    only: Only = None,
    encoders: Encoders = None,
    methods: Methods = None,
    lines: Lines = FOLDER,
    processes: Processes = 1,
    settings: Annotated[
        Path | None, typer.Option(help="Write the best settings of all trials to this file, as JSON.")
    ] = None,
    part: Part = False,
    studies: Annotated[str | None, typer.Option(hidden=True)] = None,
    data_dir: DataDir = None,
    voice: Voice,
) -> None:
    """Search the clean protocol's settings: as many trials for every method, on validation only.

    It may be stopped at any moment, and goes on where it was.
    """
    from truepair.experiments.lines import read_lines
    from truepair.experiments.paper import steps

    began = time.perf_counter()
    asked = _asked(only, None, encoders, methods, 1, data_dir)
    if check_whole("processes", processes, 1) > 1:
        count = steps.in_processes("tune", asked, lines, processes, voice.say)
    else:
        count = steps.tune(asked, lines, voice.say, progress=not (voice.quiet or part))
    if settings is not None:
        with replacing(settings) as file:
            file.write(steps.settings_text(read_lines(lines)).encode())
    if not part:
        steps.keep_session(lines, "tune", asked, count, began)
        told = f"{count} searches in {time.perf_counter() - began:.0f} s, kept in {lines}"
        voice.done(told, {"searches": count, "seconds": time.perf_counter() - began, "lines": str(lines)})


@unpacked
def report(
    *,
    lines: Lines = FOLDER,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write, as Markdown.")] = Path(
        "docs/paper.md"
    ),
    figures: Annotated[
        Path | None, typer.Option(help="The folder for its figures; `figures` beside the page if not given.")
    ] = None,
    voice: Voice,
) -> None:
    """Write the page of tables, figures and verdicts from the lines alone."""
    from truepair.experiments.lines import read_lines
    from truepair.experiments.paper.report import rebuild_report

    for text in read_lines(lines).broken:
        voice.say(f"left out: {text}")
    page = rebuild_report(lines, out, figures)
    voice.done(str(page), {"page": str(page)})


def _asked(
    only: str | None,
    studies: str | None,
    encoders: str | None,
    methods: str | None,
    seeds: int,
    data_dir: Path | None,
) -> Asked:
    from truepair.experiments.paper import presets
    from truepair.experiments.paper.steps import Asked, checked

    return Asked(
        checked("dataset", only, presets.DATA),
        checked("study", studies, presets.STUDIES),
        checked("encoder", encoders, (*presets.ENCODERS, presets.NO_ENCODER)),
        checked("method", methods, (*presets.METHODS, *presets.REFERENCES)),
        range(seeds),
        data_dir,
    )
