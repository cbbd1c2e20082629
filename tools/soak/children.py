"""Forked processes that do one thing and write down how it ended."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0  # seconds until a process that does not end is taken for hung


def start(work: Callable[[], str], answer: Path) -> int:
    """Fork a process that writes what `work` returns to `answer`, or the error; its number."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        answer.write_text(work())
        code = 0
    except BaseException as error:
        answer.write_text(f"{type(error).__name__}: {error}")
        if not type(error).__module__.startswith("truepair"):
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait(process: int, limit: float = PATIENCE) -> int:
    """Wait for the end of a process: its exit code, or minus the signal that ended it."""
    ends = time.monotonic() + limit
    while time.monotonic() < ends:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise TimeoutError(f"a process did not end within {limit:g} seconds")


def kill_after(process: int, seconds: float) -> int:
    """Kill a process after some time, if it still runs; how it ended."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(process, signal.SIGKILL)
    return wait(process)


def answer_of(work: Callable[[], str], answer: Path) -> str:
    """What `work` returns in a forked process, or its error as text."""
    wait(start(work, answer))
    return answer.read_text()
