"""Adam for a table of many rows in Triton: a tile of rows catches up, or makes a step, in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from truepair.training.full.large.table_adam import BETAS, EPSILON, LOOK, Course, Means

_BETA1, _BETA2, _EPSILON = tl.constexpr(BETAS[0]), tl.constexpr(BETAS[1]), tl.constexpr(EPSILON)
_LOOK = tl.constexpr(LOOK)
_TILE = 1024  # numbers of a tile


@triton.jit
def _tile(rows, n, dim, ALL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The rows of a program, whether there are such, the places of their numbers, and which of these are."""
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = place < n
    if ALL:  # noqa: SIM108, a kernel has no such expression of constants
        row = place
    else:
        row = tl.load(rows + place, mask=there, other=0)
    column = tl.arange(0, COLUMNS)
    inside = there[:, None] & (column < dim)[None, :]
    return row, there, row[:, None] * dim + column[None, :], place[:, None] * dim + column[None, :], inside


@triton.jit
def catch_up_kernel(
    rows, weights, first, second, made, rates, roots, first_powers, root_powers, n, dim, step, decay,
    ALL: tl.constexpr, DECAY: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The steps before `step` that each row of the tile has missed."""
    row, there, number, _given, inside = _tile(rows, n, dim, ALL, ROWS, COLUMNS)
    begin = tl.load(made + row, mask=there, other=0)
    missed = tl.where(there, step - begin, 0)
    most = tl.max(missed, axis=0)
    if most > 0:
        w = tl.load(weights + number, mask=inside, other=0.0)
        m = tl.load(first + number, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(second + number, mask=inside, other=0.0).to(tl.float32)
        sizes = tl.sqrt(v)
        k = 0
        changed = 1
        while (k < most) & (changed > 0):
            before = w
            for look in range(_LOOK):  # noqa: B007, a kernel has no name for nothing
                live = k < missed
                rate = tl.load(rates + begin + k, mask=live, other=0.0)
                root = tl.load(roots + begin + k, mask=live, other=0.0)
                if DECAY:
                    g = decay * w
                    m = tl.where(live[:, None], _BETA1 * m + (1 - _BETA1) * g, m)
                    v = tl.where(live[:, None], _BETA2 * v + (1 - _BETA2) * (g * g), v)
                    moved = w - rate[:, None] * m / (tl.sqrt(v) * root[:, None] + _EPSILON)
                else:
                    above = rate * tl.load(first_powers + k + 1, mask=k < most, other=0.0)
                    below = root * tl.load(root_powers + k + 1, mask=k < most, other=0.0)
                    moved = w - above[:, None] * m / (below[:, None] * sizes + _EPSILON)
                w = tl.where(live[:, None], moved, w)
                k += 1
            if not DECAY:
                changed = tl.max(tl.max((w != before).to(tl.int32), axis=1), axis=0)
        if not DECAY:
            root_power = tl.load(root_powers + missed, mask=there, other=0.0)
            m *= tl.load(first_powers + missed, mask=there, other=0.0)[:, None]
            v *= (root_power * root_power)[:, None]
        tl.store(weights + number, w, mask=inside)
        tl.store(first + number, m.to(first.dtype.element_ty), mask=inside)
        tl.store(second + number, v.to(second.dtype.element_ty), mask=inside)
        tl.store(made + row, tl.zeros_like(begin) + step, mask=there)


@triton.jit
def update_kernel(
    rows, gradient, weights, first, second, made, rates, roots, n, dim, step, decay,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A step of each row of the tile by its gradient."""
    row, there, number, given, inside = _tile(rows, n, dim, False, ROWS, COLUMNS)
    w = tl.load(weights + number, mask=inside, other=0.0)
    m = tl.load(first + number, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(second + number, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradient + given, mask=inside, other=0.0) + decay * w
    m = _BETA1 * m + (1 - _BETA1) * g
    v = _BETA2 * v + (1 - _BETA2) * (g * g)
    rate, root = tl.load(rates + step), tl.load(roots + step)
    tl.store(weights + number, w - rate * m / (tl.sqrt(v) * root + _EPSILON), mask=inside)
    tl.store(first + number, m.to(first.dtype.element_ty), mask=inside)
    tl.store(second + number, v.to(second.dtype.element_ty), mask=inside)
    tl.store(made + row, tl.zeros([ROWS], tl.int32) + step + 1, mask=there)


def catch_up(means: Means, rows: Tensor | None, step: int, course: Course, decay: float) -> None:
    """The steps before `step` that each of these rows has missed; None: all rows."""
    n, shape = len(means.weights) if rows is None else len(rows), _shape(means)
    if not n or not step:
        return
    given = means.made if rows is None else rows  # not read where all rows are meant
    with torch.cuda.device_of(means.weights):
        catch_up_kernel[(triton.cdiv(n, shape["ROWS"]),)](
            given, *means, *course, n, means.weights.shape[1], step, decay,
            ALL=rows is None, DECAY=decay > 0, **shape,
        )  # fmt: skip


def update(means: Means, rows: Tensor, gradient: Tensor, step: int, course: Course, decay: float) -> None:
    """A step of each row by its gradient."""
    shape, dim = _shape(means), means.weights.shape[1]
    with torch.cuda.device_of(means.weights):
        update_kernel[(triton.cdiv(len(rows), shape["ROWS"]),)](
            rows, gradient, *means, course.rates, course.roots, len(rows), dim, step, decay, **shape
        )


def _shape(means: Means) -> dict[str, int]:
    """Rows and columns of a tile."""
    columns = triton.next_power_of_2(means.weights.shape[1])
    return {"ROWS": max(_TILE // columns, 1), "COLUMNS": columns}
