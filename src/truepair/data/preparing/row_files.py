"""Row files: pairs or events as an array for each column, written block by block and read again in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from truepair.data.interactions import EXTRA
from truepair.data.prepared.array_files import ArrayFile, ArrayWriter, open_array, write_array
from truepair.storage.types import Array

AT_ONCE = 1 << 21
"""Rows that are read at once."""

Block = dict[str, Array]
"""The columns of some rows: users, items (both as codes), and others where present."""

_COLUMNS = ("users", "items", *EXTRA, "places", "disliked")
_TYPES: dict[str, np.dtype[np.generic]] = {"f": np.dtype("<f8"), "u": np.dtype("<u2"), "b": np.dtype(bool)}


def taken(block: Block, rows: Array | slice) -> Block:
    """Some of the rows, as a mask, positions or a slice."""
    return {name: column[rows] for name, column in block.items()}


def whole_users(blocks: Iterable[Block], least: int) -> Iterator[Block]:
    """The same rows in blocks of about `least` rows or more, none of which ends within a user's rows."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        cut = int(np.searchsorted(block["users"], block["users"][-1]))  # sorted: where the last user begins
        if cut and sum(len(each["users"]) for each in waiting) >= least:
            yield _joined([*waiting[:-1], taken(block, slice(cut))])
            waiting = [taken(block, slice(cut, None))]
    if waiting:
        yield _joined(waiting)


def _joined(blocks: list[Block]) -> Block:
    return {name: np.concatenate([each[name] for each in blocks]) for name in blocks[0]}


class RowWriter(ExitStack):
    """Writes rows below `folder`/`part`; of pairs, too, the starts of users and the popularity of items."""

    def __init__(self, folder: Path, part: str, sizes: tuple[int, int], *, pairs: bool = True) -> None:
        super().__init__()
        self.folder, self.part, self.pairs, self.rows = folder, part, pairs, 0
        codes = (np.dtype("<i4" if n <= 1 << 31 else "<i8") for n in sizes)  # 32 bits where that is enough
        self._types = dict(zip(("users", "items"), codes, strict=True))
        self._writers: dict[str, ArrayWriter] = {}
        self._counts, self._popularity = (np.zeros(n, np.int64) for n in (sizes if pairs else (0, 0)))

    def write(self, block: Block) -> None:
        """Append rows; users do not fall."""
        for name, values in block.items():
            if name not in self._writers:
                dtype = self._types.get(name) or _TYPES.get(values.dtype.kind, np.dtype("<i8"))
                writer = ArrayWriter(self.folder, f"{self.part}/{name}.npy", dtype)
                self._writers[name] = self.enter_context(writer)
            self._writers[name].write(values)
        users, items = block["users"], block["items"]
        self.rows += len(users)
        if self.pairs and len(users):
            first = int(users[0])
            found = np.bincount(users - first)
            self._counts[first : first + len(found)] += found
            self._popularity += np.bincount(items, minlength=len(self._popularity))

    def so_far(self) -> Iterator[Block]:
        """The rows that were written, in blocks of whole users."""
        columns = {name: writer.so_far() for name, writer in self._writers.items()}
        return whole_users(_in_blocks(columns), AT_ONCE)

    def finish(self) -> list[ArrayFile]:
        """Have all files on the disk."""
        written = [writer.close() for writer in self._writers.values()]
        if self.pairs:
            starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts)])
            written.append(write_array(self.folder, f"{self.part}/starts.npy", starts))
            written.append(write_array(self.folder, f"{self.part}/popularity.npy", self._popularity))
        return written


class RowFiles:
    """The rows of a part that is written; `arrays` are the mapped arrays by their names."""

    def __init__(self, folder: Path, files: Mapping[str, ArrayFile], part: str) -> None:
        self.arrays = {
            name.removeprefix(f"{part}/"): open_array(folder, file)
            for name, file in files.items()
            if name.startswith(f"{part}/")
        }

    def __len__(self) -> int:
        return len(self.arrays["users"])

    def blocks(self) -> Iterator[Block]:
        """The rows in order."""
        return _in_blocks({name: self.arrays[name] for name in _COLUMNS if name in self.arrays})


def _in_blocks(columns: Block) -> Iterator[Block]:
    for first in range(0, len(columns["users"]), AT_ONCE):
        yield taken(columns, slice(first, first + AT_ONCE))
