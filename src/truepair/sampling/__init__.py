"""Sampling: interactions -> batches of the paper's data entry (u, i, i₁…i_M, j₁…j_N).

A sampler is a frozen description; `Draws` binds it to interactions on a device and draws. Unlabelled
items come from an exact inverse of the user's own distribution, not from trial and error: a draw is
never a known positive, costs the same for every user, and cannot hang on a user with nearly every item.
Every number is a function of (seed, epoch, step): see `randomness`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.errors import InputError, check_number, check_whole, settle
from truepair.randomness import random_words, stream_key

Matrices = tuple[Tensor, Tensor]  # users [n_users, d], items [n_items, d]; a score is their dot product


class Batch(NamedTuple):
    """The paper's data entries, as codes. BPR is M = 0, N = 1."""

    users: Tensor  # [B]
    pos: Tensor  # [B]     the anchor's item
    extra: Tensor  # [B, M]  more items of the same user, with replacement; the anchor may be among them
    unlabelled: Tensor  # [B, N]  items the user has no interaction with


# --- descriptions --------------------------------------------------------------------------------------


class Sampler:
    """How the N unlabelled items of a row are drawn: item weights, then perhaps a choice by score."""

    needs_scores: ClassVar[bool] = False

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The weight of each item, before the user's own items are taken out."""
        return np.ones(len(popularity))

    def candidates(self, n: int) -> int:
        """How many unlabelled items to draw for a row that needs `n`."""
        return n

    def choose(self, draws: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
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
class DNS(Sampler):
    """Dynamic sampling: of `pool` uniform unlabelled candidates, the N with the highest scores."""

    needs_scores: ClassVar[bool] = True
    pool: int = 32

    def __post_init__(self) -> None:
        settle(self, pool=check_whole("pool", self.pool, 2))

    def candidates(self, n: int) -> int:
        """The pool."""
        return _checked_pool(self.pool, n)

    def choose(self, draws: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The hardest: highest scores first."""
        scores = pair_scores(matrices, batch.users, batch.unlabelled)
        return _best(-scores, batch.unlabelled, n)


@dataclass(frozen=True)
class BNS(Sampler):
    """Bayesian sampling: of `pool` uniform candidates l, the N with the least info·(1 − (1+λ)·unbias).

    info = 1 − σ(s⁺ − s_l);  unbias = (1−F)(1−p) / (1 − F − p + 2Fp), the posterior chance that l is a true
    negative; F = share of the user's unlabelled items that score ≤ s_l;  p = popularity_l / Σ popularity.
    With `in_batch` F is estimated on one candidate of each row of the batch instead of the whole catalogue.
    """

    needs_scores: ClassVar[bool] = True
    pool: int = 5
    weight: float = 5.0  # λ
    in_batch: bool = False

    def __post_init__(self) -> None:
        settle(self, pool=check_whole("pool", self.pool, 2), weight=check_number("weight", self.weight, 0))

    def candidates(self, n: int) -> int:
        """The pool."""
        return _checked_pool(self.pool, n)

    def choose(self, draws: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The least risk."""
        users, candidates = batch.users, batch.unlabelled
        scores = pair_scores(matrices, users, candidates)  # [B, C]
        info = torch.sigmoid(scores - pair_scores(matrices, users, batch.pos[:, None]))
        rival = candidates[:, 0] if self.in_batch else torch.arange(draws.n_items, device=users.device)
        rival_scores = matrices[0][users] @ matrices[1][rival].T  # [B, R]
        known = draws.known(users[:, None], rival) if self.in_batch else draws.known_mask(users)  # [B, R]
        below = torch.where(known, torch.inf, rival_scores)
        f = torch.stack(
            [  # an item counts itself, whatever the last bit of the two ways to score it says
                ((below <= s[:, None]) | (rival == item[:, None])).sum(dim=1)
                for s, item in zip(scores.unbind(dim=1), candidates.unbind(dim=1), strict=True)
            ],
            dim=1,
        )
        f = f / (~known).sum(dim=1, keepdim=True)
        p = draws.popularity[candidates]
        negative, positive = (1 - f) * (1 - p), f * p
        # 0/0 (the top score on an item nobody has): the two pieces of evidence cancel
        unbias = torch.where(negative + positive > 0, negative / (negative + positive), 0.5)
        return _best(info * (1 - (1 + self.weight) * unbias), candidates, n)


@dataclass(frozen=True)
class Full(Sampler):
    """No draws: a user's anchors are compared with all items of the catalogue at once.

    The extra positives are all of the user's items, the unlabelled ones all others, whatever `n_extra` and
    `n_unlabelled` say. A batch is a block of users with all their items, so that `batch_size` counts users.

    columns  of a large catalogue, draw so many items for each block, and let them stand for all;
             None: the whole catalogue up to MOST_COLUMNS items, else DRAWN_COLUMNS of them
    alpha    columns are drawn in proportion to popularity^alpha, and weighted by the inverse
    step     on the CPU, pairwise losses read a histogram of each user's scores with cells of this width, in
             units of the score; it costs a relative error of about step²/4. 0: every pair by itself
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
        """How many columns to draw of a catalogue; None if it is taken whole."""
        if self.columns is None:
            return None if n_items <= MOST_COLUMNS else DRAWN_COLUMNS
        return self.columns if self.columns < n_items else None


MOST_COLUMNS, DRAWN_COLUMNS = 1 << 17, 1 << 14

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "popularity": Popularity,
    "dns": DNS,
    "bns": BNS,
    "full": Full,
}


# --- drawing -------------------------------------------------------------------------------------------


class Draws:
    """A sampler bound to interactions on a device.

    The unlabelled items of user u, laid end to end by weight, have total weight `free[u]`. A draw picks a
    place r in [0, free[u]) and finds the item there: `gaps` holds, for each known positive, the unlabelled
    weight before it, so one binary search says how many known positives to step over. Weights are whole
    numbers, so all of this is exact. The fused engines read the same tables and find the same items.
    """

    def __init__(
        self,
        interactions: Interactions,
        sampler: Sampler,
        device: torch.device | str = "cpu",
        popularity: Codes | None = None,
    ) -> None:
        """`popularity` [n_items] defaults to that of the interactions themselves."""
        if not len(interactions):
            raise InputError("there are no interactions to draw from.")
        self.sampler, self.device = sampler, torch.device(device)
        self.n_users, self.n_items = interactions.n_users, interactions.n_items

        def on_device(array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Tensor:
            return torch.as_tensor(np.array(array), device=self.device)

        users, items, indptr = interactions.users, interactions.items, interactions.indptr
        popularity = interactions.item_counts if popularity is None else popularity
        weights = _whole_weights(sampler.item_weights(popularity), self.n_users)
        ends = np.cumsum(weights)  # [n_items]
        passed = np.concatenate([[0], np.cumsum(weights[items])])  # [n + 1], weight of positives before row k
        before = (ends - weights)[items] - (passed[:-1] - passed[indptr[users]])
        free = ends[-1] - (passed[indptr[1:]] - passed[indptr[:-1]])

        self.stride = int(ends[-1]) + 1
        self.ends, self.passed = on_device(ends), on_device(passed)  # [n_items], [n + 1]
        self.gaps = on_device(users * self.stride + before)  # [n]
        self._pair_keys = on_device(interactions.keys)
        self.indptr, self._counts = on_device(indptr), on_device(interactions.user_counts)
        self.users, self.items, self.free = on_device(users), on_device(items), on_device(free)
        self.popularity = on_device((popularity / max(popularity.sum(), 1)).astype(np.float32))
        # an anchor needs something to be compared with: users who have every item have no anchors
        self.anchors = on_device(np.flatnonzero(free[users] > 0))
        self.n_saturated_users = int((free == 0).sum())
        self.longest_history = int(interactions.user_counts.max())
        self.has_uniform_weights = bool((weights == 1).all())  # then an item's place is its code

    def epoch(self, seed: int, epoch: int, batch_size: int) -> Iterator[Tensor]:
        """All anchors once, in the order of (seed, epoch), in pieces of `batch_size`."""
        words = random_words(stream_key(seed, epoch), (len(self.anchors),), self.device)
        order = self.anchors[words.argsort(stable=True)]
        for start in range(0, len(order), batch_size):
            yield order[start : start + batch_size]

    def batch(
        self,
        anchors: Tensor,
        m: int,
        n: int,
        key: int,
        matrices: Matrices | None = None,
        *,
        by_item: bool = False,
    ) -> Batch:
        """The data entries of these anchors; `key` names the random numbers (see `stream_key`).

        With `by_item` an entry's draws depend on its own user and item only, not on its place among others.
        """
        users, pos = self.users[anchors], self.items[anchors]

        def words(part: int, width: int) -> Tensor:
            rows = self.n_items if by_item else len(anchors)
            drawn = random_words(stream_key(key, part), (rows, width), self.device)
            return drawn[pos] if by_item else drawn

        extra = self._known_at(users, words(1, m))
        unlabelled = self._unlabelled_at(users, words(2, self.sampler.candidates(n)))
        batch = Batch(users, pos, extra, unlabelled)
        if not self.sampler.needs_scores:
            return batch
        if matrices is None:
            raise InputError(f"{self.sampler} chooses by score; pass matrices=(users, items).")
        with torch.no_grad():
            return batch._replace(unlabelled=self.sampler.choose(self, batch, n, matrices))

    def known_items(self, users: Tensor, m: int, key: int) -> Tensor:
        """`m` of each user's own items, uniformly, with replacement. [B, M]"""
        return self._known_at(users, random_words(key, (len(users), m), self.device))

    def unlabelled_items(self, users: Tensor, n: int, key: int) -> Tensor:
        """`n` items that each user has no interaction with, by weight, with replacement. [B, N]"""
        full = users[self.free[users] == 0]
        if len(full):
            raise InputError(f"user {int(full[0])} has every item; nothing unlabelled is left to draw.")
        return self._unlabelled_at(users, random_words(key, (len(users), n), self.device))

    def _known_at(self, users: Tensor, words: Tensor) -> Tensor:
        return self.items[self.indptr[users][:, None] + words % self._counts[users][:, None]]

    def _unlabelled_at(self, users: Tensor, words: Tensor) -> Tensor:
        place = words % self.free[users][:, None]
        steps = torch.searchsorted(self.gaps, users[:, None] * self.stride + place, right=True)
        place = place + self.passed[steps] - self.passed[self.indptr[users]][:, None]
        return torch.searchsorted(self.ends, place, right=True)

    def known_mask(self, users: Tensor) -> Tensor:
        """Whether each item of the catalogue is known of each user. [B, n_items]"""
        counts = self._counts[users]
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), counts)
        place = torch.arange(len(rows), device=self.device) - (counts.cumsum(0) - counts)[rows]
        mask = torch.zeros(len(users), self.n_items, dtype=torch.bool, device=self.device)
        mask[rows, self.items[self.indptr[users][rows] + place]] = True
        return mask

    def known(self, users: Tensor, items: Tensor) -> Tensor:
        """Whether each (user, item) is a known interaction; shapes broadcast."""
        keys = users * self.n_items + items
        places = torch.searchsorted(self._pair_keys, keys).clamp_(max=len(self._pair_keys) - 1)
        return self._pair_keys[places] == keys


def pair_scores(matrices: Matrices, users: Tensor, items: Tensor) -> Tensor:
    """The scores of users [B] with their items [B, C]: [B, C]."""
    return torch.einsum("bd,bcd->bc", matrices[0][users], matrices[1][items])


def _best(criterion: Tensor, candidates: Tensor, n: int) -> Tensor:
    """The `n` candidates of least criterion; of equal ones the first drawn."""
    return candidates.gather(1, criterion.argsort(dim=1, stable=True)[:, :n])


def _checked_pool(pool: int, n: int) -> int:
    if n >= pool:
        raise InputError(
            f"n_unlabelled = {n} of a pool of {pool} is no choice; raise pool, or lower n_unlabelled."
        )
    return pool


def _whole_weights(weights: np.ndarray[tuple[int], np.dtype[np.float64]], n_users: int) -> Codes:
    """Weights as whole numbers, as fine as 64-bit arithmetic over users x total weight allows."""
    if weights.min() == weights.max():
        return np.ones(len(weights), dtype=np.int64)
    finest = 2.0**61 / (len(weights) * (n_users + 1))
    scaled = weights / weights.max() * min(finest, 2.0**31)
    return np.asarray(np.maximum(np.rint(scaled), 1), dtype=np.int64)
