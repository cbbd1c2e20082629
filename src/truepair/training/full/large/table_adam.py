"""Adam for a table of many rows in PyTorch, of which a step uses few: the definition, and where states are.

Adam moves every parameter in every step, also those without a gradient: by what is left of their mean
gradient, and by weight decay. Here a row is left as it is until it is used again, or until the epoch ends,
and then makes the steps that it missed. Without weight decay what is left of the mean gradient fades by a
tenth a step; as soon as it can no longer change a number of the row, the rest of the steps only scale the two
means. So the result is that of Adam itself, up to rounding.

The two functions of a step are here in PyTorch, compiled for the CPU in `row_adam`, and as kernels for CUDA
in `gpu_table_adam`. Adam's two means of each number are kept in float32 on the device, in bfloat16 on the
device, or in float32 in main memory, which the kernels read and write in place over the bus: a row is used
once an epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam, as in PyTorch
LOOK = 16  # steps between two looks at whether rows still change
_ROWS = 1 << 18  # rows that catch up at a time, where they are in one tensor


class Means(NamedTuple):
    """The table and Adam's state of it."""

    weights: Tensor  # [n, d], float32
    first: Tensor  # [n, d], the running mean of the gradient
    second: Tensor  # [n, d], and of its square
    made: Tensor  # [n], int32: how many steps of the epoch each row has made


class Course(NamedTuple):
    """The factors of an epoch's steps."""

    rates: Tensor  # [steps], the learning rate over the correction of the first mean
    roots: Tensor  # [steps], one over the root of the correction of the second
    first_powers: Tensor  # [steps + 1], β₁^k
    root_powers: Tensor  # [steps + 1], √β₂^k

    @staticmethod
    def of(rate: float, before: int, steps: int, device: torch.device, precision: torch.dtype) -> Course:
        """That of `steps` steps at this learning rate, after `before` others."""
        counts, powers = before + np.arange(1.0, steps + 1), np.arange(steps + 1.0)
        found = (
            rate / (1 - BETAS[0] ** counts),
            1 / np.sqrt(1 - BETAS[1] ** counts),
            BETAS[0] ** powers,
            BETAS[1] ** (powers / 2),
        )
        return Course(*(torch.from_numpy(numbers).to(device, precision) for numbers in found))


CatchUp = Callable[[Means, Tensor | None, int, Course, float], None]
Update = Callable[[Means, Tensor, Tensor, int, Course, float], None]


class TableAdam:
    """The weights [n, d] on their device, Adam's two means of each number, and the steps of an epoch."""

    def __init__(
        self,
        weights: Tensor,
        decay: float,
        state: str = "device",
        functions: tuple[CatchUp, Update] | None = None,
        precision: torch.dtype = torch.float32,
    ) -> None:
        """`functions` compute the steps, from factors of this precision; None: those of PyTorch."""
        self.weights, self.decay, self.precision = weights, decay, precision
        first, second = (_zeros(weights, state) for _ in range(2))
        made = torch.zeros(len(weights), dtype=torch.int32, device=weights.device)
        self.means = Means(weights, first, second, made)
        self.steps = 0  # made in all
        self.start_epoch(0.0, 0)
        self.catch_up, self.move = (catch_up, update) if functions is None else functions

    @property
    def first(self) -> Tensor:
        """The running mean of the gradient, in float32. [n, d]"""
        return self.means.first.float()

    @property
    def second(self) -> Tensor:
        """The running mean of its square, in float32. [n, d]"""
        return self.means.second.float()

    def start_epoch(self, rate: float, steps: int) -> None:
        """An epoch with this learning rate and so many steps begins."""
        self.course = Course.of(rate, self.steps, steps, self.weights.device, self.precision)
        self.means.made.zero_()

    def rows(self, rows: Tensor, step: int) -> Tensor:
        """A copy of these rows as they are before step `step` of the epoch, counted from 0."""
        self.catch_up(self.means, rows, step, self.course, self.decay)
        return self.weights[rows]

    def update(self, rows: Tensor, gradient: Tensor, step: int) -> None:
        """Step `step` of the epoch for these rows, each given once, by their gradient [rows, d]."""
        self.move(self.means, rows, gradient.contiguous(), step, self.course, self.decay)

    def end_epoch(self) -> None:
        """All rows make the steps that they missed."""
        steps = len(self.course.rates)
        self.catch_up(self.means, None, steps, self.course, self.decay)
        self.steps += steps
        if self.weights.device.type == "cuda":
            torch.cuda.synchronize(self.weights.device)  # means in main memory are then as they should be


def _zeros(weights: Tensor, state: str) -> Tensor:
    """A mean of each number, where and how it is kept."""
    if state == "half":
        return torch.zeros_like(weights, dtype=torch.bfloat16)
    if state == "host" and weights.device.type == "cuda":
        return torch.zeros(weights.shape, pin_memory=True)
    return torch.zeros_like(weights)


def catch_up(means: Means, rows: Tensor | None, step: int, course: Course, decay: float) -> None:
    """The steps before `step` that each of these rows has missed; None: all rows."""
    rows = torch.arange(len(means.weights), device=means.weights.device) if rows is None else rows
    for some in torch.split(rows, _ROWS):
        begin = means.made[some]
        if int((step - begin).max()) > 0:
            _make_up(means, some, begin.long(), step, course, decay)
        means.made[some] = step


def _make_up(means: Means, rows: Tensor, begin: Tensor, step: int, course: Course, decay: float) -> None:
    w, m, v = _taken(means, rows)
    missed = step - begin  # [rows]
    roots = v.sqrt()
    k, most, changing = 0, int(missed.max()), True
    while k < most and changing:
        before = w.clone()
        for _ in range(min(LOOK, most - k)):
            live = (begin + k < step)[:, None]
            at = (begin + k).clamp(max=step - 1)
            rate, root = course.rates[at, None], course.roots[at, None]
            if decay:
                g = decay * w
                m = torch.where(live, BETAS[0] * m + (1 - BETAS[0]) * g, m)
                v = torch.where(live, BETAS[1] * v + (1 - BETAS[1]) * (g * g), v)
                moved = w - rate * m / (v.sqrt() * root + EPSILON)
            else:  # the means only fade, so they are read as they were
                above, below = rate * course.first_powers[k + 1], root * course.root_powers[k + 1]
                moved = w - above * m / (below * roots + EPSILON)
            w = torch.where(live, moved, w)
            k += 1
        changing = bool(decay) or bool((w != before).any())
    if not decay:
        m = m * course.first_powers[missed, None]
        v = v * course.root_powers[missed, None].square()
    _put(means, rows, w, m, v)


def update(means: Means, rows: Tensor, gradient: Tensor, step: int, course: Course, decay: float) -> None:
    """A step of each row by its gradient."""
    w, m, v = _taken(means, rows)
    g = gradient + decay * w
    m = BETAS[0] * m + (1 - BETAS[0]) * g
    v = BETAS[1] * v + (1 - BETAS[1]) * (g * g)
    w = w - course.rates[step] * m / (v.sqrt() * course.roots[step] + EPSILON)
    _put(means, rows, w, m, v)
    means.made[rows] = step + 1


def _taken(means: Means, rows: Tensor) -> list[Tensor]:
    """These rows of the weights and of the two means, in float32 on the device of the weights."""
    return [each[rows.to(each.device)].to(means.weights.device).float() for each in means[:3]]


def _put(means: Means, rows: Tensor, w: Tensor, m: Tensor, v: Tensor) -> None:
    for each, values in zip(means[:3], (w, m, v), strict=True):
        each[rows.to(each.device)] = values.to(each.device, each.dtype)
