"""Scorer: the parts of a fitted model that scores are made of.

    score(u, i, t) = ⟨e_u, e_i⟩ + term_i + Σ_j x_uj · w_ij + trend_i(t)

e are trained vectors, `term` is the part of a score that is the same for all users, x_u is the history of a
user, w the weights of a closed form, and `trend` what is popular now. A model has some of these parts: MF the
vectors, and a term if it adds popularity; EASE the weights; a blend all of them. Ranking multiplies two
matrices, a row for each user and a row for each item, in which the parts lie side by side: `rows` and
`columns` make them, and nothing else knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.errors import settle
from truepair.models.factor_matrices import (
    Rows,
    all_stored,
    check_room,
    dot_rows,
    n_rows,
    take_rows,
    write_last_column,
)

Floats32 = np.ndarray[tuple[int], np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class Scorer:
    """The parts of a model's scores; vectors of length 0, and None, where it does not have a part."""

    users: Tensor
    """[n_users, d], the vectors of known users, scaled for scoring."""
    items: Tensor
    """[n_items, d]"""
    term: Tensor | None = None
    """[n_items]"""
    history: sp.csr_array | None = None
    """[n_users, n_items], x_u of known users."""
    weights: Rows | None = None
    """[n_items, n_items]: row i has the weights of all items j for the score of i."""
    trend: Tensor | None = None
    """[n_items], the trend at the moment of the lists; training and fold-in do not know it."""

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        return int(self.items.shape[1])

    @property
    def width(self) -> int:
        """The number of columns of `columns`."""
        weights = 0 if self.weights is None else int(self.weights.shape[1])
        return weights + self.dim + (self.addition is not None)

    @cached_property
    def addition(self) -> Tensor | None:
        """[n_items], the part of a score that is the same for all users: the term and the trend."""
        if self.term is None or self.trend is None:
            return self.trend if self.term is None else self.term
        return self.term + self.trend.to(self.term)

    @property
    def is_blend(self) -> bool:
        """Whether there are trained vectors and weights of a closed form."""
        return self.weights is not None and self.dim > 0

    @property
    def is_popularity(self) -> bool:
        """Whether the scores are the same for all users."""
        return self.weights is None and not self.dim

    @cached_property
    def columns(self) -> Rows:
        """A row for each item, whose product with a row of a user is the score. [n_items, …]"""
        addition = self.addition
        others = self.items if addition is None else torch.cat([self.items, addition[:, None]], dim=1)
        if self.weights is None:
            return others
        if not others.shape[1]:
            return self.weights
        if isinstance(self.weights, sp.csr_array):
            return sp.csr_array(sp.hstack([self.weights, all_stored(others)], format="csr"))
        n, device = len(self.items), self.weights.device
        what = f"A blend with EASE over {n:,} items"
        check_room(what, 4 * n * self.width, device, "train without blend='ease'")
        joined = torch.cat([self.weights.T, others.to(device).T]).T  # by columns, for sparse rows
        settle(self, weights=joined[:, :n])  # they are in memory once
        return joined

    def take_columns(self, former: Scorer) -> None:
        """Have the columns of the same scorer at another moment, changed in place, as its own: a copy of the
        items for each moment would take as long as to make them ready."""
        assert self.addition is not None
        write_last_column(former.columns, self.addition.cpu().numpy())
        self.__dict__["columns"] = former.columns

    @cached_property
    def trained_columns(self) -> Tensor:
        """The vectors of items with the term as the last column: what a fold-in is fitted against."""
        return self.items if self.term is None else torch.cat([self.items, self.term[:, None]], dim=1)

    def query(self, vectors: Tensor, history: sp.csr_array | None) -> Rows:
        """A row for each of some users, by their vectors and histories, for products with `columns`."""
        if self.addition is not None:
            vectors = F.pad(vectors, (0, 1), value=1.0)
        if self.weights is None:
            return vectors
        assert history is not None
        if not vectors.shape[1]:
            return history
        return _side_by_side(history, vectors.cpu().numpy())

    def rows(self, users: Codes | None = None) -> Rows:
        """`query` of these known users, or of all."""
        if users is None:
            return self.query(self.users, self.history)
        history = None if self.history is None else sp.csr_array(self.history[users])
        vectors = take_rows(self.users, users)
        assert isinstance(vectors, Tensor)
        return self.query(vectors, history)

    def scores(self, users: Codes, items: Codes) -> Floats32:
        """The score of each pair of a known user and an item."""
        known, places = np.unique(users, return_inverse=True)
        return np.asarray(dot_rows(self.rows(known), self.columns, places, items), np.float32)

    def matrices(self) -> tuple[Rows, Rows]:
        """(users, items), whose products are the scores."""
        return self.rows(), self.columns

    def on_cpu(self) -> Scorer:
        """With all parts in main memory."""
        term = None if self.term is None else self.term.cpu()
        weights = self.weights.cpu() if isinstance(self.weights, Tensor) else self.weights
        return replace(self, users=self.users.cpu(), items=self.items.cpu(), term=term, weights=weights)

    def take(self, users: Codes, items: Codes) -> Scorer:
        """The vectors and terms of these users and items; weights, which are between items, and the trend are
        left out."""
        of_users, of_items = torch.from_numpy(users), torch.from_numpy(items)
        term = None if self.term is None else self.term[of_items]
        return Scorer(self.users[of_users], self.items[of_items], term)


def _side_by_side(history: sp.csr_array, vectors: npt.NDArray[np.float32]) -> sp.csr_array:
    """Sparse rows followed by dense ones, as `scipy.sparse.hstack` would join them, in a part of its time."""
    (n, dim), n_items = vectors.shape, history.shape[1]
    starts = history.indptr + dim * np.arange(n + 1)
    is_vector = np.ones(starts[-1], dtype=bool)
    is_vector[np.arange(len(history.indices)) + dim * np.repeat(np.arange(n), np.diff(history.indptr))] = (
        False
    )
    columns, values = np.empty(len(is_vector), history.indices.dtype), np.empty(len(is_vector), np.float32)
    columns[~is_vector], values[~is_vector] = history.indices, history.data
    columns[is_vector], values[is_vector] = np.tile(np.arange(dim) + n_items, n), vectors.ravel()
    return sp.csr_array((values, columns, starts), shape=(n, n_items + dim))


def trained_scorer(users: Tensor, items: Tensor, has_term: bool) -> Scorer:
    """The scorer of the two matrices of training, whose last column is the term, if there is one."""
    if not has_term:
        return Scorer(users, items)
    return Scorer(users[:, :-1].contiguous(), items[:, :-1].contiguous(), items[:, -1].contiguous())


def closed_scorer(users: Rows, items: Rows) -> Scorer:
    """The scorer of the two matrices of a closed form: a term, or histories and weights."""
    nothing = torch.zeros(n_rows(users), 0), torch.zeros(n_rows(items), 0)
    if isinstance(users, Tensor) and isinstance(items, Tensor):  # popularity
        return Scorer(*nothing, items[:, 0].contiguous())
    assert isinstance(users, sp.csr_array)
    return Scorer(*nothing, history=users, weights=items)
