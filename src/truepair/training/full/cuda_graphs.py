"""Full-catalogue training on CUDA by steps that are recorded once and replayed; many runs side by side.

A step is some hundred small kernels; launching them one by one takes ten times as long as they run. So one
step is recorded as a CUDA graph, and an epoch replays it. What differs between blocks is read from buffers
by the step's number, which the graph itself counts. Blocks have different numbers of anchors, and are padded
to `room` with anchors that have no share and belong to a row of their own, whose results are not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.sampling.draws import epoch_order
from truepair.training.full.pair_sums import UserBlock
from truepair.training.full.scoring import Blocks, ScoredBlock
from truepair.training.full.trainer import FullTrainer
from truepair.training.job import EpochTotals, Job

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


class RecordedFullTrainer(FullTrainer):
    """Full-catalogue training with Adam on CUDA, by steps that are recorded once and replayed."""

    streams = False

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.buffers = EpochBuffers(self.blocks, job.settings.batch_size)
        rate = torch.tensor(job.settings.learning_rate, device=self.device)  # read at every replay
        decay = job.settings.weight_decay
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=rate, weight_decay=decay, fused=True, capturable=True
        )
        self.losses = torch.zeros(self.steps, device=self.device)
        self.clamped = torch.zeros(self.steps, dtype=torch.int64, device=self.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by the size of a block
        if self.device.type == "cuda":
            self.pool = torch.cuda.graph_pool_handle()  # one for all graphs: they never overlap
            # of its own: libraries keep memory for each stream, and runs that overlap must not share it
            self.side_stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        self.start(epoch, rate, advance)
        return self.totals()

    def start(self, epoch: int, rate: float, advance: Callable[[int], None] = lambda steps: None) -> None:
        """Launch all steps of an epoch without waiting for them."""
        if self.buffers.fill(self.job.settings.seed, epoch):
            self.graphs.clear()
        self.optimizer.param_groups[0]["lr"].fill_(rate)
        for step in range(self.steps):
            self.play(self.buffers.size(step))
            advance(1)

    def totals(self) -> EpochTotals:
        """The totals of the epoch, once its steps have ended."""
        has_floor = self.job.loss.has_floor
        return EpochTotals(self.losses.clone(), int(self.clamped.sum()) if has_floor else None)

    def play(self, size: int) -> None:
        """The next step, with so many users; the first one of a size is recorded."""
        if size not in self.graphs:
            self.warm_up(size)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.side_stream):
                self.step(size)
            self.graphs[size] = graph
        self.graphs[size].replay()

    def warm_up(self, size: int) -> None:
        """Steps that are undone: kernels are compiled and memory is allocated before a step is recorded."""
        before = {name: value.clone() for name, value in self.state().items()}
        step = self.buffers.step.clone()
        with side_stream(self.side_stream):
            for _ in range(2):
                self.buffers.step.copy_(step)
                self.step(size)
        self.buffers.step.copy_(step)
        with torch.no_grad():  # within the same memory; what did not exist before becomes zero
            for name, value in self.state().items():
                value.copy_(before[name]) if name in before else value.zero_()

    def step(self, size: int) -> None:
        """One step by the contents of the buffers; then the buffers point to the next one."""
        buffers = self.buffers
        users = buffers.members(size)
        user_vectors, item_vectors = self.model(users)
        scored, real, weights = buffers.scored(users, user_vectors.detach(), item_vectors.detach())
        found = self.update(user_vectors, item_vectors, scored, weights / real.sum(), users)
        self.losses.index_copy_(0, buffers.step, torch.where(real, found.loss * weights, 0.0).sum()[None])
        if found.clamped is not None:
            self.clamped.index_copy_(0, buffers.step, (found.clamped & real).sum()[None])
        buffers.step += 1

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        super().restore(state)
        self.graphs.clear()


def train_side_by_side(runs: Sequence[tuple[RecordedFullTrainer, int, float]]) -> list[EpochTotals]:
    """This epoch of each run, at this rate, on a stream of its own: a small step leaves room for others."""
    for trainer, epoch, rate in runs:
        with side_stream(trainer.side_stream, wait=False):
            trainer.start(epoch, rate)
    for device in {trainer.device for trainer, _, _ in runs}:
        torch.cuda.synchronize(device)
    return [trainer.totals() for trainer, _, _ in runs]


@contextmanager
def side_stream(stream: torch.cuda.Stream, wait: bool = True) -> Iterator[None]:
    """On another stream, after all that is under way; then the current one waits for it, if it is to."""
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    if wait:
        current.wait_stream(stream)
