"""The data entries (u, i, i₁…i_M, j₁…j_N) in batches; samplers, which describe how the j are drawn."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.distributed.cost import columns_of
from truepair.errors import InputError, check_number, check_whole, settle
from truepair.randomness import random_words, stream_key

LARGEST_POOL = 2_000_000
"""Twice the largest `n_unlabelled`."""

Matrices = tuple[Tensor, Tensor]  # users [n_users, d], items [n_items, d]; a score is their dot product


class Batch(NamedTuple):
    """The paper's data entries, as codes. BPR is M = 0, N = 1."""

    users: Tensor  # [B]
    pos: Tensor  # [B]     the anchor's item
    extra: Tensor  # [B, M]  more items of the same user, with replacement; the anchor may be among them
    unlabelled: Tensor  # [B, N]  items the user has no interaction with


def pair_scores(matrices: Matrices, users: Tensor, items: Tensor) -> Tensor:
    """The scores of users [B] with their items [B, C]: [B, C]."""
    return torch.einsum("bd,bcd->bc", matrices[0][users], matrices[1][items])


def epoch_order(values: Tensor, seed: int, epoch: int) -> Tensor:
    """The values in the order of (seed, epoch), the same on every device."""
    words = random_words(stream_key(seed, epoch), (len(values),), values.device)
    return values[words.argsort(stable=True)]


def epoch_batches(values: Tensor, seed: int, epoch: int, batch_size: int) -> Generator[Tensor]:
    """All values once, in the order of (seed, epoch), in pieces of `batch_size`."""
    order = epoch_order(values, seed, epoch)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


class KnownPairs(Protocol):
    """What a choice by score may ask of the interactions; `Draws` has it."""

    n_items: int
    popularity: Tensor  # [n_items], shares that sum to 1

    def known(self, users: Tensor, items: Tensor) -> Tensor:
        """Whether each (user, item) is a known interaction; shapes broadcast."""

    def known_mask(self, users: Tensor) -> Tensor:
        """Whether each item of the catalogue is known of each user. [B, n_items]"""


