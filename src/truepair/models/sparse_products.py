"""Sparse matrices on a device: the user-item graph, tables of features, and products with their gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions


def with_transpose(matrix: sp.csr_array, device: torch.device) -> tuple[Tensor, Tensor]:
    """The matrix [n, m] and its transpose [m, n] on a device: `product` takes both, for gradients."""
    return torch_csr(matrix, device), torch_csr(sp.csr_array(matrix.T), device)


class Graph:
    """The normalised user-item graph on a device, as two sparse matrices."""

    def __init__(self, interactions: Interactions, device: torch.device) -> None:
        counts = interactions.user_counts, interactions.item_counts
        values = edge_weights(*counts, interactions.users, interactions.items)
        matrix = sp.csr_array(
            (values, interactions.items, interactions.indptr),
            shape=(interactions.n_users, interactions.n_items),
        )
        self.to_users, self.to_items = with_transpose(matrix, device)

    def spread(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """One hop: each vector becomes the weighted sum of its neighbours."""
        return product(self.to_users, self.to_items, items), product(self.to_items, self.to_users, users)


def edge_weights(
    user_counts: Codes, item_counts: Codes, users: Codes, items: Codes
) -> npt.NDArray[np.float32]:
    """1 / √(c_u · c_i) of the edges (users[k], items[k]), from the counts of all users and of all items."""
    # users and items without interactions have no edges, so their divisor does not matter
    per_user = np.sqrt(np.maximum(user_counts, 1))
    per_item = np.sqrt(np.maximum(item_counts, 1))
    values = 1 / (per_user[users] * per_item[items])
    return values.astype(np.float32)


class _SparseProduct(torch.autograd.Function):
    """matrix @ dense, whose gradient is transposed @ gradient (both matrices are stored)."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ gradients[0]


def product(matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
    """matrix @ dense, with gradients for `dense`."""
    result: Tensor = _SparseProduct.apply(matrix, transposed, dense)  # type: ignore[no-untyped-call]
    return result


def torch_csr(matrix: sp.csr_array, device: torch.device) -> Tensor:
    """The matrix on a device, in PyTorch's sparse rows."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        # PyTorch 2.11 warns even if the check is requested, as it is here
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(
            torch.tensor(matrix.indptr, dtype=torch.int64),
            torch.tensor(matrix.indices, dtype=torch.int64),
            torch.tensor(matrix.data),
            size=matrix.shape,
            device=device,
            check_invariants=matrix.nnz > 0,  # it refuses the strides of NumPy's empty arrays
        )
