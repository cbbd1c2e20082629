"""Scores of a block of users against all items: of dense and of sparse rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.models.matrices import Rows

# codes of b users, here and on the items' device -> their scores (b, n_items); column c is the item order[c].
# They may be overwritten by those of the next block.
Scores = Callable[[Codes, Tensor], Tensor]

ROWS = 16  # blocks are multiples of this many rows


def scores_of(users: Rows, items: Rows, order: Tensor, block: int) -> Scores:
    """How blocks of up to `block` users are scored; a user's scores do not depend on who else is in it."""
    if isinstance(items, sp.csr_array):
        return _sparse_items(users, items, order)
    if isinstance(users, sp.csr_array):
        return _sparse_users(users, items, order)
    return _dense(users, items, order, block)


def _dense(users: Tensor, items: Tensor, order: Tensor, block: int) -> Scores:
    columns_t = items[order].T  # (d, n_items)
    buffer = items.new_empty(block, len(items))

    def scores(codes: Codes, there: Tensor) -> Tensor:
        vectors = users[there.to(users.device)].to(items.device)  # (b, d)
        return _product(vectors, columns_t, buffer)

    return scores


def _product(vectors: Tensor, columns_t: Tensor, buffer: Tensor) -> Tensor:
    """vectors @ columns_t, with the same bits for a row whatever rows come with it.

    A product of a few rows takes another path through the library, and its sums round otherwise.
    """
    missing = -len(vectors) % ROWS
    padded = F.pad(vectors, (0, 0, 0, missing)) if missing else vectors
    return torch.mm(padded, columns_t, out=buffer[: len(padded)])[: len(vectors)]


def _sparse_users(users: sp.csr_array, items: Tensor, order: Tensor) -> Scores:
    """Each user's sum of the weights of what they have, term by term: on the device of the items."""
    weights = items.T.contiguous()  # (d, n_items); no copy where the items lie by columns

    def scores(codes: Codes, there: Tensor) -> Tensor:
        rows = users[codes]
        parts = (rows.indices.astype(np.int64), rows.indptr[:-1].astype(np.int64), rows.data)
        columns, starts, values = (torch.from_numpy(part).to(items.device) for part in parts)
        sums = F.embedding_bag(columns, weights, starts, mode="sum", per_sample_weights=values)
        return sums.index_select(1, order)

    return scores


def _sparse_items(users: Rows, items: sp.csr_array, order: Tensor) -> Scores:
    """Sparse products, made dense a block at a time: in main memory."""
    weights = sp.csr_array(items[order.numpy()].T)  # (d, n_items)

    def scores(codes: Codes, there: Tensor) -> Tensor:
        if isinstance(users, sp.csr_array):
            rows = users[codes]
        else:
            rows = sp.csr_array(users[there.to(users.device)].cpu().numpy())
        return torch.from_numpy((rows @ weights).toarray())

    return scores
