"""IndexedItems: lists by an index, with the scores and the filters of exact lists."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from truepair.data.ids import Codes
from truepair.data.log import Mask
from truepair.models.factor_matrices import Rows
from truepair.ranking.approximate.ivf import FaissIndex, Floats, search
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import PreparedItems, TopK, dense_rows

_HEAD = 16  # one of this many items is in the head
_STEP = 8  # faiss compares numbers in half precision several times as fast if they come in eights
_NOTHING = np.empty(0, np.int64)


class Level(NamedTuple):
    """What a search must cost to find enough of the best `depth` items."""

    depth: int
    effort: int


@dataclass(frozen=True, eq=False)
class HeadAndTail:
    """The longest items, which are searched exactly, and all others, which the index holds.

    Long items, such as popular ones, are in lists of users of all tastes. An index would have to look for
    them everywhere.
    """

    head: Codes  # codes, in order
    tail: Codes
    head_items: PreparedItems | None  # None if the head is empty

    @staticmethod
    def of(items: Floats) -> HeadAndTail:
        """A sixteenth of the items, if they are longer than others; none if all are equally long."""
        lengths = np.linalg.norm(items, axis=1)
        size = len(items) // _HEAD if lengths.max() > 1.01 * lengths.min() else 0
        is_head = np.zeros(len(items), dtype=bool)
        is_head[np.argsort(-lengths, kind="stable")[:size]] = True
        head, tail = np.flatnonzero(is_head), np.flatnonzero(~is_head)
        prepared = PreparedItems.of(torch.from_numpy(items[head])) if size else None
        return HeadAndTail(head, tail, prepared)


@dataclass(frozen=True, eq=False)
class IndexedItems:
    """The items of a catalogue with an index; `top_k` gives the lists of `PreparedItems`, or nearly.

    An index is asked for the `k` best and as many more as a row must not list, so that `k` are left. If it
    finds fewer, or if more is asked for than its recall was measured for, the row is computed exactly.
    """

    exact: PreparedItems
    split: HeadAndTail
    index: FaissIndex
    levels: tuple[Level, ...] = ()
    recall: float = 1.0
    """The share of the exact lists of users that its lists had when it was measured."""
    last: Floats | None = None
    """[n], the last number of each item in the index, if it was another one; None: as it is in `exact`."""

    def moved(self, now: Floats) -> IndexedItems:
        """The same for items whose last number is this one soon, when it is written to `exact`.

        The index keeps its own: the items of the tail that have risen most are searched with the head, too.
        """
        last = self._rows[:, -1].copy() if self.last is None else self.last
        tail = self.split.tail
        risen = tail[np.argsort(last[tail] - now[tail], kind="stable")[: len(last) // _HEAD]]
        head = np.setdiff1d(np.arange(len(last)), np.setdiff1d(tail, risen))
        rows = self._rows[head]
        rows[:, -1] = now[head]
        items = PreparedItems.of(torch.from_numpy(rows)) if len(head) else None
        return replace(self, split=HeadAndTail(head, tail, items), last=last)

    @cached_property
    def _in_both(self) -> Mask:
        """Whether each row is in the head and in the tail."""
        return np.bincount(np.concatenate([self.split.head, self.split.tail]), minlength=len(self._rows)) > 1

    @cached_property
    def _rows(self) -> Floats:
        return dense_rows(self.exact.items)

    @cached_property
    def _codes(self) -> Codes:
        """Row -> code."""
        return np.arange(len(self._rows)) if self.exact.codes is None else self.exact.codes

    def top_k(self, vectors: Rows, k: int, hidden: Hidden, never: Codes = _NOTHING) -> TopK:
        """The `k` best items for each row of `vectors`, without those that are hidden from it, and without
        those that nobody gets."""
        from truepair.ranking.compiled_top_k import best_of_found  # it loads Numba

        rows = dense_rows(vectors)
        counts = k + hidden.ends - hidden.starts
        allowed = ~np.isin(self._codes, never) if len(never) else None
        share = 1.0 if allowed is None else float(allowed.mean())
        depths = [level.depth for level in self.levels]
        places = np.searchsorted(depths, counts / max(share, 1e-9))
        n = len(rows)
        found = TopK(np.full((n, k), -1, np.int64), np.full((n, k), -np.inf, np.float32))
        exactly = [np.flatnonzero(places == len(depths))]
        for place in np.unique(places[places < len(depths)]):
            some = np.flatnonzero(places == place)
            count = min(int(counts[some].max()), len(self._rows))
            candidates = self.candidates(rows[some], count, self.levels[place].effort, allowed)
            best, scores = np.empty((len(some), k), np.int64), np.empty((len(some), k), np.float32)
            tables = rows[some], self._rows, self._codes, self.exact.column, self.exact.listed
            lengths = best_of_found(*tables, candidates, hidden.take(some), best, scores)
            found.items[some], found.scores[some] = best, scores
            exactly.append(some[lengths < k])
        left = np.concatenate(exactly)
        if len(left):
            own = hidden.take(left).with_all(never)
            found.items[left], found.scores[left] = self.exact.top_k(vectors, k, own, left)
        return found

    def candidates(self, rows: Floats, count: int, effort: int, allowed: Mask | None = None) -> Codes:
        """The rows of about the `count` best items of each row, and of others; -1 for none."""
        split = self.split
        among = None if allowed is None else allowed[split.tail]
        wanted = min(count, len(split.tail))
        places = search(self.index, unit_users(rows), wanted, effort, among)
        found: Codes = np.where(places >= 0, split.tail[places], -1)
        if self.last is not None:
            found[self._in_both[found]] = -1
        if split.head_items is None:
            return found
        never = _NOTHING if allowed is None else np.flatnonzero(~allowed[split.head])
        hidden = Hidden.of([never] * len(rows))
        best = split.head_items.top_k(torch.from_numpy(rows), min(count, len(split.head)), hidden).items
        return np.asarray(np.hstack([found, np.where(best >= 0, split.head[best], -1)]), np.int64)


# --- unit vectors whose dot products rank items as the model's scores do ---------------------------------


def unit_items(items: Floats) -> Floats:
    """The items as vectors of the length 1. [n, d + 1 or more]

    An index groups items that are close to each other, which says something about scores only if all items
    are equally long. So each item x gets one more number, √(L² − |x|²), where L is the length of the longest
    one; users get 0 there, and no order changes. Additions to all scores of an item, such as popularity or a
    bias, are columns already. Zeros fill the rows up to a number of columns that processors like.
    """
    found, d = _zeros(items), items.shape[1]
    np.divide(items, np.float32(_lengths(items).max(initial=0.0) or 1.0), out=found[:, :d])
    found[:, d] = np.sqrt(np.maximum(1 - _lengths(found[:, :d]) ** 2, 0))
    return found


def unit_users(vectors: Floats) -> Floats:
    """The users [m, d + 1 or more]; each has the length 1, or 0."""
    found = _zeros(vectors)
    found[:, : vectors.shape[1]] = vectors
    found /= np.maximum(_lengths(found), np.float32(1e-30))[:, None]
    return found


def _lengths(rows: Floats) -> Floats:
    found: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float32))
    return found


def _zeros(rows: Floats) -> Floats:
    """As many rows, with one column more, and then up to the next multiple of `_STEP`."""
    return np.zeros((len(rows), -(-(rows.shape[1] + 1) // _STEP) * _STEP), np.float32)
