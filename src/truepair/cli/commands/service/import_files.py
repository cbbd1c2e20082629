"""`truepair import`: files of events, items and users into a store."""

from __future__ import annotations

from typing import Annotated

import typer

from truepair.cli.commands.service.export import progress
from truepair.cli.console import Console
from truepair.cli.options import unpacked
from truepair.errors import InputError


@unpacked
def import_files(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE... STORE",
            help="Folders of `truepair export`, files (Parquet, CSV …) or URL#table; then the store.",
        ),
    ],
    *,
    kind: Annotated[
        str, typer.Option(help="The kind of events from tables that have no column for it.")
    ] = "like",
    console: Console,
) -> None:
    """Put events, items and users into a store, all of them or none.

    Tables with columns for user and item have events; those with items or users alone have their records, and
    further columns become labels. What is there is not stored again, so that the same import a second time
    changes nothing. Services cannot write to the store meanwhile.
    """
    from truepair.serving.events.opening import open_store
    from truepair.serving.transfer import importing

    if len(sources) < 2:
        raise InputError("give what to import, and the store at the end: truepair import backup shop.sqlite")
    *found, place = sources
    if not 0 < len(kind) <= 128:
        raise InputError(f"--kind = {kind!r:.60} cannot be used; give 1 to 128 characters.")
    store = open_store(place)
    try:
        counts = importing.import_files(store, found, kind, progress(console))
    finally:
        store.close()
    rows = [f"{read:,} {name} read, {changed:,} new or changed" for name, (read, changed) in counts.items()]
    text = "; ".join(rows) or "nothing to import"
    data = {name: {"read": read, "changed": changed} for name, (read, changed) in counts.items()}
    console.done(f"{text} in {store.name}", {"store": store.name, **data})
