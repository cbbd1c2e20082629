"""`truepair-lab bench`: speed, memory and time to quality on this machine, beside other libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from truepair.cli.console import Console, aligned
from truepair.cli.options import DataDir, unpacked
from truepair.cli.table_files import check_output
from truepair.errors import InputError, check_choice
from truepair.storage.atomic import atomic_write

_DRAWN = ("scaling", "full-scaling")  # what --plot can draw


@unpacked
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="The benchmarks to run: {truepair_lab.benchmarks.BENCHMARKS}. [default: all]",
        ),
    ] = None,
    *,
    list_them: Annotated[
        bool, typer.Option("--list", help="Show what each benchmark measures, and run none.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run one short round to test the set-up; do not use the numbers.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(help="The number of alternating rounds; medians are reported. [default: 5]")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The JSON file for all rounds, the versions and the machine."),
    ] = Path("truepair-bench.json"),
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw the results of `scaling` or `full-scaling` in this SVG, PNG or PDF file."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of all random draws.")] = 0,
    data_dir: DataDir = None,
    console: Console,
) -> None:
    """Measure the speed and memory of truepair and its peers.

    The peers are other libraries; install them with `pip install 'truepair[bench]'`. The results are written
    after each benchmark, so an interrupted run keeps those that have finished.
    """
    from truepair_lab.benchmarks import BENCHMARKS, Options, run_benchmarks
    from truepair_lab.benchmarks.table import table

    if list_them:
        _list(console)
        return
    chosen = {name: BENCHMARKS[check_choice("benchmark", name, BENCHMARKS)] for name in names or BENCHMARKS}
    options = Options((1 if quick else 5) if rounds is None else rounds, quick, data_dir, seed, console.say)
    _check_files(out, plot, list(chosen))
    report = run_benchmarks(chosen, options, keep=lambda report: _write(report, out))
    if not any(facts["rows"] for facts in report["benchmarks"].values()):
        reasons = [text for facts in report["benchmarks"].values() for text in facts["skipped"]]
        raise InputError(f"nothing could be measured: {'; '.join(dict.fromkeys(reasons))}")
    if plot is not None:
        from truepair_lab.benchmarks.plots import draw_scaling

        [drawn] = [name for name in _DRAWN if name in chosen]
        draw_scaling(report["benchmarks"][drawn]["data"], plot)
    width = max(shutil.get_terminal_size((160, 0)).columns, 80)
    console.done(f"{table(report, width)}\nkept in {out}", report)


def _list(console: Console) -> None:
    from truepair_lab.benchmarks import BENCHMARKS
    from truepair_lab.benchmarks.running import summary

    rows = [{"name": name, "measures": summary(benchmark)} for name, benchmark in BENCHMARKS.items()]
    console.give(aligned(rows), rows)


def _check_files(out: Path, plot: Path | None, names: list[str]) -> None:
    check_output(out)
    if plot is None:
        return
    if len([name for name in _DRAWN if name in names]) != 1:
        raise InputError(
            f"--plot {plot} draws what one of {' and '.join(_DRAWN)} measures; name one of them."
        )
    from truepair_lab.benchmarks.plots import check_plot

    check_plot(plot)
    check_output(plot)


def _write(report: dict[str, Any], out: Path) -> None:
    with atomic_write(out) as file:
        file.write(json.dumps(report, indent=1, ensure_ascii=False).encode() + b"\n")
