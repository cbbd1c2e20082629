"""Sums over pairs from a histogram of each row's scores: anchors + columns instead of anchors × columns.

Nodes lie `h` apart over the range of the block's scores. A score between two nodes is laid on both, in
proportion to its nearness; then the sums at the nodes are products with the Toeplitz matrices φ(x_k − x_l)
and φ'(x_k − x_l), and are read between nodes in the same proportion. This replaces φ by its interpolation
in each argument, so every sum of φ or φ' has a relative error of at most ((1 + h² eʰ / 8)² − 1) ≈ h²/4, h in
units of `Kernel.scale`. Scores that span more than `MOST_NODES` cells have wider ones, and a larger h.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numba import prange
from torch import Tensor

from truepair.storage.compiled_code import announce_compilation, parallel_kernel
from truepair.training.full.pair_sums import Kernel, PairTotals, Sums, UserBlock, pair_sums
from truepair.training.sampled.cpu.arithmetic import ZERO, Index, Longs, exp32, inlined, parallel
from truepair.training.sampled.plan import Floats

MOST_NODES = 1024
_ROUND = 32  # the number of nodes is a multiple of this, so that few matrices serve all blocks


class HistogramSums:
    """A `PairSums` on the CPU in float32; `step` is h for a φ that changes over a distance of 1."""

    def __init__(self, step: float) -> None:
        announce_compilation([_lay_scores, _lay_anchors, _read_anchors, _spread_to_scores])
        self.step = step

    def __call__(self, block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
        """Sums with weights ∝ ω e^{βs}, no gradient through the weights."""
        if not math.isfinite(block.high - block.low):  # the run has diverged; let the sums show it
            return pair_sums(block, kernel, beta, with_own)
        nodes = Nodes(block, self.step * kernel.scale)
        n, scores = len(block.scores), block.scores.numpy()
        pos, starts = block.pos.numpy(), block.starts.numpy()
        log_weights = np.empty(0, np.float32) if block.log_weights is None else block.log_weights.numpy()
        weighing = log_weights, np.float32(beta)
        laid = np.zeros((2 * n if with_own else n, nodes.count), np.float32)
        shift = np.zeros(n, np.float32)
        _run(_lay_scores, scores, *weighing, *nodes.place, laid, shift)
        if with_own:
            ones = np.repeat(np.float32(1) / np.diff(starts).astype(np.float32), np.diff(starts))
            _run(_lay_anchors, pos, ones, starts, *nodes.place, laid[n:])
        matrix = _matrix(kernel, nodes.count, nodes.h)
        at_nodes = torch.from_numpy(laid) @ matrix.T  # [n or 2n, 2 · count]: values, slopes
        readings = np.empty((2 * len(laid) // n, len(pos)), np.float32)
        _run(_read_anchors, at_nodes.numpy(), pos, starts, *nodes.place, readings)

        def slopes_of(coefficients: Tensor) -> Floats:
            """At the nodes, from the anchors by their coefficients."""
            anchors = np.zeros((n, nodes.count), np.float32)
            _run(_lay_anchors, pos, coefficients.numpy(), starts, *nodes.place, anchors)
            return (torch.from_numpy(anchors) @ matrix[nodes.count :]).numpy()

        def to_scores(alpha: Tensor) -> Tensor:
            """By the unlabelled scores; it overwrites them."""
            _run(_spread_to_scores, slopes_of(alpha), *weighing, *nodes.place, shift, scores)
            return block.scores

        def to_own(gamma: Tensor) -> Tensor:
            """By the user's own scores. [A]"""
            at_nodes, found = slopes_of(gamma / block.counts[block.rows]), np.empty((1, len(pos)), np.float32)
            _run(_read_anchors, at_nodes, pos, starts, *nodes.place, found)
            return -torch.from_numpy(found[0])

        values = [torch.from_numpy(row) for row in readings]
        own = Sums(values[2], values[3], to_own) if with_own else None
        return Sums(values[0], values[1], to_scores), own


def _run(kernel: Callable[..., None], *arguments: object) -> None:
    with parallel_kernel():
        kernel(*arguments)


class Nodes:
    """Where the nodes lie."""

    def __init__(self, block: UserBlock, step: float) -> None:
        span = max(block.high - block.low, 1e-3)
        self.h = step * 2.0 ** max(0, math.ceil(math.log2(span / ((MOST_NODES - 2) * step))))  # few different
        self.count = _ROUND * math.ceil((span / self.h + 2) / _ROUND)
        self.place = np.float32(block.low), np.float32(1 / self.h)


