"""Ids in array files: integers, UUIDs, or the bytes of text with their starts; opened without a copy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import IdMap
from truepair.data.prepared.array_files import ArrayFile, ArrayWriter
from truepair.errors import StorageError

ARROW_TYPES = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "text": pa.large_string(),
    "bytes": pa.large_binary(),
    "uuid": pa.uuid(),
}
"""Type in the manifest -> Arrow's type of the ids."""


def id_type(kind: pa.DataType) -> str:
    """The manifest's name of an Arrow type of ids."""
    return next(name for name, arrow in ARROW_TYPES.items() if arrow == kind)


def write_ids(folder: Path, name: str, kind: str, batches: Iterable[pa.Array]) -> list[ArrayFile]:
    """Write sorted ids, of which batches come one after the other as integers or as bytes."""
    if kind in ("int64", "uint64"):
        with ArrayWriter(folder, f"{name}/values.npy", kind) as values:
            for batch in batches:
                values.write(batch.to_numpy())
            return [values.close()]
    if kind == "uuid":
        with ArrayWriter(folder, f"{name}/values.npy", np.uint8, (16,)) as values:
            for batch in batches:
                values.write(_bytes_of(batch.cast(pa.large_binary()))[1])
            return [values.close()]
    end = 0
    with (
        ArrayWriter(folder, f"{name}/values.npy", np.uint8) as values,
        ArrayWriter(folder, f"{name}/starts.npy", np.int64) as starts,
    ):
        starts.write(np.zeros(1, np.int64))
        for batch in batches:
            places, content = _bytes_of(batch.cast(pa.large_binary()))
            values.write(content)
            starts.write(places[1:] - places[0] + end)
            end += int(places[-1] - places[0])
        return [values.close(), starts.close()]


def _bytes_of(batch: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The places where values begin, and all bytes of a batch of large_binary."""
    _, offsets, content = batch.buffers()
    places = np.frombuffer(offsets, np.int64, len(batch) + 1, 8 * batch.offset)
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    return places, data[places[0] : places[-1]]


def open_ids(folder: Path, name: str, kind: str, arrays: dict[str, npt.NDArray[Any]]) -> IdMap:
    """The ids on the mapped arrays. They must be distinct and sorted, and text must be UTF-8."""
    values = arrays[f"{name}/values"]
    n = len(values) if kind in ("int64", "uint64", "uuid") else len(arrays[f"{name}/starts"]) - 1
    buffers = [None, pa.py_buffer(values.reshape(-1))]
    if kind in ("text", "bytes"):
        buffers = [None, pa.py_buffer(arrays[f"{name}/starts"]), pa.py_buffer(values)]
    arrow = ARROW_TYPES[kind]
    storage = pa.binary(16) if kind == "uuid" else arrow
    try:
        plain = pa.Array.from_buffers(storage, n, buffers)
        plain.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise StorageError(f"{folder}/{name} is damaged: {error!s:.300}; prepare it again.") from error
    if n > 1 and not pc.all(pc.less(plain[:-1], plain[1:])).as_py():
        raise StorageError(f"{folder}/{name}: the ids are not distinct and sorted; prepare it again.")
    return IdMap(pa.ExtensionArray.from_storage(arrow, plain) if kind == "uuid" else plain)
