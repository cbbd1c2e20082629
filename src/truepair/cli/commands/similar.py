"""`truepair similar`: the most similar items or users."""

from __future__ import annotations

from typing import Annotated

import typer

from truepair.cli.console import Console, aligned
from truepair.cli.id_text import as_ids
from truepair.cli.options import ListLength, ModelFile, unpacked
from truepair.cli.table_files import with_plain_ids


@unpacked
def similar(
    model: ModelFile,
    ids: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Items of the model.")],
    *,
    k: ListLength = 10,
    users: Annotated[
        bool, typer.Option("--users", help="The ids are those of users; list similar users.")
    ] = False,
    console: Console,
) -> None:
    """List the items most similar to the given ones."""
    from truepair.recommender.estimator import Recommender

    fitted = Recommender.load(model)
    fitted.output_ = "arrow"
    what, known = ("user", fitted.seen_.user_ids) if users else ("item", fitted.seen_.item_ids)
    asked = as_ids(ids, known, what)
    found = fitted.similar_users(asked, k) if users else fitted.similar_items(asked, k)
    rows = with_plain_ids(found).to_pylist()
    console.give(aligned(rows), rows)
