"""`truepair export`, `import` and `rollback`: the store and the model of a service."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import ModelFile
from truepair.errors import InputError

StorePlace = Annotated[
    str, typer.Argument(metavar="STORE", help="An SQLite file of `truepair serve`, or postgresql://…")
]
_EVERY = 2.0  # seconds between lines of progress


def export(
    store: StorePlace,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; new or empty.")],
    console: Console,
) -> None:
    """Write a store to a folder of Parquet files.

    events.parquet, items.parquet and users.parquet are of one moment, and the folder appears
    when all are written. A service may go on meanwhile.

    Example:
      truepair export model.events.sqlite -o backup
    """
    from truepair.serving.events.store import open_store
    from truepair.serving.transfer.exporting import export_store

    with closing(open_store(store, create=False)) as found, closing(found.reader()) as reader:
        counts = export_store(reader, out, progress(console))
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


def import_files(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... STORE",
            help="Folders of `truepair export`, files (Parquet, CSV …) or URL#table; then the store.",
        ),
    ],
    *,
    kind: Annotated[str, typer.Option(help="The kind of events in tables without such a column.")] = "like",
    console: Console,
) -> None:
    """Put events, items and users into a store, all of them or none.

    Tables with columns for user and item have events; those with items or users alone have their records, and
    further columns become labels. What is there is not stored again, so that the same import a second time
    changes nothing. Services cannot write to the store meanwhile.

    Example:
      truepair import backup postgresql://ann@localhost/shop
      truepair import clicks.csv items.csv shop.sqlite
    """
    from truepair.serving.events.store import open_store
    from truepair.serving.transfer import importing

    if len(sources) < 2:
        raise InputError("give what to import, and the store at the end: truepair import backup shop.sqlite")
    *found, place = sources
    if not 0 < len(kind) <= 128:
        raise InputError(f"--kind = {kind!r:.60} cannot be used; give 1 to 128 characters.")
    with closing(open_store(place)) as store:
        counts = importing.import_files(store, found, kind, progress(console))
    rows = [f"{read:,} {name} read, {changed:,} new or changed" for name, (read, changed) in counts.items()]
    text = "; ".join(rows) or "nothing to import"
    data = {name: {"read": read, "changed": changed} for name, (read, changed) in counts.items()}
    console.done(f"{text} in {store.name}", {"store": store.name, **data})


def rollback(model: ModelFile, *, console: Console) -> None:
    """Return to the former model of a service that retrains.

    Running services follow within about a second. The model file itself is version 0.

    Example:
      truepair rollback model.truepair
    """
    from truepair.serving import check_extra

    check_extra()
    from truepair.serving.retraining.versions import Versions

    versions = Versions(model)
    before = versions.state().current
    state = versions.roll_back()
    found = {"version": state.current, "was": before, "file": str(versions.path(state.current))}
    console.done(f"version {state.current} is served from now on, no longer version {before}", found)
