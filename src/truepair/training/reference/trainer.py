"""The readable PyTorch loop with drawn items: the specification that every fused engine is proved against."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import Rows
from truepair.training.dislikes import draws_of, weights_at
from truepair.training.job import Job
from truepair.training.module_trainer import ModuleTrainer, l2_penalty


class ReferenceTrainer(ModuleTrainer):
    """Every encoder, loss, optimizer and sampler that draws, on the CPU or on CUDA."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.draws = draws_of(job, self.device)
        self.n_anchors, self.n_saturated_users = len(self.draws.anchors), self.draws.n_saturated_users
        self.weights = weights_at(self.draws, job.anchor_weights)
        self.steps = math.ceil(self.n_anchors / job.settings.batch_size)

    def batches(self, epoch: int) -> Iterator[Tensor]:
        """The anchors of each step."""
        return self.draws.epoch(self.job.settings.seed, epoch, self.job.settings.batch_size)

    def train_step(self, anchors: Tensor, key: int) -> Rows:
        """Draw, score, differentiate, update."""
        settings, loss = self.job.settings, self.job.loss
        users, items = self.model()  # [n_users, d], [n_items, d]
        m = settings.n_extra if loss.uses_extra else 0
        batch = self.draws.batch(anchors, m, settings.n_unlabelled, key, (users.detach(), items.detach()))
        rows_items = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)  # [B, 1+M+N]
        scores = torch.einsum("bd,bcd->bc", F.embedding(batch.users, users), F.embedding(rows_items, items))
        rows = loss.rows(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], batch.users)
        weights = None if self.weights is None else self.weights[anchors]  # [B]
        if weights is not None:
            rows = rows._replace(loss=rows.loss * weights)
        penalty = l2_penalty(
            self.model, settings, batch.users, weights, items=rows_items, n_entries=len(batch.users)
        )
        self.descend(rows.loss.mean() + penalty)
        return rows
