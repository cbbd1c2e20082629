"""A sum of two models: a trained one, and EASE's scores times a weight; two matrices again.

    s(u, i) = ⟨e_u, e_i⟩ + weight · (x_u B)_i = ⟨[x_u, e_u], [weight · B_·i, e_i]⟩

What EASE knows of pairs of items and what vectors know differ, and the sum is often better than both: see
docs/exact.md. It is formed after training; training EASE's scores along makes vectors worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.models.closed_forms import EASE
from truepair.models.matrices import Rows, check_room, dense


@dataclass(frozen=True, eq=False)
class Sum:
    """Matrices of a sum, for whatever trained matrices it is to have. `n_items` columns are EASE's."""

    users: sp.csr_array  # x_u, [n_users, n_items]
    weights: Tensor  # weight · B, [n_items, n_items]

    @staticmethod
    def of(ease: EASE, weight: float, train: Interactions, device: torch.device | str = "cpu") -> Sum:
        """EASE of these interactions."""
        users, items = ease.solve(train, device)
        assert isinstance(users, sp.csr_array)
        return Sum(users, dense("items", items).T.mul_(weight))

    def joined(self, users: Tensor, items: Tensor) -> tuple[sp.csr_array, Tensor]:
        """(users, items) of the sum; the items are where EASE's weights are."""
        device = self.weights.device
        room = items.element_size() * len(items) * (len(items) + items.shape[1])
        check_room(f"A sum with EASE of {len(items):,} items", room, device, "leave out blend='ease'")
        columns = torch.cat([self.weights, items.to(device).T])  # by columns, as sparse users need them
        return with_vectors(self.users, users), columns.T


def with_vectors(history: sp.csr_array, vectors: Tensor) -> sp.csr_array:
    """[x_u, e_u] as sparse rows."""
    n, dim = vectors.shape
    columns = np.tile(np.arange(dim, dtype=history.indices.dtype), n)
    parts = (vectors.cpu().numpy().ravel(), columns, np.arange(n + 1) * dim)
    return sp.csr_array(sp.hstack([history, sp.csr_array(parts, shape=(n, dim))], format="csr"))


def trained_part(rows: Rows, n_items: int) -> Tensor:
    """The vectors of a sum's users or items, as they were trained: what comes after EASE's columns."""
    rest = rows[:, n_items:]
    return torch.from_numpy(rest.toarray()) if isinstance(rest, sp.csr_array) else rest.contiguous()


def check_vectors(users: Rows, n_items: int) -> None:
    """An error if vectors are not whole: dense, they would need more room than the file they are from."""
    if not isinstance(users, sp.csr_array):
        return
    found, whole = np.count_nonzero(users.indices >= n_items), users.shape[0] * (users.shape[1] - n_items)
    if found != whole:
        raise InputError(f"the vectors of {users.shape[0]} users have {found} numbers, not {whole}.")
