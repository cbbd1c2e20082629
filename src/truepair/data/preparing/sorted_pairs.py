"""Pairs that others have sorted, such as a cluster: a stream of tables -> a prepared folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from truepair.data.interactions import Interactions
from truepair.data.log import Policy
from truepair.data.prepared.id_files import id_type, write_ids
from truepair.data.prepared.manifest import Manifest
from truepair.data.prepared.opening import open_prepared
from truepair.data.preparing.merging import RowFacts, write_pairs
from truepair.data.preparing.parts import Shares, write_split
from truepair.data.preparing.publishing import after, check_new, publish
from truepair.data.preparing.row_files import whole_users
from truepair.data.preparing.sorted_rows import SortedRows, Tables
from truepair.data.reading import ReadOptions
from truepair.data.sources.file_opening import expanded
from truepair.data.split import Split
from truepair.errors import StorageError


def write_sorted_pairs(
    tables: Tables,
    folder: str | Path,
    source: str,
    options: ReadOptions | None = None,
    shares: Shares | None = None,
) -> Interactions | Split:
    """Write a prepared folder from tables with the columns `user` and `item`, which is then opened.

    `rating`, `weight` and `time` are the other columns, if there are. `tables()` is called twice, for ids and
    for pairs. The rows of all tables together are sorted by user, then item, text by its bytes; rows of one
    pair are in the order of the source. Of the `options`, `min_rating` and `duplicates` have an effect. Only
    the ids, a table and the rows of a user are in memory. The folder appears whole or not at all, and its
    arrays are those that `prepare_interactions` makes of the same rows, without the log of events.
    """
    rows = SortedRows(tables, source, ReadOptions() if options is None else options)
    target = expanded(folder)
    check_new(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as place:
            publish(Path(place), _written(rows, Path(place), shares), target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}.") from error
    return open_prepared(target)


def _written(rows: SortedRows, folder: Path, shares: Shares | None) -> Manifest:
    """The arrays of the pairs, or of their split."""
    maps = rows.id_maps()
    users, items = maps["user"], maps["item"]
    kinds = id_type(users.ids.type), id_type(items.ids.type)
    files = [
        file
        for (role, each), kind in zip(maps.items(), kinds, strict=True)
        for file in write_ids(folder, f"{role}_ids", kind, [getattr(each.ids, "storage", each.ids)])
    ]
    policy, about = Policy(rows.options.policy), {"source": rows.source}
    empty = Manifest(len(users), len(items), *kinds, history=tuple(rows.steps), about=about, policy=policy)
    made = after(empty, ({}, files))
    pairs = write_pairs(
        folder, made, lambda: whole_users(rows.blocks(users, items), 0), RowFacts(rows.source), rows.options
    )
    made = after(made, pairs)
    return made if shares is None else after(made, write_split(folder, made, shares), "split/")
