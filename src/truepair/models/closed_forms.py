"""Closed forms: models that are computed without training, by counting or by solving one equation.

They are the baselines that a trained model must beat. The row of a user is the user's history, so that
folding in a new user is exact. They use no loss, no sampler and no training settings.
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

from truepair.data.durations import check_half_life
from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_number, check_type, check_whole, settle
from truepair.models.encoders import ENCODERS, Encoder
from truepair.models.factor_matrices import Rows, by_columns, check_room
from truepair.randomness import random_order
from truepair.storage.types import Array

_TIE_KEY = 0x1733  # never changes: every run keeps the same ones of equally similar items
_BLOCK = 512  # items whose similarities to all others are in memory at a time


@dataclass(frozen=True)
class ClosedForm(ABC):
    """A model without training: rows of users, x_u (the history), and rows of weights of items.

    x_u has a 1 for each item of the user; where interactions have weights, the weight relative to the mean of
    the user's own, so that the scores of all users are alike in size and folding in stays exact.
    """

    learns_from_features: ClassVar[bool] = False
    has_term: ClassVar[bool] = False
    """Whether scores are the same for all users, and not sums of weights over a history."""
    sparse_items: ClassVar[bool] = True

    def solve(self, interactions: Interactions, device: torch.device | str = "cpu") -> tuple[Rows, Rows]:
        """(users, items), whose dot products are the scores; dense rows of items are on `device`."""
        check_type("interactions", interactions, Interactions, "read it with read_interactions")
        if not len(interactions):
            raise InputError("there are no interactions to learn from; give at least one pair.")
        users = torch.ones(interactions.n_users, 1) if self.has_term else interactions.weighted_csr()
        return users, self._items(interactions, torch.device(device))

    @abstractmethod
    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        """The rows of weights of the items."""


@dataclass(frozen=True)
class Popular(ClosedForm):
    """The most popular items for every user: s(u, i) = the number of users of item i.

    With a half-life, such as "7d" or a number in the unit of the times, s(u, i) is the log of the share of
    item i in all events, where an event counts half as much for each half-life that it is older. "auto" takes
    the half-life whose lists would have been best for what came last in the data.
    """

    has_term: ClassVar[bool] = True
    sparse_items: ClassVar[bool] = False

    half_life: str | float | None = None

    def __post_init__(self) -> None:
        if self.half_life not in (None, "auto"):
            settle(self, half_life=check_half_life("half_life", self.half_life))

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        return torch.tensor(interactions.item_counts, dtype=torch.float32, device=device)[:, None]


@dataclass(frozen=True)
class ItemKNN(ClosedForm):
    """Nearest neighbours of items: s(u, j) = Σ s_ij over the items i of u that are neighbours of j.

    s_ij = c_ij / (√(c_i c_j) + shrink): the cosine, shrunk for items with few users. c_ij is the number of
    users who have both, c_i of those who have i. The neighbours of j are the `neighbours` items most similar
    to it; ties are broken by one fixed pseudo-random order. With weights w_ui, 1 in the mean of all pairs,
    c_ij = Σ_u w_ui w_uj and c_i = Σ_u w_ui².
    """

    neighbours: int = 100
    shrink: float = 10.0

    def __post_init__(self) -> None:
        neighbours = check_whole("neighbours", self.neighbours, 1)
        settle(self, neighbours=neighbours, shrink=check_number("shrink", self.shrink, 0))

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        users_items, counts = _pair_weights(interactions)
        items_users = sp.csr_array(users_items.T)
        rank = np.argsort(random_order(_TIE_KEY, interactions.n_items))
        blocks = []
        for start in range(0, interactions.n_items, _BLOCK):
            together = sp.csr_array(items_users[start : start + _BLOCK] @ users_items)  # c_ij, [b, n_items]
            blocks.append(self._nearest(together, start, counts, rank))
        return sp.csr_array(sp.vstack(blocks, format="csr"))  # row j: its neighbours

    def _nearest(self, together: sp.csr_array, start: int, counts: Array, rank: Codes) -> sp.csr_array:
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


def _pair_weights(data: Interactions) -> tuple[sp.csr_array, Array]:
    """Ones and the number of users of each item; or weights, 1 in the mean, and sums of their squares."""
    weights = mean_one(data)
    if weights is None:
        return data.csr(), data.item_counts
    squares = np.bincount(data.items, weights**2, minlength=data.n_items)
    return sp.csr_array((weights, data.items, data.indptr), shape=(data.n_users, data.n_items)), squares


def mean_one(data: Interactions) -> npt.NDArray[np.float64] | None:
    """The weights of the pairs, 1 in their mean; None where they do not differ."""
    if data.weight is None or not len(data) or data.weight.min() == data.weight.max():
        return None
    scaled = data.weight / data.weight.max()  # sums of weights near the largest number would overflow
    return np.asarray(scaled / scaled.mean(), dtype=np.float64)


def _largest(values: npt.NDArray[np.float64], k: int, rank: Codes) -> Codes:
    """The positions of the k largest positive values; ties go to the lowest rank."""
    if len(values) <= k:
        return np.flatnonzero(values > 0)
    least = np.partition(values, -k)[-k]
    above, equal = np.flatnonzero(values > least), np.flatnonzero((values == least) & (values > 0))
    return np.concatenate([above, equal[np.argsort(rank[equal])][: k - len(above)]])


@dataclass(frozen=True)
class EASE(ClosedForm):
    """A linear model of each item from all others: s_u = x_u B (Steck 2019).

    B minimises ‖X − XB‖² + l2·‖B‖² with B_jj = 0. With P = (XᵀX + l2·I)⁻¹, B_ij = −P_ij / P_jj. Time grows
    with n_items³, memory with n_items²: three such matrices while solving, one in the result.

    user_power, item_power  replace X_ui by c_u^-user_power · X_ui · c_i^-item_power, where c is the number of
                            pairs of a user or item: active users and popular items weigh less. B is scaled
                            back to apply to X itself. The trace of XᵀX is kept, so that l2 keeps its meaning.

    With weights of interactions, X_ui is the weight instead of 1; here too the trace of XᵀX is kept.
    """

    sparse_items: ClassVar[bool] = False
    l2: float = 500.0
    user_power: float = 0.0
    item_power: float = 0.0

    def __post_init__(self) -> None:
        settle(
            self,
            l2=check_number("l2", self.l2, 0, open_low=True),
            user_power=check_number("user_power", self.user_power, 0, 1),
            item_power=check_number("item_power", self.item_power, 0, 1),
        )

    def _items(self, interactions: Interactions, device: torch.device) -> Rows:
        weighted, scale = self._weighted_matrix(interactions)
        row_sums = weighted.T @ (weighted @ np.ones(interactions.n_items)) * scale
        condition = row_sums.max() / self.l2 + 1  # no less than that of XᵀX + l2·I
        for precision in (torch.float32, torch.float64):
            if condition * torch.finfo(precision).eps >= 0.01:
                continue
            room = 3 * precision.itemsize * interactions.n_items**2
            remedy = "keep fewer items (core=…), or use another encoder, such as 'itemknn' or 'mf'"
            check_room(f"EASE of {interactions.n_items:,} items", room, device, remedy)
            found = self._solve(weighted, scale, interactions.item_counts, device, precision)
            if found is not None:
                return found
        raise InputError(f"l2 = {self.l2:g} is too low: XᵀX + l2·I cannot be inverted; raise l2.")

    def _weighted_matrix(self, data: Interactions) -> tuple[sp.csr_array, float]:
        """The weighted X, and the factor that gives its Gram matrix the trace of XᵀX."""
        by_user = np.maximum(data.user_counts, 1.0) ** -self.user_power
        by_item = np.maximum(data.item_counts, 1.0) ** -self.item_power
        values = by_user[data.users] * by_item[data.items]
        if (weights := mean_one(data)) is not None:
            values = values * weights
        scale = len(data) / float(values @ values)
        return sp.csr_array((values, data.items, data.indptr), shape=(data.n_users, data.n_items)), scale

    def _solve(
        self,
        weighted: sp.csr_array,
        scale: float,
        item_counts: Codes,
        device: torch.device,
        precision: torch.dtype,
    ) -> Tensor | None:
        """Bᵀ as a view of B; None if XᵀX + l2·I has no Cholesky factor in this precision."""
        matrix = _gram(weighted, device, precision).mul_(scale)
        matrix.diagonal().add_(self.l2)
        matrix, info = torch.linalg.cholesky_ex(matrix)  # each line frees the matrix of the previous one
        if int(info):
            return None
        matrix = torch.cholesky_inverse(matrix)  # P
        matrix.div_(-matrix.diagonal().clone())  # B_ij = -P_ij / P_jj
        matrix.fill_diagonal_(0.0)
        if self.item_power:
            by_item = torch.as_tensor(np.maximum(item_counts, 1.0) ** self.item_power).to(matrix)
            matrix.mul_(by_item).div_(by_item[:, None])
        matrix = matrix.float().add_(0.0)  # -0 becomes 0
        return by_columns(matrix.T) if bool(matrix.isfinite().all()) else None


def _gram(users_items: sp.csr_array, device: torch.device, precision: torch.dtype) -> Tensor:
    """XᵀX, dense; its sparse form may need more memory than the dense one."""
    items_users, n = sp.csr_array(users_items.T), users_items.shape[1]
    gram = torch.empty(n, n, dtype=precision, device=device)
    for start in range(0, n, _BLOCK):
        block = (items_users[start : start + _BLOCK] @ users_items).toarray()
        gram[start : start + _BLOCK] = torch.from_numpy(block).to(device)
    return gram


CLOSED: dict[str, type[ClosedForm]] = {"popular": Popular, "itemknn": ItemKNN, "ease": EASE}
ALL_ENCODERS: Mapping[str, type[Encoder] | type[ClosedForm]] = {**ENCODERS, **CLOSED}
