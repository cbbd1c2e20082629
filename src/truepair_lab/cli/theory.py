"""`truepair lab theory`: the paper's three lemmas, checked by experiment."""

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
        bool, typer.Option("--quick", help="Some seconds instead of a minute: wider errors, less power.")
    ] = False,
    seed: Annotated[int, typer.Option(help="The seed of every draw.")] = 0,
    save: Annotated[Path | None, typer.Option(help="Keep all that was found in this file, as JSON.")] = None,
    load: Annotated[
        Path | None, typer.Option(help="Run nothing: take what --save kept in this file.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write a page as Markdown, with figures in `figures` beside it."),
    ] = None,
    voice: Console,
) -> None:
    """Check the lemmas behind DPL on scores whose truth is known.

    Estimators that are wrong on purpose go through the same checks and must fail them. The exit code is 1 if
    a check does not come out as it should.
    """
    from truepair_lab.theory.report import write_page
    from truepair_lab.theory.results import as_text, read_results
    from truepair_lab.theory.running import run_theory, verdicts

    _check_files(save, load, out)
    results = run_theory(seed, quick, voice.say) if load is None else read_results(load)
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
    voice.done("\n".join([aligned(rows), *written]), facts | {"page": None if page is None else str(page)})
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
