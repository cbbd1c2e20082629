"""A contestant in a process of its own: its curve, the seconds of its stages, its peak memory, how it ended.

A contestant that runs out of time or memory is reported with the points that it reached. Memory is the
resident memory of the process and its children, with memory-mapped pages, from /proc: Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

from contestants import NOT_INSTALLED

WORKER = Path(__file__).parent / "contestants.py"
STAGES = ("reading", "training")  # whose memory counts
POLL = 0.1  # seconds
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OF_MEMORY = ("OutOfMemoryError", "MemoryError", "GC overhead limit", "Unable to allocate", "bad_alloc")
_GONE = ("Answer from Java side is empty", "Py4JNetworkError", "ConnectionRefusedError", "Connection reset")


class Limits(NamedTuple):
    """How far a contestant may go."""

    seconds: float
    bytes: float
    threads: int = 2


def machine_bytes() -> int:
    """The memory of this machine."""
    return _PAGE * os.sysconf("SC_PHYS_PAGES")


def tree_bytes(process: int) -> int:
    """The resident memory of a process and of all that it started; 0 if it has ended."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(folder.name))
            resident[int(folder.name)] = int(fields[21]) * _PAGE
    found, total = [process], 0
    while found:
        one = found.pop()
        total += resident.get(one, 0)
        found += children.get(one, [])
    return total


class Record:
    """What a contestant says of itself, line by line."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.stage, self.since = "import", time.perf_counter()
        self.found: dict[str, Any] = {"name": name, "settings": settings, "curve": []}
        self.found |= {"stages": {}, "peaks": {}}

    def listen(self, lines: IO[str]) -> None:
        """Until the contestant has ended."""
        for line in lines:
            if line.startswith("{"):
                self.hear(json.loads(line))

    def hear(self, said: dict[str, Any]) -> None:
        """A stage, a point of the curve, or another fact."""
        if "stage" in said:
            now, stages = time.perf_counter(), self.found["stages"]
            stages[self.stage] = stages.get(self.stage, 0.0) + now - self.since
            self.stage, self.since = said["stage"], now
        elif "ndcg" in said:
            self.found["curve"].append(said)
            print(f"  {self.found['name']}: {said['iterations']} iterations, {said['seconds']:.1f} s, "
                  f"NDCG@20 {said['ndcg']:.4f}", flush=True)  # fmt: skip
        else:
            self.found |= said

    def weigh(self, resident: int) -> None:
        """Note the memory in this stage."""
        self.found["peaks"][self.stage] = max(self.found["peaks"].get(self.stage, 0), resident)


def measured(
    name: str, folder: Path, target: str, users: int, settings: dict[str, Any], limits: Limits
) -> dict[str, Any]:
    """Run a contestant on the world in a folder; `target` is the part on which it is judged."""
    command = [sys.executable, str(WORKER), name, str(folder), target, str(users), json.dumps(settings)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(limits.threads))
    if name == "spark":
        threads["OPENBLAS_NUM_THREADS"] = "1"  # its own threads do the work
    record = Record(name, settings)
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | threads,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        listener = threading.Thread(target=record.listen, args=[process.stdout])
        listener.start()
        stopped = watch(process, record, limits)
        listener.join()
        errors.seek(0)
        ended = stopped or how_it_ended(process.returncode, errors.read(), record.found)
    if ended:
        record.found["ended"] = ended
    record.found["peak bytes"] = max((record.found["peaks"].get(each, 0) for each in STAGES), default=0)
    shutil.rmtree(folder / "spark", ignore_errors=True)
    return record.found


def watch(process: subprocess.Popen[str], record: Record, limits: Limits) -> str:
    """Wait for the end, and stop the contestant at a limit; the text says which."""
    began, stopped = time.monotonic(), ""
    while process.poll() is None:
        resident = tree_bytes(process.pid)
        record.weigh(resident)
        if resident > limits.bytes:
            stopped = f"stopped in {record.stage}: more than {limits.bytes / 1e9:.1f} GB"
        elif time.monotonic() - began > limits.seconds:
            stopped = f"stopped in {record.stage} after {limits.seconds:g} s"
        if stopped:
            break
        time.sleep(POLL)
    end_group(process.pid)
    process.wait()
    return stopped


def end_group(process: int) -> None:
    """End what is left of a contestant, with the JVM that it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def how_it_ended(code: int, errors: str, found: dict[str, Any]) -> str:
    """In words, why a contestant ended before its end; "" if it did not."""
    if code == 0:
        return ""
    if code == NOT_INSTALLED:
        return f"not installed: {found.pop('lacks', '')}"
    heap = found["settings"].get("heap")
    if any(word in errors for word in _OF_MEMORY):
        return "ran out of memory" + (f": Java heap of {heap}" if heap else "")
    if code == -signal.SIGKILL or any(word in errors for word in _GONE):
        return "killed, as Linux does when memory runs out"
    last = [line for line in errors.splitlines() if line.strip()][-1:]
    return f"failed with {code}: {''.join(last)[-300:]}"
