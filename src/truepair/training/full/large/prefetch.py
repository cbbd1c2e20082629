"""Prefetching: values that a background thread makes before they are used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
_WAIT = 0.05  # seconds between two looks at whether the values are still wanted


def prefetch(values: Iterable[T], depth: int) -> Generator[T]:
    """The values, of which a thread makes up to `depth` more than were used.

    An error of the thread is raised here, in the place of its value. The thread ends with the iterator.
    """
    made: queue.Queue[tuple[list[T], BaseException | None]] = queue.Queue(depth)
    over = threading.Event()

    def put(value: list[T], error: BaseException | None = None) -> None:
        waiting = True
        while waiting and not over.is_set():
            try:
                made.put((value, error), timeout=_WAIT)
                waiting = False
            except queue.Full:
                pass

    def work() -> None:
        try:
            for value in values:
                put([value])
                if over.is_set():
                    return
            put([])
        except BaseException as error:  # it is raised where the values are used
            put([], error)

    thread = threading.Thread(target=work, name="truepair-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            value, error = made.get()
            if error is not None:
                raise error
            if not value:
                return
            yield value[0]
    finally:
        over.set()
        thread.join()
