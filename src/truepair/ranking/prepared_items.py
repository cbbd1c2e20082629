"""PreparedItems: items made ready once, for lists of a few users at a time, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.models.factor_matrices import Rows, n_rows
from truepair.ranking.selection import TopK, compiled_module, tie_order, top_k


@dataclass(frozen=True, eq=False)
class PreparedItems:
    """The items of a catalogue; `top_k` gives the lists of the function of that name.

    The function checks its matrices and orders the items anew in every call, which takes ten times as long as
    the list of one user.
    """

    items: Rows
    strips: Any = None  # of compiled code; None where PyTorch ranks: sparse rows, CUDA, no Numba

    @staticmethod
    def of(items: Rows) -> PreparedItems:
        """The items in the order and layout that ranking needs."""
        code = compiled_module()
        if isinstance(items, torch.Tensor) and items.device.type == "cpu" and code is not None:
            top_k(torch.zeros(1, items.shape[1]), items, 1)  # checks the items
            rows = np.ascontiguousarray(items.detach().float().numpy())
            return PreparedItems(items, code.in_strips(rows, tie_order(len(rows))))
        return PreparedItems(items)

    def top_k(self, vectors: Rows, k: int, hidden: Sequence[Codes]) -> TopK:
        """The `k` best items for each row of `vectors`; row r does not list the items in hidden[r]."""
        sizes = np.array([len(codes) for codes in hidden], np.int64)
        items = np.concatenate([np.empty(0, np.int64), *hidden])
        n, n_items = len(hidden), n_rows(self.items)
        if self.strips is None or not isinstance(vectors, torch.Tensor):
            pairs = np.unique(np.repeat(np.arange(n), sizes) * n_items + items)
            mask = Interactions(*np.divmod(pairs, n_items), IdMap.range(n), IdMap.range(n_items))
            return top_k(vectors, self.items, k, exclude=mask)
        items.flags.writeable = False  # Numba compiles for read-only arrays, as in `top_k`
        ends = np.cumsum(sizes)
        found, scores = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
        rows = np.ascontiguousarray(vectors.detach().float().numpy())
        places = np.arange(n), ends - sizes, ends, items
        compiled_module().rank_rows(rows, self.strips, tie_order(n_items), *places, found, scores, 0, n)
        return TopK(found, scores)
