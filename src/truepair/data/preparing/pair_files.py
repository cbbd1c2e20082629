"""Pair files: the arrays of one part, written block by block and read again in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from truepair.data.interactions import EXTRA
from truepair.data.log import Values
from truepair.data.prepared.array_files import ArrayFile, ArrayWriter, open_array, write_array

AT_ONCE = 1 << 21
"""Pairs that are read at once."""

Numbers = npt.NDArray[Any]

_TYPES: dict[str, Any] = {"f": np.dtype("<f8"), "u": np.dtype("<u4"), "b": np.dtype(bool)}


def code_type(n: int) -> np.dtype[Any]:
    """The type of codes below n: 32 bits where that is enough."""
    return np.dtype("<i4" if n <= 1 << 31 else "<i8")


def column_type(values: Numbers) -> np.dtype[Any]:
    """The type of a column in its file: 64 bits, but for places and marks."""
    found: np.dtype[Any] = _TYPES.get(values.dtype.kind, np.dtype("<i8"))
    return found


class PairWriter:
    """Writes users, items and columns of pairs, and at the end the starts of users and the popularity."""

    def __init__(self, folder: Path, part: str, n_users: int, n_items: int) -> None:
        self.folder, self.part = folder, part
        self.counts, self.popularity = np.zeros(n_users, np.int64), np.zeros(n_items, np.int64)
        self.pairs = 0
        self._opened = ExitStack()
        self._writers: dict[str, ArrayWriter] = {}
        self._writer("users", code_type(n_users))
        self._writer("items", code_type(n_items))

    def _writer(self, name: str, dtype: np.dtype[Any]) -> ArrayWriter:
        if name not in self._writers:
            writer = ArrayWriter(self.folder, f"{self.part}/{name}.npy", dtype)
            self._writers[name] = self._opened.enter_context(writer)
        return self._writers[name]

    def write(self, users: Numbers, items: Numbers, columns: Mapping[str, Values]) -> None:
        """Append pairs; users do not fall."""
        if not len(users):
            return
        self.pairs += len(users)
        first = int(users[0])
        found = np.bincount(users - first)
        self.counts[first : first + len(found)] += found
        self.popularity += np.bincount(items, minlength=len(self.popularity))
        self._writers["users"].write(users)
        self._writers["items"].write(items)
        for name, values in columns.items():
            self._writer(name, column_type(values)).write(values)

    def close(self, columns: Mapping[str, np.dtype[Any]]) -> list[ArrayFile]:
        """Finish all files; `columns` are made if no pair was written."""
        for name, dtype in columns.items():
            self._writer(name, dtype)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        written = [writer.close() for writer in self._writers.values()]
        written.append(write_array(self.folder, f"{self.part}/starts.npy", starts))
        written.append(write_array(self.folder, f"{self.part}/popularity.npy", self.popularity))
        return written

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


class Block(NamedTuple):
    """Some pairs, and the position of the first of them."""

    first: int
    users: Numbers
    items: Numbers
    columns: dict[str, Values]


class PairFiles:
    """The pairs of a part that is written."""

    def __init__(self, folder: Path, arrays: list[ArrayFile], part: str) -> None:
        self.arrays = [file for file in arrays if file.file.startswith(f"{part}/")]
        self.folder = folder
        self._maps = {Path(file.file).stem: open_array(folder, file) for file in self.arrays}

    def __len__(self) -> int:
        return len(self._maps["users"])

    @property
    def columns(self) -> dict[str, np.dtype[Any]]:
        """The types of the columns beside the pairs."""
        return {name: self._maps[name].dtype for name in (*EXTRA, "places") if name in self._maps}

    @property
    def popularity(self) -> Numbers:
        """Users of each item."""
        return self._maps["popularity"]

    @property
    def counts(self) -> Numbers:
        """Items of each user."""
        return np.diff(self._maps["starts"])

    def blocks(self) -> Iterator[Block]:
        """The pairs in order."""
        for first in range(0, len(self), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            columns = {name: self._maps[name][some] for name in self.columns}
            yield Block(first, self._maps["users"][some], self._maps["items"][some], columns)
