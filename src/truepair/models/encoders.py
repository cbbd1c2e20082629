"""Encoders: trained models that give two matrices whose dot products are the scores.

An encoder is a frozen description; `start` creates its trainable parameters for given interactions.
Evaluation, saving and serving use only the two matrices of the started encoder.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.data.interactions import Interactions
from truepair.errors import check_choice, check_number, check_whole, settle


@dataclass(frozen=True)
class Encoder:
    """How users and items become vectors, and how two vectors become a score.

    scoring="dot":     s = ⟨e_u, e_i⟩
    scoring="cosine":  s = cos(e_u, e_i) / temperature

    `popularity` adds popularity · log(1 + c_i) to every score, in training and afterwards; c_i is the
    number of users of item i. The vectors then learn preferences beyond popularity. Both matrices get a
    last column for it: 1 for users, the addition for items.
    """

    dim: int = 64
    scoring: Literal["dot", "cosine"] = "dot"
    temperature: float = 1.0
    popularity: float = 0.0

    def __post_init__(self) -> None:
        check_choice("scoring", self.scoring, ["dot", "cosine"])
        temperature = check_number("temperature", self.temperature, 0, open_low=True)
        popularity = check_number("popularity", self.popularity)
        settle(self, dim=check_whole("dim", self.dim, 1), temperature=temperature, popularity=popularity)

    def start(self, interactions: Interactions, seed: int, device: torch.device) -> StartedEncoder:
        """Initial parameters on `device`: Xavier normal, determined by the seed."""
        size = interactions.n_users, interactions.n_items
        return StartedEncoder(self, *size, seed, addition=self.addition(interactions)).to(device)

    def addition(self, interactions: Interactions) -> Tensor | None:
        """The term added to all scores of each item, [n_items, 1]; None without `popularity`."""
        if not self.popularity:
            return None
        counts = torch.tensor(interactions.item_counts, dtype=torch.float64)
        return (self.popularity * counts.log1p()).float()[:, None]

    def scaled(self, vectors: Tensor) -> Tensor:
        """Users' vectors for scoring: normalised for cosine scores, with a column of 1 for the addition."""
        if self.scoring == "cosine":
            vectors = F.normalize(vectors) / self.temperature
        return F.pad(vectors, (0, 1), value=1.0) if self.popularity else vectors


@dataclass(frozen=True)
class MF(Encoder):
    """Matrix factorisation: one free vector for each user and each item."""


@dataclass(frozen=True)
class LightGCN(Encoder):
    """Vectors averaged over the user-item graph: the mean over 0 … hops of Âᵏ E.

    Â = D^{-1/2} A D^{-1/2} is the symmetrically normalised bipartite adjacency matrix. hops = 0 is MF.
    """

    hops: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, hops=check_whole("hops", self.hops, 0))

    def start(self, interactions: Interactions, seed: int, device: torch.device) -> StartedEncoder:
        """Initial parameters and the normalised graph on `device`."""
        graph = Graph(interactions, device) if self.hops else None
        size, addition = (interactions.n_users, interactions.n_items), self.addition(interactions)
        return StartedEncoder(self, *size, seed, graph, self.hops, addition).to(device)


ENCODERS: dict[str, type[Encoder]] = {"mf": MF, "lightgcn": LightGCN}


class StartedEncoder(nn.Module):
    """Trainable embeddings; calling it gives (users [n_users, d], items [n_items, d]).

    d is the encoder's `dim`, plus 1 if it has an addition for popularity.
    """

    addition: Tensor | None

    def __init__(
        self,
        encoder: Encoder,
        n_users: int,
        n_items: int,
        seed: int,
        graph: Graph | None = None,
        hops: int = 0,
        addition: Tensor | None = None,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.encoder, self.graph, self.hops = encoder, graph, hops
        self.register_buffer("addition", addition, persistent=False)
        self.user = nn.Parameter(_xavier_normal(n_users, encoder.dim, generator))
        self.item = nn.Parameter(_xavier_normal(n_items, encoder.dim, generator))

    def forward(
        self, some_users: Tensor | None = None, some_items: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The two matrices, or the given rows of them."""
        users, items = self._propagate()
        users = users if some_users is None else F.embedding(some_users, users)
        items = items if some_items is None else F.embedding(some_items, items)
        items = F.normalize(items) if self.encoder.scoring == "cosine" else items
        if self.addition is not None:
            added = self.addition if some_items is None else F.embedding(some_items, self.addition)
            items = torch.cat([items, added], dim=1)
        return self.encoder.scaled(users), items

    def _propagate(self) -> tuple[Tensor, Tensor]:
        if self.graph is None:
            return self.user, self.item
        layers: list[tuple[Tensor, Tensor]] = [(self.user, self.item)]
        for _ in range(self.hops):
            layers.append(self.graph.spread(*layers[-1]))
        users, items = zip(*layers, strict=True)
        return torch.stack(users).mean(dim=0), torch.stack(items).mean(dim=0)


class Graph:
    """The normalised user-item graph on a device, as two sparse matrices."""

    def __init__(self, interactions: Interactions, device: torch.device) -> None:
        # users and items without interactions have no edges, so their divisor does not matter
        per_user = np.sqrt(np.maximum(interactions.user_counts, 1))
        per_item = np.sqrt(np.maximum(interactions.item_counts, 1))
        values = 1 / (per_user[interactions.users] * per_item[interactions.items])
        matrix = sp.csr_array(
            (values.astype(np.float32), interactions.items, interactions.indptr),
            shape=(interactions.n_users, interactions.n_items),
        )
        self.to_users = _torch_csr(matrix, device)  # [n_users, n_items]
        self.to_items = _torch_csr(sp.csr_array(matrix.T), device)  # [n_items, n_users]

    def spread(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """One hop: each vector becomes the weighted sum of its neighbours."""
        return _product(self.to_users, self.to_items, items), _product(self.to_items, self.to_users, users)


class _SparseProduct(torch.autograd.Function):
    """matrix @ dense, whose gradient is transposed @ gradient (both matrices are stored)."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ dense

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ gradients[0]


def _product(matrix: Tensor, transposed: Tensor, dense: Tensor) -> Tensor:
    result: Tensor = _SparseProduct.apply(matrix, transposed, dense)  # type: ignore[no-untyped-call]
    return result


def _torch_csr(matrix: sp.csr_array, device: torch.device) -> Tensor:
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
            check_invariants=True,
        )


def _xavier_normal(n: int, dim: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, dim, generator=generator) * math.sqrt(2 / (n + dim))
