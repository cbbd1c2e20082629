"""Scores of a block of users for all items, of dense and of sparse rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.models.factor_matrices import Rows

# codes of b users, on the CPU and on the items' device -> scores (b, n_items); column c is the item order[c].
# The scores of the next block may overwrite them.
Scores = Callable[[Codes, Tensor], Tensor]

ROWS = 16  # blocks are multiples of this many rows


def scores_of(users: Rows, items: Rows, order: Tensor, block: int) -> Scores:
    """A function that scores up to `block` users; a user's scores do not depend on the other users."""
    if isinstance(items, sp.csr_array):
        return _sparse_items(users, items, order)
    if isinstance(users, sp.csr_array):
        return _sparse_users(users, items, order)
    return _dense(users, items, order, block)


def _dense(users: Tensor, items: Tensor, order: Tensor, block: int) -> Scores:
    columns_t = items[order].T  # (d, n_items)
    buffer = items.new_empty(block, len(items))

    def scores(codes: Codes, on_device: Tensor) -> Tensor:
        vectors = users[on_device.to(users.device)].to(items.device)  # (b, d)
        return _product(vectors, columns_t, buffer)

    return scores


def _product(vectors: Tensor, columns_t: Tensor, buffer: Tensor) -> Tensor:
    """vectors @ columns_t, where the bits of a row do not depend on the other rows.

    Products of few rows use another algorithm of the library, whose sums round differently; hence the
    padding.
    """
    missing = -len(vectors) % ROWS
    padded = F.pad(vectors, (0, 0, 0, missing)) if missing else vectors
    return torch.mm(padded, columns_t, out=buffer[: len(padded)])[: len(vectors)]


def _sparse_users(users: sp.csr_array, items: Tensor, order: Tensor) -> Scores:
    """The sum of the weights of each user's items, on the device of the items."""
    weights = items.T.contiguous()  # (d, n_items); no copy if items are in column-major layout

    def scores(codes: Codes, on_device: Tensor) -> Tensor:
        rows = users[codes]
        parts = (rows.indices.astype(np.int64), rows.indptr[:-1].astype(np.int64), rows.data)
        columns, starts, values = (torch.from_numpy(part).to(items.device) for part in parts)
        sums = F.embedding_bag(columns, weights, starts, mode="sum", per_sample_weights=values)
        return sums.index_select(1, order)

    return scores


def _sparse_items(users: Rows, items: sp.csr_array, order: Tensor) -> Scores:
    """Sparse products in main memory, made dense one block at a time."""
    weights = sp.csr_array(items[order.numpy()].T)  # (d, n_items)

    def scores(codes: Codes, on_device: Tensor) -> Tensor:
        if isinstance(users, sp.csr_array):
            rows = users[codes]
        else:
            rows = sp.csr_array(users[on_device.to(users.device)].cpu().numpy())
        return torch.from_numpy((rows @ weights).toarray())

    return scores
