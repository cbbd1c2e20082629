"""Dislikes in training: known negatives, which are compared with anchors but are never positive after all.

Full catalogue: a disliked item counts as `Settings.dislike_weight` unlabelled items in its user's row. Drawn
items: of the N unlabelled columns of a user with dislikes, the last one is a disliked item, drawn uniformly;
with N = 1 it is one in every second row, by chance. The other columns never hold a disliked item. Either way
the share τ of positives among the columns is lower for such a user.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.log import Mask
from truepair.randomness import stream_key
from truepair.sampling import Batch, Draws, Full, Sampler
from truepair.training.job import Job

_PART = 3  # of a step's random numbers; 1 and 2 are those of extra positives and unlabelled items


def with_dislikes(job: Job) -> Job:
    """The job, with τ times the share of the columns that are unlabelled, not disliked: for each user."""
    loss, tau, dislikes = job.loss, getattr(job.loss, "tau", 0.0), job.interactions.dislikes
    if dislikes is None or loss.needs_items or isinstance(tau, str) or not np.any(tau):
        return job
    counts = dislikes.user_counts
    if isinstance(job.sampler, Full):
        free = job.interactions.n_items - job.interactions.user_counts
        all_columns = free + (job.settings.dislike_weight - 1) * counts
        share = (free - counts) / np.where(all_columns > 0, all_columns, 1)
    else:
        n = job.settings.n_unlabelled
        share = np.where(counts > 0, (n - 1) / n if n > 1 else 0.5, 1.0)
    loss = replace(loss, tau=tuple((np.asarray(tau) * share).tolist()))  # type: ignore[type-var]
    return replace(job, loss=loss)


class DislikeDraws(Draws):
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
        super().__init__(known, sampler, device, popularity, is_anchor)
        self.rows = torch.from_numpy(order).to(device)  # of `data`, for the places of `anchors`
        self.disliked, self.disliked_first, self.disliked_counts = (
            torch.tensor(array, device=device)
            for array in (data.dislikes.items, data.dislikes.indptr[:-1], data.dislikes.user_counts)
        )

    def _completed(self, batch: Batch, key: int, by_item: bool) -> Batch:
        """The batch with a disliked item in the last column."""
        words = self._words(stream_key(key, _PART), 2, batch.pos, by_item)
        counts = self.disliked_counts[batch.users]
        place = self.disliked_first[batch.users] + words[:, 0] % counts.clamp(min=1)
        own = self.disliked[place.clamp(max=len(self.disliked) - 1)]
        takes = (counts > 0) & ((words[:, 1] % 2 == 0) | (batch.unlabelled.shape[1] > 1))
        last = torch.where(takes, own, batch.unlabelled[:, -1])
        return batch._replace(unlabelled=torch.cat([batch.unlabelled[:, :-1], last[:, None]], dim=1))


def draws_of(job: Job, device: torch.device, popularity: Codes | None = None) -> Draws:
    """The draws for a job, with or without dislikes."""
    kind = Draws if job.interactions.disliked is None else DislikeDraws
    return kind(job.interactions, job.sampler, device, popularity, job.anchors)


def weights_at(draws: Draws, weights: npt.NDArray[np.float32] | None) -> Tensor | None:
    """The weights of interactions, at the places that `draws.anchors` names."""
    if weights is None:
        return None
    if isinstance(draws, DislikeDraws):
        padded = np.concatenate([weights, np.zeros(len(draws.disliked), np.float32)])
        return torch.tensor(padded, device=draws.device)[draws.rows]
    return torch.tensor(weights, device=draws.device)
