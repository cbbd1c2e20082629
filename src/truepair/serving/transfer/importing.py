"""import_files: files of events, items and users into a store, all of them or none."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from truepair.data.columns import Raw, identifiers, is_kind, is_row_number, numbers, role_of, timestamps
from truepair.data.durations import units_per_second
from truepair.data.ids import to_arrow
from truepair.data.reading import absent_rows
from truepair.data.rows.options import MISSING
from truepair.data.rows.weighting import kind_texts
from truepair.data.sources.formats import open_path
from truepair.data.sources.sql import open_query
from truepair.data.sources.sql_urls import find_database
from truepair.data.tables.id_table import typed_text
from truepair.errors import InputError, check_choice
from truepair.serving.events.event import Event
from truepair.serving.events.records import ItemRecord, Row, compact, stored
from truepair.serving.events.writing import StoreWriter, Transaction, put_events, put_records
from truepair.serving.transfer.exporting import PARTS, Progress
from truepair.storage.types import Ids, Json

_BATCH = 65_536
_LONGEST = 256  # characters of an id


def import_files(
    store: StoreWriter, sources: Sequence[str], kind: str, progress: Progress, missing: str = "error"
) -> dict[str, tuple[int, int]]:
    """Put files, folders of `export`, or tables of databases into a store, in one transaction.

    A source with columns for user and item has events, one with items alone has items, and one with users
    alone has users. Events without a kind get `kind`; those without a time get the year 1970.
    `missing` is "error", or "drop" for rows of tables that miss an id, kind, weight or time. Rows that are
    there stay, and rows of items and users with the same id are replaced. Returns the numbers of rows that
    were read and that changed the store.
    """
    found = [
        part
        for source in sources
        for part in _opened(source, kind, check_choice("missing", missing, MISSING))
    ]
    counts: dict[str, tuple[int, int]] = {}
    with store.writing(limited=False) as transaction:
        for part, rows in found:
            for some in rows:
                read, changed = counts.get(part, (0, 0))
                counts[part] = read + len(some), changed + _put(transaction, part, some)
                progress(part, counts[part][0])
    return counts


Rows = Iterator[list[Row]]


def _put(transaction: Transaction, part: str, rows: list[Row]) -> int:
    if part == "events":
        events: list[Any] = rows  # of `_checked_events`
        return put_events(transaction, events)
    return put_records(transaction, part.removesuffix("s"), PARTS[part].names, rows)


def _opened(source: str, kind: str, missing: str) -> list[tuple[str, Rows]]:
    path, database = Path(source).expanduser(), find_database(source)
    if database is None and path.is_dir():
        files = [part for part in PARTS if (path / f"{part}.parquet").is_file()]
        if not files:
            names = ", ".join(f"{part}.parquet" for part in PARTS)
            raise InputError(f"{path} has none of {names}; give a folder of `truepair export`, or files.")
        return [_exported(path / f"{part}.parquet", part) for part in files]
    if database is None and path.suffix == ".parquet" and path.is_file():
        found = _schema(path)
        for part, schema in PARTS.items():
            if set(schema.names) <= set(found.names):
                return [_exported(path, part)]
    raw = open_path(path) if database is None else open_query(database, None)
    return [_of_table(raw, kind, missing)]


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}.") from error


def _exported(path: Path, part: str) -> tuple[str, Rows]:
    """A file of `export`."""
    found, schema = _schema(path), PARTS[part]
    if missing := [name for name in schema.names if name not in found.names]:
        raise InputError(f"{path} has no column {missing[0]!r}; it is no file of `truepair export`.")

    def rows() -> Rows:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH, columns=schema.names):
                    table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                    rows = _plain_rows(table)
                    yield _checked_events(rows) if part == "events" else rows
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from error

    return part, rows()


def _checked_events(rows: Iterable[Row]) -> list[Row]:
    events: list[Row] = []
    for event in (Event(*row) for row in rows):
        for name, text in (("user", event.user), ("item", event.item), ("kind", event.kind)):
            if not text or len(text) > _LONGEST:
                raise InputError(
                    f"an event has the {name} {text!r:.60}; it must have 1 to {_LONGEST} characters."
                )
        if event.weight is None or not 0 < event.weight <= 1e9:
            raise InputError(f"an event has the weight {event.weight}; it must be above 0 and at most 1e9.")
        if event.time is None:
            raise InputError(
                "an event has no time; give it one, or pass missing='drop' to remove such events."
            )
        events.append(event)
    return events


def _plain_rows(table: pa.Table) -> list[Row]:
    columns = []
    for field in table.schema:
        column = table[field.name]
        is_time, is_flag = pa.types.is_timestamp(field.type), pa.types.is_boolean(field.type)
        column = column.cast(pa.int64()) if is_time or is_flag else column
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


# --- other tables ----------------------------------------------------------------------------------------


def _of_table(raw: Raw, kind: str, missing: str) -> tuple[str, Rows]:
    """Any table, its columns found by their names."""
    with closing(raw):
        places: dict[str, int] = {}
        for place, name in enumerate(raw.names):
            role = "kind" if is_kind(name) else role_of(name)
            if role is not None:
                places.setdefault(role, place)
        columns = raw.read(range(len(raw.names)))
        if missing == "drop":
            columns = _without_missing(raw, places, columns)
        if "user" in places and "item" in places:
            return "events", iter([_event_rows(raw, places, columns, kind)])
        if "item" not in places and "user" not in places:
            names = ", ".join(map(repr, raw.names)) or "none"
            raise InputError(
                f"{raw.source} has no column that is recognised as the user or the item; its columns are "
                f"{names}. Name the one with the ids 'user' or 'item'."
            )
        role = "item" if "item" in places else "user"
        ids = _ids(raw, role, columns[places[role]])
        labels = _labels(raw, columns, places[role])
    if role == "item":
        return "items", iter([[_item(id, found) for id, found in zip(ids, labels, strict=True)]])
    return "users", iter([[(id, 0, 0, compact(found), "") for id, found in zip(ids, labels, strict=True)]])


def _without_missing(raw: Raw, places: dict[str, int], columns: Sequence[Ids]) -> list[pa.Array]:
    """The columns without the rows that miss a value of a role."""
    table = [to_arrow(column, name) for column, name in zip(columns, raw.names, strict=True)]
    parse = {"user": identifiers, "item": identifiers, "time": timestamps, "kind": kind_texts}
    absent = np.zeros(len(table[0]), dtype=bool)
    for role, place in places.items():
        if role != "rating":
            absent |= absent_rows(parse.get(role, numbers)(raw, role, columns[place]))
    return [column.filter(pa.array(~absent)) for column in table]


def _event_rows(raw: Raw, places: dict[str, int], columns: Sequence[Ids], kind: str) -> list[Row]:
    users, items = (_ids(raw, role, columns[places[role]]) for role in ("user", "item"))
    n = len(users)
    weights, kinds = [1.0] * n, [kind] * n
    times: list[int | None] = [0] * n
    if "weight" in places:
        weights = numbers(raw, "weight", columns[places["weight"]]).to_pylist()
    if "kind" in places:
        kinds = to_arrow(columns[places["kind"]], "kind").cast(pa.large_string()).to_pylist()
    if "time" in places:
        times = _microseconds(raw, timestamps(raw, "time", columns[places["time"]]).to_pylist())
    return _checked_events(zip(users, items, kinds, weights, times, [None] * n, strict=True))


def _microseconds(raw: Raw, times: list[float | None]) -> list[int | None]:
    """Times of a clock in µs; None for one that is missing."""
    known = [0 if one is None or math.isnan(one) else one for one in times]
    units = units_per_second(max(map(abs, known), default=0))
    if units is None and any(known):
        raise InputError(
            f"{raw.source} has times of at most {max(known)}, too small for seconds since 1970; give dates, "
            "or leave the column out."
        )
    factor = 1e6 / (units or 1.0)
    return [
        None if one is None or math.isnan(one) else int(one) if factor == 1 else round(one * factor)
        for one in times
    ]


def _ids(raw: Raw, role: str, values: Ids) -> list[str]:
    found = identifiers(raw, role, values)
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        raise InputError(
            f"{raw.source} has no {role} id at {raw.place(row)}; correct it, or pass missing='drop' to "
            "remove such rows."
        )
    texts = [str(value) if isinstance(value, uuid.UUID | int) else value for value in found.to_pylist()]
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
            raise InputError(
                f"{raw.source} has the {role} {text!r:.60}; it must have 1 to {_LONGEST} characters."
            )
    return texts


def _labels(raw: Raw, columns: Sequence[Ids], id_column: int) -> list[Json]:
    """For each row an object of the other columns, without nulls."""
    others: dict[str, list[object]] = {}
    for place, name in enumerate(raw.names):
        if place != id_column and not is_row_number(name):
            column = to_arrow(columns[place], name)
            others[name] = (column if raw.typed else typed_text(column)).to_pylist()
    n = len(to_arrow(columns[id_column], "id"))
    return [
        {name: _json(values[row]) for name, values in others.items() if values[row] is not None}
        for row in range(n)
    ]


def _json(value: object) -> object:
    try:
        compact(value)
    except (TypeError, ValueError):
        return str(value)
    return value


def _item(item: str, labels: Json) -> Row:
    """The row of an item: `categories`, `hidden` and `comment` are its own, all other columns are labels."""
    categories, comment = labels.pop("categories", ()), labels.pop("comment", "")
    listed = [categories] if isinstance(categories, str) else list(categories)
    hidden = bool(labels.pop("hidden", False))
    row = stored(ItemRecord(item, hidden, tuple(map(str, listed)), None, labels, str(comment)))
    return tuple(row[name] for name in PARTS["items"].names)
