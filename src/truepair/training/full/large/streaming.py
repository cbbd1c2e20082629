"""Blocks of users whose pairs stay where they are, such as in mapped files, and are copied ahead of use.

A thread gathers the items of the coming blocks into pinned memory and copies them to the device, while the
blocks before them train. The order of blocks is a function of (seed, epoch), so results are the same bits as
with all pairs on the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.distributed.cost import MANY_PAIRS
from truepair.models.factor_matrices import free_bytes
from truepair.storage.compiled_code import announce_compilation
from truepair.storage.types import Array
from truepair.training.full.scoring import Blocks

T = TypeVar("T")
DEPTH = 4  # blocks that are ready
_SHARE = 4  # pairs that need more than a 4th of the device's free memory are streamed
_CODE = 8  # bytes of an item on the device


Gather = Callable[[Array], None]  # writes a block's values into an array
Arrived = Callable[[], Tensor]  # waits for them on the device
Copies = Callable[[int, Array, Gather], Arrived]


def is_streamed(data: Interactions, device: torch.device) -> bool:
    """Whether the pairs stay in main memory or in their files."""
    if len(data) >= MANY_PAIRS and is_mapped(data.items):
        return True
    free = None if device.type == "cpu" else free_bytes(device)
    return free is not None and len(data) * _CODE > free // _SHARE


def is_mapped(array: object) -> bool:
    """Whether an array is part of a mapped file."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


class StreamedBlocks(Blocks):
    """`Blocks` without the pairs; those of a block are there when its turn comes."""

    current: tuple[Tensor, list[Tensor]] | None = (
        None  # the users of the block, what they have of each column
    )

    def keep_pairs(self, data: Interactions, weights: npt.NDArray[np.float32] | None) -> None:
        """Keep the arrays as they are."""
        from truepair.training.full.large.row_adam import gather  # imports Numba

        announce_compilation([gather])
        self.columns: list[Array] = [data.items] + ([] if weights is None else [weights])
        self.firsts, self.lengths, self.gather = np.asarray(data.indptr), np.asarray(data.user_counts), gather

    def epoch(self, seed: int, epoch: int, batch_size: int) -> Generator[Tensor]:
        """All users who have anchors once, in the order of (seed, epoch), in pieces."""
        blocks = list(super().epoch(seed, epoch, batch_size))
        on_host = torch.split(torch.cat(blocks).cpu(), batch_size) if blocks else ()
        copies = self.copies()
        streamed = prefetch((self.gathered(users, copies) for users in on_host), DEPTH)
        try:
            for users, columns in zip(blocks, streamed, strict=True):
                self.current = users, [arrived() for arrived in columns]
                yield users
        finally:
            self.current = None
            streamed.close()

    def anchors(self, users: Tensor, rows: Tensor, starts: Tensor) -> tuple[Tensor, Tensor | None]:
        """The items and weights of a block's anchors. [A]"""
        if self.current is None or self.current[0] is not users:  # not a block of this epoch
            found = [arrived() for arrived in self.gathered(users.cpu(), self.copies())]
        else:
            found = self.current[1]
        return found[0].long(), found[1] if len(found) == 2 else None

    def copies(self) -> list[Copies]:
        """For each column, what brings its values to the device."""
        return [_CudaCopies(self.device) if self.device.type == "cuda" else _copied for _ in self.columns]

    def gathered(self, users: Tensor, copies: list[Copies]) -> list[Arrived]:
        """What the users of a block have, on its way to the device."""
        rows = users.numpy()
        total = int(self.lengths[rows].sum())
        return [
            copy(total, column, partial(self.gather, column, rows, self.firsts, self.lengths))
            for column, copy in zip(self.columns, copies, strict=True)
        ]


def _copied(total: int, column: Array, gather: Gather) -> Arrived:
    """A block's values in a tensor of their own."""
    values = np.empty(total, column.dtype)
    gather(values)
    return partial(torch.from_numpy, values)


class _CudaCopies:
    """Copies of one column through a ring of pinned buffers, on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.turn = device, 0
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.buffers: list[Tensor | None] = [None] * 2
        self.copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

    def __call__(self, total: int, column: Array, gather: Gather) -> Arrived:
        turn = self.turn = (self.turn + 1) % len(self.buffers)
        event, buffer = self.copied[turn], self.buffers[turn]
        event.synchronize()  # the copy before the last has left the buffer
        if buffer is None or len(buffer) < total:
            kind = torch.from_numpy(np.empty(0, column.dtype)).dtype
            buffer = self.buffers[turn] = torch.empty(total * 5 // 4, dtype=kind, pin_memory=True)
        gather(buffer.numpy()[:total])
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self.stream):
            found = buffer[:total].to(self.device, non_blocking=True)
            event.record(self.stream)
            arrived.record(self.stream)

        def wait() -> Tensor:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(arrived)
            found.record_stream(current)
            return found

        return wait


# --- prefetching ---------------------------------------------------------------------------------------


def prefetch(values: Iterable[T], depth: int) -> Generator[T]:
    """The values, of which a thread makes up to `depth` more than were used, and one on top.

    An error of the thread is raised here, in the place of its value. The thread ends with the iterator.
    """
    source = iter(values)
    pool = ThreadPoolExecutor(1, thread_name_prefix="truepair-prefetch")
    try:
        made = deque(pool.submit(list, islice(source, 1)) for _ in range(depth + 1))
        while value := made.popleft().result():  # at the end, nothing
            made.append(pool.submit(list, islice(source, 1)))
            yield value[0]
    finally:
        pool.shutdown(cancel_futures=True)
