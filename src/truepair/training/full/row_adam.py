"""Adam for a table of many rows of which a step uses few: a row that is not used costs nothing.

Adam moves every parameter in every step, also those without a gradient: by what is left of their mean
gradient, and by weight decay. Here a row is left as it is until it is used again, or until the epoch ends,
and then makes the steps that it missed, one by one, in cache. Without weight decay what is left of the mean
gradient fades by a tenth a step; as soon as it can no longer change a number of the row, the rest of the
steps only scale the two means. So the result is that of Adam itself, up to rounding.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.storage.compiled_code import announce_compilation
from truepair.training.sampled.cpu.arithmetic import ZERO, Index, Longs, compiled, inlined
from truepair.training.sampled.plan import Floats

Doubles = npt.NDArray[np.float64]

BETAS = 0.9, 0.999  # of Adam, as in torch
_KEEP_FIRST, _TAKE_FIRST = np.float32(BETAS[0]), np.float32(1 - BETAS[0])
_KEEP_SECOND, _TAKE_SECOND = np.float32(BETAS[1]), np.float32(1 - BETAS[1])
_EPSILON = np.float32(1e-8)
_LOOK = 16  # steps between two looks at whether a row still changes


class RowAdam:
    """The weights [n, d], Adam's two means of each, and how many steps of the epoch each row has made."""

    def __init__(self, weights: Tensor, decay: float) -> None:
        self.weights = weights
        self.first, self.second = torch.zeros_like(weights), torch.zeros_like(weights)
        self.decay = np.float32(decay)
        self.steps = 0  # made in all
        self.made = np.zeros(len(weights), np.int64)  # of the current epoch, by row
        self._rates = self._roots = np.empty(0)
        announce_compilation([_catch_up, _update])

    def set_means(self, first: Tensor, second: Tensor, steps: int) -> None:
        """Go on from these means after so many steps."""
        self.first.copy_(first)
        self.second.copy_(second)
        self.steps = steps

    def start_epoch(self, rate: float, steps: int) -> None:
        """An epoch with this learning rate and so many steps begins."""
        counts = self.steps + np.arange(1, steps + 1, dtype=np.float64)
        self._rates, self._roots = rate / (1 - BETAS[0] ** counts), 1 / np.sqrt(1 - BETAS[1] ** counts)
        self.made[:] = 0

    def rows(self, rows: Tensor, step: int) -> Tensor:
        """A copy of these rows as they are before step `step` of the epoch, counted from 0."""
        self._catch_up(rows.numpy(), step)
        return self.weights[rows]

    def update(self, rows: Tensor, gradient: Tensor, step: int) -> None:
        """Step `step` of the epoch for these rows, each given once, by their gradient [rows, d]."""
        numbers = np.float32(self._rates[step]), np.float32(self._roots[step]), self.decay
        _update(rows.numpy(), gradient.contiguous().numpy(), step, *self._arrays(), *numbers)

    def end_epoch(self) -> None:
        """All rows make the steps that they missed."""
        self._catch_up(np.arange(len(self.weights)), len(self._rates))
        self.steps += len(self._rates)

    def _catch_up(self, rows: Longs, step: int) -> None:
        """The missed steps of these rows, on as many threads as PyTorch uses.

        Python's own threads: after Numba's have run, PyTorch hangs in a forked process.
        """
        parts = np.array_split(rows, torch.get_num_threads())
        with ThreadPoolExecutor(len(parts)) as pool:
            arguments = step, *self._arrays(), self._rates, self._roots, self.decay
            list(pool.map(lambda part: _catch_up(part, *arguments), parts))

    def _arrays(self) -> tuple[Any, ...]:
        return self.weights.numpy(), self.first.numpy(), self.second.numpy(), self.made


def _without_lock(function: Any) -> Any:
    return compiled(function, nogil=True)


@_without_lock
def _catch_up(
    rows: Longs, step: int, weights: Floats, first: Floats, second: Floats, made: Longs,
    rates: Doubles, roots: Doubles, decay: np.float32,
) -> None:  # fmt: skip
    """The steps before `step` that each row has missed."""
    for k in range(len(rows)):
        row = rows[k]
        begin, made[row] = made[row], step
        if decay > ZERO:
            for missed in range(begin, step):
                numbers = np.float32(rates[missed]), np.float32(roots[missed])
                _move(
                    weights[row], weights[row], ZERO, first[row], second[row], numbers[0], numbers[1], decay
                )
        else:
            _fade(weights[row], first[row], second[row], begin, step, rates, roots)


@_without_lock
def _update(
    rows: Longs, gradient: Floats, step: int, weights: Floats, first: Floats, second: Floats, made: Longs,
    rate: np.float32, root: np.float32, decay: np.float32,
) -> None:  # fmt: skip
    """A step of each row by its gradient."""
    one = np.float32(1)
    for k in range(len(rows)):
        row = rows[k]
        made[row] = step + 1
        _move(weights[row], gradient[k], one, first[row], second[row], rate, root, decay)


@inlined
def _move(
    weights: Floats, gradient: Floats, has_gradient: np.float32, first: Floats, second: Floats,
    rate: np.float32, root: np.float32, decay: np.float32,
) -> None:  # fmt: skip
    """One step of Adam for one row."""
    for j in range(len(weights)):
        g = has_gradient * gradient[j] + decay * weights[j]
        m = _KEEP_FIRST * first[j] + _TAKE_FIRST * g
        v = _KEEP_SECOND * second[j] + _TAKE_SECOND * (g * g)
        weights[j] -= rate * m / (np.sqrt(v) * root + _EPSILON)
        first[j], second[j] = m, v


@inlined
def _fade(
    weights: Floats, first: Floats, second: Floats, begin: Index, end: Index, rates: Doubles, roots: Doubles
) -> None:
    """Steps begin … end − 1 of a row without gradient and decay.

    The means are scaled by powers of β₁ and β₂, so they are read as they were, and scaled once at the end.
    """
    by_first, by_root = 1.0, 1.0
    for step in range(begin, end):
        by_first *= BETAS[0]
        by_root *= np.sqrt(BETAS[1])
        above, below = np.float32(rates[step] * by_first), np.float32(roots[step] * by_root)
        if (step - begin) % _LOOK == _LOOK - 1 and not _changes(weights, first, second, above, below):
            break
        for j in range(len(weights)):
            weights[j] -= above * first[j] / (below * np.sqrt(second[j]) + _EPSILON)
    missed = end - begin
    keep_first, keep_second = np.float32(BETAS[0] ** missed), np.float32(BETAS[1] ** missed)
    for j in range(len(weights)):
        first[j] *= keep_first
        second[j] *= keep_second


@inlined
def _changes(weights: Floats, first: Floats, second: Floats, above: np.float32, below: np.float32) -> bool:
    """Whether a step changes any number of the row."""
    for j in range(len(weights)):
        if weights[j] - above * first[j] / (below * np.sqrt(second[j]) + _EPSILON) != weights[j]:
            return True
    return False
