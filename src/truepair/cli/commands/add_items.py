"""`truepair add-items`: give vectors to items that nobody has yet, from their features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truepair.cli.console import Console
from truepair.cli.options import ModelFile, unpacked
from truepair.cli.table_files import check_output


@unpacked
def add_items(
    model: ModelFile,
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A file or URL#table with one row an item: new items; for a model without features, all "
            "known ones too.",
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to save the model to.")],
    popularity: Annotated[
        float | None,
        typer.Option(
            help="How many users a new item is taken to have, in a model with this option. "
            "[default: as many as a trained item]"
        ),
    ] = None,
    console: Console,
) -> None:
    """Add items that nobody has yet to a model, by their features."""
    from truepair.recommender.estimator import Recommender

    check_output(output)
    fitted = Recommender.load(model)
    more = fitted.add_items(table, popularity=popularity)
    more.save(output)
    n = int(more.model_.added.sum() - fitted.model_.added.sum())
    cosine = None if more.model_.item_map is None else more.model_.item_map.cosine
    how = (
        "" if cosine is None else f"; cosine of predicted and trained vectors {cosine:.2f}, on held-out items"
    )
    facts = {"model": str(output), "added": n, "items": more.seen_.n_items, "cosine": cosine}
    console.done(f"{n:,} items are added to {more.seen_.n_items - n:,}{how}\nsaved to {output}", facts)
