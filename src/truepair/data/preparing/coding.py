"""Coding: the table `rows` -> ids with codes, and the rows in codes, sorted by user.

DuckDB finds the distinct ids, joins their codes to the rows and sorts them, out of core.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pyarrow as pa

from truepair.data.ids import IdMap, storage_of
from truepair.data.interactions import lacking_items
from truepair.data.prepared.array_files import ArrayFile
from truepair.data.prepared.id_files import ARROW_TYPES, id_type, write_ids
from truepair.data.preparing.row_files import Block, whole_users
from truepair.data.preparing.work import Done, Work
from truepair.data.reading import catalogue_ids
from truepair.data.rows.options import ReadOptions
from truepair.storage.types import Ids, Json

_AT_ONCE = 1 << 20  # rows of a block, and more until its last user ends
_IDS_AT_ONCE = 1 << 18


def write_id_maps(work: Work, types: dict[str, str], options: ReadOptions) -> Done:
    """The tables `user_ids` and `item_ids` of ids and codes, and their files."""
    facts: Json = {}
    files: list[ArrayFile] = []
    for role in ("user", "item"):
        kind, distinct = types[role], f'select distinct "{role}" as id from rows where mark = 0'
        if role == "item" and options.items is not None:
            kind, distinct = _catalogue(work, kind, options.items), "select id from catalogue"
        coded = f"select id, row_number() over (order by id) - 1 as code from ({distinct})"
        work.db.execute(f"create or replace table {role}_ids as {coded}")
        files += write_ids(work.folder, f"{role}_ids", kind, _sorted_ids(work, role, kind))
        facts |= {f"{role}s": work.value(f"select count(*) from {role}_ids"), f"{role}_type": kind}
    return facts, files


def _sorted_ids(work: Work, role: str, kind: str) -> Iterator[pa.Array]:
    stored = pa.large_binary() if kind in ("text", "bytes", "uuid") else ARROW_TYPES[kind]
    for batch in work.batches(f"select id from {role}_ids order by code", _IDS_AT_ONCE):
        yield batch.column("id").cast(pa.large_string() if kind == "text" else stored)


def _catalogue(work: Work, kind: str, items: Ids) -> str:
    """Make the table of the catalogue's ids; their type. An error if it lacks an item of the rows."""
    known = IdMap.of(catalogue_ids(items, ARROW_TYPES[kind]), "item")
    known.find(pa.nulls(0, ARROW_TYPES[kind]), "item")  # raises if the types do not fit together
    work.db.execute("drop table if exists catalogue")
    work.db.from_arrow(pa.table({"id": storage_of(known.ids)})).create("catalogue")
    lacking = (
        "from (select distinct item from rows where mark = 0) where item not in (select id from catalogue)"
    )
    if missing := work.value(f"select count(*) {lacking}"):
        first = work.value(f"select item {lacking} order by item limit 1")
        raise lacking_items(known, missing, UUID(bytes=first) if kind == "uuid" else first)
    return id_type(known.ids.type)


def coded_rows(work: Work, staged: Json, options: ReadOptions) -> Iterator[Block]:
    """The rows that no rule removes, in blocks of whole users: by time where there are times, else by item,
    then as in the source."""
    extra = [*staged["columns"], *(["disliked"] if staged["disliked"] else [])]
    row = ["row"] if extra or options.policy.duplicates == "error" else []
    order = ["users", "time" if "time" in extra else "items", *row]
    query = (
        f"select {', '.join(['u.code as users', 'i.code as items', *(f'r.{name}' for name in row + extra)])} "
        "from rows r join user_ids u on r.user = u.id join item_ids i on r.item = i.id where r.mark = 0 "
        f"order by {', '.join(order)}"
    )
    batches = work.batches(query, _AT_ONCE // 4)
    blocks = (
        {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        for batch in batches
    )
    return whole_users(blocks, _AT_ONCE)
