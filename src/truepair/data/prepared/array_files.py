"""Array files: NumPy's .npy, written piece by piece with a checksum, and opened as memory maps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from truepair.errors import StorageError
from truepair.storage.atomic import flush_to_disk
from truepair.storage.types import Array

HEADER = 128
"""Bytes before the values of a file that is written here; other writers may have more."""

_PIECE = 1 << 24  # bytes that are read at once for a checksum


@dataclass(frozen=True)
class ArrayFile:
    """What a manifest says about a file: its place in the folder, type, shape, size, and the checksum of its
    values; None if the writer made no checksum."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    digest: str | None


class ArrayWriter:
    """A new .npy file whose length is known at its end. Without an error, it is on the disk after `close`."""

    def __init__(self, folder: Path, file: str, dtype: npt.DTypeLike, row: tuple[int, ...] = ()) -> None:
        self.file, self.dtype, self.row, self.length = file, np.dtype(dtype).newbyteorder("<"), row, 0
        self._path = folder / file
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("wb")
        self._stream.write(bytes(HEADER))
        self._digest = hashlib.blake2b(digest_size=16)

    def write(self, values: Array) -> None:
        """Append values; they are converted to the type of the file."""
        content = np.ascontiguousarray(values, dtype=self.dtype)
        self.length += len(content) // max(int(np.prod(self.row)), 1) if content.ndim == 1 else len(content)
        self._digest.update(content.data)
        self._stream.write(content.data)

    def so_far(self) -> Array:
        """The values that were written, mapped."""
        self._stream.flush()
        return np.memmap(self._path, self.dtype, "r", HEADER, (self.length, *self.row))

    def close(self) -> ArrayFile:
        """Finish the file: its header, and a flush to the disk."""
        shape = (self.length, *self.row)
        size = self._stream.tell()
        self._stream.seek(0)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._stream, header)  # of `HEADER` bytes
        flush_to_disk(self._stream)
        self._stream.close()
        return ArrayFile(self.file, self.dtype.str, shape, size, self._digest.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()


def write_array(folder: Path, file: str, values: Array) -> ArrayFile:
    """A whole array as a file."""
    with ArrayWriter(folder, file, values.dtype, values.shape[1:]) as writer:
        writer.write(values)
        return writer.close()


def open_array(folder: Path, described: ArrayFile) -> Array:
    """The memory-mapped array. Its size, type and shape must be the described ones; values are not read."""
    path = folder / described.file
    try:
        size = path.stat().st_size
    except OSError as error:
        raise StorageError(
            f"{path} cannot be opened ({error.strerror or error}); prepare it again."
        ) from error
    if size != described.bytes:
        raise StorageError(
            f"{path} has {size:,} bytes, not the manifest's {described.bytes:,}; prepare it again."
        )
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's parser of headers raises errors of every type
        raise StorageError(f"{path} is damaged: {error!s:.300}; prepare it again.") from error
    wanted = described.dtype, described.shape
    if not isinstance(array, np.ndarray) or (array.dtype.str, array.shape) != wanted:
        raise StorageError(f"{path} is not the array that the manifest describes; prepare it again.")
    return np.asarray(array)


def verify_array(folder: Path, described: ArrayFile) -> None:
    """Raise if the values are not those that were written; nothing is checked without a checksum."""
    array = open_array(folder, described)
    if described.digest is None:
        return
    content, digest = array.reshape(-1).view(np.uint8), hashlib.blake2b(digest_size=16)
    for first in range(0, len(content), _PIECE):
        digest.update(content[first : first + _PIECE].data)
    if digest.hexdigest() != described.digest:
        raise StorageError(f"{folder / described.file} is damaged: its checksum differs; prepare it again.")
