"""`truepair lab bench`: speed, memory and time to quality on this machine, beside other libraries."""

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
            help="Which to run: {truepair_lab.benchmarks.BENCHMARKS}; all if none is named.",
        ),
    ] = None,
    *,
    list_them: Annotated[
        bool, typer.Option("--list", help="Tell what each benchmark measures, and run none.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rehearsal: one round, little work; the figures mean little.")
    ] = False,
    rounds: Annotated[
        int | None, typer.Option(help="Measure each so often, in turns, and take medians; 5 if not given.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Where to write all rounds, versions and the machine, as JSON."),
    ] = Path("truepair-bench.json"),
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw what `scaling` or `full-scaling` measures into this SVG, PNG or PDF file."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of every draw.")] = 0,
    data_dir: DataDir = None,
    voice: Console,
) -> None:
    """Measure truepair, and other libraries in turns with it.

    The peers come with `pip install 'truepair[bench]'`. What was measured is kept after each benchmark, so
    it may be interrupted.
    """
    from truepair_lab.benchmarks import BENCHMARKS, Options, run_benchmarks
    from truepair_lab.benchmarks.table import table

    if list_them:
        _list(voice)
        return
    chosen = {name: BENCHMARKS[check_choice("benchmark", name, BENCHMARKS)] for name in names or BENCHMARKS}
    options = Options((1 if quick else 5) if rounds is None else rounds, quick, data_dir, seed, voice.say)
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
    voice.done(f"{table(report, width)}\nkept in {out}", report)


def _list(voice: Console) -> None:
    from truepair_lab.benchmarks import BENCHMARKS
    from truepair_lab.benchmarks.running import summary

    rows = [{"name": name, "measures": summary(benchmark)} for name, benchmark in BENCHMARKS.items()]
    voice.give(aligned(rows), rows)


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
