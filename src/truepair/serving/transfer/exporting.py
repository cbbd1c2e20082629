"""export_store: a store as a folder of Parquet files that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from truepair.errors import InputError, StorageError
from truepair.serving.events.reading import StoreReader
from truepair.storage.atomic import flush_to_disk

_TEXT = pa.large_string()
_KINDS = {
    **dict.fromkeys(("hidden", "deleted", "forgotten"), pa.bool_()),
    **dict.fromkeys(("weight", "value"), pa.float64()),
    "time": pa.timestamp("us", "UTC"),
}
_COLUMNS = {
    "events": ("user", "item", "kind", "weight", "time", "id", "value", "comment"),
    "items": ("item", "deleted", "hidden", "categories", "time", "labels", "comment"),
    "users": ("user", "deleted", "forgotten", "labels", "comment"),
}
PARTS = {
    part: pa.schema({name: _KINDS.get(name, pa.large_string()) for name in names})
    for part, names in _COLUMNS.items()
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
            for batch in reader.batches(part, schema):
                writer.write_batch(batch)
                done += len(batch)
                progress(part, done)
        flush_to_disk(file)
    return done
