"""Prefetching: values that a background thread makes before they are used."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def prefetch(values: Iterable[T], depth: int) -> Generator[T]:
    """The values, of which a thread makes up to `depth` more than were used, and one on top.

    An error of the thread is raised here, in the place of its value. The thread ends with the iterator.
    """
    source = iter(values)
    pool = ThreadPoolExecutor(1, thread_name_prefix="truepair-prefetch")
    try:
        made = deque(pool.submit(_next_of, source) for _ in range(depth + 1))
        while value := made.popleft().result():
            made.append(pool.submit(_next_of, source))
            yield value[0]
    finally:
        pool.shutdown(cancel_futures=True)


def _next_of(values: Iterator[T]) -> list[T]:
    """The next value; nothing at the end."""
    return list(islice(values, 1))
