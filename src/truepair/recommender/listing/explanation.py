"""Explanations: which items of a user speak for a recommendation, and by how much.

    score = Σ weights of the items in `because` + rest + popularity

holds for closed forms, whose scores are sums over the user's items, and for blends, where `rest` includes the
score of the trained vectors. A trained user vector is no sum of items: there the weights are similarities of
items, which do not add up, and `rest` is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.models.factor_matrices import Rows

Floats = npt.NDArray[np.float32]
Weights = Callable[[Codes, Codes], Floats]  # (listed items, a user's items) -> weights [listed, own]

MOST = 5  # items that are named for a recommendation, unless the caller says how many


@dataclass(frozen=True, eq=False)
class Explanation:
    """What speaks for the recommendations of a model, in codes of the model."""

    own: sp.csr_array  # [n_users, n_items], the items of each user, with factors of their weights
    weights: Weights
    additions: npt.NDArray[np.float64]  # [n_items], the part of a score that is the same for all users
    trained: tuple[Tensor, Tensor] | None  # (users, items): vectors whose products are in the scores, too
    adds_up: bool
    item_ids: IdMap
    most: int

    def columns(self, users: Codes, items: Codes, scores: Floats) -> dict[str, pa.Array]:
        """The columns because, rest, popularity of pairs (user, item); the pairs of a user are adjacent.

        The code -1 is a user who got popular items: the score is all popularity.
        """
        named: list[Codes] = []
        weights: list[Floats] = []
        rest = np.zeros(len(users))
        edges = np.append(np.flatnonzero(np.diff(users, prepend=-2)), len(users)).tolist()
        for start, end in pairwise(edges):
            if users[start] >= 0:
                rows = slice(start, end)
                rest[rows] = self._of_user(users[start], items[rows], named, weights)
            else:
                named += [np.empty(0, np.int64)] * (end - start)
                weights += [np.empty(0, np.float32)] * (end - start)
        popularity = np.where(users < 0, scores, self.additions[items])
        return {
            "because": self._lists(named, weights),
            "rest": pa.array(rest, mask=(users >= 0) & (not self.adds_up)),
            "popularity": pa.array(popularity),
        }

    def _of_user(self, user: int, listed: Codes, named: list[Codes], weights: list[Floats]) -> Floats:
        """Add the named items and their weights for each listed item; give the rest of each score."""
        row = slice(self.own.indptr[user], self.own.indptr[user + 1])
        own = self.own.indices[row].astype(np.int64)
        parts = self.weights(listed, own) * self.own.data[row]  # [listed, own]
        order = np.argsort(-parts, axis=1, kind="stable")[:, : self.most]
        best = np.take_along_axis(parts, order, axis=1)
        for places, values in zip(order, best, strict=True):
            speaks = values > 0
            named.append(own[places[speaks]])
            weights.append(values[speaks])
        rest = parts.sum(axis=1, dtype=np.float64) - np.maximum(best, 0).sum(axis=1, dtype=np.float64)
        if self.trained is not None:
            vectors, of_items = self.trained
            rest = rest + (of_items[listed].double() @ vectors[int(user)].double()).numpy()
        return np.asarray(rest)

    def _lists(self, named: list[Codes], weights: list[Floats]) -> pa.Array:
        codes = np.concatenate([np.empty(0, np.int64), *named])
        values = np.concatenate([np.empty(0, np.float32), *weights])
        offsets = np.cumsum([0, *map(len, named)]).astype(np.int32)
        pairs = pa.StructArray.from_arrays(
            [self.item_ids.outside(codes), pa.array(values)], ["item", "weight"]
        )
        return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def table_weights(items: Rows) -> Weights:
    """The weights of rows with a column for each item, as closed forms have: items[listed, own]."""
    if isinstance(items, sp.csr_array):
        return lambda listed, own: np.asarray(items[listed][:, own].toarray())
    table = items.cpu().numpy()
    return lambda listed, own: np.asarray(table[np.ix_(listed, own)])


def vector_weights(directions: Tensor) -> Weights:
    """The products of the directions of items."""
    matrix = directions.cpu().numpy()
    return lambda listed, own: np.asarray(matrix[listed] @ matrix[own].T)


def no_weights(listed: Codes, own: Codes) -> Floats:
    """No item of a user speaks for anything."""
    return np.zeros((len(listed), len(own)), np.float32)
