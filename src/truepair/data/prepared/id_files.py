"""Ids in array files: integers, UUIDs, or the bytes of text with their starts; opened without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from truepair.data.ids import IdMap, storage_of
from truepair.data.prepared.array_files import ArrayFile, ArrayWriter
from truepair.errors import InputError, StorageError, check_choice
from truepair.storage.types import Array

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
    if kind not in ("text", "bytes"):
        dtype, row = (np.uint8, (16,)) if kind == "uuid" else (np.dtype(kind), ())
        with ArrayWriter(folder, f"{name}/values.npy", dtype, row) as values:
            for batch in batches:
                values.write(_bytes_of(batch.cast(pa.large_binary()))[1] if row else batch.to_numpy())
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


def open_ids(folder: Path, name: str, kind: str, arrays: dict[str, Array]) -> IdMap:
    """The ids on the mapped arrays. They must be distinct and sorted, and text must be UTF-8."""
    own = {part: arrays[f"{name}/{part}"] for part in ("values", "starts") if f"{name}/{part}" in arrays}
    try:
        return ids_of_arrays(f"{folder}/{name}", kind, own)
    except InputError as error:
        raise StorageError(f"{str(error).removesuffix('.')}; prepare it again.") from error


def id_arrays(ids: IdMap) -> dict[str, Array]:
    """The ids as arrays: values; of text, its bytes and where each begins. Unsigned integers are bit by bit
    those of 64 bits with a sign, which PyTorch knows."""
    kind = id_type(ids.ids.type)
    if kind in ("int64", "uint64"):
        return {"values": np.array(ids.ids.to_numpy()).view(np.int64)}
    places, content = _bytes_of(storage_of(ids.ids).cast(pa.large_binary()))
    values = {"values": content.copy()}
    return values if kind == "uuid" else {**values, "starts": places - places[0]}


def ids_of_arrays(what: str, kind: str, arrays: Mapping[str, Array]) -> IdMap:
    """The ids of such arrays, without a copy; raise unless they are sound, distinct and sorted."""
    values = np.ascontiguousarray(arrays["values"]).reshape(-1)
    is_text = check_choice(f"the type of {what}", kind, ARROW_TYPES) in ("text", "bytes")
    size = 8 if kind in ("int64", "uint64") else 1
    starts = np.ascontiguousarray(arrays["starts"]) if is_text else np.zeros(1, np.int64)
    are_integers = values.dtype.kind in "iu" and values.dtype.itemsize == size
    if not are_integers or starts.dtype != np.int64 or starts.ndim != 1:
        raise InputError(f"{what} is damaged: its arrays are of other types.")
    if is_text and (not len(starts) or starts[-1] > len(values)):
        raise InputError(f"{what} is damaged: its texts end after the last byte.")
    n = len(starts) - 1 if is_text else len(values) // (16 if kind == "uuid" else 1)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(values)] if is_text else [None, pa.py_buffer(values)]
    arrow = ARROW_TYPES[kind]
    try:
        plain = pa.Array.from_buffers(pa.binary(16) if kind == "uuid" else arrow, n, buffers)
        plain.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{what} is damaged: {error!s:.300}.") from error
    if n > 1 and not pc.all(pc.less(plain[:-1], plain[1:])).as_py():
        raise InputError(f"{what}: the ids are not distinct and sorted.")
    return IdMap(pa.ExtensionArray.from_storage(arrow, plain) if kind == "uuid" else plain)
