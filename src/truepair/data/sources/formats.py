"""Formats: a file or folder -> raw columns; the registry of all formats."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from truepair.data.columns import BY_POSITION, Raw
from truepair.data.sources.file_opening import File, read_errors
from truepair.data.sources.in_memory import matrix_source
from truepair.data.sources.text import (
    SEPARATORS,
    read_adjacency,
    read_csv,
    read_delimited,
    read_movielens,
    read_recbole,
)
from truepair.errors import InputError, did_you_mean

BATCH = 1 << 17
"""Rows of a batch, where a file is read in batches."""


def open_path(
    path: Path,
    format: str | None = None,
    header: bool | None = None,
    encoding: str = "utf-8",
    given: frozenset[str] = frozenset(),
) -> Raw:
    """The raw columns of a file or a folder. The suffix decides the format, else the first lines do.

    `given` holds the column names that the caller gave: a first line that contains one of them is a header.
    """
    try:
        if not path.exists():
            raise _missing_path(path)
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{path} cannot be opened: {error.strerror or error}.") from error
    if path.is_dir():
        return _folder(path, format)
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{path} is empty: it has 0 bytes.")
    file = File(path, encoding, header, given)
    name = format or SUFFIXES.get(file.suffix) or _guess_format(file)
    if file.compression and name in ("parquet", "arrow"):
        raise InputError(f"{path}: a {name} file inside {file.compression} cannot be read; unpack it first.")
    return FORMATS[name](file)


def _guess_format(file: File) -> str:
    if file.content.startswith(b"PAR1"):
        return "parquet"
    if file.content.startswith(b"ARROW1"):
        return "arrow"
    lines = file.first_lines
    if "::" in lines[0]:
        return "movielens"
    if any(separator in lines[0] for separator in SEPARATORS):
        return "csv"
    words = [line.split() for line in lines]
    return "space" if file.is_named(words[0]) else _guess_spaced(file, words)


def _guess_spaced(file: File, words: list[list[str]]) -> str:
    """Adjacency if each user has one line; a table if users repeat and all lines have the same width."""
    width = len(words[0])
    if {len(line) for line in words} != {width} or len({line[0] for line in words}) == len(words):
        return "adjacency"
    if width <= len(BY_POSITION):
        return "space"
    raise InputError(
        f"{file.path} has {width} numbers on every line: it looks like a users x items matrix. "
        "Pass scipy.sparse.csr_array(numpy.loadtxt(path)) instead, or format='adjacency'."
    )


def _folder(path: Path, format: str | None) -> Raw:
    inside = [(file, file.relative_to(path).parts) for file in sorted(path.rglob("*")) if file.is_file()]
    files = [file for file, parts in inside if not any(part.startswith((".", "_")) for part in parts)]
    kinds = {SUFFIXES.get(file.suffix.lower(), "other") for file in files}
    if len(kinds) == 1 and (format or kinds.pop()) == "parquet":
        return _parquet(files, path)
    found = Counter(file.suffix or "no suffix" for file in files)
    listed = ", ".join(f"{count} {suffix}" for suffix, count in found.most_common(8)) or "no data files"
    raise InputError(f"{path} is a folder with {listed}, not of Parquet files alone; pass one file.")


def _missing_path(path: Path) -> InputError:
    if not path.parent.is_dir():
        return InputError(f"{path} does not exist, nor does the folder {path.parent}.")
    near = did_you_mean(path.name, (other.name for other in path.parent.iterdir()))
    return InputError(f"{path} does not exist.{near}")


def _arrow(file: File) -> Raw:
    """A file or a stream; both have this suffix."""
    path = file.path
    with read_errors(path, "a plain file"), path.open("rb") as beginning:
        is_file = beginning.read(6) == b"ARROW1"
    what = "arrow data" if is_file else "an Arrow stream"
    opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
    with read_errors(path, what), pa.OSFile(str(path)) as source:
        names = opener(source).schema.names

    def read(positions: Sequence[int]) -> Sequence[pa.ChunkedArray]:
        order = sorted(positions)
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=order)
        with read_errors(path, what), pa.OSFile(str(path)) as source:
            table = opener(source, options=options).read_all()
            _validate(table)
        _refuse_intervals(table.schema, path)
        return [table.column(order.index(at)) for at in positions]

    return Raw(str(path), names, read)


def _refuse_intervals(schema: pa.Schema, path: Path) -> None:
    """Raise for types of Arrow that have no class in Python: their arrays cannot be touched."""
    for field in schema:
        if any(name in str(field.type) for name in ("day_time_interval", "month_interval")):
            raise InputError(
                f"{path}: column {field.name!r} of type {field.type} is not read; leave it out: time=False."
            )


def _validate(table: pa.Table) -> None:
    """Raise if offsets, indices or text are wrong; names of time zones, too, which Arrow does not check.

    Arrow trusts its files, and a wrong offset in one is a crash later.
    """
    table.validate(full=True)
    for kind in table.schema.types:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_timestamp(kind):
            str(kind.tz)


def _parquet(files: list[Path], source: Path) -> Raw:
    """A file, or all files of a folder, whose names may have columns as in Hive: day=2024-01-01/0.parquet."""
    import pyarrow.dataset as pa_dataset  # imported here because it loads pandas where that is installed

    what = "parquet data"
    with read_errors(source, what):
        folder = {"partitioning": "hive", "partition_base_dir": str(source)} if source.is_dir() else {}
        data = pa_dataset.dataset([str(path) for path in files], format="parquet", **folder)
        names = data.schema.names

    # without a buffer of what comes next, which helps with remote files only
    plain = {"fragment_scan_options": pa_dataset.ParquetFragmentScanOptions(pre_buffer=False)}

    def batches(positions: Sequence[int]) -> Iterator[Sequence[pa.Array]]:
        chosen = [names[at] for at in positions]
        ahead = {"batch_size": BATCH, "batch_readahead": 2, "fragment_readahead": 1}
        with read_errors(source, what):
            found = data.to_batches(columns=chosen, **plain, **ahead)
        while True:
            with read_errors(source, what):
                if (batch := next(found, None)) is None:
                    return
                _validate(pa.Table.from_batches([batch]))
            yield [batch.column(name) for name in chosen]

    def read(positions: Sequence[int]) -> Sequence[pa.ChunkedArray]:
        with read_errors(source, what):
            table = data.to_table(columns=[names[at] for at in positions], **plain)
            _validate(table)
            return list(table.columns)

    return Raw(str(source), names, read, batches=batches)


def _npz(file: File) -> Raw:
    content, what = file.content, "a SciPy sparse matrix"
    with read_errors(file.path, what), np.load(io.BytesIO(content), allow_pickle=False) as archive:
        parts = {name: np.asarray(part) for name, part in archive.items()}  # bytes where one is no array
    for name in ("shape", "indptr", "indices", "row", "col", "coords", "offsets"):
        if name in parts and parts[name].dtype.kind not in "iu":
            raise InputError(
                f"{file.path}: {name} is {parts[name].dtype}, not integers; use scipy.sparse.save_npz."
            )
    if "format" not in parts:
        raise InputError(f"{file.path} contains {sorted(parts)}; save a matrix with scipy.sparse.save_npz.")
    with read_errors(file.path, what):
        matrix: Any = sp.load_npz(io.BytesIO(content))
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        matrix = matrix.tocoo() if matrix.ndim == 2 else matrix
    return matrix_source(matrix, str(file.path))


FORMATS: dict[str, Callable[[File], Raw]] = {
    "csv": read_csv,
    "tsv": partial(read_delimited, separator="\t"),
    "space": partial(read_delimited, separator=" "),
    "movielens": read_movielens,
    "adjacency": read_adjacency,
    "recbole": read_recbole,
    "parquet": lambda file: _parquet([file.path], file.path),
    "arrow": _arrow,
    "npz": _npz,
}
"""Format name -> reader. "csv" detects its separator; "movielens" separates fields by `::`."""

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".inter": "recbole",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".npz": "npz",
}
"""Suffix -> format. For other suffixes the first lines decide."""
