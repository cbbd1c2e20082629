"""The paper's data entries (u, i, i₁…i_M, j₁…j_N) in batches, and Draws: a sampler bound to interactions.

Unlabelled items come from an exact inverse of the user's own distribution, not from trial and error: a draw
is never a known interaction, costs the same for every user, and cannot hang on a user with nearly every item.
Every number is a function of (seed, epoch, step): see `randomness`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.log import Mask
from truepair.errors import InputError
from truepair.randomness import random_words, stream_key

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


class Sampler:
    """How the N unlabelled items of a row are drawn: item weights, then perhaps a choice by score."""

    needs_scores: ClassVar[bool] = False

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The weight of each item, before the user's own items are taken out."""
        return np.ones(len(popularity))

    def candidates(self, n: int) -> int:
        """How many unlabelled items to draw for a row that needs `n`."""
        return n

    def choose(self, pairs: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The `n` items to keep of the candidates `batch.unlabelled` [B, C], by score."""
        return batch.unlabelled


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
        anchors: Mask | None = None,
    ) -> None:
        """`popularity` [n_items] defaults to that of the interactions, `anchors` [n] to all of them.

        An interaction that is not an anchor is only known: it is never drawn, not even as an extra positive.
        """
        if not len(interactions):
            raise InputError("there are no interactions to draw from.")
        self.sampler, self.device = sampler, torch.device(device)
        self.n_users, self.n_items = interactions.n_users, interactions.n_items

        def on_device(array: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Tensor:
            return torch.as_tensor(np.array(array), device=self.device)

        # of 64 bits: those of prepared data may have 32, and products with them need more
        users, items = (np.asarray(codes, np.int64) for codes in (interactions.users, interactions.items))
        indptr = interactions.indptr
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
        chosen = np.ones(len(users), dtype=bool) if anchors is None else anchors
        self.anchors = on_device(np.flatnonzero(chosen & (free[users] > 0)))
        self._positives = self.items if anchors is None else on_device(items[chosen])
        bounds = np.concatenate([[0], np.cumsum(chosen)])[indptr]  # [n_users + 1], of each user's positives
        self._first_positive, self._n_positives = on_device(bounds[:-1]), on_device(np.diff(bounds))
        self.n_saturated_users = int((free == 0).sum())
        self.longest_history = int(interactions.user_counts.max())
        self.has_uniform_weights = bool((weights == 1).all())  # then an item's place is its code

    def epoch(self, seed: int, epoch: int, batch_size: int) -> Generator[Tensor]:
        """All anchors once, in the order of (seed, epoch), in pieces of `batch_size`."""
        return epoch_batches(self.anchors, seed, epoch, batch_size)

    def batch(
        self,
        anchors: Tensor,
        m: int,
        n: int,
        key: int,
        matrices: Matrices | None = None,
        by_item: bool = False,
    ) -> Batch:
        """The data entries of these anchors; `key` names the random numbers (see `stream_key`).

        With `by_item` an entry's draws depend on its own user and item only, not on its place among others.
        """
        users, pos = self.users[anchors], self.items[anchors]
        extra = self._extra_at(users, self._words(stream_key(key, 1), m, pos, by_item))
        words = self._words(stream_key(key, 2), self.sampler.candidates(n), pos, by_item)
        batch = Batch(users, pos, extra, self._unlabelled_at(users, words))
        if self.sampler.needs_scores:
            if matrices is None:
                raise InputError(f"{self.sampler} chooses by score; pass matrices=(users, items).")
            with torch.no_grad():
                batch = batch._replace(unlabelled=self.sampler.choose(self, batch, n, matrices))
        return self._completed(batch, key, by_item)

    def _completed(self, batch: Batch, key: int, by_item: bool) -> Batch:
        """The batch as it is; a subclass may change its columns."""
        return batch

    def _words(self, key: int, width: int, pos: Tensor, by_item: bool) -> Tensor:
        """A row of random numbers for each entry, by its place or by its item `pos`. [B, width]"""
        rows = self.n_items if by_item else len(pos)
        drawn = random_words(key, (rows, width), self.device)
        return drawn[pos] if by_item else drawn

    def _extra_at(self, users: Tensor, words: Tensor) -> Tensor:
        places = self._first_positive[users][:, None] + words % self._n_positives[users][:, None]
        return self._positives[places]

    def unlabelled(self, users: Tensor, n: int, key: int) -> Tensor:
        """Unlabelled items of these users, by weight. [B, n]"""
        return self._unlabelled_at(users, random_words(key, (len(users), n), self.device))

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


def _whole_weights(weights: np.ndarray[tuple[int], np.dtype[np.float64]], n_users: int) -> Codes:
    """Weights as whole numbers, as fine as 64-bit arithmetic over users x total weight allows."""
    if weights.min() == weights.max():
        return np.ones(len(weights), dtype=np.int64)
    finest = 2.0**61 / (len(weights) * (n_users + 1))
    scaled = weights / weights.max() * min(finest, 2.0**31)
    return np.asarray(np.maximum(np.rint(scaled), 1), dtype=np.int64)
