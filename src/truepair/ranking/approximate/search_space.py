"""SearchSpace: items and users as unit vectors whose dot products rank items as the model's scores do.

An index groups items that are close to each other, which says something about scores only if all items are
equally long. So each item x gets one more number, √(L² − |x|²), where L is the length of the longest one;
users get 0 there, and no order changes. Additions to all scores of an item, such as popularity or a bias, are
columns of the matrices already. Zeros fill the rows up to a number of columns that processors like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
_STEP = 8  # faiss compares numbers in half precision several times as fast if they come in eights


@dataclass(frozen=True)
class SearchSpace:
    """How vectors of a model become vectors of an index."""

    longest: float

    @staticmethod
    def of(items: Floats) -> SearchSpace:
        """The space of a model's items."""
        return SearchSpace(float(_lengths(items).max(initial=0.0)) or 1.0)

    def of_items(self, items: Floats) -> Floats:
        """The items [n, d + 1 or more]; each has the length 1."""
        found, d = _zeros(items), items.shape[1]
        np.divide(items, np.float32(self.longest), out=found[:, :d])
        found[:, d] = np.sqrt(np.maximum(1 - _lengths(found[:, :d]) ** 2, 0))
        return found

    def of_users(self, vectors: Floats) -> Floats:
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
