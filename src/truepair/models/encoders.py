"""Encoders: trained models that give two matrices whose dot products are the scores.

An encoder is a frozen description; `start` creates its trainable parameters for given interactions.
Evaluation, saving and serving use only the two matrices of the started encoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.data.interactions import Interactions
from truepair.data.log import Histories
from truepair.data.tables.features import Features
from truepair.errors import InputError, check_choice, check_number, check_whole, settle
from truepair.models.sequence_networks import (
    Network,
    PaddedHistories,
    RecurrentNetwork,
    causal_transformer,
)
from truepair.models.sparse_products import Graph, product, with_transpose
from truepair.models.start import Start


@dataclass(frozen=True)
class Encoder:
    """How users and items become vectors, and how two vectors become a score.

    scoring="dot":     s = ⟨e_u, e_i⟩
    scoring="cosine":  s = cos(e_u, e_i) / temperature

    `popularity` adds popularity · log(1 + c_i) to every score, in training and afterwards; c_i is the
    number of users of item i. The vectors then learn preferences beyond popularity. Both matrices get a
    last column for it: 1 for users, the addition for items.
    """

    learns_from_features: ClassVar[bool] = False
    reads_order: ClassVar[bool] = False
    """Whether users have no vectors of their own, but states that follow from their events in order."""
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
        size, addition = (interactions.n_users, interactions.n_items), self.addition(interactions)
        return StartedEncoder(self, *size, seed, addition=addition).to(device)

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


@dataclass(frozen=True)
class Hybrid(Encoder):
    """A vector is a free one plus those of the features: e_i = v_i + Σ_f x_if · w_f, for users likewise.

    (LightFM's idea: Kula, *Metadata Embeddings for User and Item Cold-start Recommendations*.) An item that
    nobody has yet gets Σ_f x_if · w_f. `fit` fills in the features. Without any, it is MF. L2 penalties
    (`l2_users`, `l2_items`) act on the free vectors only, so that they leave more to the features.
    """

    learns_from_features: ClassVar[bool] = True
    user_features: Features | None = field(default=None, repr=False)
    item_features: Features | None = field(default=None, repr=False)

    def start(self, interactions: Interactions, seed: int, device: torch.device) -> StartedEncoder:
        """Initial parameters and the features on `device`."""
        size = interactions.n_users, interactions.n_items
        sides = zip(("users", "items"), size, (self.user_features, self.item_features), strict=True)
        for what, n, features in sides:
            if features is not None and features.matrix.shape[0] != n:
                raise InputError(
                    f"there are features of {features.matrix.shape[0]:,} {what}, and the interactions have "
                    f"{n:,}; give a row for each."
                )
        return StartedHybrid(self, interactions, seed, device).to(device)


@dataclass(frozen=True)
class SequenceEncoder(Encoder):
    """A user's vector is the state of a network after the last event; no vectors of users are trained.

    layers      of the network
    dropout     None: .2 where items have 50 events or more in the mean, else .5
    length      events of a history that count, from the last one
    positions   of each user that are trained on in an epoch, at random; None: all
    """

    reads_order: ClassVar[bool] = True
    layers: int = 2
    dropout: float | None = None
    length: int = 200
    positions: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(
            self, layers=check_whole("layers", self.layers, 1, 64),
            length=check_whole("length", self.length, 1, _LONGEST),
        )  # fmt: skip
        if self.dropout is not None:
            settle(self, dropout=check_number("dropout", self.dropout, 0, 1, open_high=True))
        if self.positions is not None:
            settle(self, positions=check_whole("positions", self.positions, 1))

    def network(self, dropout: float = 0.0) -> Network:
        """The network between items and states, with random parameters."""
        raise NotImplementedError

    def start(  # type: ignore[override]
        self, interactions: Interactions, seed: int, device: torch.device
    ) -> StartedSequence:
        """Initial parameters and the histories on `device`."""
        generator = torch.Generator().manual_seed(seed)
        items = torch.randn(interactions.n_items, self.dim, generator=generator) * _FIRST_SIZE
        histories, dropout = ordered_histories(interactions), self.dropout
        if dropout is None:
            dropout = 0.2 if len(histories.items) >= _DENSE * interactions.n_items else 0.5
        started = StartedSequence(self, items, dropout, seed, self.addition(interactions)).to(device)
        started.histories = PaddedHistories.of(histories, device)
        return started


@dataclass(frozen=True)
class SASRec(SequenceEncoder):
    """A causal transformer over the events of a user, whose item vectors are those of the scores too.

    (Kang and McAuley, *Self-Attentive Sequential Recommendation*, with norms before blocks, rotary positions
    and gated MLPs.) `dim` must be a multiple of twice the number of heads.
    """

    heads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, heads=check_whole("heads", self.heads, 1))
        if self.dim % (2 * self.heads):
            raise InputError(
                f"dim = {self.dim} of SASRec(heads={self.heads}) is no multiple of {2 * self.heads}, twice "
                "its number of heads; change dim or heads."
            )

    def network(self, dropout: float = 0.0) -> Network:
        """Attention and gated MLPs in turn."""
        return causal_transformer(self.dim, self.layers, self.heads, dropout)


@dataclass(frozen=True)
class Recurrence(SequenceEncoder):
    """Linear recurrences over the events of a user at several rates of decay, mixed by gated MLPs.

    (The family of LRURec: Yue et al., *Linear Recurrent Units for Sequential Recommendation*, with real
    rates.) The state of a user takes one more event at a cost that does not depend on the history.
    """

    def network(self, dropout: float = 0.0) -> RecurrentNetwork:
        """Recurrences and gated MLPs in turn."""
        return RecurrentNetwork(self.dim, self.layers, dropout)


def ordered_histories(interactions: Interactions) -> Histories:
    """The items of each user in order; raise if a user has several and their order is not known."""
    log = interactions.log
    if log.time is None and (np.diff(log.histories.indptr) > 1).any():
        raise InputError(
            "the order of the events is not known, and this model reads it; read a column of times with "
            "time=…, or pass chronological=True if the rows are in order."
        )
    return log.histories


ENCODERS: dict[str, type[Encoder]] = {
    "mf": MF,
    "lightgcn": LightGCN,
    "hybrid": Hybrid,
    "sasrec": SASRec,
    "recurrence": Recurrence,
}

_LONGEST = 4096  # events of a history: matrices of powers and attention grow with its square
_DENSE = 50  # events of an item in the mean
_FIRST_SIZE = 0.02  # standard deviation of the first item vectors of sequences
_PLACES = 1 << 15  # of histories whose states are computed at once


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

    @torch.no_grad()
    def begin(self, start: Start) -> None:
        """Go on from these vectors."""
        self.user.copy_(start.users.vectors)
        self.item.copy_(start.items.vectors)

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


class StartedHybrid(StartedEncoder):
    """Free vectors, and a vector for each feature of users and of items."""

    def __init__(self, encoder: Hybrid, interactions: Interactions, seed: int, device: torch.device) -> None:
        size, addition = (interactions.n_users, interactions.n_items), encoder.addition(interactions)
        super().__init__(encoder, *size, seed, addition=addition)
        generator = torch.Generator().manual_seed(seed + 1)
        self.tables: dict[str, tuple[Tensor, Tensor]] = {}
        for name, features in (("user", encoder.user_features), ("item", encoder.item_features)):
            if features is not None and features.matrix.shape[1]:
                self.tables[name] = with_transpose(features.matrix, device)
                vectors = _xavier_normal(features.matrix.shape[1], encoder.dim, generator)
                self.register_parameter(f"{name}_features", nn.Parameter(vectors))

    def _propagate(self) -> tuple[Tensor, Tensor]:
        return self._with_features("user", self.user), self._with_features("item", self.item)

    def _with_features(self, side: str, vectors: Tensor) -> Tensor:
        if side not in self.tables:
            return vectors
        return vectors + product(*self.tables[side], self.get_parameter(f"{side}_features"))


class StartedSequence(nn.Module):
    """Trainable item vectors and a network over histories.

    Calling it gives (users [n_users, d], items [n_items, d]) as `StartedEncoder` does; users are the states
    after their last events, zeros without any.
    """

    addition: Tensor | None
    histories: PaddedHistories

    def __init__(
        self,
        encoder: SequenceEncoder,
        items: Tensor,
        dropout: float = 0.0,
        seed: int = 0,
        addition: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("addition", addition, persistent=False)
        self.item = nn.Parameter(items)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = encoder.network(dropout)

    def weights(self) -> dict[str, Tensor]:
        """Copies of all parameters beside the item vectors, on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}

    @torch.no_grad()
    def begin(self, start: Start) -> None:
        """Go on from these item vectors and weights of the network."""
        self.item.copy_(start.items.vectors)
        if start.network:
            self.network.load_state_dict(dict(start.network))

    def vectors(self) -> Tensor:
        """The item vectors, normalised for cosine scores. [n_items, dim]"""
        return F.normalize(self.item) if self.encoder.scoring == "cosine" else self.item

    def states(self, items: Tensor, vectors: Tensor) -> Tensor:
        """The state after each event of histories [B, L], by these item vectors: [B, L, dim]."""
        x = F.embedding(items, vectors) * math.sqrt(self.encoder.dim)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.device.type == "cuda"):
            found: Tensor = self.network(x)
        return found.to(x.dtype)

    def forward(self) -> tuple[Tensor, Tensor]:
        """The two matrices."""
        items = self.vectors()
        if self.addition is not None:
            items = torch.cat([items, self.addition], dim=1)
        return self.rows(self.histories), items

    @torch.no_grad()
    def rows(self, histories: PaddedHistories) -> Tensor:
        """The vectors of users after these histories, scaled for scoring. [n_users, d]"""
        training, vectors = self.training, self.vectors()
        self.eval()
        counts = histories.counts(self.encoder.length)
        found = vectors.new_zeros(len(counts), self.encoder.dim)
        order = counts.argsort(stable=True)
        lengths = counts[order].tolist()
        first = int((counts == 0).sum())
        while first < len(order):
            last = first + 1
            while last < len(order) and lengths[last] * (last + 1 - first) <= _PLACES:
                last += 1
            users = order[first:last]
            places, known = histories.last(users, self.encoder.length)
            states = self.states(histories.items[places], vectors)
            found[users] = states[torch.arange(len(users), device=users.device), known.sum(dim=1) - 1]
            first = last
        self.train(training)
        return self.encoder.scaled(found)


def _xavier_normal(n: int, dim: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, dim, generator=generator) * math.sqrt(2 / (n + dim))
