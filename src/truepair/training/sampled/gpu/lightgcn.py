"""LightGCN on the GPU: the mean over 0 … hops of Âᵏ E, for the rows that a step touches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
import triton
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.training.sampled.gpu import kernels
from truepair.training.sampled.plan import next_power_of_two

_LONG = 128  # rows with more neighbours get a program of their own
_SHORT = 8, 8, 2  # of the others a program takes so many rows, edges at once, warps


class Touched(NamedTuple):
    """Which rows each step of a table touches, and the step it is about."""

    flags: Tensor  # [runs, steps, rows]
    steps: int
    step: int


class Hops:
    """The normalised graph over users and items as rows of one matrix, and products with it."""

    def __init__(self, interactions: Interactions, like: Tensor, hops: int, overlaps: bool = False) -> None:
        self.overlaps = overlaps  # whether a kernel may start while the one before it ends
        self.hops, (_, self.n_rows, self.dim) = hops, like.shape
        device = like.device
        users, items, n_users = interactions.users, interactions.items, interactions.n_users
        rows = np.concatenate([users, n_users + items])
        others = np.concatenate([n_users + items, users])
        degrees = np.bincount(rows, minlength=self.n_rows)
        # a row without neighbours has no edge to weigh: any divisor does
        per_row = 1 / np.sqrt(np.maximum(degrees, 1))
        values = (per_row[rows] * per_row[others]).astype(np.float32)
        graph = sp.csr_array((values, (rows, others)), shape=(self.n_rows, self.n_rows))
        self.indptr = torch.from_numpy(graph.indptr.astype(np.int64)).to(device)
        self.neighbours = torch.from_numpy(graph.indices.astype(np.int32)).to(device)
        self.values = torch.from_numpy(graph.data).to(device)
        longest_first = np.argsort(-degrees, kind="stable")
        self.long, self.short = (
            torch.from_numpy(longest_first[chosen].astype(np.int32)).to(device)
            for chosen in (degrees[longest_first] > _LONG, degrees[longest_first] <= _LONG)
        )
        self.propagated, self.spread, self.sums = (torch.zeros_like(like) for _ in range(3))
        self.layers = [torch.zeros_like(like) for _ in range(2)] if hops > 1 else [like, like]

    def forward(self, weights: Tensor, touched: Touched, early: bool) -> Tensor:
        """The propagated vectors of the rows that this step touches."""
        return self._mean(weights, self.propagated, touched, early, rows_only=True)

    def backward(self, gradients: Tensor, touched: Touched) -> Tensor:
        """The gradient of the parameters, from that of the propagated vectors: Â is symmetric."""
        return self._mean(gradients, self.spread, touched, self.overlaps, sparse=True)

    def whole(self, weights: Tensor, run: int) -> Tensor:
        """The propagated vectors of every row of one run."""
        nothing = Touched(torch.zeros(1, dtype=torch.int8, device=weights.device), 0, 0)
        alone = slice(run, run + 1)
        return self._mean(weights[alone], self.propagated[alone], nothing, False)[0]

    def _mean(
        self,
        source: Tensor,
        out: Tensor,
        touched: Touched,
        early: bool,
        rows_only: bool = False,
        sparse: bool = False,
    ) -> Tensor:
        """out = mean over hops of Âᵏ·source.

        `rows_only`: only touched rows are wanted in the end; `sparse`: only they have something to give.
        """
        earlier, runs = source, len(source)
        for hop in range(1, self.hops + 1):
            last = hop == self.hops
            layer, target = self.layers[hop % 2], out if last else self.sums
            for listed, rows, edges, warps in ((self.long, 1, 128, 4), (self.short, *_SHORT)):
                if not len(listed):
                    continue
                kernels.hop_kernel[(triton.cdiv(len(listed), rows), runs)](
                    source, earlier, layer, target, self.indptr, self.neighbours, self.values, listed,
                    touched.flags, len(listed), self.n_rows, touched.step,
                    1 / (self.hops + 1) if last else 1.0, touched.steps,
                    SOURCE_FLAGS=sparse and hop == 1, ROW_FLAGS=rows_only and last, KEEP=not last,
                    D=self.dim, DP=next_power_of_two(self.dim), ROWS=rows, EDGES=edges, num_warps=warps,
                    **kernels.overlap(early),
                )  # fmt: skip
                early = self.overlaps
            source, earlier = layer, target
        return out
