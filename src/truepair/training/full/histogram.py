"""Sums over pairs from a histogram of each row's scores: anchors + columns instead of anchors × columns.

Nodes lie `h` apart over the range of the block's scores. A score between two nodes is laid on both, in
proportion to its nearness; then the sums at the nodes are products with the Toeplitz matrices φ(x_k − x_l)
and φ'(x_k − x_l), and are read between nodes in the same proportion. This replaces φ by its interpolation
in each argument, so every sum of φ = σ has a relative error of at most ((1 + h² eʰ / 8)² − 1) ≈ h²/4.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from truepair.storage.compiled_code import announce_compilation, parallel_kernel
from truepair.training.full.block import UserBlock
from truepair.training.full.pair_sums import Kernel, PairTotals, Sums, pair_sums
from truepair.training.sampled.cpu.arithmetic import ZERO, Index, compiled, exp32, inlined
from truepair.training.sampled.plan import Floats

MOST_NODES = 1024
_ROUND = 32  # the number of nodes is a multiple of this, so that few matrices serve all blocks


def announce() -> None:
    """Say so if the kernels are still to be compiled."""
    announce_compilation([_lay_scores, _lay_anchors, _read_anchors, _spread_to_scores])


class HistogramSums:
    """A `PairSums` on the CPU in float32; `step` is h for a φ that changes over a distance of 1."""

    def __init__(self, step: float) -> None:
        self.step = step

    def __call__(self, block: UserBlock, kernel: Kernel, beta: float, with_own: bool) -> PairTotals:
        """Sums with weights ∝ ω e^{βs}, no gradient through the weights."""
        if not math.isfinite(block.high - block.low):  # the run has diverged; let the sums show it
            return pair_sums(block, kernel, beta, with_own)
        nodes = Nodes(block, self.step * kernel.scale)
        n, scores = len(block.scores), block.scores.numpy()
        pos, starts = block.pos.numpy(), block.starts.numpy()
        log_weights = np.empty(0, np.float32) if block.log_weights is None else block.log_weights.numpy()
        laid = np.zeros((2 * n if with_own else n, nodes.count), np.float32)
        shift = np.zeros(n, np.float32)
        place = nodes.low, nodes.inverse
        with parallel_kernel():
            _lay_scores(scores, log_weights, np.float32(beta), *place, laid, shift)
            if with_own:
                ones = np.repeat(np.float32(1) / np.diff(starts).astype(np.float32), np.diff(starts))
                _lay_anchors(pos, ones, starts, *place, laid[n:])
        at_nodes = torch.from_numpy(laid) @ nodes.matrix(kernel).T  # [n or 2n, 2 · count]: values, slopes
        readings = np.empty((2 * len(laid) // n, len(pos)), np.float32)
        with parallel_kernel():
            _read_anchors(at_nodes.numpy(), pos, starts, *place, readings)
        back = _Back(block, kernel, nodes, np.float32(beta), log_weights, shift)
        values = [torch.from_numpy(row) for row in readings]
        own = Sums(values[2], values[3], back.to_own) if with_own else None
        return PairTotals(Sums(values[0], values[1], back.to_scores), own)


class Nodes:
    """Where the nodes lie, and the products between them."""

    def __init__(self, block: UserBlock, step: float) -> None:
        span = max(block.high - block.low, 1e-3)
        h = step * 2.0 ** max(0, math.ceil(math.log2(span / ((MOST_NODES - 2) * step))))  # few different ones
        self.count = _ROUND * math.ceil((span / h + 2) / _ROUND)
        self.h, self.low, self.inverse = h, np.float32(block.low), np.float32(1 / h)

    def matrix(self, kernel: Kernel) -> Tensor:
        """[2 · count, count]: φ(x_k − x_l) above φ'(x_k − x_l), k the anchor's node."""
        return _matrix(kernel, self.count, self.h)


@lru_cache(maxsize=16)
def _matrix(kernel: Kernel, count: int, h: float) -> Tensor:
    nodes = torch.arange(count, dtype=torch.float64) * h
    apart = nodes[:, None] - nodes
    return torch.cat([kernel.value(apart), kernel.slope(apart)]).float()


class _Back:
    """The way back from the anchors: −w_j Σ_a α_a φ'(s⁺_a − s_j)."""

    def __init__(
        self,
        block: UserBlock,
        kernel: Kernel,
        nodes: Nodes,
        beta: np.float32,
        log_weights: Floats,
        shift: Floats,
    ) -> None:
        self.block, self.kernel, self.nodes = block, kernel, nodes
        self.beta, self.log_weights, self.shift = beta, log_weights, shift

    def to_scores(self, alpha: Tensor) -> Tensor:
        """By the unlabelled scores; it overwrites them."""
        scores, place = self.block.scores.numpy(), (self.nodes.low, self.nodes.inverse)
        at_nodes = self._at_nodes(alpha)
        with parallel_kernel():
            _spread_to_scores(at_nodes, self.log_weights, self.beta, *place, self.shift, scores)
        return self.block.scores

    def to_own(self, gamma: Tensor) -> Tensor:
        """By the user's own scores. [A]"""
        starts, pos = self.block.starts.numpy(), self.block.pos.numpy()
        readings = np.empty((1, len(pos)), np.float32)
        at_nodes = self._at_nodes(gamma / self.block.counts[self.block.rows])
        with parallel_kernel():
            _read_anchors(at_nodes, pos, starts, self.nodes.low, self.nodes.inverse, readings)
        return -torch.from_numpy(readings[0])

    def _at_nodes(self, coefficients: Tensor) -> Floats:
        starts, pos = self.block.starts.numpy(), self.block.pos.numpy()
        laid = np.zeros((len(self.block.scores), self.nodes.count), np.float32)
        with parallel_kernel():
            _lay_anchors(pos, coefficients.numpy(), starts, self.nodes.low, self.nodes.inverse, laid)
        slopes = self.nodes.matrix(self.kernel)[self.nodes.count :]
        return (torch.from_numpy(laid) @ slopes).numpy()


# --- kernels ---------------------------------------------------------------------------------------------


def _parallel(function: Any) -> Any:
    return compiled(function, parallel=True)


@inlined
def _exponent(score: np.float32, j: Index, beta: np.float32, log_weights: Floats) -> np.float32:
    """β s + log ω of a column."""
    return beta * score + (log_weights[j] if len(log_weights) > 0 else ZERO)


@_parallel
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


@_parallel
def _lay_anchors(
    pos: Floats, coefficients: Floats, starts: Any, low: np.float32, inverse: np.float32, laid: Floats
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


@_parallel
def _read_anchors(
    at_nodes: Floats, pos: Floats, starts: Any, low: np.float32, inverse: np.float32, readings: Floats
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


@_parallel
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
