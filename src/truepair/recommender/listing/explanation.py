"""Explanations: which items of a user speak for a recommendation, and by how much.

    score = Σ weights of the items in `because` + rest + popularity

holds for closed forms, whose scores are sums over the user's items, and for blends, where `rest` includes the
score of the trained vectors. A trained user vector is no sum of items: there the weights are similarities of
items, which do not add up, and `rest` is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes, IdMap
from truepair.models.factor_matrices import Rows

if TYPE_CHECKING:  # it loads Numba, so it is not imported before it is needed
    from truepair.ranking.reasons import Own, Weights

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])

MOST = 5  # items that are named for a recommendation, unless the caller says how many
_PAIRS = 1 << 15  # pairs whose vectors are in memory at a time


@dataclass(frozen=True, eq=False)
class Explanation:
    """What speaks for the recommendations of a model, in codes of the model."""

    own: sp.csr_array  # [n_users, n_items], the items of each user, with factors of their weights
    weights: Rows  # [listed item, item] weights; or [n_items, d] vectors, whose products are the weights
    are_vectors: bool
    additions: Doubles  # [n_items], the part of a score that is the same for all users
    trained: tuple[Tensor, Tensor] | None  # (users, items): vectors whose products are in the scores, too
    adds_up: bool
    item_ids: IdMap
    most: int

    def columns(self, users: Codes, items: Codes, scores: Floats) -> dict[str, pa.Array]:
        """The columns because, rest, popularity of pairs (user, item); the pairs of a user are adjacent.

        The code -1 is a user who got popular items: the score is all popularity.
        """
        from truepair.ranking.reasons import reasons

        people, rows = np.unique(users[users >= 0], return_inverse=True)
        place = np.full(len(users), -1)
        place[users >= 0] = rows
        own = self._own(people)
        found = reasons(place, items, own, self._weights(), self.most, torch.get_num_threads())
        rest = found.others if self.trained is None else found.others + self._products(users, items)
        pairs = pa.StructArray.from_arrays(
            [self.item_ids.outside(found.items), pa.array(found.weights)], ["item", "weight"]
        )
        offsets = np.append(0, np.cumsum(found.counts)).astype(np.int32)
        return {
            "because": pa.ListArray.from_arrays(pa.array(offsets), pairs),
            "rest": pa.array(rest, mask=(users >= 0) & (not self.adds_up)),
            "popularity": pa.array(np.where(users < 0, scores, self.additions[items])),
        }

    def _own(self, people: Codes) -> Own:
        from truepair.ranking.reasons import Own

        rows = self.own[people]
        return Own(_codes(rows.indptr), _codes(rows.indices), _floats(rows.data))

    def _weights(self) -> Weights:
        from truepair.ranking.reasons import SPARSE_ROWS, TABLE, VECTORS, Weights

        nothing, no_codes = np.zeros((1, 1), np.float32), np.empty(0, np.int64)
        rows = self.weights
        if isinstance(rows, sp.csr_array):
            sparse = _codes(rows.indptr), _codes(rows.indices), _floats(rows.data)
            return Weights(SPARSE_ROWS, _floats(nothing), *sparse)
        matrix = rows.cpu() if self.are_vectors else rows.cpu().T  # a closed form has its columns in order
        form = VECTORS if self.are_vectors else TABLE
        return Weights(form, _floats(matrix.numpy()), _codes(no_codes), _codes(no_codes), _floats(nothing[0]))

    def _products(self, users: Codes, items: Codes) -> Doubles:
        """The products of the trained vectors of each pair; 0 for the user -1."""
        assert self.trained is not None
        of_users, of_items = self.trained
        found = np.zeros(len(users))
        for start in range(0, len(users), _PAIRS):
            at = slice(start, start + _PAIRS)
            vectors = of_users[torch.from_numpy(np.maximum(users[at], 0))].double()
            others = of_items[torch.from_numpy(items[at])].double()
            found[at] = torch.einsum("nd,nd->n", vectors, others).numpy()
        return np.where(users >= 0, found, 0.0)


def _codes(array: npt.NDArray[np.integer]) -> Codes:
    return _read_only(array.astype(np.int64, copy=False))


def _floats(array: npt.NDArray[np.float32]) -> Floats:
    return _read_only(np.ascontiguousarray(array, np.float32))


def _read_only(array: _Array) -> _Array:
    """A view that cannot be written: Numba compiles writable arrays, which some callers have, once more."""
    view = array.view()
    view.flags.writeable = False
    return view
