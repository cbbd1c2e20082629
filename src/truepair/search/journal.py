"""Several processes and one journal: which process may write now, and which are still running."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from truepair.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BEGINNING = b'{"op_code":'  # of every line that Optuna writes
_LONGEST = 1 << 20  # bytes of a first line that are looked at


class JournalLock:
    """A reentrant lock of one process at a time; a process that dies releases it.

    Optuna's own lock is a file that a killed process leaves behind. Taking this one also repairs
    the journal: an incomplete last line of a killed process is cut off. A file that is no journal is refused,
    and left unchanged.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._depth = journal, 0
        self._file: IO[bytes] | None = None
        self._other: Any = None

    def acquire(self) -> bool:
        """Wait for the lock and take it."""
        if self._depth == 0:
            check_journal(self._journal)
            self._take()
            try:
                _cut_torn_line(self._journal)
            except BaseException:
                self._free()
                raise
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it once."""
        self._depth -= 1
        if self._depth == 0:
            self._free()

    def __enter__(self) -> JournalLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> None:
        if fcntl is None:
            from optuna.storages.journal import JournalFileOpenLock

            self._other = JournalFileOpenLock(str(self._journal))
            self._other.acquire()
            return
        self._file = open(f"{self._journal}.lock", "ab")  # noqa: SIM115, open as long as it is held
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def _free(self) -> None:
        if self._file is not None:
            self._file.close()  # which frees it
            self._file = None
        else:
            self._other.release()


class Presence:
    """Marks that this process uses a journal; `alone` if no other process did at that time."""

    def __init__(self, journal: Path) -> None:
        self._file = open(journal, "rb")  # noqa: SIM115, open as long as the process is present
        self.alone = False
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.alone = True
            except BlockingIOError:
                pass
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Remove the mark."""
        self._file.close()


def this_process() -> dict[str, Any]:
    """The identity of this process: host, number, start time."""
    return {"host": platform.node(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(owner: Mapping[str, Any]) -> bool:
    """Whether the process is known to have ended; processes of other machines are not known."""
    if os.name != "posix" or owner["host"] != platform.node():
        return False
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists, and belongs to another user
    return bool(_started(owner["pid"]) != owner["started"])


def _started(pid: int) -> str | None:
    """The start time of a process, if the system provides it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def check_journal(journal: Path) -> None:
    """Raise if the file exists and is no journal of trials; it is only read."""
    if not journal.exists():
        return
    try:
        with open(journal, "rb") as file:
            first = file.readline(_LONGEST)
    except OSError as error:
        raise InputError(f"cannot read {journal}: {error.strerror or error}.") from error
    torn = first.startswith(_BEGINNING) and not first.endswith(b"\n")  # killed while it wrote the first line
    if first and not torn and not _is_entry(first):
        raise _foreign(journal, f"it begins with {first[:30]!r}")


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(entry, dict) and "op_code" in entry


def _foreign(journal: Path, why: str) -> InputError:
    return InputError(
        f"{journal} is not a journal of trials ({why}) and was not changed; use another file as storage."
    )


def _cut_torn_line(journal: Path) -> None:
    if not journal.exists() or not journal.stat().st_size:
        return
    with open(journal, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if content[whole : whole + 1] != b"{":  # no line of a journal begins like this
            raise _foreign(journal, f"it ends with {content[whole:][:30]!r}")
        file.truncate(whole)
