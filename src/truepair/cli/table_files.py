"""Files of commands: tables as Parquet, CSV and JSON lines, written part after part; ids as text."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from truepair.data.sources.sql_urls import check_no_url
from truepair.errors import InputError, StorageError
from truepair.storage.atomic import atomic_write
from truepair.storage.plain_values import as_json, as_text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from truepair.data.ids import IdMap


def write_parquet(parts: Iterable[pa.Table], file: BinaryIO) -> int:
    """One row group a part; the number of rows."""
    import pyarrow.parquet as pq

    return _write_through(lambda schema: pq.ParquetWriter(file, schema, compression="zstd"), iter(parts))


def write_csv(parts: Iterable[pa.Table], file: BinaryIO) -> int:
    """A header and one line a row; a list is JSON in its cell. The number of rows."""
    import pyarrow.csv as pa_csv

    return _write_through(lambda schema: pa_csv.CSVWriter(file, schema), map(_for_csv, parts))


def _write_through(writer_of: Callable[[pa.Schema], pq.ParquetWriter], parts: Iterator[pa.Table]) -> int:
    first = next(parts)
    rows = 0
    with writer_of(first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)
            rows += len(part)
    return rows


def _for_csv(table: pa.Table) -> pa.Table:
    """The table with text for lists, UUIDs and bytes."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_list(field.type) or field.type in (pa.uuid(), pa.large_binary()):
            convert = as_json if pa.types.is_list(field.type) else as_text
            texts = pa.array(map(convert, table.column(place).to_pylist()), pa.large_string())
            table = table.set_column(place, field.name, texts)
    return table


def write_jsonl(parts: Iterable[pa.Table], file: BinaryIO) -> int:
    """One JSON object a row; the number of rows."""
    rows = 0
    for part in parts:
        file.write("".join(f"{as_json(row)}\n" for row in part.to_pylist()).encode())
        rows += len(part)
    return rows


WRITERS: dict[str, Callable[[Iterable[pa.Table], BinaryIO], int]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_jsonl,
}


def write_table(parts: Iterable[pa.Table], path: Path, format: str) -> int:
    """Write the parts to a file, whole or not at all; the number of rows."""
    with atomic_write(path) as file:
        return WRITERS[format](parts, file)


_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_of(path: Path) -> str:
    """The format of the suffix."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path} is none of {', '.join(_SUFFIXES)}; or give --format {'|'.join(WRITERS)}.")
    return _SUFFIXES[path.suffix.lower()]


def check_output(path: Path | None) -> Path | None:
    """The path; raise if one is given that cannot be written, before any work is done."""
    if path is None:
        return None
    check_no_url(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"cannot write {path}: it is {kind}; give the path of a file.")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; make it first.")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}; check permissions.") from error
    return path


def read_ids(ids: IdMap, what: str, listed: str | None, file: Path | None = None) -> pa.Array | None:
    """The ids in a comma list, or those in a file, one a line (`-`: stdin), as `as_ids` gives them."""
    if listed is None and file is None:
        return None
    try:
        if file is None:
            texts = str(listed).split(",")
        else:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
            texts = text.splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {what} ids from {file}: {error}.") from error
    if found := [text.strip() for text in texts if text.strip()]:
        return as_ids(found, ids, what)
    source = file or repr(listed)
    raise InputError(f"{source} names no {what}; give ids separated by commas, or a file with one a line.")


def read_ids_or_file(ids: IdMap, what: str, text: str | None) -> pa.Array | None:
    """The ids in a file of that name, or in a comma list."""
    is_file = text is not None and os.path.isfile(text)
    return read_ids(ids, what, text, Path(str(text)) if is_file else None)


def as_ids(texts: list[str], ids: IdMap, what: str) -> pa.Array:
    """The texts as an Arrow array of the type of `ids`."""
    import pyarrow as pa

    kind = ids.ids.type
    try:
        if kind == pa.uuid():
            return pa.array([uuid.UUID(text).bytes for text in texts], kind)
        return pa.array(texts, pa.large_string()).cast(kind)
    except ValueError:
        for text in texts if len(texts) > 1 else ():
            as_ids([text], ids, what)  # the first that does not fit raises
        raise InputError(
            f"unknown {what}: {texts[0]!r}; the {what} ids are of type {kind}, such as {ids.ids[0].as_py()}."
        ) from None