class Sampler:
    """How the N unlabelled items of a row are drawn: item weights, then perhaps a choice by score."""

    needs_scores: ClassVar[bool] = False

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The weight of each item, before the user's own items are taken out."""
        return np.ones(len(popularity))

    def candidates(self, n: int) -> int:
        """How many unlabelled items to draw for a row that needs `n`."""
        return n

    def choose(self, pairs: KnownPairs, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The `n` items to keep of the candidates `batch.unlabelled` [B, C], by score."""
        return batch.unlabelled


@dataclass(frozen=True)
class Uniform(Sampler):
    """Uniform over the items the user has no interaction with."""


@dataclass(frozen=True)
class Popularity(Sampler):
    """Proportional to popularity^alpha over the user's unlabelled items; alpha = 0 is uniform.

    An item never seen in training counts as seen once.
    """

    alpha: float = 0.75

    def __post_init__(self) -> None:
        settle(self, alpha=check_number("alpha", self.alpha, 0))

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """popularity^alpha, relative to the most popular item's."""
        log = np.log(np.maximum(popularity, 1))
        return np.asarray(np.exp(self.alpha * (log - log.max())))


@dataclass(frozen=True)
class _Pooled(Sampler):
    """The N best, by score, of `pool` uniform unlabelled candidates."""

    needs_scores: ClassVar[bool] = True
    pool: int

    def __post_init__(self) -> None:
        settle(self, pool=check_whole("pool", self.pool, 2, LARGEST_POOL))

    def candidates(self, n: int) -> int:
        """The pool."""
        if n >= self.pool:
            raise InputError(
                f"n_unlabelled = {n} of a pool of {self.pool} is no choice; raise pool, or lower "
                "n_unlabelled."
            )
        return self.pool


@dataclass(frozen=True)
class DNS(_Pooled):
    """Dynamic sampling: of `pool` uniform unlabelled candidates, the N with the highest scores."""

    pool: int = 32

    def choose(self, pairs: KnownPairs, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The hardest: highest scores first."""
        scores = pair_scores(matrices, batch.users, batch.unlabelled)
        return _best(-scores, batch.unlabelled, n)


@dataclass(frozen=True)
class BNS(_Pooled):
    """Bayesian sampling: of `pool` uniform candidates l, the N with the least info·(1 − (1+λ)·unbias).

    info = 1 − σ(s⁺ − s_l);  unbias = (1−F)(1−p) / (1 − F − p + 2Fp), the posterior chance that l is a true
    negative; F = share of the user's unlabelled items that score ≤ s_l;  p = popularity_l / Σ popularity.
    With `in_batch` F is estimated on one candidate of each row of the batch instead of the whole catalogue.
    """

    pool: int = 5
    weight: float = 5.0  # λ
    in_batch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, weight=check_number("weight", self.weight, 0))

    def choose(self, pairs: KnownPairs, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The least risk."""
        users, candidates = batch.users, batch.unlabelled
        scores = pair_scores(matrices, users, candidates)  # [B, C]
        info = torch.sigmoid(scores - pair_scores(matrices, users, batch.pos[:, None]))
        others = candidates[:, 0] if self.in_batch else torch.arange(pairs.n_items, device=users.device)
        other_scores = matrices[0][users] @ matrices[1][others].T  # [B, R]
        known = pairs.known(users[:, None], others) if self.in_batch else pairs.known_mask(users)  # [B, R]
        below = torch.where(known, torch.inf, other_scores)
        f = torch.stack(
            [  # an item counts itself, whatever the last bit of the two ways to score it says
                ((below <= s[:, None]) | (others == item[:, None])).sum(dim=1)
                for s, item in zip(scores.unbind(dim=1), candidates.unbind(dim=1), strict=True)
            ],
            dim=1,
        )
        f = f / (~known).sum(dim=1, keepdim=True)
        p = pairs.popularity[candidates]
        negative, positive = (1 - f) * (1 - p), f * p
        # 0/0 (the top score on an item nobody has): the two pieces of evidence cancel
        unbias = torch.where(negative + positive > 0, negative / (negative + positive), 0.5)
        return _best(info * (1 - (1 + self.weight) * unbias), candidates, n)


@dataclass(frozen=True)
class Full(Sampler):
    """The full catalogue: nothing is drawn, and a user's anchors are compared with all items at once.

    The extra positives are all of the user's items, the unlabelled ones all others, whatever `n_extra` and
    `n_unlabelled` say. A batch is a block of users with all their items, so that `batch_size` counts users.

    columns  for a large catalogue: the number of items that are drawn for each block to represent all;
             None: the whole catalogue up to MOST_COLUMNS items, else DRAWN_COLUMNS of them
    alpha    columns are drawn in proportion to popularity^alpha, and weighted by the inverse
    step     on the CPU, pairwise losses use a histogram of each user's scores with cells of this width, in
             units of the score; the relative error is about step²/4. 0 computes every pair
    """

    columns: int | None = None
    alpha: float = 0.75
    step: float = 1 / 32

    def __post_init__(self) -> None:
        if self.columns is not None:
            settle(self, columns=check_whole("columns", self.columns, 1))
        settle(self, alpha=check_number("alpha", self.alpha, 0), step=check_number("step", self.step, 0, 1))

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """popularity^alpha, as `Popularity` has it."""
        return Popularity(self.alpha).item_weights(popularity)

    def columns_of(self, n_items: int) -> int | None:
        """How many columns to draw of a catalogue; None if all are used."""
        n_columns = columns_of(n_items, self.columns)
        return n_columns if n_columns < n_items else None


def _best(criterion: Tensor, candidates: Tensor, n: int) -> Tensor:
    """The `n` candidates of least criterion; of equal ones the first drawn."""
    return candidates.gather(1, criterion.argsort(dim=1, stable=True)[:, :n])


SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "popularity": Popularity,
    "dns": DNS,
    "bns": BNS,
    "full": Full,
}
