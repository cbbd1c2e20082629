"""Dislikes in training: known negatives, which are compared with anchors but are never positive after all.

Full catalogue: a disliked item counts as `Settings.dislike_weight` unlabelled items in its user's row. Drawn
items: of the N unlabelled columns of a user with dislikes, the last one is a disliked item, drawn uniformly;
with N = 1 it is one in every second row, by chance. The other columns never hold a disliked item. Either way
the share τ of positives among the columns is lower for such a user.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.losses import Loss
from truepair.randomness import random_words, stream_key
from truepair.sampling import Batch, Draws, Full, Matrices, Sampler
from truepair.training.job import Job, Mask

_PART = 3  # of a step's random numbers; 1 and 2 are those of extra positives and unlabelled items


def dislike_counts(data: Interactions) -> Codes:
    """How many dislikes each user has. [n_users]"""
    none = np.zeros(data.n_users, dtype=np.int64)
    return none if data.dislikes is None else data.dislikes.user_counts


def weighs_dislikes(job: Job) -> bool:
    """Whether users have disliked items that weigh more or less than others."""
    return job.interactions.disliked is not None and job.settings.dislike_weight != 1


def with_dislikes(job: Job) -> Job:
    """The job with a prior for each user: of the columns of a user with dislikes, fewer can be positive."""
    if job.interactions.disliked is None:
        return job
    return replace(job, loss=loss_with_dislikes(job.loss, job))


def loss_with_dislikes(loss: Loss, job: Job) -> Loss:
    """The loss, with τ times the share of the columns that are unlabelled, not disliked."""
    tau = getattr(loss, "tau", 0.0)
    if loss.needs_items or isinstance(tau, str) or not np.any(tau):
        return loss
    counts = dislike_counts(job.interactions)
    if isinstance(job.sampler, Full):
        free = job.interactions.n_items - job.interactions.user_counts
        all_columns = free + (job.settings.dislike_weight - 1) * counts
        share = (free - counts) / np.where(all_columns > 0, all_columns, 1)
    else:
        n = job.settings.n_unlabelled
        share = np.where(counts > 0, (n - 1) / n if n > 1 else 0.5, 1.0)
    return replace(loss, tau=tuple((np.asarray(tau) * share).tolist()))  # type: ignore[type-var]


class DislikeDraws:
    """`Draws` whose last unlabelled column is a disliked item, for users who have any."""

    def __init__(
        self,
        data: Interactions,
        sampler: Sampler,
        device: torch.device,
        popularity: Codes | None = None,
        anchors: Mask | None = None,
    ) -> None:
        assert data.dislikes is not None
        chosen = np.ones(len(data), dtype=bool) if anchors is None else anchors
        keys = np.concatenate([data.keys, data.dislikes.keys])
        order = np.argsort(keys)
        known = Interactions(*np.divmod(keys[order], data.n_items), data.user_ids, data.item_ids)
        is_anchor = np.concatenate([chosen, np.zeros(len(data.dislikes), dtype=bool)])[order]
        popularity = data.item_counts if popularity is None else popularity
        self.draws = Draws(known, sampler, device, popularity, is_anchor)
        self.anchors, self.n_saturated_users = self.draws.anchors, self.draws.n_saturated_users
        self.rows = torch.from_numpy(order).to(device)  # of `data`, for the places of `anchors`
        self.items, self.first, self.counts = (
            torch.tensor(array, device=device)
            for array in (data.dislikes.items, data.dislikes.indptr[:-1], data.dislikes.user_counts)
        )

    def epoch(self, seed: int, epoch: int, batch_size: int) -> Iterator[Tensor]:
        """All anchors once, as of `Draws`."""
        return self.draws.epoch(seed, epoch, batch_size)

    def batch(
        self, anchors: Tensor, m: int, n: int, key: int, matrices: Matrices, *, by_item: bool = False
    ) -> Batch:
        """The data entries of these anchors, as of `Draws`."""
        found = self.draws.batch(anchors, m, n, key, matrices, by_item=by_item)
        rows = self.draws.n_items if by_item else len(anchors)
        words = random_words(stream_key(key, _PART), (rows, 2), self.draws.device)
        words = words[found.pos] if by_item else words
        counts = self.counts[found.users]
        place = self.first[found.users] + words[:, 0] % counts.clamp(min=1)
        own = self.items[place.clamp(max=len(self.items) - 1)]
        takes = (counts > 0) & ((words[:, 1] % 2 == 0) | (n > 1))
        last = torch.where(takes, own, found.unlabelled[:, -1])
        return found._replace(unlabelled=torch.cat([found.unlabelled[:, :-1], last[:, None]], dim=1))


def draws_of(
    data: Interactions,
    sampler: Sampler,
    device: torch.device,
    popularity: Codes | None = None,
    anchors: Mask | None = None,
) -> Draws | DislikeDraws:
    """The draws for these interactions, with or without dislikes."""
    kind = Draws if data.disliked is None else DislikeDraws
    return kind(data, sampler, device, popularity, anchors)


def weights_at(draws: Draws | DislikeDraws, weights: npt.NDArray[np.float32] | None) -> Tensor | None:
    """The weights of interactions, at the places that `draws.anchors` names."""
    if weights is None:
        return None
    if isinstance(draws, Draws):
        return torch.tensor(weights, device=draws.device)
    padded = np.concatenate([weights, np.zeros(len(draws.items), np.float32)])
    return torch.tensor(padded, device=draws.draws.device)[draws.rows]
