"""Atomic files: a file appears whole or not at all, also when the process is killed or the disk is full.

The content is written beside the target, flushed to disk and renamed over it, so that at every moment the
target is the old file or the new one.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from truepair.errors import StorageError

_SUFFIX = ".writing"
_serial_numbers = itertools.count()
_open_here: set[str] = set()  # names of unfinished files of this process


@contextmanager
def atomic_write(path: Path, what: str = "") -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` if the block ends without an error; folders are made.

    After any error the unfinished file is removed and `path` is as it was. An OSError becomes a StorageError
    that names the file, as `what` ("the report") if that is given, and the reason.
    """
    name = f"{what} {path}".lstrip()
    if path.is_dir():
        raise StorageError(f"cannot write {name}: it is a folder; name a file in it.")
    # Unique among processes, machines that share a disk, and threads
    owner = f"{socket.gethostname()}.{os.getpid()}.{next(_serial_numbers)}"
    unfinished = path.with_name(f"{path.name}.{owner}{_SUFFIX}")
    _open_here.add(unfinished.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        with open(unfinished, "wb") as file:
            yield file
            flush_to_disk(file)
        move_into_place(unfinished, path)
    except OSError as error:
        before = "the one before it is untouched" if path.is_file() else "there was none before"
        raise StorageError(f"cannot write {name}: {error.strerror or error}; {before}.") from error
    finally:
        _open_here.discard(unfinished.name)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def flush_to_disk(file: IO[bytes]) -> None:
    """Have the content on the disk, so that a rename cannot come before it."""
    file.flush()
    os.fsync(file.fileno())


def move_into_place(unfinished: Path, path: Path) -> None:
    """Rename a file that is flushed to disk, and flush the folder."""
    os.replace(unfinished, path)
    with suppress(OSError):  # not every system can flush a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files of `path` that processes of this machine left when they were killed."""
    prefix = f"{path.name}.{socket.gethostname()}."
    for entry in os.scandir(path.parent):
        if not (entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)):
            continue
        process, _, _ = entry.name[len(prefix) :].partition(".")
        if process.isdigit() and entry.name not in _open_here and not _is_running_elsewhere(int(process)):
            with suppress(OSError):
                os.unlink(entry.path)


def _is_running_elsewhere(process: int) -> bool:
    """Whether another process has this number; True where that cannot be found out."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
