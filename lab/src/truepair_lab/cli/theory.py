"""`truepair-lab theory`: the paper's three lemmas, checked by experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console, aligned
from truepair.cli.options import unpacked
from truepair.cli.table_files import check_output
from truepair.errors import InputError
from truepair.storage.atomic import atomic_write


@unpacked
def theory(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take some seconds instead of a minute; the errors are wider.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The seed of all random draws.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Write the results to this file, as JSON.")] = None,
    load: Annotated[
        Path | None, typer.Option(help="Run nothing; read the results from a file that --save has written.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write a page as Markdown, and its figures to `figures` beside it."),
    ] = None,
    console: Console,
) -> None:
    """Check the lemmas behind DPL on scores with known labels.

    Estimators that are wrong on purpose go through the same checks and must fail them. The exit code is 1 if
    a check has an unexpected result.
    """
    from truepair_lab.theory.report import write_page
    from truepair_lab.theory.results import as_text, read_results
    from truepair_lab.theory.running import run_theory, verdicts

    _check_files(save, load, out)
    results = run_theory(seed, quick, console.say) if load is None else read_results(load)
    if save is not None:
        with atomic_write(save) as file:
            file.write(as_text(results).encode())
    page = None if out is None else write_page(results, out)
    checks = verdicts(results)
    rows = [
        {"": c.part, "holds": "yes" if c.holds else "NO", "claim": c.claim, "seen": c.seen} for c in checks
    ]
    facts = {"seed": results.seed, "quick": results.quick, "checks": [c._asdict() for c in checks]}
    written = [f"written: {path}" for path in (save, page) if path is not None]
    console.done("\n".join([aligned(rows), *written]), facts | {"page": None if page is None else str(page)})
    if not all(check.holds for check in checks):
        raise typer.Exit(1)


def _check_files(save: Path | None, load: Path | None, out: Path | None) -> None:
    if save is not None and load is not None:
        raise InputError(
            f"--save {save} keeps what is run, and --load {load} runs nothing; give one of them."
        )
    for path in (save, out):
        if path is not None:
            check_output(path)
    if out is not None:
        from truepair.reporting.figures import check_plots

        check_plots()
