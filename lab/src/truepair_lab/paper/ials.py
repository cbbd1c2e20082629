"""iALS: implicit alternating least squares with regularisation scaled by frequency, solved exactly.

    L = Σ_(u,i) observed (s_ui − 1)² + w Σ_all s_ui² + Σ_rows λ_r ‖x_r‖²,  s_ui = ⟨x_u, y_i⟩
    λ_r = λ · f_r^ν · Σ f / Σ f^ν,  f_u = c_u + w·n_items,  f_i = c_i + w·n_users

c is the number of observed pairs of a row; the sums run over all users and items, so that λ keeps its size
whatever ν is (Rendle et al., Revisiting the Performance of iALS on Item Recommendation Benchmarks, 2022).
ν = 0 is one regularisation for every row. A sweep solves all users with fixed items, then all items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.errors import TrainingError, check_number, check_whole, settle

_ROOM = {"cpu": 1 << 22, "cuda": 1 << 27}  # numbers of a block's largest array
_EVEN = 0.6  # the shortest row of a block has at least this share of the pairs of the longest


@dataclass(frozen=True)
class IALS:
    """The parameters of iALS.

    dim             numbers of a vector
    unobserved      w, the weight of every pair; an observed one has 1 more
    regularization  λ
    exponent        ν
    init_scale      vectors begin as normal draws of this standard deviation, divided by √dim
    """

    dim: int = 64
    unobserved: float = 0.1
    regularization: float = 0.01
    exponent: float = 1.0
    init_scale: float = 0.1

    def __post_init__(self) -> None:
        positive = {
            name: check_number(name, getattr(self, name), 0, open_low=True)
            for name in ("unobserved", "regularization", "init_scale")
        }
        exponent = check_number("exponent", self.exponent, 0)
        settle(self, dim=check_whole("dim", self.dim, 1), exponent=exponent, **positive)

    def regularizations(self, data: Interactions) -> tuple[Tensor, Tensor]:
        """λ_u of every user and λ_i of every item, float64."""
        users = torch.from_numpy(data.user_counts + self.unobserved * data.n_items)
        items = torch.from_numpy(data.item_counts + self.unobserved * data.n_users)
        every = torch.cat([users, items]).double()
        scaled = every**self.exponent
        found = self.regularization * scaled * (every.sum() / scaled.sum())
        return found[: data.n_users], found[data.n_users :]


class Sweeps:
    """A run of iALS: `sweep` solves all users, then all items; the same seed gives the same vectors."""

    def __init__(
        self, settings: IALS, data: Interactions, seed: int = 0, device: torch.device | str = "cpu"
    ) -> None:
        self.settings, self.device = settings, torch.device(device)
        dim, drawn = settings.dim, torch.Generator().manual_seed(seed)
        items = torch.randn(data.n_items, dim, generator=drawn) * (settings.init_scale / dim**0.5)
        self.items = items.to(self.device)
        self.users = torch.zeros(data.n_users, dim, device=self.device)
        matrix = data.csr()
        of_users, of_items = (found.to(self.device) for found in settings.regularizations(data))
        room = _ROOM[self.device.type]
        self._by_user = [block.to(self.device) for block in _blocks(matrix, dim, room)], of_users
        by_item = _blocks(sp.csr_array(matrix.T), dim, room)
        self._by_item = [block.to(self.device) for block in by_item], of_items

    def sweep(self) -> None:
        """All users with these items, then all items with these users."""
        self.users = self._solved(self.items, *self._by_user)
        self.items = self._solved(self.users, *self._by_item)

    def _solved(self, others: Tensor, blocks: list[_Block], regularizations: Tensor) -> Tensor:
        """The minimum of L in every row of one side: (Σ y yᵀ + w YᵀY + λ_r) x = Σ y, over observed y.

        In the eigenvectors of YᵀY, w YᵀY + λ_r is a diagonal matrix D_r. Rows with more pairs than
        dimensions solve this equation; for shorter ones, x = D⁻¹ Eᵀ (1 + E D⁻¹ Eᵀ)⁻¹ 1 is the same, where the
        rows of E are the observed y.
        """
        gram = others.double().T @ others.double()
        values, basis = torch.linalg.eigh(gram)
        rotated = (others.double() @ basis).to(others.dtype)
        rotated = torch.cat([rotated, rotated.new_zeros(1, rotated.shape[1])])  # padding is this row
        found = others.new_zeros(len(regularizations), others.shape[1])
        for block in blocks:
            diagonal = self.settings.unobserved * values.clamp_min(0) + regularizations[block.rows, None]
            found[block.rows] = _block_solution(rotated[block.others], diagonal, block.is_padding)
        turned: Tensor = found.double() @ basis.T
        return turned.to(others.dtype)


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows of about equally many pairs: `others` has their pairs, padded with the number of others."""

    rows: Tensor  # [b]
    others: Tensor  # [b, longest]
    is_padding: Tensor  # [b, longest]

    def to(self, device: torch.device) -> _Block:
        """On another device."""
        return _Block(self.rows.to(device), self.others.to(device), self.is_padding.to(device))


def _blocks(matrix: sp.csr_array, dim: int, room: int) -> Iterator[_Block]:
    """The rows that have pairs, the longest first; an array of a block has at most about `room` numbers."""
    counts = np.diff(matrix.indptr)
    order = np.argsort(-counts, kind="stable")
    order = order[: np.count_nonzero(counts)]
    start = 0
    while start < len(order):
        longest = int(counts[order[start]])
        most = max(1, room // (longest * dim + min(dim, longest) ** 2))
        rows = order[start : start + most]
        rows = rows[counts[rows] >= _EVEN * longest]
        places = matrix.indptr[rows, None] + np.arange(longest)
        is_padding = np.arange(longest) >= counts[rows, None]
        others = np.where(is_padding, matrix.shape[1], matrix.indices[np.where(is_padding, 0, places)])
        yield _Block(*map(torch.from_numpy, (rows, others.astype(np.int64), is_padding)))
        start += len(rows)


def _block_solution(others: Tensor, diagonal: Tensor, is_padding: Tensor) -> Tensor:
    """x of every row of a block, [b, dim]; `others` is [b, longest, dim], `diagonal` D, [b, dim]."""
    scale = diagonal.rsqrt().to(others.dtype)  # D^-½
    scaled = others * scale[:, None]  # E D^-½
    if others.shape[1] > others.shape[2]:
        matrix, right = scaled.mT @ scaled, scaled.sum(1)  # D^-½ (EᵀE) D^-½, preconditioned
    else:
        matrix, right = scaled @ scaled.mT, (~is_padding).to(others.dtype)
    matrix.diagonal(dim1=1, dim2=2).add_(1)
    root, info = torch.linalg.cholesky_ex(matrix)
    if bool(info.any()):
        if others.dtype == torch.float64:
            raise TrainingError("iALS cannot be solved with these settings; raise regularization.")
        return _block_solution(others.double(), diagonal, is_padding).to(others.dtype)
    solution = torch.cholesky_solve(right[:, :, None], root)[:, :, 0]
    if others.shape[1] <= others.shape[2]:
        solution = (scaled.mT @ solution[:, :, None])[:, :, 0]
    return solution * scale
