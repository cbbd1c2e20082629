"""Exact sampling on CUDA by steps that are recorded once and replayed; many runs at once, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from truepair.training.full.fixed_shape import Course
from truepair.training.full.trainer import FullTrainer
from truepair.training.result import Job
from truepair.training.trainer import EpochTotals


class RecordedFullTrainer(FullTrainer):
    """The same with Adam on CUDA, by steps that are recorded once and replayed."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.course = Course(self.blocks, job.settings.batch_size)
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
            self.aside = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        self.start(epoch, rate, advance)
        return self.totals()

    def start(self, epoch: int, rate: float, advance: Callable[[int], None] = lambda steps: None) -> None:
        """Let all steps of an epoch begin; nothing waits for them."""
        if self.course.lay(self.job.settings.seed, epoch):
            self.graphs.clear()
        self.optimizer.param_groups[0]["lr"].fill_(rate)
        for step in range(self.steps):
            self.play(self.course.size(step))
            advance(1)

    def totals(self) -> EpochTotals:
        """What the epoch gave, once it is over."""
        has_floor = self.job.loss.has_floor
        return EpochTotals(self.losses.clone(), int(self.clamped.sum()) if has_floor else None)

    def play(self, size: int) -> None:
        """The next step, with so many users; the first of a size is recorded."""
        if size not in self.graphs:
            self.rehearse(size)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool, stream=self.aside):
                self.step(size)
            self.graphs[size] = graph
        self.graphs[size].replay()

    def rehearse(self, size: int) -> None:
        """Steps that leave no trace: kernels are compiled and memory is found before a step is recorded."""
        kept = {name: value.clone() for name, value in self.state().items()}
        step = self.course.step.clone()
        with aside(self.aside):
            for _ in range(2):
                self.course.step.copy_(step)
                self.step(size)
        self.course.step.copy_(step)
        self.put_back(kept)

    def step(self, size: int) -> None:
        """One step, by what lies in the buffers; the next one comes after it."""
        course = self.course
        users = course.members(size)
        ours, items = self.model(users)
        held, real = course.scored(users, ours.detach(), items.detach())
        told = self.descend(ours, items, held, real / real.sum())
        self.losses.index_copy_(0, course.step, torch.where(real, told.loss, 0.0).sum()[None])
        if told.clamped is not None:
            self.clamped.index_copy_(0, course.step, (told.clamped & real).sum()[None])
        course.step += 1

    @torch.no_grad()
    def put_back(self, kept: Mapping[str, Tensor]) -> None:
        """The state before a rehearsal, into the memory that is there; what was not there yet is zero."""
        for name, value in self.state().items():
            if name in kept:
                value.copy_(kept[name])
            else:
                value.zero_()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """What `state` gave."""
        super().restore(state)
        self.graphs.clear()


class RecordedRuns:
    """Runs that need not be alike, each on a stream of its own: small steps leave a GPU room for others."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.trainers = [RecordedFullTrainer(job) for job in jobs]

    def train_all(self, epochs: Sequence[int], rates: Sequence[float | None]) -> list[EpochTotals]:
        """One epoch of every run with a rate; the others rest."""
        for trainer, epoch, rate in zip(self.trainers, epochs, rates, strict=True):
            if rate is not None:
                with aside(trainer.aside, wait=False):
                    trainer.start(epoch, rate)
        for device in {trainer.device for trainer in self.trainers}:
            torch.cuda.synchronize(device)
        return [trainer.totals() for trainer in self.trainers]


@contextmanager
def aside(stream: torch.cuda.Stream, wait: bool = True) -> Iterator[None]:
    """On another stream, after all that is under way; then the current one waits for it, if it is to."""
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    if wait:
        current.wait_stream(stream)
