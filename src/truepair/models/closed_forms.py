"""Encoders without training: two matrices found at once, by counting or by solving one equation.

They are the reference points that a trained model must beat. A new person's row is their history, so they
are folded in exactly. Loss, sampler and settings of training are not used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_number, check_type, check_whole, settle
from truepair.models.encoders import ENCODERS, Encoder
from truepair.models.matrices import Rows, by_columns, check_room, n_rows, take_rows, unit_rows
from truepair.randomness import random_order

_TIE_KEY = 0x1733  # fixed for ever: of equally similar items the same ones are kept in every run
_BLOCK = 512  # items whose similarities to all others are held at a time


@dataclass(frozen=True)
class ClosedForm(ABC):
    """How users and items become rows without training: x_u, a user's 0/1 history, and the items' weights."""

    sparse_users: ClassVar[bool] = True
    sparse_items: ClassVar[bool] = True

    def solve(self, interactions: Interactions, device: torch.device | str = "cpu") -> tuple[Rows, Rows]:
        """(users, items), whose dot products are the scores; dense item rows are on `device`."""
        check_type("interactions", interactions, Interactions, "read it with read_interactions")
        if not len(interactions):
            raise InputError("there are no interactions to learn from; give one pair or more.")
        return self.rows(interactions), self._items(interactions, torch.device(device))

    def rows(self, history: Interactions) -> Rows:
        """The rows of these people, trained on or not: what they have."""
        return history.csr()

    def width(self, n_items: int) -> int:
        """How many columns a row has."""
        return n_items

    def alike(self, items: Rows, codes: Codes) -> tuple[Rows, Rows]:
        """Two matrices whose dot products say how similar these items and all items are.

        That is the weight of i in the row of j: how much having i speaks for j.
        """
        n = self.width(n_rows(items))
        return take_rows(items, codes), sp.csr_array(sp.eye_array(n, dtype=np.float32))

    def alike_users(self, users: Rows) -> Rows:
        """The matrix whose rows' dot products say how similar users are: the cosine of what they have."""
        return unit_rows(users)

    @abstractmethod
    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        """The items' weights."""


@dataclass(frozen=True)
class Popular(ClosedForm):
    """Everybody gets what most people have: s(u, i) = how many users item i has."""

    sparse_users: ClassVar[bool] = False
    sparse_items: ClassVar[bool] = False

    def rows(self, history: Interactions) -> Rows:
        """One 1 a person."""
        return torch.ones(history.n_users, 1)

    def width(self, n_items: int) -> int:
        """One column."""
        return 1

    def alike(self, items: Rows, codes: Codes) -> tuple[Rows, Rows]:
        """An error: nobody knows."""
        raise _nobody_knows("items")

    def alike_users(self, users: Rows) -> Rows:
        """An error: to it all are."""
        raise _nobody_knows("users")

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        return torch.tensor(interactions.item_counts, dtype=torch.float32, device=device)[:, None]


def _nobody_knows(what: str) -> InputError:
    return InputError(
        f"encoder 'popular' does not know which {what} are alike; fit another, such as 'itemknn' or 'mf'."
    )


@dataclass(frozen=True)
class ItemKNN(ClosedForm):
    """Items like those a user has: s(u, j) = Σ s_ij over the items i of u that are neighbours of j.

    s_ij = c_ij / (√(c_i c_j) + shrink), c_ij the users who have both, c_i those who have i: cosine, with less
    trust in few users. The neighbours of j are the `neighbours` items most similar to it; of equally similar
    ones, those that come first in one fixed pseudo-random order.
    """

    neighbours: int = 100
    shrink: float = 10.0

    def __post_init__(self) -> None:
        neighbours = check_whole("neighbours", self.neighbours, 1)
        settle(self, neighbours=neighbours, shrink=check_number("shrink", self.shrink, 0))

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        users_items = interactions.csr()
        items_users, counts = sp.csr_array(users_items.T), interactions.item_counts
        rank = np.argsort(random_order(_TIE_KEY, interactions.n_items))
        blocks = []
        for start in range(0, interactions.n_items, _BLOCK):
            together = sp.csr_array(items_users[start : start + _BLOCK] @ users_items)  # c_ij, [b, n_items]
            blocks.append(self._nearest(together, start, counts, rank))
        return sp.csr_array(sp.vstack(blocks, format="csr"))  # row j: its neighbours

    def _nearest(self, together: sp.csr_array, start: int, counts: Codes, rank: Codes) -> sp.csr_array:
        """The similarities of the items start, start + 1, … to their neighbours, [b, n_items]."""
        codes = start + np.repeat(np.arange(together.shape[0]), np.diff(together.indptr))
        norms = np.sqrt(counts[codes] * counts[together.indices])
        similarity = np.where(codes == together.indices, 0, together.data / (norms + self.shrink))
        kept = np.concatenate(
            [
                first + _largest(similarity[first:last], self.neighbours, rank[together.indices[first:last]])
                for first, last in pairwise(together.indptr)
            ]
        )
        place = codes[kept] - start, together.indices[kept]
        return sp.csr_array((similarity[kept].astype(np.float32), place), shape=together.shape)


