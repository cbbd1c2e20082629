"""PreparedItems: items made ready once, for lists of some users at a time, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.models.factor_matrices import Rows, n_rows
from truepair.ranking.selection import TopK, checked_matrices, compiled_module, ranked, tie_order


class Hidden(NamedTuple):
    """What lists must not hold: items[starts[r]:ends[r]] for row r."""

    starts: Codes
    ends: Codes
    items: Codes

    @staticmethod
    def of(rows: Sequence[Codes]) -> Hidden:
        """From an array for each row."""
        ends = np.array([0, *accumulate(map(len, rows))])
        return Hidden(ends[:-1], ends[1:], _read_only(np.concatenate([np.empty(0, np.int64), *rows])))

    @staticmethod
    def of_pairs(n: int, rows: Codes, items: Codes) -> Hidden:
        """From pairs of a row and an item, in any order."""
        order = np.argsort(rows, kind="stable")
        ends = np.cumsum(np.bincount(rows, minlength=n))
        return Hidden(np.append(0, ends[:-1])[:n], ends, _read_only(np.asarray(items[order], np.int64)))

    def pairs(self) -> tuple[Codes, Codes]:
        """All pairs of a row and an item."""
        counts = self.ends - self.starts
        rows = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(rows)) + np.repeat(self.starts - (np.cumsum(counts) - counts), counts)
        return rows, np.asarray(self.items[places], np.int64)

    def with_all(self, items: Codes) -> Hidden:
        """With these items in each row."""
        counts = self.ends - self.starts + len(items)
        ends, bounds = np.cumsum(counts), zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        parts = [part for start, end in bounds for part in (self.items[start:end], items)]
        return Hidden(ends - counts, ends, _read_only(np.concatenate(parts)))

    def recoded(self, places: Codes) -> Hidden:
        """With places[i] for item i, and without the items whose place is -1."""
        rows, items = self.pairs()  # rows in order
        found = places[items]
        kept = found >= 0
        counts = np.bincount(rows[kept], minlength=len(self.starts))
        ends = np.cumsum(counts)
        return Hidden(ends - counts, ends, _read_only(found[kept]))


def _read_only(array: Codes) -> Codes:
    array.flags.writeable = False  # Numba compiles for read-only arrays, as in `top_k`
    return array


@dataclass(frozen=True, eq=False)
class PreparedItems:
    """The items of a catalogue; `top_k` gives the lists of the function of that name.

    The function checks its matrices and orders the items anew in every call, which takes ten times as long as
    the list of one user.
    """

    items: Rows

    @staticmethod
    def of(items: Rows) -> PreparedItems:
        """The items, checked."""
        width = items.shape[1]
        _, checked = checked_matrices(torch.zeros(1, width), items)
        return PreparedItems(checked)

    @cached_property
    def strips(self) -> Any:
        """The layout of compiled code; None where PyTorch ranks: sparse rows, CUDA, no Numba."""
        code = compiled_module()
        if code is None or not isinstance(self.items, torch.Tensor) or self.items.device.type != "cpu":
            return None
        rows = np.ascontiguousarray(self.items.detach().float().numpy())
        return code.in_strips(rows, tie_order(len(rows)))

    def top_k(self, vectors: Rows, k: int, hidden: Hidden) -> TopK:
        """The `k` best items for each row of `vectors`, without those that are hidden from it."""
        n_items = n_rows(self.items)
        if not isinstance(vectors, torch.Tensor) or self.strips is None:
            rows, items = hidden.pairs()
            n = n_rows(vectors)
            pairs = rows * n_items + items
            pairs = pairs if (pairs[1:] > pairs[:-1]).all() else np.unique(pairs)
            mask = Interactions(*np.divmod(pairs, n_items), IdMap.range(n), IdMap.range(n_items))
            return ranked(vectors, self.items, tie_order(n_items), k, np.arange(n), (mask,))
        code, users = compiled_module(), np.ascontiguousarray(vectors.detach().float().numpy())
        codes, threads = np.arange(len(users)), torch.get_num_threads()
        order = tie_order(n_items)
        return TopK(*code.rank_in_strips(users, self.strips, order, k, codes, hidden, code.BLOCK, threads))
