"""Engine "cpu": the mathematics of `reference`, step for step, in compiled code.

The same start, order, draws, losses and updates as the reference, to the accuracy of float32; the same bits
for a seed on any number of threads. Threads are Numba's (NUMBA_NUM_THREADS or numba.set_num_threads), or one
alone while that is faster.
Numba is imported when a run starts, so that a program that trains elsewhere never waits for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.models.encoders import StartedEncoder
from truepair.models.start import Side, Start
from truepair.sampling import Draws, Matrices
from truepair.storage.compiled_code import announce_compilation, parallel_kernel
from truepair.training.job import Job
from truepair.training.sampled.plan import Floats, lacking, plan_of, weights_of_anchors
from truepair.training.trainer import Engine, EpochTotals

if TYPE_CHECKING:
    from truepair.training.sampled.cpu.batch import Epoch, Rules

SECONDS_BETWEEN_TRIALS = 10.0
TRIAL_STEPS = 8
CLEARLY_FASTER = 0.8  # one thread, as a share of the time of all: a choice by noise costs more than it saves
SECONDS_AT_A_TIME = 0.25  # how long the compiled code runs before Python may stop it or show progress


class FasterThreads:
    """All threads or one, whichever was faster of late: on a busy machine threads wait for each other.

    Both are tried at the start, and the slower one again every few seconds. Results do not depend on it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        import numba

        self.counts = sorted({numba.get_num_threads(), 1}, reverse=True)
        self._clock = clock
        self._found: dict[int, tuple[float, float]] = {}  # seconds of a step, and when they were measured

    def is_known(self, threads: int) -> bool:
        """Whether the seconds of a step with so many threads were measured of late."""
        return threads in self._found and self._clock() - self._found[threads][1] < SECONDS_BETWEEN_TRIALS

    def choose(self) -> int:
        """The number of threads for the next steps."""
        unknown = [threads for threads in self.counts if not self.is_known(threads)]
        if unknown:
            return unknown[0]
        most, least = self.counts[0], self.counts[-1]
        return least if self._found[least][0] < CLEARLY_FASTER * self._found[most][0] else most

    def note(self, threads: int, seconds: float) -> None:
        """A step took so long."""
        self._found[threads] = seconds, self._clock()


