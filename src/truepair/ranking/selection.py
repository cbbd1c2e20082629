"""Ranking: the best items of each user by dot product. All of truepair uses this top-k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_type, check_whole
from truepair.models.factor_matrices import Rows, n_rows
from truepair.randomness import random_order
from truepair.ranking.torch_top_k import rank_in_blocks

Matrix = Rows | npt.NDArray[Any]
Exclude = Interactions | Sequence[Interactions]

_TIE_KEY = 0x7135  # never changes: ties are broken equally in every run, on every machine


class TopK(NamedTuple):
    """The best items of each row, best first; positions without a candidate have item -1 and score -inf."""

    items: Codes  # (n, k)
    scores: npt.NDArray[np.float32]  # (n, k)


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
    k = checked_k(k, n_items)
    codes = _checked_rows(rows, n_users)
    masks = as_masks(exclude)
    check_shapes((n_users, n_items), masks)
    masks = (*masks, *(mask.dislikes for mask in masks if mask.dislikes is not None))
    block = None if block is None else check_whole("block", block, 1)
    return ranked(user_matrix, item_matrix, tie_order(n_items), k, codes, masks, block)


def ranked(
    users: Rows,
    items: Rows,
    order: Codes,
    k: int,
    codes: Codes,
    masks: tuple[Interactions, ...],
    block: int | None = None,
) -> TopK:
    """`top_k` without its checks; of equal scores, the item that comes first in `order` comes first."""
    with torch.inference_mode():
        if (
            isinstance(users, torch.Tensor)
            and isinstance(items, torch.Tensor)
            and items.device.type == "cpu"
            and compiled_module() is not None
        ):
            return _rank_compiled(users, items, order, k, codes, masks, block)
        return TopK(*rank_in_blocks(users, items, order, k, codes, masks, block))


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


# --- the order of the columns --------------------------------------------------------------------------


@lru_cache(maxsize=8)
def tie_order(n_items: int) -> Codes:
    """Column -> item: of equal scores, the item in the lower column comes first, on every device."""
    return _read_only(random_order(_TIE_KEY, n_items))


def _read_only(array: Codes) -> Codes:
    array.flags.writeable = False
    return array


# --- on the CPU: compiled code -------------------------------------------------------------------------


@cache
def compiled_module() -> Any:
    """The module of compiled code; None without Numba, where PyTorch gives the same lists more slowly."""
    try:
        from truepair.ranking import compiled_top_k
    except ImportError:
        return None
    return compiled_top_k


def has_pairs(part: Interactions, users: Codes, items: Codes) -> npt.NDArray[np.bool_]:
    """`part.has(users, items)` for arrays of one length; faster if the pairs of a user are adjacent.

    The item -1 marks a position without an item.
    """
    compiled = compiled_module()
    if compiled is None:
        return (items >= 0) & part.has(users, items)
    return np.asarray(compiled.has_pairs(part.indptr, part.items, part.n_items, users, items))


def _rank_compiled(
    users: torch.Tensor,
    items: torch.Tensor,
    order: Codes,
    k: int,
    codes: Codes,
    masks: tuple[Interactions, ...],
    block: int | None,
) -> TopK:
    compiled = compiled_module()
    matrices = [np.ascontiguousarray(matrix.cpu().numpy()) for matrix in (users, items)]
    masked = _masked_items(compiled, masks, codes)
    block = compiled.BLOCK if block is None else block
    return TopK(*compiled.rank_on_cpu(*matrices, order, k, codes, masked, block, torch.get_num_threads()))


def _masked_items(compiled: Any, masks: tuple[Interactions, ...], codes: Codes) -> tuple[Codes, Codes, Codes]:
    """(starts, ends, items): row r, of user codes[r], must not list items[starts[r]:ends[r]]."""
    if not masks:
        nothing = np.zeros(len(codes), np.int64)
        return nothing, nothing, _read_only(np.empty(0, np.int64))
    starts, ends, items = masks[0].indptr[codes], masks[0].indptr[codes + 1], masks[0].items
    for mask in masks[1:]:
        starts, ends, items = compiled.join_masks(starts, ends, items, codes, mask.indptr, mask.items)
        items = _read_only(items)  # as for one mask: Numba treats writable arrays as another type
    return starts, ends, items


# --- checks --------------------------------------------------------------------------------------------


def checked_matrices(users: Matrix, items: Matrix) -> tuple[Rows, Rows]:
    """Both in float32; an error if they do not fit each other, or if a number or a score is not finite."""
    user_matrix, item_matrix = _as_rows("users", users), _as_rows("items", items)
    if user_matrix.shape[1] != item_matrix.shape[1]:
        raise InputError(
            f"users have {user_matrix.shape[1]} dimensions but items have {item_matrix.shape[1]}; "
            "both matrices must come from one model."
        )
    largest = [_largest(_numbers(matrix)) for matrix in (user_matrix, item_matrix)]
    if largest[0] * largest[1] * user_matrix.shape[1] > torch.finfo(torch.float32).max:
        raise InputError(
            f"users up to {largest[0]:.3g} and items up to {largest[1]:.3g} give scores beyond float32; "
            "scale the matrices down, or train with a lower learning rate."
        )
    return user_matrix, item_matrix


def _as_rows(what: str, matrix: Matrix) -> Rows:
    rows: Rows
    with np.errstate(over="ignore"):  # overflow gives infinity, which is reported below
        if sp.issparse(matrix):
            rows = sp.csr_array(matrix).astype(np.float32, copy=False)
        elif isinstance(matrix, torch.Tensor):
            rows = matrix.detach().float()
        else:
            rows = torch.from_numpy(np.require(matrix, np.float32, ["C", "W"]))
    if rows.ndim != 2:
        raise InputError(f"{what} must be a matrix (rows x dimensions), not {rows.ndim}-D.")
    if isinstance(rows, torch.Tensor) and rows.layout != torch.strided:
        raise InputError(
            f"{what} is a sparse PyTorch tensor; give a dense tensor or a scipy.sparse.csr_array."
        )
    if not math.isfinite(_largest(_numbers(rows))):
        raise InputError(
            f"{_n_nonfinite_rows(rows):,} of {n_rows(rows):,} rows of {what} contain NaN or infinity; "
            "the model diverged: train again with a lower learning rate."
        )
    return rows


def _numbers(rows: Rows) -> torch.Tensor:
    """All stored numbers."""
    return rows if isinstance(rows, torch.Tensor) else torch.from_numpy(rows.data)


def _n_nonfinite_rows(rows: Rows) -> int:
    if isinstance(rows, torch.Tensor):
        return int((~torch.isfinite(rows)).any(dim=1).sum())
    places = np.flatnonzero(~np.isfinite(rows.data))
    return len(np.unique(np.searchsorted(rows.indptr, places, side="right")))


def _largest(matrix: torch.Tensor) -> float:
    """The largest absolute value; NaN or infinite if one number is. One pass, no copies."""
    if not matrix.numel():
        return 0.0
    in_order = matrix if matrix.is_contiguous() else matrix.T  # aminmax copies arrays that are not contiguous
    low, high = in_order.aminmax()
    return float(torch.maximum(-low, high))


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
