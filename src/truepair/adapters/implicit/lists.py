"""Factors: the methods of implicit's matrix factorisation models that need only the two matrices.

Shapes and types are those of implicit 0.7: ids int32 and scores float32, of shape (N,) for one user and
(users, N) for an array of them. A position without a candidate has id -1 and the lowest float32, as in
`implicit.utils`; implicit's compiled top-k returns a filtered item or item 0 there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from truepair.data.ids import Codes, IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_whole
from truepair.ranking.selection import top_k

Ids = npt.NDArray[np.integer[Any]]
Scores = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.floating[Any]]
Csr = Any  # csr_matrix or csr_array

_USERS_AT_ONCE = 8192
LOWEST = -np.finfo(np.float32).max


class Factors:
    """A matrix of users and one of items, ranked by dot product."""

    user_factors: Matrix
    item_factors: Matrix

    def recommend(
        self,
        userid: Any,
        user_items: Any,
        N: int = 10,  # noqa: N803, implicit's name
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
    ) -> tuple[Ids, Scores]:
        """The best `N` items and their scores, for one user or an array of users.

        `user_items` has one row for each user in `userid`. `recalculate_user` computes new vectors from these
        rows (fold-in), so that users need not be known.
        """
        self._check_fitted()
        liked = None
        if filter_already_liked_items or recalculate_user:
            liked = _checked_rows(user_items, 1 if np.isscalar(userid) else len(userid))
            self._check_width(liked)
        factors = self.recalculate_user(userid, liked) if recalculate_user else self.vectors(userid)
        exclude = liked if filter_already_liked_items else None
        allowed = allowed_rows(len(self.item_factors), filter_items, items, "items")
        found = rank(np.atleast_2d(factors), self.item_factors, allowed, N, exclude)
        return reshape(found, np.isscalar(userid), items)

    def recommend_all(
        self,
        user_items: Any,
        N: int = 10,  # noqa: N803, implicit's name
        recalculate_user: bool = False,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        batch_size: int = 0,
    ) -> Ids:
        """The ids of the best `N` items of every user, (users, N), as in implicit before version 0.5.

        `user_items` has one row for each user. `batch_size` users are ranked at a time; 0 is 8,192.
        """
        self._check_fitted()
        rows = _checked_rows(user_items, user_items.shape[0])
        step = check_whole("batch_size", batch_size, 0) or _USERS_AT_ONCE
        found = [
            self.recommend(
                np.arange(start, min(start + step, rows.shape[0])),
                rows[start : start + step],
                N,
                filter_already_liked_items,
                filter_items,
                recalculate_user,
            )[0]
            for start in range(0, rows.shape[0], step)
        ]
        return np.concatenate(found) if found else np.empty((0, check_whole("N", N, 1)), dtype=np.int32)

    def vectors(self, userid: Any) -> Matrix:
        """The vectors of known users."""
        found: Matrix = self.user_factors[userid]
        return found

    def similar_items(
        self,
        itemid: Any,
        N: int = 10,  # noqa: N803, implicit's name
        recalculate_item: bool = False,
        item_users: Any = None,
        filter_items: Any = None,
        items: Any = None,
    ) -> tuple[Ids, Scores]:
        """The `N` items with the most similar vectors, by cosine; the item itself comes first."""
        self._check_fitted()
        if recalculate_item:
            raise NotImplementedError("recalculate_item is not supported with this model")
        return self._similar_items(itemid, N, filter_items, items)

    def _similar_items(self, itemid: Any, n: int, filter_items: Any, items: Any) -> tuple[Ids, Scores]:
        return _similar(self.item_factors, itemid, n, filter_items, items, "items")

    def similar_users(
        self,
        userid: Any,
        N: int = 10,  # noqa: N803, implicit's name
        filter_users: Any = None,
        users: Any = None,
    ) -> tuple[Ids, Scores]:
        """The `N` users with the most similar vectors, by cosine; the user itself comes first."""
        self._check_fitted()
        return _similar(self.user_factors, userid, N, filter_users, users, "users")

    def recalculate_user(self, userid: Any, user_items: Any) -> Matrix:
        """Vectors for the rows of `user_items`, which may be new users."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        if getattr(self, "item_factors", None) is None:
            raise InputError("this model is not fitted yet; call fit(user_items) first.")

    def _check_width(self, user_items: Csr) -> None:
        if user_items.shape[1] != len(self.item_factors):
            raise InputError(
                f"user_items has {user_items.shape[1]} columns, but the model has "
                f"{len(self.item_factors)} items; give a matrix with the columns of the fitted one."
            )


