"""Atomic files: a file appears whole or not at all, also when the process is killed or the disk is full.

The content is written beside the target, flushed to disk and renamed over it, so that at every moment the
target is the old file or the new one. The writer locks the unfinished file. The system releases the lock when
the process ends, however it ends, so an unfinished file without a lock was left by a killed process.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from truepair.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SUFFIX = ".writing"
_DAY = 86_400.0  # seconds
_serial_numbers = itertools.count()


@contextmanager
def atomic_write(path: Path, what: str = "") -> Iterator[BinaryIO]:
    """A file to write, which replaces `path` if the block ends without an error; folders are made.

    The new file has the permissions of the old one. If `path` is a symbolic link, the file that it leads to
    is replaced. Anything but a regular file, such as a device or a named pipe, is refused.

    After any error the unfinished file is removed and `path` is as it was. An OSError becomes a StorageError
    that names the file, as `what` ("the report") if that is given, and the reason.
    """
    name = f"{what} {path}".lstrip()
    if path.is_dir():
        raise StorageError(f"cannot write {name}: it is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        raise StorageError(f"cannot write {name}: it is not a regular file; give another path.")
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        target = _resolved(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_unfinished(target)
        with _unfinished_file(target, mode) as (file, unfinished):
            yield file
            flush_to_disk(file)
            if mode is not None:
                with suppress(OSError):  # not every drive has permissions
                    os.chmod(unfinished, mode)
            if fcntl is None:
                file.close()  # Windows renames no open file
            os.replace(unfinished, target)  # under the lock, so that nobody removes the file before
            flush_folder(target.parent)
    except OSError as error:
        before = "the one before it is untouched" if path.is_file() else "there was none before"
        raise StorageError(f"cannot write {name}: {error.strerror or error}; {before}.") from error


def remove_unfinished(path: Path) -> None:
    """Remove unfinished files of `path` that killed processes left; those that are being written stay.

    A lock may be invisible from another machine that shares the folder. So a file of another machine is
    removed only if it has no lock and was not changed for a day. Without locks (on Windows, and on some
    network drives) nothing is removed.
    """
    if fcntl is None:
        return
    with suppress(OSError):  # there is no such folder
        path = _resolved(path)
        for name in os.listdir(path.parent):
            if name.startswith(f"{path.name}.") and name.endswith(_SUFFIX):
                _remove_if_abandoned(path.with_name(name), name.startswith(_prefix(path)))


def flush_to_disk(file: IO[bytes]) -> None:
    """Have the content on the disk, so that a rename cannot come before it."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk."""
    with suppress(OSError):  # not every system can flush a folder
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _resolved(path: Path) -> Path:
    """`path`, or the place that it leads to if it is a symbolic link."""
    if not os.path.islink(path):
        return path
    found = Path(os.path.realpath(path))
    if os.path.islink(found):
        raise OSError(errno.ELOOP, "its symbolic links lead in a circle")
    return found


def _prefix(path: Path) -> str:
    """How the names of this machine's unfinished files of `path` begin."""
    return f"{path.name}.{socket.gethostname()}."


@contextmanager
def _unfinished_file(path: Path, mode: int | None) -> Iterator[tuple[BinaryIO, Path]]:
    """A new locked file beside `path`, and its path; it is gone after the block, unless it was renamed.

    Nobody can read it who cannot read a file of this mode.
    """
    permissions = 0o666 if mode is None else mode & 0o666 | stat.S_IWUSR
    while True:
        # Unique among processes, machines that share a disk, and threads
        unfinished = path.with_name(f"{_prefix(path)}{os.getpid()}.{next(_serial_numbers)}{_SUFFIX}")
        file = open(  # noqa: SIM115, closed below
            unfinished, "wb", opener=lambda name, flags: os.open(name, flags, permissions)
        )
        if lock_file(file) is not False and _is_at(file, unfinished):
            break
        file.close()  # another process was about to remove it: until it is locked, it looks abandoned
    try:
        yield file, unfinished
    finally:
        with suppress(OSError):  # on a full disk the rest of the content does not fit
            file.close()
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _remove_if_abandoned(unfinished: Path, is_local: bool) -> None:
    with suppress(OSError), open(unfinished, "r+b") as file:  # some network drives lock writable files only
        if lock_file(file) is not True:
            return
        unchanged = time.time() - os.fstat(file.fileno()).st_mtime
        if (is_local or unchanged > _DAY) and _is_at(file, unfinished):
            os.unlink(unfinished)


def lock_file(file: BinaryIO, wait: bool = False) -> bool | None:
    """Lock a file until it is closed: True, False if another has locked it, None if there are no locks.

    With `wait`, it waits until no other has.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES) else None
    return True


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one of this name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
