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
from truepair.evaluation.metrics import Mask
from truepair.models.factor_matrices import Rows, n_rows
from truepair.models.scorer import Scorer

if TYPE_CHECKING:  # it loads Numba, so it is not imported before it is needed
    from truepair.ranking.reasons import Weights

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
_Array = TypeVar("_Array", bound=npt.NDArray[Any])

MOST = 5  # items that are named for a recommendation, unless the caller says how many
_PAIRS = 1 << 15  # pairs whose vectors are in memory at a time


@dataclass(frozen=True, eq=False)
class Explanation:
    """What contributes to the recommendations of a model, in codes of the model."""

    scorer: Scorer
    directions: Tensor | None
    """[n_items, d], vectors whose products are the similarities of items; None where weights add up."""
    known: Mask
    """[n_items], items whose similarity means something: those that were trained."""
    item_ids: IdMap
    most: int

    def columns(
        self, rows: Rows, seen: sp.csr_array | None, users: Codes, items: Codes, scores: Floats
    ) -> dict[str, pa.Array]:
        """The columns because, rest, popularity of pairs (user, item); the pairs of a user are adjacent.

        A user is a place in `rows` and `seen`; -1 is one who got popular items: the score is all popularity.
        """
        from truepair.ranking.reasons import Own, reasons

        history = self._history(rows, seen)
        own = Own(_codes(history.indptr), _codes(history.indices), _floats(history.data))
        found = reasons(users, items, own, self._weights(), self.most, torch.get_num_threads())
        rest = found.others + self._products(rows, users, items) if self.scorer.is_blend else found.others
        pairs = pa.StructArray.from_arrays(
            [self.item_ids.outside(found.items), pa.array(found.weights)], ["item", "weight"]
        )
        offsets = np.append(0, np.cumsum(found.counts)).astype(np.int32)
        term = self.scorer.addition
        additions = np.zeros(len(items)) if term is None else term.double().cpu().numpy()[items]
        because = pa.ListArray.from_arrays(pa.array(offsets), pairs)
        rest = pa.array(rest, mask=(users >= 0) & (self.directions is not None))  # there is no sum
        popularity = pa.array(np.where(users < 0, scores, additions))
        return {"because": because, "rest": rest, "popularity": popularity}

    def _history(self, rows: Rows, seen: sp.csr_array | None) -> sp.csr_array:
        """The items of each user, with factors of their weights. [n, n_items]"""
        n = len(self.item_ids)
        if self.scorer.weights is not None:
            assert isinstance(rows, sp.csr_array)
            return sp.csr_array(rows[:, :n])
        if self.directions is None or seen is None:  # popularity: no item of a user contributes
            nothing = np.empty(0, np.float32), np.empty(0, np.int32), np.zeros(n_rows(rows) + 1, np.int32)
            return sp.csr_array(nothing, shape=(n_rows(rows), n))
        kept = self.known[seen.indices]
        starts = np.append(0, np.cumsum(kept))[seen.indptr]
        return sp.csr_array((seen.data[kept], seen.indices[kept], starts), shape=(n_rows(rows), n))

    def _weights(self) -> Weights:
        from truepair.ranking.reasons import SPARSE_ROWS, TABLE, VECTORS, Weights

        rows = self.scorer.weights
        if isinstance(rows, sp.csr_array):
            sparse = _codes(rows.indptr), _codes(rows.indices), _floats(rows.data)
            return Weights(SPARSE_ROWS, _floats(np.zeros((1, 1), np.float32)), *sparse)
        no_codes = _codes(np.empty(0, np.int64))
        sparse = no_codes, no_codes, _floats(np.zeros(1, np.float32))
        if rows is not None:  # a closed form has its columns in order
            return Weights(TABLE, _floats(rows.cpu().T.numpy()), *sparse)
        vectors = torch.zeros(1, 1) if self.directions is None else self.directions
        return Weights(VECTORS, _floats(vectors.cpu().numpy()), *sparse)

    def _products(self, rows: Rows, users: Codes, items: Codes) -> Doubles:
        """The products of the trained vectors of each pair; 0 for the user -1."""
        n = len(self.item_ids)
        assert isinstance(rows, sp.csr_array)
        of_users = torch.from_numpy(rows[:, n : n + self.scorer.dim].toarray())
        of_items = self.scorer.items.cpu()
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
