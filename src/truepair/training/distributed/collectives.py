"""Collectives: the few ways in which the processes of a run exchange tensors, with their traffic counted.

Only plain collectives of PyTorch are used. A tensor on CUDA goes over NCCL, or over gloo by way of main
memory where several processes share a device, which NCCL does not allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from truepair.errors import TrainingError

Collective = Callable[..., object]

# PyTorch 2.13 has new names for these two; 2.11 has the old ones only
_gather: Collective = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Collective = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class ProcessGroup:
    """The ranks of a run. A group of one rank needs no process group, and sends nothing.

    `sent` counts the bytes that this rank has sent, by the ring algorithms: a rank of R sends (R − 1) parts
    to gather or to reduce and scatter, and twice as much to reduce for all.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        *,
        place: torch.device | None = None,
        absent: Callable[[], list[int]] | None = None,
    ) -> None:
        """`place` is where tensors must be to be sent; None: where they are.

        `absent` finds the ranks that do not answer, after a collective has failed.
        """
        self.rank, self.size = rank, size
        self._place, self._absent = place, absent
        self.sent = 0

    @property
    def is_first(self) -> bool:
        """Whether this rank prints and writes files."""
        return self.rank == 0

    def gather(self, part: Tensor, length: int | None = None) -> Tensor:
        """The parts of all ranks in the order of the ranks: [n, …] each, one after the other. [size · n, …]

        Parts of different lengths are filled up with zeros to a `length` that is the same on all ranks.
        """
        if self.size == 1:
            return part
        if missing := (length or len(part)) - len(part):
            part = torch.cat([part, part.new_zeros(missing, *part.shape[1:])])
        found = part.new_empty(self.size * len(part), *part.shape[1:])
        return self._exchange(_gather, found, part, (self.size - 1) * part.nbytes)

    def reduce_scatter(self, whole: Tensor) -> Tensor:
        """The sum over ranks of the rank's own part of `whole` [size · n, …]. [n, …]"""
        if self.size == 1:
            return whole
        n_bytes = (self.size - 1) * whole.nbytes // self.size
        if self._place is not None and self._place.type == "cpu":  # gloo reduces for all and drops the rest
            parts = self._exchange(dist.all_to_all_single, torch.empty_like(whole), whole, n_bytes)
            return parts.view(self.size, -1, *whole.shape[1:]).sum(dim=0)
        found = whole.new_empty(len(whole) // self.size, *whole.shape[1:])
        return self._exchange(_reduce_scatter, found, whole, n_bytes)

    def sum(self, part: Tensor) -> Tensor:
        """The sum over ranks, of a tensor of one shape."""
        return self._reduced(part, dist.ReduceOp.SUM)

    def max(self, part: Tensor) -> Tensor:
        """The largest over ranks, of each number of a tensor of one shape."""
        return self._reduced(part, dist.ReduceOp.MAX)

    def texts(self, text: str) -> list[str]:
        """The texts of all ranks."""
        if self.size == 1:
            return [text]
        found = [""] * self.size
        self._run(lambda: dist.all_gather_object(found, text), (self.size - 1) * len(text))
        return found

    def _reduced(self, part: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        if self.size == 1:
            return part
        whole = self._staged(part).clone()
        n_bytes = 2 * (self.size - 1) * whole.nbytes // self.size
        self._run(lambda: dist.all_reduce(whole, op=operation), n_bytes)
        return whole.to(part.device)

    def _exchange(self, operation: Collective, found: Tensor, given: Tensor, n_bytes: int) -> Tensor:
        to, source = self._staged(found), self._staged(given).contiguous()
        self._run(lambda: operation(to, source), n_bytes)
        return to.to(found.device)

    def _staged(self, tensor: Tensor) -> Tensor:
        """The tensor where the backend can reach it."""
        return tensor if self._place is None else tensor.to(self._place)

    def _run(self, operation: Callable[[], object], n_bytes: int) -> None:
        try:
            operation()
        except RuntimeError as error:
            absent = [] if self._absent is None else self._absent()
            text = str(error).strip().splitlines()
            why = f"{type(error).__name__}: {text[0] if text else ''}"
            if absent:
                raise no_answer(absent, self.rank, self.size, why) from error
            raise TrainingError(
                f"rank {self.rank} of {self.size} lost the other ranks ({why:.300})."
            ) from error
        self.sent += n_bytes


def no_answer(absent: Sequence[int], rank: int, size: int, why: str) -> TrainingError:
    """An error that names the ranks that do not answer."""
    names = ", ".join(map(str, absent))
    ranks = f"rank {names} of {size} does" if len(absent) == 1 else f"ranks {names} of {size} do"
    return TrainingError(
        f"{ranks} not answer: the process has ended, or it hangs; see its output. "
        f"Rank {rank} waited for it ({why:.300})."
    )
