"""Tables as files: Parquet, CSV and JSON lines, written part after part."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from truepair.data.sources.sql_urls import check_no_url
from truepair.errors import InputError, StorageError
from truepair.storage.atomic import atomic_write

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def write_parquet(parts: Iterable[pa.Table], file: BinaryIO) -> None:
    """One row group a part."""
    import pyarrow.parquet as pq

    _write_through(lambda schema: pq.ParquetWriter(file, schema, compression="zstd"), iter(parts))


def write_csv(parts: Iterable[pa.Table], file: BinaryIO) -> None:
    """A header and one line a row; a list is JSON in its cell."""
    import pyarrow.csv as pa_csv

    plain = map(_without_lists, map(with_plain_ids, parts))
    _write_through(lambda schema: pa_csv.CSVWriter(file, schema), plain)


def _write_through(writer_of: Callable[[pa.Schema], pq.ParquetWriter], parts: Iterator[pa.Table]) -> None:
    first = next(parts)
    with writer_of(first.schema) as writer:
        for part in chain([first], parts):
            writer.write_table(part)


def write_jsonl(parts: Iterable[pa.Table], file: BinaryIO) -> None:
    """One JSON object a row."""
    for part in map(with_plain_ids, parts):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in part.to_pylist())
        file.write("".join(lines).encode())


WRITERS: dict[str, Callable[[Iterable[pa.Table], BinaryIO], None]] = {
    "parquet": write_parquet,
    "csv": write_csv,
    "jsonl": write_jsonl,
}


def write_table(parts: Iterable[pa.Table], path: Path, format: str) -> int:
    """Write the parts to a file, whole or not at all; the number of rows."""
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for part in parts:
            rows += len(part)
            yield part

    with atomic_write(path) as file:
        WRITERS[format](counted(), file)
    return rows


_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_of(path: Path) -> str:
    """The format of the suffix."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"{path} has no known suffix; use one of {', '.join(_SUFFIXES)}, or give "
            f"--format {'|'.join(WRITERS)}."
        )
    return _SUFFIXES[path.suffix.lower()]


def check_output(path: Path | None) -> None:
    """Raise if `path`, where one is given, cannot be written, before any work is done."""
    if path is None:
        return
    check_no_url(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write.")
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {path}: it is not a regular file; give another path.")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; make it first.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; check the permissions of {path.parent}."
        ) from error


def with_plain_ids(table: pa.Table) -> pa.Table:
    """The table with UUIDs and bytes as text, for formats that have no such type; in lists of pairs, too."""
    import pyarrow as pa

    return pa.table([_plain(column.combine_chunks()) for column in table.columns], table.column_names)


def _plain(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_list(kind):  # of structs
        pairs = column.flatten()
        parts = [_plain(part) for part in pairs.flatten()]
        plain = pa.StructArray.from_arrays(parts, [field.name for field in kind.value_type])
        sizes = column.value_lengths().to_numpy()
        return pa.ListArray.from_arrays(pa.array([0, *sizes.cumsum()], pa.int32()), plain)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_large_string(kind):
        return column
    return pa.array(map(_as_text, column.to_pylist()), pa.large_string())


def _without_lists(table: pa.Table) -> pa.Table:
    """The table with lists as JSON."""
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        if pa.types.is_list(table.schema.types[place]):
            cells = [json.dumps(cell, ensure_ascii=False) for cell in table.column(place).to_pylist()]
            table = table.set_column(place, name, pa.array(cells, pa.large_string()))
    return table


def _as_text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
