"""Blocks of users whose pairs stay where they are, such as in mapped files, and are copied ahead of use.

A thread gathers the items of the coming blocks into pinned memory and copies them to the device, while the
blocks before them train. The order of blocks is a function of (seed, epoch), so results are the same bits as
with all pairs on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.distributed.cost import MANY_PAIRS
from truepair.models.factor_matrices import free_bytes
from truepair.storage.compiled_code import announce_compilation
from truepair.training.full.large.prefetch import prefetch
from truepair.training.full.scoring import Blocks

DEPTH = 4  # blocks that are ready
_SHARE = 4  # pairs that need more than a 4th of the device's free memory are streamed
_CODE = 8  # bytes of an item on the device


Gather = Callable[[npt.NDArray[Any]], None]  # writes a block's values into an array
Arrived = Callable[[], Tensor]  # waits for them on the device
Copies = Callable[[int, npt.NDArray[Any], Gather], Arrived]


def is_streamed(data: Interactions, device: torch.device) -> bool:
    """Whether the pairs stay in main memory or in their files."""
    if is_mapped(data.items) and len(data) >= MANY_PAIRS:
        return True
    if device.type == "cpu":
        return False
    free = free_bytes(device)
    return free is not None and len(data) * _CODE > free // _SHARE


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Whether an array is part of a mapped file."""
    each: Any = array
    while each is not None and not isinstance(each, np.memmap):
        each = getattr(each, "base", None)
    return each is not None


class Ready(NamedTuple):
    """The anchors of a block, on the device."""

    users: Tensor  # [B]
    items: Tensor  # [A]
    weights: Tensor | None  # [A]


class StreamedBlocks(Blocks):
    """`Blocks` without the pairs; those of a block are there when its turn comes."""

    current: Ready | None = None

    def keep_pairs(self, data: Interactions, weights: npt.NDArray[np.float32] | None) -> None:
        """Keep the arrays as they are."""
        self.columns = [data.items] + ([] if weights is None else [weights])
        self.firsts, self.lengths = np.asarray(data.indptr), np.asarray(data.user_counts)
        self.has_weights = weights is not None
        from truepair.training.full.large.gather import gather  # imports Numba

        announce_compilation([gather])
        self.gather = gather

    def epoch(self, seed: int, epoch: int, batch_size: int) -> Generator[Tensor]:
        """All users who have anchors once, in the order of (seed, epoch), in pieces."""
        blocks = list(super().epoch(seed, epoch, batch_size))
        on_host = torch.split(torch.cat(blocks).cpu(), batch_size) if blocks else ()
        copies = _copies(self.device, len(self.columns))
        made = (self.gathered(users.numpy(), copies) for users in on_host)
        streamed = prefetch(made, DEPTH)
        try:
            for users, arrays in zip(blocks, streamed, strict=True):
                self.current = self.ready(users, arrays)
                yield users
        finally:
            self.current = None
            streamed.close()

    def anchors(self, users: Tensor, rows: Tensor, starts: Tensor) -> tuple[Tensor, Tensor | None]:
        """The items and weights of a block's anchors. [A]"""
        if self.current is None or self.current.users is not users:  # not a block of this epoch
            made = self.gathered(users.cpu().numpy(), _copies(self.device, len(self.columns)))
            return self.ready(users, made)[1:]
        return self.current.items, self.current.weights

    def gathered(self, users: Codes, copies: list[Copies]) -> list[Arrived]:
        """What the users of a block have, on its way to the device."""
        counts = self.lengths[users]
        return [
            copy(int(counts.sum()), column, partial(self.gather, column, users, self.firsts, self.lengths))
            for column, copy in zip(self.columns, copies, strict=True)
        ]

    def ready(self, users: Tensor, arrays: list[Arrived]) -> Ready:
        """The block, once its copies have arrived."""
        tensors = [arrived() for arrived in arrays]
        return Ready(users, tensors[0].long(), tensors[1] if self.has_weights else None)


def _copies(device: torch.device, n: int) -> list[Copies]:
    return [_CudaCopies(device) if device.type == "cuda" else _copied for _ in range(n)]


def _copied(total: int, column: npt.NDArray[Any], gather: Gather) -> Arrived:
    """A block's values in a tensor of their own."""
    values = np.empty(total, column.dtype)
    gather(values)
    found = torch.from_numpy(values)
    return lambda: found


class _CudaCopies:
    """Copies of one column through a ring of pinned buffers, on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.turn = device, 0
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.buffers: list[Tensor | None] = [None] * 2
        self.copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]

    def __call__(self, total: int, column: npt.NDArray[Any], gather: Gather) -> Arrived:
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
