"""The file of a study, shared by processes: who may write now, who is still running, and Optuna's silence."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from truepair.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BEGINNING = b'{"op_code":'  # of every line that Optuna writes
_LONGEST = 1 << 20  # bytes of a first line that are looked at


def check_optuna() -> None:
    """Raise if Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise InputError("tuning needs Optuna: pip install 'truepair[tune]'")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence Optuna's log and warnings inside; outside, its settings stay as they were."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


# --- writing -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(journal: Path) -> Iterator[None]:
    """One process at a time; a process that dies releases the lock. Optuna is silent inside.

    Optuna's own lock is a file that a killed process leaves behind. Taking this one also repairs
    the journal: an incomplete last line of a killed process is cut off. A file that is no journal is refused,
    and left unchanged.
    """
    check_journal(journal)
    with quietly(), contextlib.ExitStack() as stack:
        if fcntl is None:
            from optuna.storages.journal import JournalFileOpenLock

            lock = JournalFileOpenLock(str(journal))
            lock.acquire()
            stack.callback(lock.release)
        else:
            path = Path(f"{journal}.lock")
            fcntl.flock(stack.enter_context(path.open("ab")), fcntl.LOCK_EX)  # closing it frees the lock
        _cut_torn_line(journal)
        yield


def check_journal(journal: Path) -> None:
    """Raise if the file exists and is no journal of trials; it is only read."""
    try:
        with open(journal, "rb") as file:
            first = file.readline(_LONGEST)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {journal}: {error.strerror or error}.") from error
    if not first or (first.startswith(_BEGINNING) and not first.endswith(b"\n")):
        return  # empty, or killed while it wrote the first line
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(first)
        if isinstance(entry, dict) and "op_code" in entry:
            return
    raise _foreign(journal, f"it begins with {first[:30]!r}")


def _cut_torn_line(journal: Path) -> None:
    if not journal.exists():
        return
    with open(journal, "r+b") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        if file.read() in (b"", b"\n"):
            return
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if content[whole : whole + 1] != b"{":  # no line of a journal begins like this
            raise _foreign(journal, f"it ends with {content[whole:][:30]!r}")
        file.truncate(whole)


def _foreign(journal: Path, why: str) -> InputError:
    return InputError(
        f"{journal} is not a journal of trials ({why}) and was not changed; use another file as storage."
    )


# --- running -----------------------------------------------------------------------------------------------


class Presence:
    """Marks that this process uses a journal; `alone` if no other process did at that time."""

    def __init__(self, journal: Path) -> None:
        self._file = open(journal, "rb")  # noqa: SIM115, open as long as the process is present
        self.alone = False
        if fcntl is not None:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.alone = True
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> None:
        """Remove the mark."""
        self._file.close()


@dataclass(frozen=True)
class Process:
    """The identity of a process: host, number, start time."""

    host: str
    pid: int
    started: str | None = None

    @staticmethod
    def this() -> Process:
        """The identity of this process."""
        return Process(platform.node(), os.getpid(), _started(os.getpid()))

    def is_dead(self) -> bool:
        """Whether it is known to have ended; processes of other machines are not known."""
        if os.name != "posix" or self.host != platform.node():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it exists, and belongs to another user
        return _started(self.pid) != self.started


def _started(pid: int) -> str | None:
    """The start time of a process, if the system provides it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