@lru_cache(maxsize=16)
def _matrix(kernel: Kernel, count: int, h: float) -> Tensor:
    """[2 · count, count]: φ(x_k − x_l) above φ'(x_k − x_l), k the anchor's node."""
    nodes = torch.arange(count, dtype=torch.float64) * h
    apart = nodes[:, None] - nodes
    return torch.cat([kernel.value(apart), kernel.slope(apart)]).float()


# --- kernels ---------------------------------------------------------------------------------------------


@inlined
def _exponent(score: np.float32, j: Index, beta: np.float32, log_weights: Floats) -> np.float32:
    """β s + log ω of a column."""
    return beta * score + (log_weights[j] if len(log_weights) > 0 else ZERO)


@parallel
def _lay_scores(
    scores: Floats, log_weights: Floats, beta: np.float32, low: np.float32, inverse: np.float32,
    laid: Floats, shift: Floats,
) -> None:  # fmt: skip
    """Each row's weights on the nodes, with sum 1; `shift` [B] is log Σ ω e^{βs} of a row."""
    weighted = len(log_weights) > 0
    for b in prange(len(scores)):
        row, nodes = scores[b], laid[b]
        top = np.float32(-np.inf)
        for j in range(len(row)):
            if row[j] > -np.inf:
                top = max(top, _exponent(row[j], j, beta, log_weights))
        total = np.float32(0)
        for j in range(len(row)):
            if row[j] > -np.inf:
                weight = np.float32(1)
                if beta or weighted:
                    weight = exp32(_exponent(row[j], j, beta, log_weights) - top)
                total += weight
                place = (row[j] - low) * inverse
                k = int(place)
                part = (place - np.float32(k)) * weight
                nodes[k] += weight - part
                nodes[k + 1] += part
        if total > 0:
            shift[b] = top + np.log(total)
            nodes /= total


@parallel
def _lay_anchors(
    pos: Floats, coefficients: Floats, starts: Longs, low: np.float32, inverse: np.float32, laid: Floats
) -> None:
    """Each row's anchors on the nodes, by their coefficients."""
    for b in prange(len(starts) - 1):
        nodes = laid[b]
        for a in range(starts[b], starts[b + 1]):
            place = (pos[a] - low) * inverse
            k = int(place)
            part = (place - np.float32(k)) * coefficients[a]
            nodes[k] += coefficients[a] - part
            nodes[k + 1] += part


@parallel
def _read_anchors(
    at_nodes: Floats, pos: Floats, starts: Longs, low: np.float32, inverse: np.float32, readings: Floats
) -> None:
    """The functions at each anchor. `at_nodes` holds len(readings) of them, side by side and in rows."""
    n = len(starts) - 1
    across = len(readings) * n // len(at_nodes)  # functions that lie side by side in a row of nodes
    count = at_nodes.shape[1] // across
    for b in prange(n):
        for a in range(starts[b], starts[b + 1]):
            place = (pos[a] - low) * inverse
            k = int(place)
            part = place - np.float32(k)
            for f in range(len(readings)):
                row, first = at_nodes[b + n * (f // across)], count * (f % across)
                readings[f, a] = row[first + k] + part * (row[first + k + 1] - row[first + k])


@parallel
def _spread_to_scores(
    at_nodes: Floats, log_weights: Floats, beta: np.float32, low: np.float32, inverse: np.float32,
    shift: Floats, scores: Floats,
) -> None:  # fmt: skip
    """−w · (what the nodes say) in the place of each score; 0 where a score is −∞."""
    weighted = len(log_weights) > 0
    for b in prange(len(scores)):
        row, nodes = scores[b], at_nodes[b]
        same = exp32(-shift[b])  # the weight of every column where all scores are equal
        for j in range(len(row)):
            if row[j] > -np.inf:
                weight = same
                if beta or weighted:
                    weight = exp32(_exponent(row[j], j, beta, log_weights) - shift[b])
                place = (row[j] - low) * inverse
                k = int(place)
                row[j] = -weight * (nodes[k] + (place - np.float32(k)) * (nodes[k + 1] - nodes[k]))
            else:
                row[j] = np.float32(0)