def pairs_of(matrix: Any) -> Interactions:
    """The nonzero entries of a users x items matrix, as interactions of all its rows and columns."""
    if not sp.issparse(matrix):
        raise InputError(
            f"user_items is a {type(matrix).__name__}; give a sparse matrix: scipy.sparse.csr_matrix(…)."
        )
    merged: Csr = matrix.tocsr(copy=True)  # type: ignore[attr-defined]
    merged.sum_duplicates()
    users, items = (np.asarray(codes, dtype=np.int64) for codes in merged.nonzero())
    return Interactions(users, items, IdMap.range(merged.shape[0]), IdMap.range(merged.shape[1]))


def _checked_rows(user_items: Csr, n: int) -> Csr:
    if getattr(user_items, "format", None) != "csr":
        raise InputError("user_items needs to be a CSR sparse matrix")
    if user_items.shape[0] != n:
        raise InputError("user_items must contain 1 row for every user in userids")
    return user_items


def allowed_rows(n: int, filtered: Any, only: Any, what: str) -> Codes:
    """The rows that may be listed, in increasing order."""
    if only is not None and filtered is not None and len(filtered):
        raise InputError(f"Can't set both {what} and filter_{what}")
    chosen = np.zeros(n, dtype=bool) if only is not None else np.ones(n, dtype=bool)
    rows = np.asarray(only if only is not None else [] if filtered is None else filtered, dtype=np.int64)
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        raise IndexError(f"Some ids of {what} are not in the model; they go from 0 to {n - 1}")
    chosen[rows] = only is not None
    return np.flatnonzero(chosen)


def rank(
    queries: Matrix, matrix: Any, allowed: Codes, n: int, exclude: Csr | None = None
) -> tuple[Codes, Scores]:
    """The `n` best allowed rows for each query; positions without a candidate have -1 and LOWEST."""
    n = check_whole("N", n, 1)
    ids = np.full((len(queries), n), -1, dtype=np.int64)
    scores = np.full((len(queries), n), LOWEST, dtype=np.float32)
    k = min(n, len(allowed))
    if k and len(queries):
        masks = [pairs_of(exclude[:, allowed])] if exclude is not None else None
        best = top_k(queries, matrix[allowed], k, exclude=masks)
        ids[:, :k] = np.where(best.items >= 0, allowed[best.items], -1)
        scores[:, :k] = np.where(best.items >= 0, best.scores, LOWEST)
    return ids, scores


def _similar(matrix: Matrix, asked: Any, n: int, filtered: Any, only: Any, what: str) -> tuple[Ids, Scores]:
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    directions = matrix / np.where(norms == 0, 1, norms)
    found = rank(
        np.atleast_2d(directions[asked]), directions, allowed_rows(len(matrix), filtered, only, what), n
    )
    return reshape(found, np.isscalar(asked), only)


def reshape(found: tuple[Codes, Scores], single: bool, only: Any) -> tuple[Ids, Scores]:
    """The result in implicit's shape: at most as many columns as named candidates, 1-D for a single query."""
    ids, scores = found
    ids = ids.astype(np.int32) if only is None else ids[:, : len(only)]
    scores = scores[:, : ids.shape[1]]
    return (ids[0], scores[0]) if single else (ids, scores)
