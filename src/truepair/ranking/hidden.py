"""Hidden: what lists must not hold."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions


class Hidden(NamedTuple):
    """What lists must not hold: items[starts[r]:ends[r]] for row r."""

    starts: Codes
    ends: Codes
    items: Codes

    @staticmethod
    def of(rows: Sequence[Codes]) -> Hidden:
        """From an array for each row."""
        ends = np.array([0, *accumulate(map(len, rows))])
        return Hidden(ends[:-1], ends[1:], read_only(np.concatenate([np.empty(0, np.int64), *rows])))

    @staticmethod
    def pairs_of(part: Interactions, users: Codes) -> Hidden:
        """The items of these users; the user -1 has none, from 0 to 0. Nothing is copied."""
        return Hidden(part.indptr[np.maximum(users, 0)], part.indptr[users + 1], part.items)

    @staticmethod
    def joined(parts: Sequence[Hidden], n: int) -> Hidden:
        """For each of n rows, the items of all parts."""
        if len(parts) == 1:
            return parts[0]
        counts = [part.ends - part.starts for part in parts]
        starts = np.zeros(n, np.int64)
        starts[1:] = np.cumsum(sum(counts, np.zeros(n, np.int64)))[:-1]
        ends, items = starts.copy(), np.empty(sum(int(count.sum()) for count in counts), np.int64)
        for part, count in zip(parts, counts, strict=True):
            items[places_of(ends, ends + count)] = part.items[places_of(part.starts, part.ends)]
            ends += count
        return Hidden(starts, ends, read_only(items))

    def take(self, rows: Codes) -> Hidden:
        """Of these rows."""
        return Hidden(self.starts[rows], self.ends[rows], self.items)

    def pairs(self) -> tuple[Codes, Codes]:
        """All pairs of a row and an item."""
        rows = np.repeat(np.arange(len(self.starts)), self.ends - self.starts)
        return rows, np.asarray(self.items[places_of(self.starts, self.ends)], np.int64)

    def with_all(self, items: Codes) -> Hidden:
        """With these items in each row."""
        n = len(self.starts)
        return Hidden.joined([self, Hidden(np.zeros(n, np.int64), np.full(n, len(items)), items)], n)

    def recoded(self, places: Codes) -> Hidden:
        """With places[i] for item i, and without the items whose place is -1."""
        counts, found = self.ends - self.starts, places[self.items[places_of(self.starts, self.ends)]]
        kept = found >= 0
        if not kept.all():
            owners = np.repeat(np.arange(len(counts)), counts)
            counts, found = np.bincount(owners[kept], minlength=len(counts)), found[kept]
        ends = np.cumsum(counts)
        return Hidden(ends - counts, ends, read_only(found))


def places_of(starts: Codes, ends: Codes) -> Codes:
    """The whole numbers from each start up to its end, one range after the other."""
    if len(starts) == 1:  # a list of one user
        return np.arange(starts[0], ends[0])
    counts = ends - starts
    places: Codes = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return places


def read_only(array: Codes) -> Codes:
    """The array, which cannot be written now: Numba compiles for such arrays, as in Interactions."""
    array.flags.writeable = False
    return array