def _largest(values: npt.NDArray[np.float64], k: int, rank: Codes) -> Codes:
    """The places of the k largest of the values above 0; of equal ones those of lowest rank."""
    if len(values) <= k:
        return np.flatnonzero(values > 0)
    least = np.partition(values, -k)[-k]
    above, equal = np.flatnonzero(values > least), np.flatnonzero((values == least) & (values > 0))
    return np.concatenate([above, equal[np.argsort(rank[equal])][: k - len(above)]])


@dataclass(frozen=True)
class EASE(ClosedForm):
    """Each item from all others, linearly: the B of least ‖X − XB‖² + l2·‖B‖² with B_jj = 0; s_u = x_u B.

    With P = (XᵀX + l2·I)⁻¹ it is B_ij = −P_ij / P_jj (Steck 2019). Time grows with n_items³, memory with
    n_items²: three such matrices while solving, one in the end.

    user_power, item_power  solve it for c_u^-user_power · X_ui · c_i^-item_power, c how many pairs a user or
                            an item has: those with many count for less. The weights B then lead from and to
                            counts as they are, and the trace of XᵀX stays, so that l2 keeps its meaning.
    """

    sparse_items: ClassVar[bool] = False
    l2: float = 500.0
    user_power: float = 0.0
    item_power: float = 0.0

    def __post_init__(self) -> None:
        powers = {
            name: check_number(name, getattr(self, name), 0, 1) for name in ("user_power", "item_power")
        }
        settle(self, l2=check_number("l2", self.l2, 0, open_low=True), **powers)

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        for precision in self._precisions(interactions):
            room = 3 * precision.itemsize * interactions.n_items**2
            remedy = "keep fewer items (core=…), or take another encoder, such as 'itemknn' or 'mf'"
            check_room(f"EASE of {interactions.n_items:,} items", room, device, remedy)
            found = self._solved(interactions, device, precision)
            if found is not None:
                return found
        raise InputError(f"l2 = {self.l2:g} is too low: XᵀX + l2·I cannot be inverted; raise it.")

    def _precisions(self, interactions: Interactions) -> list[torch.dtype]:
        """Those that are exact enough, quicker first: the condition is at most (‖XᵀX‖ + l2) / l2."""
        weighted, scale = self._weighted(interactions)
        row_sums = weighted.T @ (weighted @ np.ones(interactions.n_items)) * scale
        condition = row_sums.max() / self.l2 + 1
        return [p for p in (torch.float32, torch.float64) if condition * torch.finfo(p).eps < 0.01]

    def _weighted(self, data: Interactions) -> tuple[sp.csr_array, float]:
        """The weighted X, and what its gram is times so that its trace is that of XᵀX."""
        users, items = (np.maximum(counts, 1.0) for counts in (data.user_counts, data.item_counts))
        by_user, by_item = users**-self.user_power, items**-self.item_power
        values = by_user[data.users] * by_item[data.items]
        scale = len(data) / float(values @ values)
        return sp.csr_array((values, data.items, data.indptr), shape=(data.n_users, data.n_items)), scale

    def _solved(self, data: Interactions, device: torch.device, precision: torch.dtype) -> Tensor | None:
        """Bᵀ as a view of B; None where XᵀX + l2·I has no factor in this precision."""
        weighted, scale = self._weighted(data)
        matrix = _gram(weighted, device, precision).mul_(scale)
        matrix.diagonal().add_(self.l2)
        matrix, info = torch.linalg.cholesky_ex(matrix)  # each line frees the matrix of the line before
        if int(info):
            return None
        matrix = torch.cholesky_inverse(matrix)  # P
        matrix.div_(-matrix.diagonal().clone())  # B_ij = -P_ij / P_jj
        matrix.fill_diagonal_(0.0)
        if self.item_power:
            by_item = torch.as_tensor(np.maximum(data.item_counts, 1.0) ** self.item_power, device=device)
            matrix.mul_(by_item.to(precision)).div_(by_item.to(precision)[:, None])
        matrix = matrix.float().add_(0.0)  # -0 becomes 0
        return by_columns(matrix.T) if bool(matrix.isfinite().all()) else None


def _gram(users_items: sp.csr_array, device: torch.device, precision: torch.dtype) -> Tensor:
    """XᵀX, dense. Its sparse form may take more memory than the dense one."""
    items_users, n = sp.csr_array(users_items.T), users_items.shape[1]
    gram = torch.empty(n, n, dtype=precision, device=device)
    for start in range(0, n, _BLOCK):
        block = (items_users[start : start + _BLOCK] @ users_items).toarray()
        gram[start : start + _BLOCK] = torch.from_numpy(block).to(device)
    return gram


CLOSED: dict[str, type[ClosedForm]] = {"popular": Popular, "itemknn": ItemKNN, "ease": EASE}
ALL_ENCODERS: Mapping[str, type[Encoder] | type[ClosedForm]] = {**ENCODERS, **CLOSED}
