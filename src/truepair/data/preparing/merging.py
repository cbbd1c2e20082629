"""Merging: the table `rows` -> ids with codes, and pairs sorted by user, written as arrays.

DuckDB finds the distinct ids, joins their codes to the rows and sorts them, out of core. The functions of
`read_interactions` decide what a pair becomes of its rows, a block of users at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa

from truepair.data.columns import Raw
from truepair.data.ids import IdMap
from truepair.data.interactions import Step
from truepair.data.log import Values
from truepair.data.prepared.array_files import ArrayFile, write_array
from truepair.data.prepared.id_files import ARROW_TYPES, id_type, write_ids
from truepair.data.preparing.log_files import Events, write_log
from truepair.data.preparing.pair_files import Numbers, PairWriter
from truepair.data.preparing.staging import IGNORED, LOW, MISSING
from truepair.data.preparing.work import Work
from truepair.data.reading import (
    ReadOptions,
    catalogue_ids,
    dislikes_note,
    only_dislikes_error,
    repeats_error,
)
from truepair.data.rows.pairs import Repeats, codes_of, has_ties, merge, part_dislikes, repeats
from truepair.data.rows.weighting import Clock
from truepair.errors import InputError

_AT_ONCE = 1 << 20  # rows of a block, and more until its last user ends
_IDS_AT_ONCE = 1 << 18

_CODED = "from rows r join user_ids u on r.user = u.id join item_ids i on r.item = i.id where r.mark = 0"


# --- what was removed ------------------------------------------------------------------------------


def removed_steps(
    work: Work, staged: dict[str, Any], raw: Raw, options: ReadOptions
) -> tuple[list[Step], Clock | None]:
    """The steps before rows are merged, and the clock of a half-life; an error if no row is left."""
    counts = dict(work.db.execute("select mark, count(*) from rows group by mark").fetchall())
    left = {role: _last_marks(work, role) for role in ("user", "item")} if set(counts) != {0} else {}
    steps, total = [Step(**step) for step in staged["steps"]], staged["rows"]
    clock: Clock | None = None
    for mark, what in (
        (MISSING, f"missing {' or '.join(staged['absent'])}"),
        (IGNORED, "kind with the number 0"),
        (LOW, "" if options.min_rating is None else f"rating below {float(options.min_rating):g}"),
    ):
        if rows := counts.get(mark, 0):
            if rows == total:
                raise InputError(
                    f"{raw.source}: no row is left, all {total:,} rows have a {what}; check that column, or "
                    "lower the bound."
                )
            total -= rows
            steps.append(Step(what, rows, *(left[role].get(mark, 0) for role in ("user", "item"))))
        if mark == MISSING:
            newest = work.value("select max(time) from rows where mark <> 1") if options.half_life else None
            clock = None if newest is None else _clock(work, raw, options, newest)
            steps += options.weighting.steps(newest, raw)
    return steps, clock


def _last_marks(work: Work, role: str) -> dict[int, int]:
    """Mark -> how many ids have their last row removed by this rule."""
    last = f'select max(case mark when 0 then 9 else mark end) as mark from rows where "{role}" is not null'
    return dict(
        work.db.execute(f'select mark, count(*) from ({last} group by "{role}") group by 1').fetchall()
    )


def _clock(work: Work, raw: Raw, options: ReadOptions, newest: float) -> Clock:
    """The clock of the half-life; an error for a time after now."""
    clock = options.weighting.clock(newest, raw)
    late = f"from rows where mark <> 1 and time / cast({clock.per_second!r} as double) > {clock.now!r}"
    if work.value(f"select count(*) {late}"):
        found, row = work.value(f"select time, row {late} order by row limit 1")
        raise clock.late(raw.source, found, raw.place(row))
    return clock


# --- ids -------------------------------------------------------------------------------------------


def write_id_maps(
    work: Work, types: dict[str, str], options: ReadOptions
) -> tuple[dict[str, Any], list[ArrayFile]]:
    """The tables `user_ids` and `item_ids` of ids and codes, and their files; facts are sizes and types."""
    facts: dict[str, Any] = {}
    arrays: list[ArrayFile] = []
    types = dict(types)
    for role in ("user", "item"):
        distinct = f'select distinct "{role}" as id from rows where mark = 0'
        if role == "item" and options.items is not None:
            distinct, types[role] = _catalogue(work, types[role], options.items)
        coded = f"select id, row_number() over (order by id) - 1 as code from ({distinct})"
        work.table(f"create or replace table {role}_ids as {coded}")
        work.new_folder(f"{role}_ids")
        arrays += write_ids(work.folder, f"{role}_ids", types[role], _sorted_ids(work, role, types[role]))
        facts[role] = {"ids": work.value(f"select count(*) from {role}_ids"), "type": types[role]}
    return facts, arrays


def _sorted_ids(work: Work, role: str, kind: str) -> Iterator[pa.Array]:
    stored = pa.large_binary() if kind in ("text", "bytes", "uuid") else ARROW_TYPES[kind]
    for batch in work.batches(f"select id from {role}_ids order by code", _IDS_AT_ONCE):
        yield batch.column("id").cast(pa.large_string() if kind == "text" else stored)


def _catalogue(work: Work, kind: str, items: Any) -> tuple[str, str]:
    """A query of the ids of the catalogue, and their type; an error if it lacks an item."""
    ids = IdMap.of(catalogue_ids(items, ARROW_TYPES[kind]), "item").ids
    known = IdMap(pa.nulls(0, ARROW_TYPES[kind]))
    IdMap(ids).find(known.ids, "item")  # raises if the types do not fit together
    stored = ids.storage if isinstance(ids, pa.ExtensionArray) else ids
    work.table("drop table if exists catalogue")
    work.db.from_arrow(pa.table({"id": stored})).create("catalogue")
    lacking = (
        "from (select distinct item from rows where mark = 0) where item not in (select id from catalogue)"
    )
    if missing := work.value(f"select count(*) {lacking}"):
        first = _shown(work.value(f"select item {lacking} order by item limit 1"), kind)
        raise InputError(
            f"the catalogue of {len(ids):,} items lacks {missing:,} items of the interactions, such as "
            f"{first!r}; add them to it, or remove their rows."
        )
    return "select id from catalogue", id_type(ids.type)


# --- pairs -----------------------------------------------------------------------------------------


class UserRows(NamedTuple):
    """Rows of whole users, sorted by pair, then as in the source."""

    users: Numbers
    items: Numbers
    extra: dict[str, Values]
    disliked: Numbers | None
    row: Numbers | None


def write_pairs(
    work: Work,
    staged: dict[str, Any],
    ids: dict[str, Any],
    clock: Clock | None,
    options: ReadOptions,
    advance: Callable[[int], None],
) -> tuple[dict[str, Any], list[ArrayFile]]:
    """The arrays of all pairs, and the facts: how many rows were repeated, whether there are dislikes, and
    whether the events say more than the pairs.

    The place of each pair in the source is written until it is known that a log is; it is kept for ties.
    """
    n_users, n_items = ids["user"]["ids"], ids["item"]["ids"]
    folder = work.new_folder("all")
    removed, read, ties = 0, 0, False
    timed, narrow = "time" in staged["columns"], np.uint32 if staged["rows"] <= 1 << 32 else np.int64
    log = timed and (options.half_life is not None or options.counts is not None)
    found_repeats: list[Repeats] = []
    disliked: list[Numbers] = []
    in_order = options.chronological and staged["order"] == "user"
    with PairWriter(folder, "all", n_users, n_items) as writer:
        for rows in _blocks(work, staged, options):
            extra = _weighted(rows, clock, options)
            keys, events = rows.users * n_items + rows.items, len(rows.users)
            if rows.disliked is not None:
                liked, some = part_dislikes(keys, extra, rows.disliked, options.policy)
                disliked.append(some)
                rows, keys, extra = (
                    _only(rows, liked),
                    keys[liked],
                    {name: c[liked] for name, c in extra.items()},
                )
            read += len(rows.users)
            advance(read)
            if options.policy == "error" and (again := repeats(keys, rows.row)) is not None:
                found_repeats.append(again)
            if found_repeats or not len(keys):
                log |= timed
                continue
            merged = merge(keys, extra, options.policy, options.weighting)
            removed += merged.removed
            users, items = codes_of(merged.keys, n_items)
            columns: dict[str, Any] = merged.columns
            log |= timed and len(users) < events
            if timed and not log and not options.chronological:
                assert rows.row is not None
                ties = ties or has_ties(users, columns["time"])
                columns["places"] = rows.row[merged.rows].astype(narrow)
            writer.write(users, items, _in_user_order(users, columns) if in_order else columns)
        if found_repeats:
            raise _first_repeat(work, staged["source"], found_repeats, ids)
        if not writer.pairs:
            raise only_dislikes_error(staged["source"], sum(map(len, disliked)))
        arrays = writer.close({})
    if log or not ties:
        arrays = [file for file in arrays if file.file != "all/places.npy"]
    keys = np.concatenate([np.empty(0, np.int64), *disliked])
    if len(keys):
        arrays.append(write_array(folder, "disliked.npy", keys))
    kind = "order" if in_order else "clock"
    return {"removed": removed, "disliked": len(keys), "time_kind": kind, "log": log}, arrays


def write_events(
    work: Work, staged: dict[str, Any], ids: dict[str, Any], options: ReadOptions
) -> tuple[dict[str, Any], list[ArrayFile]]:
    """The arrays of the log: all rows by user, then time, then place in the source."""
    names = {
        name: f"r.{name}" for name in (*staged["columns"], *(["disliked"] if staged["disliked"] else []))
    }
    if options.half_life is not None:
        names.setdefault("weight", "cast(1 as double)")
    chosen = ", ".join(f"{value} as {name}" for name, value in names.items())
    query = f"select u.code as u, i.code as i, {chosen} {_CODED} order by u, r.time, r.row"
    in_order = options.chronological and staged["order"] == "user"

    def blocks() -> Iterator[Events]:
        for table in _whole_users(work.batches(query, _AT_ONCE // 4)):
            values = {name: table.column(name).to_numpy() for name in table.column_names}
            users, items = values.pop("u"), values.pop("i")
            columns = _in_user_order(users, values) if in_order else values
            yield {"users": users, "items": items, **columns}

    sizes = ids["user"]["ids"], ids["item"]["ids"]
    return {}, write_log(work.new_folder("log"), "log", sizes, blocks())


def merge_steps(facts: dict[str, Any], policy: str) -> list[Step]:
    """The steps of merging."""
    steps = [Step(f"repeated pair ({policy} kept)", facts["removed"])] if facts["removed"] else []
    return [*steps, *([dislikes_note(facts["disliked"])] if facts["disliked"] else [])]


def _blocks(work: Work, staged: dict[str, Any], options: ReadOptions) -> Iterator[UserRows]:
    extra, with_dislikes = staged["columns"], staged["disliked"]
    by_row = ["r.row"] if extra or with_dislikes or options.policy == "error" else []
    chosen = ["u.code as u", "i.code as i", *by_row, *(f"r.{name}" for name in extra)]
    chosen += ["r.disliked"] if with_dislikes else []
    query = f"select {', '.join(chosen)} {_CODED} order by {', '.join(['u', 'i', *by_row])}"
    for table in _whole_users(work.batches(query, _AT_ONCE // 4)):
        values = {name: table.column(name).to_numpy() for name in table.column_names}
        yield UserRows(
            values["u"].astype(np.int64, copy=False),
            values["i"].astype(np.int64, copy=False),
            {name: values[name] for name in extra},
            values["disliked"] if with_dislikes else None,
            values.get("row"),
        )


def _whole_users(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about `_AT_ONCE` rows or more, none of which ends within a user's rows."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) < _AT_ONCE:
            continue
        users = batch.column("u").to_numpy()
        cut = int(np.searchsorted(users, users[-1]))  # sorted: where the last user begins
        if cut == 0 and any(other.column("u")[-1].as_py() == users[0] for other in waiting[:-1][-1:]):
            continue  # a user with more rows than a batch
        yield pa.Table.from_batches([*waiting[:-1], batch.slice(0, cut)])
        waiting = [batch.slice(cut)]
    if waiting:
        yield pa.Table.from_batches(waiting)


def _weighted(rows: UserRows, clock: Clock | None, options: ReadOptions) -> dict[str, Values]:
    """The columns, with decayed weights if there is a half-life."""
    if clock is None:
        return rows.extra
    weight = rows.extra.get("weight")
    weight = np.ones(len(rows.users)) if weight is None else weight
    return {
        **rows.extra,
        "weight": weight,
        "decayed": weight * options.weighting.decay(rows.extra["time"], clock),
    }


def _only(rows: UserRows, chosen: Numbers) -> UserRows:
    row = None if rows.row is None else rows.row[chosen]
    return rows._replace(users=rows.users[chosen], items=rows.items[chosen], row=row)


def _in_user_order(users: Numbers, columns: dict[str, Any]) -> dict[str, Any]:
    """The columns with positions among each user's pairs as times."""
    order = np.lexsort((columns["time"], users))
    position = np.empty(len(users), dtype=np.int64)
    firsts = np.flatnonzero(np.diff(users, prepend=-1))
    position[order] = np.arange(len(users)) - np.repeat(firsts, np.diff(firsts, append=len(users)))
    return {**columns, "time": position}


def _shown(value: Any, kind: str) -> Any:
    return UUID(bytes=value) if kind == "uuid" else value


def _first_repeat(work: Work, source: str, found: list[Repeats], ids: dict[str, Any]) -> InputError:
    first = min(found, key=lambda each: each.row)
    others = sum(each.others + 1 for each in found) - 1
    codes = divmod(first.key, ids["item"]["ids"])
    named = [
        _shown(work.value(f"select id from {role}_ids where code = {code}"), ids[role]["type"])
        for role, code in zip(("user", "item"), codes, strict=True)
    ]
    return repeats_error(source, first._replace(others=others), *named)
