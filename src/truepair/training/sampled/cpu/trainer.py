"""Runs of the engine "cpu": the tables of a run, and its epochs on all threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.models.start import Side, Start
from truepair.randomness import stream_key
from truepair.sampling import Matrices
from truepair.storage.compiled_code import announce_compilation
from truepair.training.job import EpochTotals, Job
from truepair.training.sampled.cpu.draw_tables import entries_of, fill_filters
from truepair.training.sampled.cpu.draws import order_of
from truepair.training.sampled.cpu.inner_loop import StepSettings, Visits, train_entries
from truepair.training.sampled.cpu.memory import aligned_zeros, space_for
from truepair.training.sampled.cpu.updates import EmbeddingTables
from truepair.training.sampled.cpu.vectors import LINE
from truepair.training.sampled.plan import Floats, plan_of, prior_of

PIECE = 1 << 28  # floats that are touched before Python may show progress or stop: a fraction of a second


class CpuTrainer:
    """MF by SGD or Adagrad, one data entry a step; `batch_size` means nothing here."""

    def __init__(self, job: Job) -> None:
        announce_compilation([train_entries, fill_filters])
        self.job, self.plan = job, plan_of(job)
        self.is_adagrad = job.settings.optimizer == "adagrad"
        self.tables, anchors, self.n_saturated_users = entries_of(job.interactions, job.sampler)
        self.n_anchors, self.threads = len(self.tables.pairs), torch.get_num_threads()
        self.spaces = [space_for(self.plan) for _ in range(self.threads)]
        started = job.encoder.start(job.interactions, job.settings.seed, torch.device("cpu"))
        users, items = (_padded(weights.detach()) for weights in (started.user, started.item))
        sums = [aligned_zeros(*rows.shape) if self.is_adagrad else rows[:0] for rows in (users, items)]
        weights = np.zeros(0, np.float32) if job.anchor_weights is None else job.anchor_weights
        weights = weights if anchors is None or not len(weights) else weights[anchors]
        self.model = EmbeddingTables(users, items, sums[0], sums[1], *prior_of(job.loss), weights)
        self.steps = max(1, math.ceil(self.n_anchors * self.plan.width * users.shape[1] / PIECE))

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once, in an order of (seed, epoch)."""
        settings = self.job.settings
        key = np.uint64(stream_key(settings.seed, epoch, 1))
        visits = Visits(self.tables, order_of(self.n_anchors, settings.seed, epoch), key)
        l2_users, l2_items = np.float32(settings.l2_users), np.float32(settings.l2_items)
        step = StepSettings(self.plan, np.float32(rate), l2_users, l2_items, self.is_adagrad)
        parts = self.steps * self.threads
        cuts = [self.n_anchors * part // parts for part in range(parts + 1)]

        def train_part(part: int) -> tuple[float, int]:
            space = self.spaces[part % self.threads]
            return train_entries(self.model, visits, step, space, cuts[part], cuts[part + 1])

        losses, clamped = np.zeros(self.steps), 0
        with ThreadPoolExecutor(self.threads) as pool:
            for piece in range(self.steps):
                first = piece * self.threads
                for loss, count in pool.map(train_part, range(first, first + self.threads)):
                    losses[piece] += loss
                    clamped += count
                advance(1)
        return EpochTotals(torch.from_numpy(losses), clamped if self.plan.has_floor else None)

    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        users, items = self.rows(self.model.users), self.rows(self.model.items)
        if self.plan.cosine:
            return F.normalize(users) * float(self.plan.score_scale), F.normalize(items)
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
        tables = self._state_rows()
        for name, rows in tables.items():
            expected = rows.shape[0], self.job.encoder.dim
            if tuple(state[name].shape) != expected:
                raise ValueError(f"{name} is {tuple(state[name].shape)}, not {expected}")
        for name, rows in tables.items():
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
    padded = aligned_zeros(len(weights), -(-weights.shape[1] // LINE) * LINE)
    padded[:, : weights.shape[1]] = weights.numpy()
    return padded
