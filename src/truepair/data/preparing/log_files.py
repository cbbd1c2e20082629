"""Log files: the arrays of a log of events, written block by block and read again in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from truepair.data.prepared.array_files import ArrayFile, ArrayWriter, open_array
from truepair.data.preparing.pair_files import AT_ONCE, Numbers, code_type, column_type

Events = dict[str, Numbers]
"""The columns of some events: users, items, time, and others where present."""


def write_log(folder: Path, log: str, sizes: tuple[int, int], blocks: Iterable[Events]) -> list[ArrayFile]:
    """The arrays of the events, below `folder`/`log`; `sizes` are the numbers of users and items."""
    types = dict(zip(("users", "items"), map(code_type, sizes), strict=True))
    writers: dict[str, ArrayWriter] = {}
    with ExitStack() as opened:
        for block in blocks:
            for name, values in block.items():
                if name not in writers:
                    dtype = types.get(name, column_type(values))
                    writer = ArrayWriter(folder, f"{log}/{name}.npy", dtype)
                    writers[name] = opened.enter_context(writer)
                writers[name].write(values)
        return [writer.close() for writer in writers.values()]


def log_blocks(folder: Path, files: list[ArrayFile]) -> Iterator[Events]:
    """The events of a log that is written, in order."""
    maps = {Path(file.file).stem: open_array(folder, file) for file in files}
    for first in range(0, len(maps["users"]), AT_ONCE):
        yield {name: values[first : first + AT_ONCE] for name, values in maps.items()}
