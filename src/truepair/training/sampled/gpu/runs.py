"""Runs that train together on the GPU: their tensors, and the kernels of an epoch in order.

All runs of a group share the data and every shape; rates, priors, seeds and the like are numbers that the
kernels read, one set a run. A single run is a group of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
import triton
from torch import Tensor

from truepair.models.encoders import StartedEncoder
from truepair.models.start import Side, Start
from truepair.randomness import stream_key
from truepair.sampling import Draws, Matrices
from truepair.training.job import EpochTotals, Job
from truepair.training.sampled.gpu import in_batch, kernels
from truepair.training.sampled.gpu.lightgcn import Hops, Touched
from truepair.training.sampled.plan import next_power_of_two, plan_of, prior_of

_TABLE_BYTES = 1 << 30  # at most so much for the drawn entries of a part of an epoch
_TABLE_STEPS = 65_535  # and so many steps: a limit of CUDA's launch grids
_GRAPH_STEPS = 20_000  # longer epochs are launched kernel by kernel: their graph would take gigabytes
_BETAS = 0.9, 0.999
_LAZY_PARAMETERS = 2_000_000  # below, a pass over all parameters is over before their replay is
_ADAM_BLOCK = 512  # parameters that one program updates


class DrawTable(NamedTuple):
    """A part of an epoch whose entries are drawn at once: so many steps from this one on."""

    first_step: int
    steps: int
    entries: int


class StepBatch(NamedTuple):
    """The batch of a step of a table: where its entries begin, and how many there are."""

    table: DrawTable
    step: int
    place: int
    left: int


class GpuRuns:
    """The state of a group of runs, and one epoch of all of them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.plans = list(jobs), [plan_of(job) for job in jobs]
        job, self.plan = jobs[0], self.plans[0]
        self.device = job.settings.torch_device()
        self.draws = Draws(job.interactions, job.sampler, self.device)
        self.n_users, self.n_items, self.dim = self.draws.n_users, self.draws.n_items, job.encoder.dim
        self.n_rows, self.n_anchors = self.n_users + self.n_items, len(self.draws.anchors)
        self.batch = min(job.settings.batch_size, self.n_anchors)
        self.steps = math.ceil(self.n_anchors / self.batch)
        # a kernel may start while the one before it ends, where the GPU can do that
        self.overlaps = self.is_cuda and torch.cuda.get_device_capability(self.device) >= (9, 0)
        self.weights = self._start()  # [runs, n_rows, d]
        self.means, self.squares, self.gradients = (torch.zeros_like(self.weights) for _ in range(3))
        self.numbers, self.tau, self.log_rest = self._numbers()
        self.has_l2 = any(job.settings.l2_users or job.settings.l2_items for job in jobs)
        graph = job.interactions, self.weights, self.plan.hops, self.overlaps
        self.hops = Hops(*graph) if self.plan.hops else None
        # rows that nobody touches can wait, if they are many
        touched = min(self.batch, self.n_anchors) * (1 + self.plan.width)
        many = self.n_rows * self.dim >= _LAZY_PARAMETERS
        self.lazy = self.hops is None and touched < self.n_rows and many
        self.tables = self._tables()
        self._allocate()
        self.pair_users, self.pair_items = self.draws.users.int(), self.draws.items.int()
        weights = job.anchor_weights if self.is_weighted else np.zeros(0, np.float32)
        self.pair_weights = torch.tensor(weights, device=self.device)
        before = self.draws.gaps - self.draws.users * self.draws.stride  # unlabelled weight before each pair
        self.before = before.int() if self.draws.stride < 2**31 else before
        self.epochs_run = 0
        self.steps_at_start = torch.tensor([0 if job.start is None else job.start.steps for job in jobs])
        self.steps_made = self.steps_at_start
        self.graph: torch.cuda.CUDAGraph | None = None

    # --- setting up ------------------------------------------------------------------------------------

    def _start(self) -> Tensor:
        started = [StartedEncoder(j.encoder, self.n_users, self.n_items, j.settings.seed) for j in self.jobs]
        rows = [torch.cat([model.user.detach(), model.item.detach()]) for model in started]
        return torch.stack(rows).to(self.device)

    def _numbers(self) -> tuple[Tensor, Tensor, Tensor]:
        rows = [
            plan.run_numbers(job.settings.l2_users, job.settings.l2_items, job.settings.weight_decay)
            for plan, job in zip(self.plans, self.jobs, strict=True)
        ]
        priors = [np.stack(prior_of(job.loss)) for job in self.jobs]  # [2, 1] or [2, n_users]
        width = max(prior.shape[1] for prior in priors)
        wide = np.stack([np.broadcast_to(prior, (2, width)) for prior in priors], axis=1)  # [2, runs, width]
        tau, log_rest = torch.from_numpy(wide).to(self.device)
        return torch.tensor(rows, dtype=torch.float32, device=self.device), tau, log_rest

    def _tables(self) -> list[DrawTable]:
        """The epoch in parts that fit into memory."""
        a_step = self.batch * (self.plan.width + 1) * 4 + (self.n_rows if self.hops else 0)
        a_step += self.n_rows // 8 if self.lazy else 0
        most = min(max(1, _TABLE_BYTES // (a_step * len(self.jobs))), _TABLE_STEPS)
        most = math.ceil(self.steps / math.ceil(self.steps / most))  # parts of about equal size
        firsts = range(0, self.steps, most)
        sizes = [min(most, self.steps - first) for first in firsts]
        return [
            DrawTable(first, size, min(size * self.batch, self.n_anchors - first * self.batch))
            for first, size in zip(firsts, sizes, strict=True)
        ]

    def _allocate(self) -> None:
        runs, rows = len(self.jobs), max(table.entries for table in self.tables)
        steps = max(table.steps for table in self.tables)

        def empty(*shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=self.device)

        # parameters of an epoch: the key of its draws, the steps before it, the bits of its learning rate
        self.epoch_parameters = empty(3, runs, dtype=torch.int64)
        self.epoch_parameters_cpu = torch.zeros(3, runs, dtype=torch.int64, pin_memory=self.is_cuda)
        self.keys = self.epoch_parameters[0]
        self.rates = empty(runs, self.steps, 2, dtype=torch.float32)
        self.words = empty(runs, self.n_anchors, dtype=torch.int64)
        self.run_of_word = torch.arange(runs, device=self.device).repeat_interleave(self.n_anchors)
        self.entry_users = empty(runs * rows, dtype=torch.int32)
        self.entry_rows = empty(runs * rows * self.plan.width, dtype=torch.int32)
        self.entry_weights = empty(runs * rows if self.is_weighted else 1, dtype=torch.float32)
        self.touched = empty(runs * steps * self.n_rows if self.hops else 1, dtype=torch.int8)
        self.bit_words = steps // 32 + 2
        self.step_bits = empty(runs * self.n_rows * self.bit_words if self.lazy else 1, dtype=torch.int32)
        self.touches = empty(runs, self.n_rows, dtype=torch.float32)
        self.losses = empty(runs, self.steps * self.batch, dtype=torch.float32)
        self.clamps = empty(runs, self.steps * self.batch, dtype=torch.int8)
        slots = next_power_of_two(self.plan.width) if self.plan.pool > self.plan.n else 0
        self.scores = empty(max(1, runs * self.batch * slots), dtype=torch.float32)
        self.shares = in_batch.shares_of(self.batch, runs)
        counts = runs * self.shares * self.batch * slots if self.plan.risk else 1
        self.beaten = empty(counts, dtype=torch.int32)
        self.summary = empty(runs, self.steps + 2, dtype=torch.float64)

    @property
    def trainers(self) -> list[GpuTrainer]:
        """Each run as the loop around the engines sees it; the group does not hold on to them."""
        return [GpuTrainer(self, run) for run in range(len(self.jobs))]

    # --- one epoch -------------------------------------------------------------------------------------

    def train(self, epochs: Sequence[int], rates: Sequence[float]) -> npt.NDArray[np.float64]:
        """One epoch of every run. Gives [runs, steps + 2]: loss sums, clamped rows, finite or not."""
        keys = [stream_key(job.settings.seed, e) for job, e in zip(self.jobs, epochs, strict=True)]
        self.epoch_parameters_cpu[0] = torch.from_numpy(np.array(keys, dtype=np.uint64).view(np.int64))
        before = torch.tensor(epochs) * self.steps + self.steps_at_start
        self.epoch_parameters_cpu[1], self.steps_made = before, before + self.steps
        self.epoch_parameters_cpu[2] = torch.tensor(rates, dtype=torch.float64).view(torch.int64)
        self.epoch_parameters.copy_(self.epoch_parameters_cpu, non_blocking=True)
        with torch.cuda.device_of(self.weights):  # type: ignore[no-untyped-call]  # Triton launches there
            if not self.is_cuda or self.epochs_run == 0 or self.steps > _GRAPH_STEPS:
                self.enqueue()  # the first time compiles the kernels
            else:
                if self.graph is None:
                    self.graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                        self.enqueue()
                self.graph.replay()
        self.epochs_run += 1
        return self.summary.cpu().numpy()

    def _set_rates(self) -> None:
        """Adam's two factors of each step, with the bias corrections of the steps since the start."""
        steps = torch.arange(1, self.steps + 1, device=self.device)
        t = self.epoch_parameters[1][:, None] + steps  # [runs, steps]
        rate = self.epoch_parameters[2].view(torch.float64)[:, None]
        self.rates[:, :, 0] = rate / (1 - _BETAS[0] ** t.double())
        self.rates[:, :, 1] = (1 - _BETAS[1] ** t.double()).rsqrt()

    def enqueue(self) -> None:
        """The kernels of an epoch, in order."""
        self._set_rates()
        order = self._order()
        for table in self.tables:
            self._draw(table, order)
            for step in range(table.steps):
                self._step(table, step)
        sums = self.losses.view(len(self.jobs), self.steps, self.batch).sum(dim=2, dtype=torch.float64)
        self.summary[:, : self.steps] = sums
        self.summary[:, self.steps] = self.clamps.sum(dim=1)
        self.summary[:, self.steps + 1] = self.weights.isfinite().flatten(1).all(dim=1)

    def _order(self) -> Tensor:
        """The anchors of each run in the order of its epoch, as places among `draws.anchors`."""
        runs = len(self.jobs)
        grid = (triton.cdiv(self.n_anchors, 1024), runs)
        kernels.words_kernel[grid](self.keys, self.words, self.n_anchors, BLOCK=1024)
        order = self.words.view(-1).argsort(stable=True)
        if runs > 1:  # all words at once, then by run, which keeps their order
            by_run = self.run_of_word[order].to(torch.uint8).argsort(stable=True)
            order = order[by_run] % self.n_anchors
        return order

    def _draw(self, table: DrawTable, order: Tensor) -> None:
        draws, plan, runs = self.draws, self.plan, len(self.jobs)
        if self.hops:
            self.touched.zero_()
        if self.lazy:
            self.step_bits.zero_()
        grid = (triton.cdiv(self.batch * plan.width, 256), table.steps, runs)
        kernels.draw_kernel[grid](
            self.keys, order, draws.anchors, self.pair_users, self.pair_items, draws.indptr, self.before,
            draws.passed, draws.ends, draws.free, self.pair_weights, self.entry_users, self.entry_rows,
            self.entry_weights, self.touched, self.step_bits, self.n_anchors, self.n_users, self.n_items,
            self.n_rows, table.first_step, table.first_step * self.batch, table.entries, self.batch,
            self.bit_words,
            M=plan.m, POOL=plan.pool, UNIFORM=draws.has_uniform_weights, MARK=self.hops is not None,
            OWN=self.lazy, WEIGHTED=self.is_weighted, ROUNDS=draws.longest_history.bit_length(),
            END_ROUNDS=self.n_items.bit_length(), BLOCK=256,
        )  # fmt: skip
        if self.lazy:
            rows = kernels.ROWS_TOGETHER
            kernels.first_replay_kernel[(triton.cdiv(self.n_rows, rows), runs)](
                self.weights, self.means, self.squares, self.gradients, self.step_bits, self.numbers,
                self.rates, self.steps, self.n_rows, self.bit_words, table.first_step, table.steps,
                D=self.dim, DP=next_power_of_two(self.dim), ROWS=rows,
            )  # fmt: skip

    def _step(self, table: DrawTable, step: int) -> None:
        place = step * self.batch
        batch = StepBatch(table, step, place, min(self.batch, table.entries - place))
        # no early start where the one before is not a kernel of a step
        early = self.overlaps and step > 0 and not (self.has_l2 and self.hops)
        touched = Touched(self.touched, table.steps, step)
        source = self.hops.forward(self.weights, touched, early) if self.hops else self.weights
        if self.plan.risk:
            self._count_beaten(batch, source, early)
        self._rows(batch, source, early)
        if self.lazy:
            self._lazy_adam(batch)
        else:
            self._adam(batch, self.hops.backward(self.gradients, touched) if self.hops else self.gradients)

    @property
    def is_weighted(self) -> bool:
        """Whether anchors have different weights; the jobs of a group share their interactions."""
        return self.jobs[0].anchor_weights is not None

    @property
    def is_cuda(self) -> bool:
        """Whether this is a real GPU, not Triton's interpreter."""
        return self.device.type == "cuda"

    def _count_beaten(self, batch: StepBatch, source: Tensor, early: bool) -> None:
        plan, draws = self.plan, self.draws
        grid = (triton.cdiv(batch.left, in_batch.ROWS), self.shares, len(self.jobs))
        in_batch.beaten_kernel[grid](
            source, self.entry_users, self.entry_rows, self.numbers, draws.indptr, self.pair_items,
            self.beaten, batch.place, batch.left, self.batch, batch.table.entries, self.n_rows, self.n_users,
            COSINE=plan.cosine, M=plan.m, POOL=plan.pool, K=next_power_of_two(plan.width), D=self.dim,
            PART=min(64, max(16, next_power_of_two(self.dim))), ROWS=in_batch.ROWS,
            SAMPLE=in_batch.SAMPLE, ROUNDS=draws.longest_history.bit_length(), **kernels.overlap(early),
        )  # fmt: skip

    def _rows(self, batch: StepBatch, source: Tensor, early: bool) -> None:
        plan = self.plan
        slots, columns = next_power_of_two(plan.width), next_power_of_two(self.dim)
        kernels.rows_kernel[(batch.left, len(self.jobs))](
            source, self.gradients, self.touches, self.entry_users, self.entry_rows, self.entry_weights,
            self.numbers, self.tau, self.log_rest, self.losses, self.clamps, self.scores, self.beaten,
            self.draws.popularity, plan.risk, self.shares, batch.place, batch.left, self.batch,
            batch.table.entries, self.n_rows, self.n_users, self.losses.shape[1], self.tau.shape[1],
            batch.table.first_step * self.batch + batch.place,
            PAIR=plan.pair, ROW=plan.row, RELATIVE=plan.relative, COSINE=plan.cosine,
            L2=self.has_l2, RAW=self.hops is None, M=plan.m, N=plan.n, POOL=plan.pool, K=slots,
            RANKED=bool(plan.risk), WEIGHTED=self.is_weighted, D=self.dim, DP=columns,
            num_warps=min(16, max(1, slots * columns // 1024)), **kernels.overlap(early),
        )  # fmt: skip

    def _adam(self, batch: StepBatch, spread: Tensor) -> None:
        grid = (triton.cdiv(self.n_rows * self.dim, _ADAM_BLOCK), len(self.jobs))
        kernels.adam_kernel[grid](
            self.weights, self.means, self.squares, self.gradients, spread, self.touches, self.numbers,
            self.rates, batch.table.first_step + batch.step, self.steps, self.n_rows, D=self.dim,
            GRAPH=self.hops is not None, L2=self.has_l2, BLOCK=_ADAM_BLOCK, **kernels.overlap(self.overlaps),
        )  # fmt: skip
        if self.has_l2 and self.hops:
            self.touches.zero_()

    def _lazy_adam(self, batch: StepBatch) -> None:
        table, entries, rows = batch.table, batch.left * self.plan.width, kernels.ROWS_TOGETHER
        there = entries + batch.left + triton.cdiv(self.n_rows, kernels.SWEEP)
        kernels.lazy_adam_kernel[(triton.cdiv(there, rows), len(self.jobs))](
            self.weights, self.means, self.squares, self.gradients, self.entry_users, self.entry_rows,
            self.step_bits, self.numbers, self.rates, batch.place, batch.step, self.steps, entries,
            batch.left, table.entries, self.n_rows, self.bit_words, table.first_step, table.steps,
            WIDTH=self.plan.width, D=self.dim, DP=next_power_of_two(self.dim), ROWS=rows,
            **kernels.overlap(self.overlaps),
        )  # fmt: skip

    # --- what comes out --------------------------------------------------------------------------------

    def matrices(self, run: int) -> Matrices:
        """Copies of one run's two matrices."""
        with torch.cuda.device_of(self.weights):  # type: ignore[no-untyped-call]
            rows = self.weights[run] if self.hops is None else self.hops.whole(self.weights, run)
        users, items = rows[: self.n_users].clone(), rows[self.n_users :].clone()
        if self.plan.cosine:
            return F.normalize(users) * float(self.plans[run].score_scale), F.normalize(items)
        return users, items


class GpuTrainer:
    """One run of a group, as the loop around the engines sees it."""

    def __init__(self, runs: GpuRuns, run: int) -> None:
        self.runs, self.run = runs, run
        self.steps, self.n_anchors = runs.steps, runs.n_anchors
        self.n_saturated_users = runs.draws.n_saturated_users
        self.finite = True

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """One epoch of a group of one."""
        totals = self.totals(self.runs.train([epoch], [rate]))
        advance(self.steps)
        return totals

    def totals(self, summary: npt.NDArray[np.float64]) -> EpochTotals:
        """This run's part of what `GpuRuns.train` gave."""
        mine = summary[self.run]
        self.finite = bool(mine[self.steps + 1])
        has_floor = self.runs.plans[self.run].has_floor
        return EpochTotals(torch.from_numpy(mine[: self.steps]), int(mine[self.steps]) if has_floor else None)

    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        return self.runs.matrices(self.run)

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return self.finite

    def state(self) -> dict[str, Tensor]:
        """Parameters and Adam's moments."""
        named = {"parameters": self.runs.weights, "means": self.runs.means, "squares": self.runs.squares}
        return {name: tensor[self.run] for name, tensor in named.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """What `state` gave."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def begin(self, start: Start) -> None:
        """Start from these vectors and moments; the group counts Adam's steps."""
        for tensor, *rows in zip(self.state().values(), start.users, start.items, strict=True):
            if all(row is not None for row in rows):
                tensor.copy_(torch.cat([row for row in rows if row is not None]))

    def reached(self) -> Start:
        """The vectors and moments now."""
        steps, sizes = int(self.runs.steps_made[self.run]), [self.runs.n_users, self.runs.n_items]
        tensors = [tensor.cpu() for tensor in self.state().values()][: 3 if steps else 1]
        users, items = zip(*(torch.split(tensor, sizes) for tensor in tensors), strict=True)
        return Start(Side(*users), Side(*items), steps)
