"""`truepair recommend` and `similar`: lists for users to the screen, a file or a database; similar items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import truepair as tp
from truepair.cli.console import Console, aligned
from truepair.cli.options import ColdUsers, ListLength, ModelFile, option, refuse
from truepair.cli.table_files import (
    WRITERS,
    as_ids,
    check_output,
    format_of,
    read_ids,
    read_ids_or_file,
    write_table,
)
from truepair.data.sources.sql_urls import is_url, without_password
from truepair.errors import InputError, check_choice
from truepair.storage.plain_values import as_text
from truepair.storage.types import Ids, Json

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.ids import IdMap

_PART = 2048  # users at a time


@dataclass(frozen=True, kw_only=True)
class RecommendOptions:
    """Options of `recommend`."""

    users: str | None = option("The users. [default: all]", metavar="A,B,…")
    users_file: Path | None = option("A file with one user id per line; `-` is stdin.")
    k: ListLength = 10
    output: str | None = option(
        "A .parquet, .csv or .jsonl file, or the URL of a database. [default: the screen]",
        "--output",
        "-o",
        metavar="FILE|URL",
    )
    table: str | None = option("The table of a database --output. Its lists are replaced.", metavar="NAME")
    format: str | None = option("The format, if not by the file name: {truepair.cli.table_files.WRITERS}.")
    only_items: str | None = option("Recommend these items only.", metavar="A,B,…|FILE")
    exclude_items: str | None = option("Recommend none of these items.", metavar="A,B,…|FILE")
    exclude_pairs: str | None = option(
        "A file or URL#table of users and items: never this item for this user.", metavar="FILE"
    )
    items: str | None = option("A file or URL#table of items, for --where and --quota.", metavar="TABLE")
    where: str | None = option("A condition on items: 'price < 10 and stock > 0'.", metavar="CONDITION")
    quota: list[str] | None = option("At most N items of each value. Repeatable.", metavar="COLUMN=N")
    diversify: float = option("From 0 up to 1: prefer items unlike those before them.", default=0.0)
    explain: bool = option("Add the user's items that contribute most.", "--explain", default=False)
    include_seen: bool = option("Recommend what the user has, too.", "--include-seen", default=False)
    unknown: str = option("Unknown ids: `error`, `drop`, or `popular` items for users.", default="error")
    cold: ColdUsers = "popular"


def recommend(model: ModelFile, args: RecommendOptions, console: Console) -> None:
    """Recommend items to some users or to all.

    The result is a table of user, item, score, rank; with --explain also because, rest, popularity.

    Example:
      truepair recommend model.truepair -k 20 -o lists.parquet
      truepair recommend model.truepair -k 20 -o sqlite:///shop.db --table lists
    """
    format = _checked_format(args)
    fitted = tp.Recommender.load(model)
    if args.users is not None and args.users_file is not None:
        raise InputError("--users and --users-file exclude each other; give one of them.")
    users = read_ids(fitted.seen_.user_ids, "user", args.users, args.users_file)
    parts = fitted.recommend_in_parts(
        users,
        args.k,
        exclude_seen=not args.include_seen,
        exclude_items=_excluded(fitted, args.exclude_items, args.exclude_pairs),
        only_items=read_ids_or_file(fitted.seen_.item_ids, "item", args.only_items),
        items=args.items,
        where=args.where,
        quota=_quota(args.quota),
        diversify=args.diversify,
        explain=args.explain,
        unknown=args.unknown,
        cold=args.cold,
        part=_PART,
    )
    trained, known = fitted.history_.users, fitted.seen_.user_ids
    codes = known.find(known.ids if users is None else users, "user")
    if n_cold := int((~trained[codes[codes >= 0]]).sum()):
        how = "left out" if args.cold == "separate" else "they get the most popular items"
        console.say(f"{n_cold:,} users have no trained pair: {how}")
    if args.output is not None and not console.quiet:
        parts = _with_progress(parts, len(codes))
    _put(parts, args, format, console)


def _excluded(fitted: tp.Recommender, items: str | None, pairs: str | None) -> Ids:
    """The items that no user must get, or a mapping of users to the items that they must not get."""
    if pairs is None:
        return read_ids_or_file(fitted.seen_.item_ids, "item", items)
    if items is not None:
        raise InputError("--exclude-items and --exclude-pairs exclude each other; give one of them.")
    found, seen = tp.read_interactions(pairs, rating=False, weight=False, time=False), fitted.seen_
    users = _of_type(found.user_ids, seen.user_ids, "user")
    names = _of_type(found.item_ids, seen.item_ids, "item")
    return {user: [names[item] for item in found.items_of(code)] for code, user in enumerate(users)}


def _of_type(ids: IdMap, known: IdMap, what: str) -> list[object]:
    """The ids of a file, with the type of those of the model."""
    same = ids.ids.type == known.ids.type
    found = ids.ids if same else as_ids(list(map(str, ids.ids.to_pylist())), known, what)
    return list(found.to_pylist())


def _quota(texts: list[str] | None) -> dict[str, int] | None:
    found = {}
    for text in texts or []:
        column, _, limit = text.rpartition("=")
        if not column or not limit.strip().isdecimal():
            raise InputError(f"--quota {text}: give a column and a whole number, such as category=3.")
        found[column.strip()] = int(limit)
    return found or None


def _checked_format(args: RecommendOptions) -> str | None:
    """Check the output before any work is done; the format of a file, None for a database or the screen."""
    output, table, format = args.output, args.table, args.format
    if output is not None and is_url(output):
        if table is None:
            raise InputError(f"{without_password(output)} is a database; name a table: --table lists.")
        refuse({"--format": format}, "on a database")
        from truepair.data.sources.sql_writing import check_target

        more = ["because", "rest", "popularity"] if args.explain else []
        check_output(check_target(output, table, ["user", "item", "score", "rank", *more]).path)
        return None
    refuse({"--table": table}, "on files", "leave it out, or give a database, -o sqlite:///shop.db")
    path = None if output is None else check_output(Path(output))
    if format is not None:
        return check_choice("format", format, WRITERS)
    return None if path is None else format_of(path)


def _put(parts: Iterator[pa.Table], args: RecommendOptions, format: str | None, console: Console) -> None:
    facts: Json
    output = args.output
    if output is not None and args.table is not None:
        from truepair.data.sources import sql_writing

        count = sql_writing.write_table(_stream(parts), output, args.table)
        facts = {"output": without_password(output), "table": args.table, "rows": count}
        console.done(f"{count:,} rows saved to table {args.table} of {facts['output']}", facts)
    elif output is not None and format is not None:
        path = Path(output)
        count = write_table(parts, path, format)
        facts = {"output": str(path), "format": format, "rows": count}
        console.done(f"{count:,} rows saved to {path}", facts)
    elif format is None or console.json:
        rows = [row for part in parts for row in part.to_pylist()]
        console.give(aligned([_readable(row) for row in rows]), rows)
    elif format == "parquet":
        raise InputError("Parquet cannot be printed; give a file: -o lists.parquet.")
    else:
        stdout = typer.get_binary_stream("stdout")
        WRITERS[format](parts, stdout)
        stdout.flush()


def _stream(parts: Iterator[pa.Table]) -> pa.RecordBatchReader:
    import pyarrow as pa

    first = next(parts)
    batches = (batch for part in chain([first], parts) for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(first.schema, batches)


def _readable(row: Json) -> Json:
    """A row for the screen: reasons as one line, no number where there is none."""
    if "because" not in row:
        return row
    because = ", ".join(f"{as_text(each['item'])} {each['weight']:.3f}" for each in row["because"])
    return {**row, "rest": "" if row["rest"] is None else row["rest"], "because": because}


def _with_progress(parts: Iterator[pa.Table], users: int) -> Iterator[pa.Table]:
    """The parts, with a progress bar on stderr."""
    from rich.console import Console as Terminal
    from rich.progress import track

    yield from track(parts, f"{users:,} users", -(-users // _PART), console=Terminal(stderr=True))


def similar(
    model: ModelFile,
    ids: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Items of the model.")],
    *,
    k: ListLength = 10,
    users: Annotated[bool, typer.Option("--users", help="The ids are those of users.")] = False,
    console: Console,
) -> None:
    """List the items most similar to the given ones.

    Example:
      truepair similar model.truepair 50 181 -k 5
    """
    fitted = tp.Recommender.load(model)
    fitted.output_ = "arrow"
    what, known = ("user", fitted.seen_.user_ids) if users else ("item", fitted.seen_.item_ids)
    queries = as_ids(ids, known, what)
    found = fitted.similar_users(queries, k) if users else fitted.similar_items(queries, k)
    rows = found.to_pylist()
    console.give(aligned(rows), rows)
