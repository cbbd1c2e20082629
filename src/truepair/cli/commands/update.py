"""`truepair update` and `add-items`: a saved model learns from new interactions, forgets, gets new items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

import typer

import truepair as tp
from truepair.cli.console import Console
from truepair.cli.options import ModelFile, OutputModel, WithoutOptimizer, argument, option, refuse
from truepair.cli.sources import Reading
from truepair.cli.table_files import read_ids_or_file
from truepair.data.sources.sql_urls import without_password
from truepair.errors import InputError
from truepair.storage.types import Json


@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """Argument and options of `update` alone."""

    source: str | None = argument("New interactions: a file, the URL of a database, or a dataset.", "NEW")
    output: OutputModel
    epochs: int | None = option("Epochs of training; 0: only vectors of new users and items. [default: 5]")
    forget: str | None = option("Items to remove first, or a file with one id a line.", metavar="A,B,…|FILE")
    forget_users: str | None = option("Users to remove first, in the same way.", metavar="A,B,…|FILE")
    unknown: str = option("Unknown ids to forget: `error`, or `drop` them.", default="error")
    no_optimizer: WithoutOptimizer = False


def update(model: ModelFile, args: UpdateOptions, reading: Reading, console: Console) -> None:
    """Learn from new interactions, or forget items and users.

    The model goes on from where it is. NEW is read as the data of the fit were (feedback, columns, missing
    values, …), but for what is given here. If anything fails, no file is changed.

    Example:
      truepair update model.truepair today.csv -o model.truepair --forget expired.txt
    """
    source = args.source
    if source is None and args.forget is None and args.forget_users is None:
        raise InputError("give new interactions, --forget or --forget-users; else there is nothing to do.")
    if source is None:
        refuse({"--epochs": args.epochs}, "without new interactions")
    fitted = tp.Recommender.load(model)
    before = len(fitted.facts_.get("updates", []))
    if args.forget is not None or args.forget_users is not None:
        fitted.forget(
            items=read_ids_or_file(fitted.seen_.item_ids, "item", args.forget),
            users=read_ids_or_file(fitted.seen_.user_ids, "user", args.forget_users),
            unknown=cast(Literal["error", "drop"], args.unknown),
        )
    if source is not None:
        new = reading.read(source, console, fitted.seen_)
        fitted.update(new, epochs=args.epochs, progress=not console.quiet, **reading.for_files())
    fitted.save(args.output, updatable=not args.no_optimizer)
    records = fitted.facts_.get("updates", [])[before:]
    seen = fitted.seen_
    sizes = {"users": seen.n_users, "items": seen.n_items, "pairs": len(seen)}
    facts = {"source": source and without_password(source), "model": str(args.output), **sizes}
    text = "\n".join([*map(_line, records), f"saved to {args.output}"])
    console.done(text, {**facts, "updates": records})


def _line(record: Json) -> str:
    """A record of an update: its counts."""
    numbers = {name: value for name, value in record.items() if isinstance(value, int | float)}
    return ", ".join(f"{n} {v:,}" if isinstance(v, int) else f"{n} {v:.4f}" for n, v in numbers.items())


def add_items(
    model: ModelFile,
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="A file or URL#table of the new items; for a model without features, all known ones too.",
        ),
    ],
    *,
    output: OutputModel,
    popularity: Annotated[
        float | None,
        typer.Option(
            help="How many users a new item is taken to have, in a model with this option. "
            "[default: as many as a trained item]"
        ),
    ] = None,
    console: Console,
) -> None:
    """Add items without interactions to a model, by their features.

    Example:
      truepair add-items model.truepair new_items.csv -o model.truepair
    """
    fitted = tp.Recommender.load(model)
    more = fitted.add_items(table, popularity=popularity)
    more.save(output)
    n = int(more.model_.added.sum() - fitted.model_.added.sum())
    cosine = None if more.model_.item_map is None else more.model_.item_map.cosine
    how = "" if cosine is None else f"; cosine with trained vectors {cosine:.2f} on held-out items"
    facts = {"model": str(output), "added": n, "items": more.seen_.n_items, "cosine": cosine}
    console.done(f"{n:,} items are added to {more.seen_.n_items - n:,}{how}\nsaved to {output}", facts)