class CpuTrainer:
    """Parameters and Adam's moments in NumPy arrays, and epochs of compiled steps over them."""

    def __init__(self, job: Job) -> None:
        from truepair.training.sampled.cpu import buffers
        from truepair.training.sampled.cpu import draws as cpu_rows
        from truepair.training.sampled.cpu import steps as cpu_steps
        from truepair.training.sampled.cpu.epoch_order import narrow_tables_of

        self.job, self.plan, self.done = job, plan_of(job), 0  # `done` counts the steps of all epochs
        variant = "in-batch" if self.plan.risk else "graph" if self.plan.hops else ""
        announce_compilation([cpu_steps.run_steps], variant)
        data, settings, dim = job.interactions, job.settings, job.encoder.dim
        draws = Draws(data, job.sampler, "cpu", anchors=job.anchors)
        self.n_anchors, self.n_saturated_users = len(draws.anchors), draws.n_saturated_users
        self.steps = math.ceil(self.n_anchors / settings.batch_size)
        self.anchor_users = draws.users[draws.anchors].to(torch.int32).numpy()
        self.anchor_items = draws.items[draws.anchors].to(torch.int32).numpy()
        self.anchor_weights = weights_of_anchors(job, draws.anchors.numpy())
        self.numbers = cpu_rows.numbers_of(self.plan)
        self.popularity = draws.popularity.numpy()
        self.tables, self.narrow = narrow_tables_of(cpu_rows.tables_of(draws))
        # the encoder's parameters, without the graph that the reference would need
        started = StartedEncoder(job.encoder, data.n_users, data.n_items, settings.seed)
        adam, hops = settings.optimizer == "adam", self.plan.hops
        self.user = buffers.side_of(started.user, hops, adam)
        self.item = buffers.side_of(started.item, hops, adam)
        self.graph: tuple[Any, Any] = None, None
        if hops or self.plan.risk:  # where rows are chosen by risk, one variant serves with and without graph
            self.graph = buffers.neighbours_of(data, hops, dim if hops else 0)
        self.rows = buffers.rows_of(self.plan, min(settings.batch_size, self.n_anchors), dim)
        self.threads = FasterThreads()

    # --- an epoch ----------------------------------------------------------------------------------

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        from truepair.training.sampled.cpu.steps import run_steps

        epoch_data, step, size = self.epoch_data(epoch), 0, 1
        rules = self.rules(rate)
        arguments = {threads: self.arguments(rules, epoch_data, threads) for threads in self.threads.counts}
        while step < self.steps:
            threads, now = self.threads.choose(), time.perf_counter()
            trial = min(size, max(TRIAL_STEPS, size // 8))
            last = min(step + (size if self.threads.is_known(threads) else trial), self.steps)
            with parallel_kernel():
                run_steps(step, last, self.done, *arguments[threads])
            each = (time.perf_counter() - now) / (last - step)
            if last - step >= TRIAL_STEPS and step:  # the first steps of an epoch wait for threads to wake up
                self.threads.note(threads, each)
            advance(last - step)
            size, step = min(4 * size, max(1, int(SECONDS_AT_A_TIME / each))), last
        self.done += self.steps
        clamped = int(epoch_data.clamped.sum()) if self.plan.has_floor else None
        return EpochTotals(torch.from_numpy(epoch_data.losses), clamped)

    def epoch_data(self, epoch: int) -> Epoch:
        """The order of the anchors and the keys of the draws, as the reference has them."""
        from truepair.training.sampled.cpu.batch import Epoch
        from truepair.training.sampled.cpu.epoch_order import anchor_order, draw_keys

        seed = self.job.settings.seed
        order = anchor_order(seed, epoch, self.n_anchors)
        return Epoch(
            users=self.anchor_users[order],
            items=self.anchor_items[order],
            weights=self.anchor_weights[order] if len(self.anchor_weights) else self.anchor_weights,
            keys=draw_keys(seed, epoch, self.steps),
            losses=np.zeros(self.steps),
            clamped=np.zeros(self.steps, dtype=np.int64),
        )

    def rules(self, rate: float) -> Rules:
        """How the parameters move at a learning rate."""
        from truepair.training.sampled.cpu.batch import Rules

        settings, plan = self.job.settings, self.plan
        return Rules(
            batch=settings.batch_size,
            hops=plan.hops,
            adam=settings.optimizer == "adam",
            rate=float(rate),
            weight_decay=np.float32(settings.weight_decay),
            l2_users=np.float32(settings.l2_users),
            l2_items=np.float32(settings.l2_items),
            marks=bool(plan.hops or plan.cosine or settings.l2_users or settings.l2_items),
        )

    def arguments(self, rules: Rules, epoch_data: Epoch, threads: int) -> tuple[Any, ...]:
        """The arguments of every phase, with room for so many threads."""
        from truepair.training.sampled.cpu.buffers import room_of, sample_of

        n_users = len(self.user.weights)
        return (
            self.numbers, rules, self.tables, self.narrow, epoch_data, self.user, self.item, *self.graph,
            self.rows, room_of(self.rows, threads),
            sample_of(self.rows, self.popularity, n_users, threads) if self.plan.risk else None,
        )  # fmt: skip

    # --- what is learnt ----------------------------------------------------------------------------

    @torch.no_grad()
    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        encoder = self.job.encoder
        if self.plan.hops:
            self.encode()
        users, items = (torch.tensor(side.encoded[:, : encoder.dim]) for side in (self.user, self.item))
        if self.plan.cosine:
            return F.normalize(users) / encoder.temperature, F.normalize(items)
        return users, items

    def encode(self) -> None:
        """Vectors averaged over the graph, all of them."""
        from truepair.training.sampled.cpu.batch import NO_EPOCH
        from truepair.training.sampled.cpu.steps import run_steps

        arguments = self.arguments(self.rules(0.0), NO_EPOCH, self.threads.choose())
        with parallel_kernel():
            run_steps(0, 0, 0, *arguments)

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(np.isfinite(side.weights).all()) for side in (self.user, self.item))

    def state(self) -> dict[str, Tensor]:
        """Parameters, Adam's moments and how many steps were made."""
        dim = self.job.encoder.dim
        kept = {name: torch.tensor(array[:, :dim]) for name, array in self.arrays().items()}
        return kept | {"steps": torch.tensor(self.done)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        dim = self.job.encoder.dim
        for name, array in self.arrays().items():
            if state[name].shape != (len(array), dim):
                shape = tuple(state[name].shape)
                raise ValueError(f"{name} has the shape {shape}, not {(len(array), dim)}")
            array[:, :dim] = state[name].numpy()
        self.done = int(state["steps"])

    def begin(self, start: Start) -> None:
        """Start from these vectors and moments."""
        state = self.state() | {"user": start.users.vectors, "item": start.items.vectors}
        for name, side in zip(("user", "item"), (start.users, start.items), strict=True):
            if side.first is not None and side.second is not None:
                state |= {f"{name}.first": side.first, f"{name}.second": side.second}
        self.restore(state | {"steps": torch.tensor(start.steps)})

    def reached(self) -> Start:
        """The vectors and moments now."""
        state = self.state()
        steps = self.done if self.job.settings.optimizer == "adam" else 0
        users, items = (
            Side(state[side], *(state[f"{side}.{name}"] for name in ("first", "second") if steps))
            for side in ("user", "item")
        )
        return Start(users, items, steps)

    def arrays(self) -> dict[str, Floats]:
        """The arrays that the coming epochs depend on."""
        named = {"user": self.user, "item": self.item}
        kept = {name: side.weights for name, side in named.items()}
        if self.job.settings.optimizer == "adam":
            kept |= {f"{name}.first": side.first for name, side in named.items()}
            kept |= {f"{name}.second": side.second for name, side in named.items()}
        return kept


def _lacks(job: Job) -> str | None:
    if find_spec("numba") is None:
        return "it needs Numba, which is not installed (pip install numba)."
    if job.settings.device not in ("auto", "cpu"):
        return f"it trains on the CPU, not on device = {job.settings.device!r}; it has 'cpu' and 'auto'."
    if job.anchors is not None and job.loss.uses_extra and job.settings.n_extra:
        return "it draws extra positives from all interactions, not from `anchors`; it has n_extra=0."
    return lacking(job, ("adam", "sgd"))


CPU = Engine(start=CpuTrainer, lacks=_lacks)
