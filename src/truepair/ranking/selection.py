"""Ranking: the best items of each user by dot product."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_type, check_whole
from truepair.models.factor_matrices import n_rows
from truepair.ranking.hidden import Hidden
from truepair.ranking.prepared_items import Matrix, PreparedItems, TopK, checked_matrices, tie_order

Exclude = Interactions | Sequence[Interactions]


def top_k(
    users: Matrix,
    items: Matrix,
    k: int,
    *,
    rows: npt.ArrayLike | None = None,
    exclude: Exclude | None = None,
    block: int | None = None,
) -> TopK:
    """The `k` items with the highest score `users[u] · items[i]`, for each user code u in `rows`.

    `rows` defaults to all users. The items that u has or dislikes in `exclude` do not appear in the list of
    u. A list with fewer than k candidates ends with item -1 and score -inf. Scores are computed in float32,
    about `block` users at a time, on the device of `items`; a list does not depend on the other rows. Either
    matrix may be a SciPy sparse matrix; products with sparse items are computed in main memory.

    Ties are broken by one fixed pseudo-random order of the item codes, the same for all users and runs. The
    order of codes is not used: it often follows popularity, so that a model with equal scores for all items
    would look good.

    >>> lists = top_k(np.eye(2), np.array([[3, 0], [1, 2], [2, 1]]), k=2)
    >>> lists.items.tolist(), lists.scores.tolist()
    ([[0, 2], [1, 2]], [[3.0, 2.0], [2.0, 1.0]])
    """
    user_matrix, item_matrix = checked_matrices(users, items)
    n_users, n_items = n_rows(user_matrix), n_rows(item_matrix)
    k, codes, masks = checked_k(k, n_items), _checked_rows(rows, n_users), as_masks(exclude)
    check_shapes((n_users, n_items), masks)
    block = None if block is None else check_whole("block", block, 1)
    return PreparedItems(item_matrix, tie_order(n_items)).top_k(
        user_matrix, k, hidden_from(codes, masks), codes, block
    )


def hidden_from(users: Codes, masks: Sequence[Interactions]) -> Hidden:
    """What these users have or dislike in the masks."""
    masks = (*masks, *(mask.dislikes for mask in masks if mask.dislikes is not None))
    return Hidden.joined([Hidden.pairs_of(mask, users) for mask in masks], len(users))


def as_masks(exclude: Exclude | None) -> tuple[Interactions, ...]:
    """`exclude` (None, one or several Interactions) as a tuple."""
    if exclude is None:
        return ()
    masks = (exclude,) if isinstance(exclude, Interactions) else exclude
    remedy = "give Interactions, or a list of them, such as split.train"
    check_type("exclude", masks, (tuple, list), remedy)
    for mask in masks:
        check_type("exclude", mask, Interactions, remedy)
    return tuple(masks)


def check_shapes(shape: tuple[int, int], others: Sequence[Interactions], what: str = "exclude") -> None:
    """Raise an error if one of `others` does not have `shape` = (users, items)."""
    for other in others:
        if (other.n_users, other.n_items) != shape:
            raise InputError(
                f"{what} has {other.n_users:,} users x {other.n_items:,} items, but {shape[0]:,} x "
                f"{shape[1]:,} are ranked; use parts of one split, which have the same codes."
            )


def has_pairs(part: Interactions, users: Codes, items: Codes) -> npt.NDArray[np.bool_]:
    """`part.has(users, items)` for arrays of one length; faster if the pairs of a user are adjacent.

    The item -1 marks a position without an item.
    """
    from truepair.ranking.compiled_top_k import has_pairs as found  # not before it is needed: it loads Numba

    return np.asarray(found(part.indptr, part.items, part.n_items, users, items))


def checked_k(k: int, n_items: int) -> int:
    """`k`, if lists can be that long."""
    k = check_whole("k", k, 1)
    if k > n_items:
        raise InputError(f"k = {k} is larger than the catalogue of {n_items} items; choose k ≤ {n_items}.")
    return k


def _checked_rows(rows: npt.ArrayLike | None, n_users: int) -> Codes:
    if rows is None:
        return np.arange(n_users)
    codes = np.asarray(rows)
    if codes.ndim != 1 or (len(codes) and codes.dtype.kind not in "iu"):
        raise InputError(f"rows must be a 1-D array of user codes, not {codes.ndim}-D {codes.dtype}.")
    if len(codes) and (codes.min() < 0 or codes.max() >= n_users):
        raise InputError(f"rows go from {codes.min()} to {codes.max()}; user codes are 0 to {n_users - 1}.")
    return codes.astype(np.int64)
