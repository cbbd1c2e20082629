"""import_files: files of events, items and users into a store, all of them or none."""

from __future__ import annotations

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
from truepair.serving.id_texts import LONGEST
from truepair.serving.transfer.exporting import PARTS, Progress
from truepair.storage.types import Json

_BATCH = 65_536
_PARSE = {"user": identifiers, "item": identifiers, "time": timestamps, "kind": kind_texts}


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
    check_choice("missing", missing, MISSING)
    found = [part for source in sources for part in _opened(source, kind, missing)]
    counts: dict[str, tuple[int, int]] = {}
    with store.writing(limited=False) as transaction:
        for part, rows in found:
            for some in rows:
                read, changed = counts.get(part, (0, 0))
                counts[part] = read + len(some), changed + _put(transaction, part, some)
                progress(part, counts[part][0])
    return counts


Rows = Iterator[list[Row]]


def _put(transaction: Transaction, part: str, rows: list[Any]) -> int:
    if part == "events":
        return put_events(transaction, rows)
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
    numbered = pa.timestamp("us", "UTC"), pa.bool_()  # in a store, times and flags are numbers
    plain = pa.schema([(one.name, pa.int64() if one.type in numbered else one.type) for one in schema])
    if missing := [name for name in schema.names if name not in found.names]:
        raise InputError(f"{path} has no column {missing[0]!r}; it is no file of `truepair export`.")

    def rows() -> Rows:
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH, columns=schema.names):
                    table = pa.Table.from_batches([batch]).select(schema.names).cast(schema).cast(plain)
                    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
                    yield _checked_events(rows) if part == "events" else rows
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from error

    return part, rows()


def _checked_events(rows: Iterable[Row]) -> list[Row]:
    events: list[Row] = []
    for event in (Event(*row) for row in rows):
        for name, text in (("user", event.user), ("item", event.item), ("kind", event.kind)):
            if not text or len(text) > LONGEST:
                raise InputError(f"an event has the {name} {text!r:.60}; give 1 to {LONGEST} characters.")
        if event.weight is None or not 0 < event.weight <= 1e9:
            raise InputError(f"an event has the weight {event.weight}; it must be above 0 and at most 1e9.")
        if event.time is None:
            raise InputError("an event has no time; give it one, or pass missing='drop' to remove it.")
        events.append(event)
    return events


# --- other tables ----------------------------------------------------------------------------------------


def _of_table(raw: Raw, kind: str, missing: str) -> tuple[str, Rows]:
    """Any table, its columns found by their names."""
    with closing(raw):
        places: dict[str, int] = {}
        for place, name in enumerate(raw.names):
            role = "kind" if is_kind(name) else role_of(name)
            if role is not None and role != "rating":
                places.setdefault(role, place)
        names = [role for role in ("user", "item") if role in places]
        if not names:
            columns = ", ".join(map(repr, raw.names)) or "none"
            raise InputError(
                f"{raw.source} has no column that is recognised as the user or the item; its columns are "
                f"{columns}. Name the one with the ids 'user' or 'item'."
            )
        found = zip(raw.read(range(len(raw.names))), raw.names, strict=True)
        table = [to_arrow(column, name) for column, name in found]
        used = places if len(names) == 2 or missing == "drop" else names
        values = {role: _PARSE.get(role, numbers)(raw, role, table[places[role]]) for role in used}
        if missing == "drop":
            present = pa.array(~np.logical_or.reduce(list(map(absent_rows, values.values()))))
            table = [column.filter(present) for column in table]
            values = {role: column.filter(present) for role, column in values.items()}
        ids = [_id_texts(raw, role, values[role]) for role in names]
        if len(names) == 2:
            return "events", iter([_event_rows(raw, values, ids[0], ids[1], kind)])
        rows = zip(*ids, _labels(raw, table, places[names[0]]), strict=True)
    if names == ["item"]:
        return "items", iter([[_item(id, labels) for id, labels in rows]])
    return "users", iter([[(id, 0, 0, compact(labels), "") for id, labels in rows]])


def _event_rows(
    raw: Raw, values: dict[str, pa.Array], users: list[str], items: list[str], kind: str
) -> list[Row]:
    n = len(users)
    weights = values["weight"].to_pylist() if "weight" in values else [1.0] * n
    kinds = values["kind"].to_pylist() if "kind" in values else [kind] * n
    times = _microseconds(raw, values["time"]) if "time" in values else [0] * n
    return _checked_events(zip(users, items, kinds, weights, times, [None] * n, strict=True))


def _microseconds(raw: Raw, times: pa.Array) -> list[int | None]:
    """Times of a clock in µs; None for one that is missing."""
    absent = absent_rows(times).tolist()
    known = [None if gone else time for time, gone in zip(times.to_pylist(), absent, strict=True)]
    largest = max((abs(time) for time in known if time is not None), default=0)
    units = units_per_second(largest)
    if units is None and largest:
        raise InputError(
            f"{raw.source} has times of at most {largest}, too small for seconds since 1970; give dates, "
            "or leave the column out."
        )
    factor = 1e6 / (units or 1.0)
    return [
        None if time is None else int(time) if factor == 1 else round(time * factor)  # whole µs stay exact
        for time in known
    ]


def _id_texts(raw: Raw, role: str, found: pa.Array) -> list[str]:
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        raise InputError(
            f"{raw.source} has no {role} id at {raw.place(row)}; correct it, or pass missing='drop' to "
            "remove such rows."
        )
    texts = [str(value) if isinstance(value, uuid.UUID | int) else value for value in found.to_pylist()]
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= LONGEST:
            raise InputError(f"{raw.source} has the {role} {text!r:.60}; give 1 to {LONGEST} characters.")
    return texts


def _labels(raw: Raw, columns: Sequence[pa.Array], id_column: int) -> list[Json]:
    """For each row an object of the other columns, without nulls."""
    others = {
        name: (column if raw.typed else typed_text(column)).to_pylist()
        for place, (name, column) in enumerate(zip(raw.names, columns, strict=True))
        if place != id_column and not is_row_number(name)
    }
    return [
        {name: _json(values[row]) for name, values in others.items() if values[row] is not None}
        for row in range(len(columns[id_column]))
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
