"""`truepair prepare`: a source -> a folder of memory-mapped arrays, from which all commands start at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from truepair.cli.console import Console
from truepair.cli.options import SourceText, unpacked
from truepair.cli.sources import Reading, described, find_source
from truepair.data.sources.sql_urls import check_no_url, without_password
from truepair.errors import InputError

if TYPE_CHECKING:
    from truepair.data.interactions import Interactions
    from truepair.data.split import Split


@unpacked
def prepare(
    source: SourceText,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder to make. It must not exist.")
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="About how much memory may be used, such as 4GB or 800MB.")
    ] = "4GB",
    temp: Annotated[
        Path | None,
        typer.Option(help="A folder on disk for what does not fit into memory. [default: beside --output]"),
    ] = None,
    test: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Hold out a random share of the pairs as the test part."),
    ] = None,
    valid: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Hold out a random share of the rest as the validation part."),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The seed of the split.")] = 0,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="SOURCE is a prepared folder: read all of it, and compare it with its checksums."
        ),
    ] = False,
    reading: Reading,
    console: Console,
) -> None:
    """Prepare data once: distinct pairs as memory-mapped arrays.

    The folder replaces SOURCE in all other commands, which open it in milliseconds. The data need not fit
    into memory. The folder appears whole or not at all. After Ctrl-C or a kill, the same command goes on from
    the last finished step.
    """
    if verify:
        _check_verify(output, test)
        from truepair.data.prepared.opening import open_prepared

        found = open_prepared(source, verify=True)
        console.give(f"{described(found)}\n{source} is as it was written", _facts(found, source))
        return
    if output is None:
        raise InputError("--output is missing; name the folder to make: -o FOLDER.")
    check_no_url(output)
    if (dataset := find_source(source)) is not None:
        raise InputError(
            f"{dataset.name!r} is the name of a dataset, which commands read as it is; give a path or a URL."
        )
    from truepair.data.preparing.prepare import prepare_interactions

    limits: dict[str, Any] = {"memory": memory, "temp": temp, "progress": not console.quiet}
    shares: dict[str, Any] = {"test": test, "valid": valid, "seed": seed}
    made = prepare_interactions(source, output, **limits, **shares, **reading.for_files())
    facts = {"source": without_password(source), **_facts(made, str(output))}
    console.done(f"{described(made)}\nprepared in {output}", facts)


def _check_verify(output: Path | None, test: float | None) -> None:
    for option, value in (("--output", output), ("--test", test)):
        if value is not None:
            raise InputError(f"{option} {value} has no effect with --verify; leave it out.")


def _facts(found: Interactions | Split, folder: str) -> dict[str, Any]:
    from truepair.data.split import Split

    parts = found.parts if isinstance(found, Split) else {"all": found}
    first = next(iter(parts.values()))
    return {
        "folder": folder,
        "users": first.n_users,
        "items": first.n_items,
        "pairs": {name: len(part) for name, part in parts.items()},
        "hash": {name: part.hash for name, part in parts.items()},
    }
