"""A process that runs inputs of one target; it may be killed at any moment, and says where it was."""

from __future__ import annotations

import faulthandler
import hashlib
import mmap
import os
import resource
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from fuzzing.inputs import feed
from fuzzing.target import Target

COUNTS = ("inputs", "accepted", "refused", "other")
MORE_MEMORY = 4 << 30  # bytes of address space above what the process has at its start


class Log:
    """What happened so far, in files that outlive the process."""

    def __init__(self, folder: Path, found: Path, target: str) -> None:
        self.current, self.found, self.target = folder / "current", found, target
        with open(folder / "counts", "w+b") as file:
            file.truncate(8 * len(COUNTS))
            self._counts = mmap.mmap(file.fileno(), 0)
        self._kept: dict[str, int] = {}  # signature of an error -> bytes of the smallest input

    def add(self, name: str) -> None:
        """Count one more."""
        at = 8 * COUNTS.index(name)
        self._counts[at : at + 8] = struct.pack("<q", struct.unpack("<q", self._counts[at : at + 8])[0] + 1)

    def keep(self, data: bytes, error: BaseException) -> None:
        """Keep the smallest input of each kind of error, with the error beside it."""
        frames = [each for each in traceback.extract_tb(error.__traceback__) if _is_own(each.filename)]
        at = f"{Path(frames[-1].filename).name} {frames[-1].name}" if frames else ""
        kind = f"{type(error).__name__} {at}"
        if len(data) < self._kept.get(kind, 1 << 62):
            self._kept[kind] = len(data)
            text = "".join(traceback.format_exception(error))[-4000:]
            keep(self.found, self.target, data, kind, text)


def keep(found: Path, target: str, data: bytes, kind: str, text: str) -> None:
    """Write an input and what happened to it; of one kind and target, the last one stays."""
    name = f"{target.replace(' ', '-')}-{hashlib.blake2b(kind.encode(), digest_size=4).hexdigest()}"
    found.mkdir(parents=True, exist_ok=True)
    (found / f"{name}.input").write_bytes(data)
    (found / f"{name}.error").write_text(text, encoding="utf-8", errors="backslashreplace")


def _is_own(filename: str) -> bool:
    return "truepair" in Path(filename).parts


def read_counts(folder: Path) -> dict[str, int]:
    """The counts of a child, also of one that was killed."""
    path = folder / "counts"
    content = path.read_bytes() if path.exists() else b""
    return dict(zip(COUNTS, struct.unpack(f"<{len(COUNTS)}q", content), strict=True)) if content else {}


def is_within_an_input(folder: Path) -> bool:
    """Whether the last input of a child has no outcome yet."""
    inputs, *outcomes = read_counts(folder).values() or (0,)
    return inputs > sum(outcomes)


def run(target: Target, count: int, seed: int, folder: Path, found: Path, guided: bool) -> None:
    """Run inputs; an error that is not truepair's own is kept."""
    from truepair.errors import TruepairError

    log = Log(folder, found, target.name)
    work = folder / "work"
    work.mkdir()
    target.seeds(work)  # files that are made once, before memory is limited

    def attempt(data: bytes) -> None:
        log.current.write_bytes(data)
        log.add("inputs")
        log.add(outcome(data))  # when all is freed that the input, or its error, has left behind

    def outcome(data: bytes) -> str:
        try:
            target.run(data, work)
        except TruepairError:
            return "refused"
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            log.keep(data, error)
            return "other"
        return "accepted"

    _limit_memory()
    feed(target, attempt, count, seed, folder, guided)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if os.path.exists("/proc/self/statm") else 0
    if pages:
        limit = pages * resource.getpagesize() + MORE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(function: Callable[[], object], log: Path) -> int:
    """Start a process that runs `function` and ends; its output goes to a file. Returns its number."""
    if child := os.fork():
        return child
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        faulthandler.enable(all_threads=False)
        warnings.simplefilter("ignore")
        os.fsync = lambda fd: None  # inputs are thrown away, so they need not be on the disk
        function()
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
