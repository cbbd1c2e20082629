"""export_store: a store as a folder of Parquet files that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from truepair.errors import InputError, StorageError
from truepair.serving.events.reading import StoreReader
from truepair.serving.events.records import Row
from truepair.storage.atomic import flush_to_disk

_TEXT, _TIME, _FLAG = pa.large_string(), pa.timestamp("us", "UTC"), pa.bool_()
_BATCH = 65_536  # rows that are read at a time


_KINDS = dict.fromkeys(("hidden", "deleted", "forgotten"), _FLAG) | {
    "time": _TIME, "weight": pa.float64(), "value": pa.float64(),
}  # fmt: skip
_COLUMNS = {
    "events": ("user", "item", "kind", "weight", "time", "id", "value", "comment"),
    "items": ("item", "deleted", "hidden", "categories", "time", "labels", "comment"),
    "users": ("user", "deleted", "forgotten", "labels", "comment"),
}
PARTS = {
    part: pa.schema({name: _KINDS.get(name, _TEXT) for name in names}) for part, names in _COLUMNS.items()
}
"""The tables of a store: name of the table and its file -> columns."""

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
                counts = {part: _write(reader, part, unfinished, progress) for part in PARTS}
            os.replace(unfinished, folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}; nothing was left.") from error
    return counts


def _write(reader: StoreReader, part: str, folder: Path, progress: Progress) -> int:
    done, schema = 0, PARTS[part]
    with open(folder / f"{part}.parquet", "wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for rows in _rows(reader, part):
                columns = zip(zip(*rows, strict=True), schema, strict=True)
                arrays = [_array(values, field.type) for values, field in columns]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                done += len(rows)
                progress(part, done)
        flush_to_disk(file)
    return done


def _array(values: Row, kind: pa.DataType) -> pa.Array:
    return pa.array([bool(value) for value in values] if kind == _FLAG else values, kind)


def _rows(reader: StoreReader, part: str) -> Iterator[list[Row]]:
    """Some thousand rows at a time: events in order of arrival, others in the order of their ids."""
    columns = [f'"{name}"' for name in PARTS[part].names]
    key, after = ("number", 0) if part == "events" else (columns[0], "")
    query = f"SELECT {key}, {', '.join(columns)} FROM {part} WHERE {key} > ? ORDER BY {key} LIMIT {_BATCH}"
    while rows := reader.rows(query, (after,)):
        yield [row[1:] for row in rows]
        after = rows[-1][0]
