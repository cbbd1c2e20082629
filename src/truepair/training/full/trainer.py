"""Full-catalogue training: blocks of users against all items, on the CPU and on CUDA.

A step scores a block of users, lets `full.losses` turn scores into gradients by scores, and takes those back
to the parameters: three products of matrices, and an update of every parameter. Nothing of the size
users × items or anchors × items is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import torch
from torch import Tensor

from truepair.distributed.cost import step_work
from truepair.training.full.large.streaming import StreamedBlocks, is_streamed
from truepair.training.full.losses import RowLosses
from truepair.training.full.scoring import Blocks, ScoredBlock, sums_for
from truepair.training.job import Job
from truepair.training.module_trainer import ModuleTrainer, l2_penalty


class FullTrainer(ModuleTrainer):
    """Every encoder, loss and optimizer, with the sampler `Full`."""

    streams = True  # pairs may stay in main memory

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        kind = StreamedBlocks if self.streams and is_streamed(job.interactions, self.device) else Blocks
        self.blocks = kind(self.job, self.device, weights=job.anchor_weights)
        self.n_anchors, self.n_saturated_users = self.blocks.n_anchors, self.blocks.n_saturated_users
        self.steps = math.ceil(len(self.blocks.users) / job.settings.batch_size)
        self.sums = sums_for(job, self.device)
        size = job.interactions.n_users, job.interactions.n_items, len(job.interactions)
        self.work = step_work(*size, job.settings.batch_size, job.encoder.dim)

    def batches(self, epoch: int) -> Generator[Tensor]:
        """The users of each step."""
        return self.blocks.epoch(self.job.settings.seed, epoch, self.job.settings.batch_size)

    def train_step(self, users: Tensor, key: int, places: Tensor | None = None) -> RowLosses:
        """Score, differentiate, update; `places` are the users' rows of the model, if they are others."""
        places = users if places is None else places
        selection = self.blocks.select(users, key)
        user_vectors, item_vectors = self.model(places, selection.needed)  # [B, d], [n_items or fewer, d]
        scored = self.blocks.scored(selection, user_vectors.detach(), item_vectors.detach())
        share = torch.full_like(scored.block.pos, 1 / len(scored.items))
        if selection.weights is None:
            return self.update(user_vectors, item_vectors, scored, share, places)
        found = self.update(user_vectors, item_vectors, scored, share * selection.weights, places)
        return found._replace(loss=found.loss * selection.weights)

    def update(
        self, user_vectors: Tensor, item_vectors: Tensor, scored: ScoredBlock, share: Tensor, places: Tensor
    ) -> RowLosses:
        """Differentiate and update; an anchor counts by its share [A], `places` [B] are its users' rows."""
        losses = scored.losses(self.job.loss, share, self.sums)
        penalty = l2_penalty(self.model, self.job.settings, places, scored.block.sum(share)[: len(places)])
        self.optimizer.zero_grad()
        if isinstance(penalty, Tensor):
            penalty.backward()  # type: ignore[no-untyped-call]
        torch.autograd.backward([user_vectors, item_vectors], scored.gradients(losses))
        self.optimizer.step()
        return losses
