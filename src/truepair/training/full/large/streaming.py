"""Blocks of users whose pairs stay where they are, such as in mapped files, and are copied ahead of use.

A thread gathers the items of the coming blocks into pinned memory and copies them to the device, while the
blocks before them train. The order of blocks is a function of (seed, epoch), so results are the same bits as
with all pairs on the device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.storage.compiled_code import announce_compilation
from truepair.storage.types import Array
from truepair.training.full.scoring import Blocks
from truepair.training.sampled.plan import Floats

T = TypeVar("T")
DEPTH = 4  # blocks that are ready


Arrived = Callable[[], Tensor]  # waits for a block's values on the device


class StreamedBlocks(Blocks):
    """`Blocks` without the pairs; those of a block are there when its turn comes."""

    # the users of the block, and what they have of each column
    current: tuple[Tensor, list[Tensor]] | None = None

    def keep_pairs(self, data: Interactions, weights: Floats | None) -> None:
        """Keep the arrays as they are."""
        from truepair.training.full.large.row_adam import gather  # imports Numba

        announce_compilation([gather])
        self.columns: list[Array] = [data.items] + ([] if weights is None else [weights])
        self.firsts, self.lengths, self.gather = np.asarray(data.indptr), np.asarray(data.user_counts), gather
        on_cuda = self.device.type == "cuda"
        self.stream = torch.cuda.Stream(self.device) if on_cuda else None  # type: ignore[no-untyped-call]

    def streamed(self, batches: Iterable[Tensor]) -> Generator[Tensor]:
        """These blocks of users, each with what it has on the device."""
        blocks = list(batches)
        on_host = torch.split(torch.cat(blocks).cpu(), [len(users) for users in blocks]) if blocks else ()
        streamed = prefetch((self.gathered(users) for users in on_host), DEPTH)
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
            found = [arrived() for arrived in self.gathered(users.cpu())]
        else:
            found = self.current[1]
        return found[0].long(), found[1] if len(found) == 2 else None

    def gathered(self, users: Tensor) -> list[Arrived]:
        """What the users of a block have, on its way to the device."""
        rows, found = users.numpy(), []
        total = int(self.lengths[rows].sum())
        for column in self.columns:
            values = torch.from_numpy(np.empty(total, column.dtype))
            if self.stream is not None:  # PyTorch uses pinned memory again, once its copy has ended
                values = torch.empty(total, dtype=values.dtype, pin_memory=True)
            self.gather(column, rows, self.firsts, self.lengths, values.numpy())
            found.append(_sent(values, self.stream))
        return found


def _sent(values: Tensor, stream: torch.cuda.Stream | None) -> Arrived:
    """Copy values to the stream's device; None: they stay where they are."""
    if stream is None:
        return lambda: values
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        found = values.to(stream.device, non_blocking=True)
        arrived.record(stream)

    def wait() -> Tensor:
        current = torch.cuda.current_stream(stream.device)
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
