"""Ranking: the best items of each user by dot product. This is the only top-k in truepair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_type, check_whole
from truepair.randomness import random_order

Matrix = torch.Tensor | npt.NDArray[Any]
Exclude = Interactions | Sequence[Interactions]

_TIE_KEY = 0x7135  # fixed for ever: ties are broken alike in every run, on every machine
_BLOCK_BYTES = 48 << 20  # one block of scores
_ROWS = 16  # blocks are multiples of this many rows


class TopK(NamedTuple):
    """The best items of each row, best first; places without a candidate hold item -1, score -inf."""

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

    `rows` defaults to all users; items of u in `exclude` are left out of u's list. A user with fewer
    than k candidates gets item -1 with score -inf at the end. Scores are computed in float32, about
    `block` users at a time, on the device of `items`; a list does not depend on who else is asked for.

    Equal scores are ordered by one fixed pseudo-random order of the item codes, the same for all users
    and all runs. They are not ordered by code: codes often follow popularity, and a model that gives
    every item the same score would look good.

    >>> lists = top_k(np.eye(2), np.array([[3, 0], [1, 2], [2, 1]]), k=2)
    >>> lists.items.tolist(), lists.scores.tolist()
    ([[0, 2], [1, 2]], [[3.0, 2.0], [2.0, 1.0]])
    """
    user_matrix, item_matrix = _checked_matrices(users, items)
    n_users, n_items = len(user_matrix), len(item_matrix)
    k = _checked_k(k, n_items)
    codes = _checked_rows(rows, n_users)
    masks = as_masks(exclude)
    check_shapes((n_users, n_items), masks)
    block = max(1, _BLOCK_BYTES // (4 * n_items)) if block is None else check_whole("block", block, 1)
    with torch.inference_mode():
        return _ranked(user_matrix, item_matrix, k, codes, masks, block)


def as_masks(exclude: Exclude | None) -> tuple[Interactions, ...]:
    """`exclude` as a tuple, whether it was none, one or several."""
    if exclude is None:
        return ()
    masks = (exclude,) if isinstance(exclude, Interactions) else exclude
    remedy = "give Interactions, or a list of them, such as split.train"
    check_type("exclude", masks, (tuple, list), remedy)
    for mask in masks:
        check_type("exclude", mask, Interactions, remedy)
    return tuple(masks)


def check_shapes(shape: tuple[int, int], others: Sequence[Interactions], what: str = "exclude") -> None:
    """An error if one of `others` does not have `shape` = (users, items)."""
    for other in others:
        if (other.n_users, other.n_items) != shape:
            raise InputError(
                f"{what} has {other.n_users:,} users x {other.n_items:,} items, but {shape[0]:,} x "
                f"{shape[1]:,} are ranked; use parts of one split, which share their codes."
            )


# --- the ranking itself --------------------------------------------------------------------------------


def _ranked(
    users: torch.Tensor,
    items: torch.Tensor,
    k: int,
    codes: Codes,
    masks: tuple[Interactions, ...],
    block: int,
) -> TopK:
    n, n_items = len(codes), len(items)
    order = random_order(_TIE_KEY, n_items)  # column -> item: a tie then goes to the lower column
    column = np.empty_like(order)
    column[order] = np.arange(n_items)  # item -> column
    masked_columns = [column[mask.items] for mask in masks]
    columns_t = items[torch.from_numpy(order).to(items.device)].T  # (d, n_items)
    found = TopK(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    block = max(block // _ROWS, 1) * _ROWS
    buffer = items.new_empty(min(block, -(-n // _ROWS) * _ROWS), n_items)
    for start in range(0, n, block):
        part = codes[start : start + block]
        vectors = users[torch.from_numpy(part).to(users.device)].to(items.device)  # (b, d)
        scores = _scores(vectors, columns_t, buffer)  # (b, n_items)
        for mask, their_columns in zip(masks, masked_columns, strict=True):
            _mask(scores, _places(mask.indptr, their_columns, part, n_items))
        values, best = (x.cpu().numpy() for x in _best(scores, k))
        found.items[start : start + block] = np.where(values > -np.inf, order[best], -1)
        found.scores[start : start + block] = values
    return found


def _scores(vectors: torch.Tensor, columns_t: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """vectors @ columns_t, with the same bits for a row whatever rows come with it.

    A product of a few rows takes another path through the library, and its sums round otherwise.
    """
    missing = -len(vectors) % _ROWS
    padded = torch.nn.functional.pad(vectors, (0, 0, 0, missing)) if missing else vectors
    return torch.mm(padded, columns_t, out=buffer[: len(padded)])[: len(vectors)]


def _places(indptr: Codes, columns: Codes, part: Codes, n_items: int) -> Codes:
    """The flat places, in a block of scores for the users `part`, of the columns listed for each."""
    starts, counts = indptr[part], indptr[part + 1] - indptr[part]
    ends = np.cumsum(counts)
    among = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
    row_starts = np.arange(len(part)) * n_items
    return np.asarray(np.repeat(row_starts, counts) + columns[among])


def _mask(scores: torch.Tensor, places: Codes) -> None:
    scores.view(-1).index_fill_(0, torch.from_numpy(places).to(scores.device), -torch.inf)


def _best(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best (values, columns) of each row, by falling score, then rising column.

    `torch.topk` may return any of several equal scores. One place more than asked for shows where a tie
    crosses the end of the list; those rows alone are looked at again.
    """
    values, columns = torch.topk(scores, min(k + 1, scores.shape[1]))
    if k < values.shape[1]:
        crossing = (values[:, k - 1] == values[:, k]) & (values[:, k] > -torch.inf)
        columns = columns[:, :k]
        if crossing.any():
            columns[crossing] = _lowest_columns(scores[crossing], values[crossing, k, None], k)
    columns = columns.sort(dim=1).values
    values = scores.gather(1, columns) + 0.0  # -0.0 becomes 0.0, for sorts that tell them apart
    values, places = values.sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, places)


def _lowest_columns(scores: torch.Tensor, least: torch.Tensor, k: int) -> torch.Tensor:
    """All columns above `least` (m, 1), filled up to k with the lowest columns equal to it."""
    n_items = scores.shape[1]
    rank = -torch.arange(n_items, dtype=torch.int32, device=scores.device)
    rank = rank.expand_as(scores).masked_fill(scores < least, -n_items)  # (m, n_items)
    return rank.masked_fill_(scores > least, 1).topk(k).indices


# --- checks --------------------------------------------------------------------------------------------


def _checked_matrices(users: Matrix, items: Matrix) -> tuple[torch.Tensor, torch.Tensor]:
    user_matrix, item_matrix = _as_tensor("users", users), _as_tensor("items", items)
    if user_matrix.shape[1] != item_matrix.shape[1]:
        raise InputError(
            f"users have {user_matrix.shape[1]} dimensions but items have {item_matrix.shape[1]}; "
            "both matrices must come from one model."
        )
    largest = [float(m.abs().max()) if m.numel() else 0.0 for m in (user_matrix, item_matrix)]
    if largest[0] * largest[1] * user_matrix.shape[1] > torch.finfo(torch.float32).max:
        raise InputError(
            f"users up to {largest[0]:.3g} and items up to {largest[1]:.3g} give scores beyond float32; "
            "scale the matrices down, or train with a lower learning rate."
        )
    return user_matrix, item_matrix


def _as_tensor(what: str, matrix: Matrix) -> torch.Tensor:
    if not isinstance(matrix, torch.Tensor):
        with np.errstate(over="ignore"):  # what overflows is infinite, and told below
            matrix = torch.from_numpy(np.require(matrix, np.float32, ["C", "W"]))
    matrix = matrix.detach().float()
    if matrix.ndim != 2:
        raise InputError(f"{what} must be a matrix (rows x dimensions), not {matrix.ndim}-D.")
    if broken := int((~torch.isfinite(matrix)).any(dim=1).sum()):
        raise InputError(
            f"{broken:,} of {len(matrix):,} rows of {what} hold NaN or infinity; "
            "the model diverged: train again with a lower learning rate."
        )
    return matrix


def _checked_k(k: int, n_items: int) -> int:
    k = check_whole("k", k, 1)
    if k > n_items:
        raise InputError(f"k = {k} is larger than the catalogue of {n_items} items; ask for k ≤ {n_items}.")
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
