"""export_store: a store as a folder of Parquet files that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from truepair.errors import InputError, StorageError
from truepair.serving.events.reading import StoreReader
from truepair.serving.events.records import ITEM_ROW, Row
from truepair.storage.atomic import flush_to_disk

_TEXT, _TIME, _FLAG = pa.large_string(), pa.timestamp("us", "UTC"), pa.bool_()
_BATCH = 65_536  # rows that are read at a time


class ExportPart(NamedTuple):
    """A table of a store, and its file."""

    name: str
    schema: pa.Schema


EVENTS = ExportPart(
    "events",
    pa.schema(
        {"user": _TEXT, "item": _TEXT, "kind": _TEXT, "weight": pa.float64(), "time": _TIME, "id": _TEXT}
        | {"value": pa.float64(), "comment": _TEXT}
    ),
)
_USER_ROW = ("user", "deleted", "forgotten", "labels", "comment")
_KINDS = {"hidden": _FLAG, "deleted": _FLAG, "forgotten": _FLAG, "time": _TIME}
ITEMS = ExportPart("items", pa.schema({name: _KINDS.get(name, _TEXT) for name in ITEM_ROW}))
USERS = ExportPart("users", pa.schema({name: _KINDS.get(name, _TEXT) for name in _USER_ROW}))
PARTS = (EVENTS, ITEMS, USERS)

Progress = Callable[[str, int], object]
"""Called with the name of a part and the number of rows that are done."""


def export_store(reader: StoreReader, folder: Path, progress: Progress) -> dict[str, int]:
    """Write events, items and users of one moment to a new folder: the number of rows of each."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; give a new or an empty folder.")
    if not folder.absolute().parent.is_dir():
        raise InputError(f"there is no folder {folder.absolute().parent}; make it first.")
    try:
        unfinished = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex}.writing")
        unfinished.mkdir()
        try:
            with reader.snapshot():
                counts = {part.name: _write(reader, part, unfinished, progress) for part in PARTS}
            os.replace(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}; nothing was left.") from error
    return counts


def _write(reader: StoreReader, part: ExportPart, folder: Path, progress: Progress) -> int:
    done = 0
    with open(folder / f"{part.name}.parquet", "wb") as file:
        with pq.ParquetWriter(file, part.schema, compression="zstd") as writer:
            for rows in _rows(reader, part):
                columns = zip(zip(*rows, strict=True), part.schema, strict=True)
                arrays = [_array(values, field.type) for values, field in columns]
                writer.write_batch(pa.record_batch(arrays, schema=part.schema))
                done += len(rows)
                progress(part.name, done)
        flush_to_disk(file)
    return done


def _array(values: Row, kind: pa.DataType) -> pa.Array:
    return pa.array([bool(value) for value in values] if kind == _FLAG else values, kind)


def _rows(reader: StoreReader, part: ExportPart) -> Iterator[list[Row]]:
    """Some thousand rows at a time: events in order of arrival, others in the order of their ids."""
    columns = [f'"{name}"' for name in part.schema.names]
    key, after = ("number", 0) if part is EVENTS else (columns[0], "")
    query = (
        f"SELECT {key}, {', '.join(columns)} FROM {part.name} WHERE {key} > ? ORDER BY {key} LIMIT {_BATCH}"
    )
    while rows := reader.rows(query, (after,)):
        yield [row[1:] for row in rows]
        after = rows[-1][0]
