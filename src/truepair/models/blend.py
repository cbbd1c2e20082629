"""Blends: the scores of a trained model plus EASE's scores times a weight, as two matrices.

    s(u, i) = ⟨e_u, e_i⟩ + weight · (x_u B)_i = ⟨[x_u, e_u], [weight · B_·i, e_i]⟩

EASE learns pairs of items, a trained model learns vectors; the blend is often better than either. It is
formed after training: vectors that are trained on top of EASE's scores are worse.
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
from truepair.models.factor_matrices import Rows, check_room, dense


@dataclass(frozen=True, eq=False)
class Blend:
    """EASE's part of a blend; `matrices` adds the trained part. The first `n_items` columns are EASE's."""

    users: sp.csr_array  # x_u, [n_users, n_items]
    weights: Tensor  # weight · B, [n_items, n_items]

    @staticmethod
    def of(ease: EASE, weight: float, train: Interactions, device: torch.device | str = "cpu") -> Blend:
        """The blend with EASE, fitted to these interactions."""
        users, items = ease.solve(train, device)
        assert isinstance(users, sp.csr_array)
        return Blend(users, dense("items", items).T.mul_(weight))

    def matrices(self, users: Tensor, items: Tensor) -> tuple[sp.csr_array, Tensor]:
        """(users, items) of the blend with these trained matrices; on the device of EASE's weights."""
        device = self.weights.device
        room = items.element_size() * len(items) * (len(items) + items.shape[1])
        check_room(f"A blend with EASE over {len(items):,} items", room, device, "train without blend='ease'")
        columns = torch.cat(
            [self.weights, items.to(device).T]
        )  # by columns, the layout for products with sparse users
        return with_vectors(self.users, users), columns.T


def with_vectors(history: sp.csr_array, vectors: Tensor) -> sp.csr_array:
    """[x_u, e_u] as sparse rows."""
    n, dim = vectors.shape
    columns = np.tile(np.arange(dim, dtype=history.indices.dtype), n)
    parts = (vectors.cpu().numpy().ravel(), columns, np.arange(n + 1) * dim)
    return sp.csr_array(sp.hstack([history, sp.csr_array(parts, shape=(n, dim))], format="csr"))


def trained_part(rows: Rows, n_items: int) -> Tensor:
    """The trained vectors of a blend's users or items: the columns after EASE's."""
    rest = rows[:, n_items:]
    return torch.from_numpy(rest.toarray()) if isinstance(rest, sp.csr_array) else rest.contiguous()


def check_vectors(users: Rows, n_items: int) -> None:
    """Raise an error if the trained vectors have missing numbers, before they are made dense."""
    if not isinstance(users, sp.csr_array):
        return
    found, whole = np.count_nonzero(users.indices >= n_items), users.shape[0] * (users.shape[1] - n_items)
    if found != whole:
        raise InputError(f"the vectors of {users.shape[0]} users have {found} numbers instead of {whole}.")
