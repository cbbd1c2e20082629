"""`truepair export`: the events, items and users of a store as Parquet files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import unpacked

StorePlace = Annotated[
    str, typer.Argument(metavar="STORE", help="An SQLite file of `truepair serve`, or postgresql://…")
]
_EVERY = 2.0  # seconds between lines of progress


@unpacked
def export(
    store: StorePlace,
    *,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="The folder to make; it must be new or empty."),
    ],
    console: Console,
) -> None:
    """Write a store to a folder of Parquet files.

    events.parquet, items.parquet and users.parquet are of one moment, and the folder appears
    when all are written. A service may go on meanwhile.
    """
    from truepair.serving.events.opening import open_store
    from truepair.serving.transfer.exporting import export_store

    found = open_store(store, create=False)
    try:
        reader = found.reader()
        counts = export_store(reader, out, progress(console))
        reader.close()
    finally:
        found.close()
    text = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    console.done(f"{text} written to {out}", {"out": str(out), **counts})


def progress(console: Console) -> Callable[[str, int], None]:
    """A function that says every few seconds how many rows are done."""
    last = time.monotonic()

    def done(name: str, count: int) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            console.say(f"{count:,} {name}")

    return done
