"""Ctrl-C: one line on stderr and exit code 130, at every moment of a command.

While a command runs, Ctrl-C raises KeyboardInterrupt, so that the command can say how to continue. Before and
after it, and during imports, Ctrl-C ends the process at once: nothing is written there, and libraries
in C lose an exception or turn it into another one. This module imports little, so that it can be used first:
before it is, Ctrl-C ends the process in Python's way.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn

EXIT_CODE = 130
_IMPORT = "<frozen importlib._bootstrap>"


def end_process(signum: int = 0, frame: FrameType | None = None) -> NoReturn:
    """Say that the process was interrupted, and end it."""
    os.write(2, b"interrupted\n")
    os._exit(EXIT_CODE)


def end_at_interrupt() -> None:
    """From now on Ctrl-C ends the process; where it is ignored (`nohup`), it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_process)


@contextmanager
def interrupt_raises() -> Iterator[None]:
    """Within the block Ctrl-C raises KeyboardInterrupt, at the latest at its end.

    A second Ctrl-C ends the process. A handler of another program stays.
    """
    import threading

    before = signal.getsignal(signal.SIGINT)
    known = before in (signal.default_int_handler, end_process)
    if not known or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal came
        if came or _is_importing(frame):
            end_process()
        came = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
        if came:  # the exception was lost, as in a destructor
            raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False
