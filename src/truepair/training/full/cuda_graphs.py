"""Full-catalogue training on CUDA by steps that are recorded once and replayed; many runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from truepair.training.full.fixed_shape import EpochBuffers
from truepair.training.full.trainer import FullTrainer
from truepair.training.job import EpochTotals, Job


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
