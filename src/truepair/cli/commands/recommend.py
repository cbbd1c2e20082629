"""`truepair recommend`: lists for some users or all, to the screen, a file or a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from truepair.cli.console import Console, aligned
from truepair.cli.id_text import as_ids, lines_of, separated, separated_or_listed
from truepair.cli.options import ListLength, ModelFile, option, refuse, unpacked
from truepair.cli.table_files import WRITERS, check_output, format_of, with_plain_ids, write_table
from truepair.data.sources.sql_urls import is_url, without_password
from truepair.errors import InputError, check_choice

if TYPE_CHECKING:
    import pyarrow as pa

    from truepair.data.ids import IdMap
    from truepair.recommender.estimator import Recommender
    from truepair.storage.types import Ids, Json

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
    format: str | None = option(
        "The format, if not that of the file name: {truepair.cli.table_files.WRITERS}."
    )
    only_items: str | None = option("Recommend these items only.", metavar="A,B,…|FILE")
    exclude_items: str | None = option("Recommend none of these items.", metavar="A,B,…|FILE")
    exclude_pairs: str | None = option(
        "A file or URL#table of users and items: never this item for this user.", metavar="FILE"
    )
    items: str | None = option(
        "A file or URL#table, a row an item, for --where and --quota.", metavar="TABLE"
    )
    where: str | None = option(
        "Recommend only such items: a condition such as 'price < 10 and stock > 0'.", metavar="CONDITION"
    )
    quota: list[str] | None = option(
        "At most N items of each value of a column. Repeatable.", metavar="COLUMN=N"
    )
    diversify: float = option(
        "From 0 up to 1: prefer items unlike those before them in the list.", default=0.0
    )
    explain: bool = option("Add which items of the user speak for each item.", "--explain", default=False)
    include_seen: bool = option("Recommend what the user has, too.", "--include-seen", default=False)
    unknown: str = option(
        "Ids that the model does not know: `error`, `drop` them, or `popular` items for users.",
        default="error",
    )
    cold: str = option(
        "Users without a trained pair: `popular` items, `separate` leaves them out, `error`.",
        default="popular",
    )


@unpacked
def recommend(model: ModelFile, args: RecommendOptions, console: Console) -> None:
    """Recommend items to some users or to all.

    The result is a table of user, item, score, rank; with --explain also because, rest, popularity.
    """
    from truepair.recommender.estimator import Recommender

    format = _checked_format(args)
    fitted = Recommender.load(model)
    users = _users(fitted, args.users, args.users_file)
    parts = fitted.recommend_in_parts(
        users,
        args.k,
        exclude_seen=not args.include_seen,
        exclude_items=_excluded(fitted, args.exclude_items, args.exclude_pairs),
        only_items=_items(fitted, args.only_items),
        items=args.items,
        where=args.where,
        quota=_quota(args.quota),
        diversify=args.diversify,
        explain=args.explain,
        unknown=args.unknown,
        cold=args.cold,
        part=_PART,
    )
    if n_cold := _n_cold(fitted, users):
        how = "left out" if args.cold == "separate" else "they get the most popular items"
        console.say(f"{n_cold:,} users have no trained pair: {how}")
    if args.output is not None and not console.quiet:
        parts = _with_progress(parts, fitted.seen_.n_users if users is None else len(users))
    _put(parts, args, format, console)


def _users(fitted: Recommender, users: str | None, users_file: Path | None) -> pa.Array | None:
    if users is not None and users_file is not None:
        raise InputError("--users and --users-file exclude each other; give one of them.")
    if users is not None:
        return as_ids(separated(users, "user"), fitted.seen_.user_ids, "user")
    return None if users_file is None else as_ids(lines_of(users_file, "user"), fitted.seen_.user_ids, "user")


def _n_cold(fitted: Recommender, users: Ids | None) -> int:
    """How many of these users have no trained pair, though the model knows them."""
    trained, known = fitted.history_.users, fitted.seen_.user_ids
    codes = known.find(known.ids if users is None else users, "user")
    return int((~trained[codes[codes >= 0]]).sum())


def _items(fitted: Recommender, text: str | None) -> pa.Array | None:
    return None if text is None else as_ids(separated_or_listed(text, "item"), fitted.seen_.item_ids, "item")


def _excluded(fitted: Recommender, items: str | None, pairs: str | None) -> Ids | dict[object, list[object]]:
    """The items that nobody must get, or a mapping of users to the items that they must not get."""
    if pairs is None:
        return _items(fitted, items)
    if items is not None:
        raise InputError(
            "--exclude-items and --exclude-pairs exclude each other; give one of them. --items and --where "
            "leave items out for everybody, too."
        )
    from truepair.data.reading import read_interactions

    found, seen = read_interactions(pairs, rating=False, weight=False, time=False), fitted.seen_
    users = _of_type(found.user_ids, seen.user_ids, "user")
    names = _of_type(found.item_ids, seen.item_ids, "item")
    return {user: [names[item] for item in found.items_of(code)] for code, user in enumerate(users)}


def _of_type(ids: IdMap, known: IdMap, what: str) -> list[object]:
    """The ids of a file, with the type of those of the model."""
    values: list[object] = ids.ids.to_pylist()
    same = ids.ids.type == known.ids.type
    return values if same else list(as_ids(list(map(str, values)), known, what).to_pylist())


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
    if output is None or not is_url(output):
        if table is not None:
            raise InputError(
                f"--table {table} needs a database: -o sqlite:///shop.db; leave it out for files."
            )
        path = None if output is None else Path(output)
        if format is not None:
            check_choice("format", format, WRITERS)
        elif path is not None:
            format = format_of(path)
        check_output(path)
        return format
    if table is None:
        raise InputError(
            f"{without_password(output)} is a database; name the table of the lists: --table lists."
        )
    refuse({"--format": format}, "on a database")
    from truepair.data.sources.sql_writing import check_target

    columns = ["user", "item", "score", "rank", *(["because", "rest", "popularity"] if args.explain else [])]
    check_output(check_target(output, table, columns).path)
    return None


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
        rows = [row for part in parts for row in with_plain_ids(part).to_pylist()]
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
    because = ", ".join(f"{reason['item']} {reason['weight']:.3f}" for reason in row["because"])
    return {**row, "rest": "" if row["rest"] is None else row["rest"], "because": because}


def _with_progress(parts: Iterator[pa.Table], users: int) -> Iterator[pa.Table]:
    """The parts, with a progress bar on stderr."""
    from rich.console import Console as Terminal
    from rich.progress import track

    yield from track(parts, f"{users:,} users", -(-users // _PART), console=Terminal(stderr=True))
