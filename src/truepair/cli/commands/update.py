"""`truepair update`: a saved model learns from new interactions, and forgets what has expired."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from truepair.cli.console import Console
from truepair.cli.id_text import as_ids, separated_or_listed
from truepair.cli.options import ModelFile, WithoutOptimizer, unpacked
from truepair.cli.sources import Reading, described
from truepair.cli.table_files import check_output
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError, check_choice

if TYPE_CHECKING:
    from truepair.recommender.estimator import Recommender


@unpacked
def update(
    model: ModelFile,
    source: Annotated[
        str | None,
        typer.Argument(metavar="NEW", help="New interactions: a file, the URL of a database, or a dataset."),
    ] = None,
    *,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The file to save the model to; it may be MODEL itself."),
    ],
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs of training; 0 only gives vectors to new users and items. [default: 5]"),
    ] = None,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…|FILE",
            help="Items to remove first: a list, or a file with one id a line.",
        ),
    ] = None,
    forget_users: Annotated[
        str | None, typer.Option(metavar="A,B,…|FILE", help="Users to remove first, in the same way.")
    ] = None,
    unknown: Annotated[
        str, typer.Option(help="For ids to forget that the model does not know: `error`, or `drop` them.")
    ] = "error",
    no_optimizer: WithoutOptimizer = False,
    reading: Reading,
    console: Console,
) -> None:
    """Learn from new interactions, or forget items and users.

    The model goes on from where it is. If anything fails, no file is changed.
    """
    from truepair.recommender.estimator import Recommender

    check_output(output)
    check_choice("unknown", unknown, ["error", "drop"])
    if source is None and forget is None and forget_users is None:
        raise InputError("give new interactions, --forget or --forget-users; else there is nothing to do.")
    if source is None and epochs is not None:
        raise InputError(f"--epochs {epochs} has no effect without new interactions; leave it out.")
    fitted = Recommender.load(model)
    before = len(fitted.facts_.get("updates", []))
    if forget is not None or forget_users is not None:
        _forget(fitted, forget, forget_users, unknown)
    if source is not None:
        data = reading.interactions(source, progress=not console.quiet)
        console.say(described(data))
        fitted.update(data, epochs=epochs, progress=not console.quiet)
    fitted.save(output, updatable=not no_optimizer)
    records = fitted.facts_.get("updates", [])[before:]
    seen = fitted.seen_
    sizes = {"users": seen.n_users, "items": seen.n_items, "pairs": len(seen)}
    facts = {"source": source and without_password(source), "model": str(output), **sizes, "updates": records}
    console.done("\n".join([*map(_line, records), f"saved to {output}"]), facts)


def _forget(fitted: Recommender, items: str | None, users: str | None, unknown: str) -> None:
    ids = {"items": fitted.seen_.item_ids, "users": fitted.seen_.user_ids}
    named = {
        what: as_ids(separated_or_listed(text, what[:-1]), ids[what], what[:-1])
        for what, text in (("items", items), ("users", users))
        if text is not None
    }
    fitted.forget(**named, unknown=cast(Any, unknown))


def _line(record: dict[str, Any]) -> str:
    """A record of an update for people: its counts."""
    shown = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4f}"
        for name, value in record.items()
        if isinstance(value, int | float)
    ]
    return ", ".join(shown)
