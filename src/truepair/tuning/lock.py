"""Several processes and one journal: who may write now, and who is still there."""

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
    """Held by one process at a time, and by it as often as it likes; a process that dies lets go of it.

    Optuna's own lock is a file that a killed process leaves behind. Whoever takes this one finds a journal
    of whole lines: what a killed process had begun to write is cut off. A file that is no journal is refused,
    and nothing of it or beside it is changed.
    """

    def __init__(self, journal: Path) -> None:
        self._journal, self._depth = journal, 0
        self._file: IO[bytes] | None = None
        self._other: Any = None

    def acquire(self) -> bool:
        """Wait for it, and take it."""
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
        """Let go of it once."""
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
    """Says that this process works with a journal, until it ends; `alone` if no other did when it came."""

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
        """No longer present."""
        self._file.close()


def this_process() -> dict[str, Any]:
    """What tells this process from all others."""
    return {"host": platform.node(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(owner: Mapping[str, Any]) -> bool:
    """Whether it is known that the process has ended; of another machine's, nothing is known."""
    if os.name != "posix" or owner["host"] != platform.node():
        return False
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it is there, and somebody else's
    return bool(_started(owner["pid"]) != owner["started"])


def _started(pid: int) -> str | None:
    """When it started, by the system's clock, where the system tells."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def check_journal(journal: Path) -> None:
    """An error where a file is there that is no journal of trials; it is only read."""
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
        f"{journal} is not a journal of trials ({why}), and is left as it is; name another file as storage."
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
        if content[whole : whole + 1] != b"{":  # no line of ours was ever begun like this
            raise _foreign(journal, f"it ends with {content[whole:][:30]!r}")
        file.truncate(whole)
