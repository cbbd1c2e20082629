"""The fast mode on the CPU: every data entry is a step of its own, on all threads at once, without locks.

It is its own algorithm, not the reference's: there are no batches, and a thread may read a vector that
another one is changing (Hogwild). With one thread a run depends on the seed alone, and a resumed run ends
with the same bits, as long as the machine code is the same: another processor, or another version of Numba
or truepair, may round the last digits in another way. With more threads two runs differ as two seeds do. The
number of threads is PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import Loss
from truepair.models.encoders import MF, Encoder
from truepair.models.start import Side, Start
from truepair.randomness import stream_key
from truepair.sampling import Matrices, Sampler
from truepair.storage.compiled_code import announce_compilation
from truepair.training.job import Job
from truepair.training.sampled.plan import (
    FUSED_SAMPLERS,
    Floats,
    lacking,
    lacking_dislikes,
    plan_of,
    weights_of_anchors,
)
from truepair.training.trainer import Engine, EpochTotals

if TYPE_CHECKING:  # what is compiled is imported when training starts: Numba takes a second to load
    from truepair.training.sampled.cpu.draws import Order
    from truepair.training.sampled.cpu.inner_loop import StepSettings

PIECE = 1 << 28  # floats that are touched before Python may show progress or stop: a fraction of a second


class CpuTrainer:
    """MF by SGD or Adagrad, one data entry a step; `batch_size` means nothing here."""

    def __init__(self, job: Job) -> None:
        from truepair.training.sampled.cpu import draws, inner_loop
        from truepair.training.sampled.cpu.losses import numbers_of

        announce_compilation([inner_loop.train_entries, draws.fill_filters])
        self.job, self.plan = job, plan_of(job)
        self.tables, anchors, self.n_saturated_users = draws.entries_of(job.interactions, job.sampler)
        self.n_anchors, self.numbers = len(self.tables.pairs), numbers_of(self.plan)
        self.threads = torch.get_num_threads()
        self.spaces = [inner_loop.space_for(self.numbers) for _ in range(self.threads)]
        started = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
        users, items = (_padded(weights.detach()) for weights in (started.user, started.item))
        sums = [_zeros(*rows.shape) if self.is_adagrad else rows[:0] for rows in (users, items)]
        prior, weights = (self.plan.tau, self.plan.log_rest), weights_of_anchors(job, anchors)
        self.model = inner_loop.EmbeddingTables(users, items, sums[0], sums[1], *prior, weights)
        self.steps = max(1, math.ceil(self.n_anchors * self.plan.width * users.shape[1] / PIECE))

    @property
    def is_adagrad(self) -> bool:
        """Whether there are sums of squares."""
        return self.job.settings.optimizer == "adagrad"

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once, in an order of (seed, epoch)."""
        from truepair.training.sampled.cpu.draws import order_of
        from truepair.training.sampled.cpu.inner_loop import StepSettings

        settings = self.job.settings
        order = order_of(self.n_anchors, settings.seed, epoch)
        key = np.uint64(stream_key(settings.seed, epoch, 1))
        l2_users, l2_items = np.float32(settings.l2_users), np.float32(settings.l2_items)
        step = StepSettings(np.float32(rate), l2_users, l2_items, self.is_adagrad)
        losses, clamped = np.zeros(self.steps), 0
        with ThreadPoolExecutor(self.threads) as pool:
            for piece in range(self.steps):
                for loss, count in self.train_piece(piece, order, key, step, pool):
                    losses[piece] += loss
                    clamped += count
                advance(1)
        return EpochTotals(torch.from_numpy(losses), clamped if self.plan.has_floor else None)

    def train_piece(
        self, piece: int, order: Order, key: np.uint64, step: StepSettings, pool: ThreadPoolExecutor
    ) -> list[tuple[float, int]]:
        """A piece of an epoch, an equal part on each thread: what each gives."""
        from truepair.training.sampled.cpu.inner_loop import train_entries

        parts = self.steps * self.threads
        cuts = [self.n_anchors * part // parts for part in range(parts + 1)]

        def train_part(thread: int) -> tuple[float, int]:
            part, space = piece * self.threads + thread, self.spaces[thread]
            return train_entries(
                self.model, self.tables, order, key, self.numbers, step, space, cuts[part], cuts[part + 1]
            )

        if self.threads == 1:
            return [train_part(0)]
        return list(pool.map(train_part, range(self.threads)))

    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        users, items = self.rows(self.model.users), self.rows(self.model.items)
        if self.plan.cosine:
            return F.normalize(users) * self.plan.score_scale, F.normalize(items)
        return users, items

    def rows(self, padded: Floats) -> Tensor:
        """A copy of rows without their padding."""
        return torch.from_numpy(padded[:, : self.job.encoder.dim].copy())

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        return all(bool(np.isfinite(rows).all()) for rows in (self.model.users, self.model.items))

    def state(self) -> dict[str, Tensor]:
        """Parameters and Adagrad's sums; the random numbers are a function of seed and epoch."""
        return {name: self.rows(rows) for name, rows in self._state_rows().items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, rows in self._state_rows().items():
            expected = rows.shape[0], self.job.encoder.dim
            if tuple(state[name].shape) != expected:
                raise ValueError(f"{name} is {tuple(state[name].shape)}, not {expected}")
        for name, rows in self._state_rows().items():
            rows[:, : self.job.encoder.dim] = state[name].numpy()

    def begin(self, start: Start) -> None:
        """Start from these vectors; Adagrad's sums start at 0."""
        self.restore(self.state() | {"user": start.users.vectors, "item": start.items.vectors})

    def reached(self) -> Start:
        """The vectors now."""
        return Start(Side(self.rows(self.model.users)), Side(self.rows(self.model.items)))

    def _state_rows(self) -> dict[str, Floats]:
        rows = {"user": self.model.users, "item": self.model.items}
        sums = {"user.sum": self.model.user_sums, "item.sum": self.model.item_sums}
        return rows | sums if self.is_adagrad else rows


def _padded(weights: Tensor) -> Floats:
    """Rows padded with zeros to whole lines."""
    from truepair.training.sampled.cpu.vectors import LINE

    padded = _zeros(len(weights), -(-weights.shape[1] // LINE) * LINE)
    padded[:, : weights.shape[1]] = weights.numpy()
    return padded


def _zeros(rows: int, columns: int) -> Floats:
    """An array that begins where a line of the cache does: an unaligned row would touch one line more."""
    from truepair.training.sampled.cpu.vectors import LINE

    memory = np.zeros(rows * columns + LINE, dtype=np.float32)
    skip = -memory.ctypes.data % (LINE * memory.itemsize) // memory.itemsize
    return memory[skip : skip + rows * columns].reshape(rows, columns)


def _lacks(job: Job) -> str | None:
    settings = job.settings
    if find_spec("numba") is None:
        return "it needs Numba, which is not installed (pip install numba)."
    if settings.device not in ("auto", "cpu"):
        return f"it trains on the CPU, not on device = {settings.device!r}; it has 'cpu' and 'auto'."
    if job.anchors is not None:
        return "it has no anchors: every interaction is one."
    if lack := lacking_part(job.encoder, job.loss, job.sampler) or lacking_dislikes(job):
        return lack
    if settings.optimizer == "adam" or settings.weight_decay:
        return (
            f"optimizer = {settings.optimizer!r} with weight_decay = {settings.weight_decay:g} moves every "
            "row in every step, and its steps touch their own rows only. Set optimizer='adagrad' (or 'sgd'), "
            "weight_decay=0, l2_users=0.1, schedule='linear' and a learning_rate near 0.1 (0.3 for 'sgd')."
        )
    return None


def lacking_part(encoder: Encoder, loss: Loss, sampler: Sampler) -> str | None:
    """Which of these the engine cannot train, and what it has."""
    return lacking(encoder, loss, sampler, (MF,), FUSED_SAMPLERS)  # there is no batch to rank among


CPU = Engine(start=CpuTrainer, lacks=_lacks)
