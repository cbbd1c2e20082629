"""The engine of exact sampling: blocks of users against the whole catalogue, on the CPU and on CUDA.

A step scores a block, lets `rows_losses` turn scores into gradients of scores, and takes those back to the
parameters: three products of matrices, and an update of every parameter. Nothing of size users × items or
anchors × items is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.randomness import stream_key
from truepair.sampling import Exact
from truepair.training.reference import ModelTrainer
from truepair.training.result import Job
from truepair.training.rows_course import Course
from truepair.training.rows_losses import ROW_FORMS, RowLosses, has_row_form
from truepair.training.rows_scoring import Blocks, ScoredBlock, sums_for
from truepair.training.trainer import Engine, EpochTotals


class RowsTrainer(ModelTrainer):
    """Every encoder, loss and optimizer, with exact sampling."""

    def __init__(self, job: Job) -> None:
        assert isinstance(job.sampler, Exact)
        super().__init__(job)
        self.blocks = Blocks(job.interactions, job.loss, job.sampler, self.device)
        self.n_anchors, self.n_saturated_users = self.blocks.n_anchors, self.blocks.n_saturated_users
        self.steps = math.ceil(len(self.blocks.users) / job.settings.batch_size)
        self.sums = sums_for(job.sampler, self.device)

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        settings = self.job.settings
        self.set_rate(rate)
        losses: list[Tensor] = []
        clamped: list[Tensor] = []
        for step, users in enumerate(self.blocks.epoch(settings.seed, epoch, settings.batch_size)):
            ours, items = self.model(users)  # [B, d], [n_items, d]
            key = stream_key(settings.seed, epoch, step)
            held = self.blocks.scored(users, ours.detach(), items.detach(), key)
            told = self.descend(ours, items, held, torch.full_like(held.block.pos, 1 / len(held.items)))
            losses.append(told.loss.sum())
            clamped += [told.clamped.sum()] if told.clamped is not None else []
            advance(1)
        return EpochTotals(torch.stack(losses), int(torch.stack(clamped).sum()) if clamped else None)

    def descend(self, ours: Tensor, items: Tensor, held: ScoredBlock, share: Tensor) -> RowLosses:
        """Differentiate and update; an anchor counts by its share [A]."""
        told = held.losses(self.job.loss, share, self.sums)
        penalty = self.penalty(held.block.users, held.block.sum(share)[: len(held.block.users)])
        self.optimizer.zero_grad()
        if isinstance(penalty, Tensor):
            penalty.backward()  # type: ignore[no-untyped-call]
        torch.autograd.backward([ours, items], held.gradients(told))
        self.optimizer.step()
        return told

    def penalty(self, users: Tensor, shares: Tensor) -> Tensor | float:
        """½·l2·‖e‖² of every row that an anchor touches, mean over the anchors: all items, each time."""
        settings, terms = self.job.settings, []
        if settings.l2_users:
            norms = F.embedding(users, self.model.user).square().sum(dim=1)
            terms.append(settings.l2_users * (norms * shares).sum())
        if settings.l2_items:
            terms.append(settings.l2_items * self.model.item.square().sum())
        return torch.stack(terms).sum() / 2 if terms else 0.0


class RecordedRowsTrainer(RowsTrainer):
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
        on_gpu = self.device.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if on_gpu else None  # one for all: they never overlap

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        if self.course.lay(self.job.settings.seed, epoch):
            self.graphs.clear()
        self.optimizer.param_groups[0]["lr"].fill_(rate)
        for step in range(self.steps):
            self.play(self.course.size(step))
            advance(1)
        has_floor = self.job.loss.uses_prior
        return EpochTotals(self.losses.clone(), int(self.clamped.sum()) if has_floor else None)

    def play(self, size: int) -> None:
        """The next step, with so many users; the first of a size is recorded."""
        if size not in self.graphs:
            self.rehearse(size)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self.step(size)
            self.graphs[size] = graph
        self.graphs[size].replay()

    def rehearse(self, size: int) -> None:
        """Steps that leave no trace: kernels are compiled and memory is found before a step is recorded."""
        kept = {name: value.clone() for name, value in self.state().items()}
        step, aside = self.course.step.clone(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self.course.step.copy_(step)
                self.step(size)
        torch.cuda.current_stream().wait_stream(aside)
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


def is_recordable(job: Job, device: torch.device) -> bool:
    """Whether steps can be recorded: with Adam, on CUDA with Triton, for closed forms of whole rows."""
    whole = isinstance(job.sampler, Exact) and job.sampler.columns_of(job.interactions.n_items) is None
    closed = has_row_form(job.loss) and job.settings.optimizer == "adam"
    return whole and closed and device.type == "cuda" and find_spec("triton") is not None


def _start(job: Job) -> RowsTrainer:
    recordable = is_recordable(job, job.settings.torch_device())
    return RecordedRowsTrainer(job) if recordable else RowsTrainer(job)


def _lacks(job: Job) -> str | None:
    if not isinstance(job.sampler, Exact):
        return f"it has no sampler {type(job.sampler).__name__}; it has Exact."
    if not has_row_form(job.loss) and job.sampler.columns_of(job.interactions.n_items) is not None:
        known = ", ".join(kind.__name__ for kind in ROW_FORMS)
        return f"it draws columns of a catalogue only for losses with a row form of their own: {known}."
    return None


ROWS = Engine(start=_start, lacks=_lacks)
