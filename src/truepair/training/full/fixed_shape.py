"""Steps of one shape: an epoch's blocks in buffers that stay, so that a GPU can repeat a recorded step.

A step is some hundred small kernels; launching them one by one takes ten times as long as they run. So one
step is recorded as a CUDA graph, and an epoch replays it. What differs between blocks is read from buffers
by the step's number, which the graph itself counts. Blocks have different numbers of anchors, and are padded
to `room` with anchors that have no share and belong to a row of their own, whose results are not used.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.sampling.samplers import epoch_order
from truepair.training.full.block import UserBlock
from truepair.training.full.scoring import Blocks, ScoredBlock

_SPARE, _ROUND = 1.1, 1024  # room for blocks of later epochs, which may be longer


class EpochBuffers:
    """The blocks of an epoch in buffers, and the number of the next one."""

    def __init__(self, blocks: Blocks, batch_size: int) -> None:
        self.blocks, self.batch_size, n = blocks, batch_size, len(blocks.users)
        self.steps = math.ceil(n / batch_size)
        self.users, self.counts = blocks.users.cpu(), blocks.counts.cpu()
        self.room = 0
        self.step = blocks.users.new_zeros(1)
        self.order, self.starts = blocks.users.clone(), blocks.users.new_zeros(n + 1)
        self.bounds = blocks.users.new_zeros(self.steps, 2)  # each block's first anchor, and the next one's
        self.rows, self.items = (blocks.users.new_zeros(blocks.n_anchors) for _ in range(2))
        weights = blocks.anchor_weights
        self.weights = None if weights is None else weights.new_zeros(blocks.n_anchors)

    def size(self, step: int) -> int:
        """How many users a step's block has."""
        return min(self.batch_size, len(self.users) - step * self.batch_size)

    def fill(self, seed: int, epoch: int) -> bool:
        """Fill the buffers for an epoch; whether its blocks need more room than there was."""
        order = epoch_order(self.users, seed, epoch)  # on the CPU
        counts = self.counts[order]
        starts = F.pad(counts.cumsum(0), (1, 0))
        edges = torch.arange(self.steps + 1) * self.batch_size
        bounds = starts[edges.clamp_(max=len(order))].unfold(0, 2, 1)
        for buffer, value in ((self.order, order), (self.starts, starts), (self.bounds, bounds)):
            buffer.copy_(value)
        n, device = self.blocks.n_anchors, self.order.device
        numbers = torch.arange(len(order), device=device)
        rows = torch.repeat_interleave(numbers, counts.to(device), output_size=n)
        self.rows.copy_(rows)
        shift = self.blocks.indptr[self.order] - self.starts[:-1]
        places = torch.arange(n, device=device) + shift[rows]
        self.items.copy_(self.blocks.items[places])
        if self.weights is not None and self.blocks.anchor_weights is not None:
            self.weights.copy_(self.blocks.anchor_weights[places])
        self.step.zero_()
        most = int(bounds.diff().max())
        if most <= self.room:
            return False
        self.room = _ROUND * math.ceil(most * _SPARE / _ROUND)
        return True

    def members(self, size: int) -> Tensor:
        """The users of the block that comes next. [size]"""
        return self.order[self._first_row() + torch.arange(size, device=self.step.device)]

    def scored(
        self, users: Tensor, user_vectors: Tensor, item_vectors: Tensor
    ) -> tuple[ScoredBlock, Tensor, Tensor]:
        """The users' scores, with one row more than users; which anchors are real [room]; their weights."""
        blocks, size, device = self.blocks, len(users), self.step.device
        first, last = self.bounds[self.step][0]
        anchors = torch.arange(self.room, device=device) + first
        real = anchors < last
        anchors.clamp_(max=len(self.rows) - 1)
        rows = torch.where(real, self.rows[anchors] - self._first_row(), size)
        items = torch.where(real, self.items[anchors], 0)
        starts = self.starts[self._first_row() + torch.arange(size + 1, device=device)] - first
        scores = user_vectors.new_zeros(size + 1, blocks.n_items)
        torch.mm(user_vectors, item_vectors.T, out=scores[:size])
        own = rows * blocks.n_items + items
        pos = scores.view(-1)[own]
        scores.view(-1).index_fill_(0, own, -math.inf)
        n_unlabelled = blocks.n_unlabelled[users].to(scores.dtype)
        log_weights = None if blocks.weights is None else F.pad(blocks.weights(users, None), (0, 0, 0, 1))
        block = UserBlock(
            users=users,
            scores=scores,
            pos=pos,
            rows=rows,
            starts=torch.cat([starts, starts[-1:]]),  # to the kernels over pairs, the row more has no anchors
            n_unlabelled=F.pad(n_unlabelled, (0, 1), value=1.0),
            tau=F.pad(blocks.tau[users], (0, 1)),
            longest=blocks.longest,
            log_weights=log_weights,
        )
        weights = real if self.weights is None else torch.where(real, self.weights[anchors], 0.0)
        return ScoredBlock(block, items, None, user_vectors, item_vectors), real, weights

    def _first_row(self) -> Tensor:
        return self.step * self.batch_size
