"""The readable PyTorch loops, for every job: the specification that every fused engine is proved against."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import Rows
from truepair.sampling import Draws, Full
from truepair.training.dislikes import draws_of, weights_at
from truepair.training.job import READS_ORDER, Engine, Job
from truepair.training.module_trainer import ModuleTrainer, l2_penalty


class ReferenceTrainer(ModuleTrainer):
    """Every encoder, loss, optimizer and sampler that draws, on the CPU or on CUDA."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.draws = draws_of(job, self.device)
        self.entries = self.draws.anchors
        self.n_anchors, self.n_saturated_users = len(self.draws.anchors), self.draws.n_saturated_users
        self.weights = weights_at(self.draws, job.anchor_weights)

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
        objective, n = rows.loss.mean(), len(batch.users)
        if self.has_l2:
            objective += l2_penalty(self.model, settings, batch.users, weights, rows_items, n)
        self.descend(objective)
        return rows


class FullReferenceTrainer(ModuleTrainer):
    """With the sampler `Full`, by its definition: a user's anchors with all own items and all others."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        data, free = job.interactions, job.n_comparable > 0  # [n_users]
        chosen = free[data.users] if job.anchors is None else free[data.users] & job.anchors
        self.known_mask = Draws(data, job.sampler, self.device).known_mask
        self.anchors = Draws(data.take(chosen), job.sampler, self.device)
        self.negatives = None if job.negatives is None else torch.tensor(job.negatives, device=self.device)
        self.entries = torch.unique(self.anchors.users)
        self.n_anchors = int(chosen.sum())
        self.n_saturated_users = int(((data.user_counts > 0) & ~free).sum())
        self.weights = job.loss.item_weights((data.n_users, data.n_items), self.device)
        self.anchor_weights = self.dislikes = None
        if job.anchor_weights is not None:  # in the order of `anchors`
            self.anchor_weights = torch.from_numpy(job.anchor_weights[chosen]).to(self.device)
        if data.dislikes is not None:
            self.dislikes = Draws(data.dislikes, job.sampler, self.device).known_mask

    def train_step(self, users: Tensor, key: int) -> Rows:
        """Score, differentiate, update."""
        user_vectors, items = self.model(users)
        anchors = self.anchors.known_mask(users)  # [B, n_items]
        unlabelled = ~self.known_mask(users) if self.negatives is None else self.negatives[users]
        disliked = torch.zeros_like(unlabelled) if self.dislikes is None else self.dislikes(users)
        scores = user_vectors @ items.T
        each = [self.rows_of(*row) for row in zip(users, scores, anchors, unlabelled, disliked, strict=True)]
        clamped = [rows.clamped for rows in each if rows.clamped is not None]
        rows = Rows(torch.cat([rows.loss for rows in each]), torch.cat(clamped) if clamped else None)
        counts = anchors.sum(dim=1)
        n_anchors = counts.sum()
        if self.anchor_weights is not None:
            ends = (self.anchors.indptr[users + which].tolist() for which in (0, 1))
            weights = [self.anchor_weights[first:last] for first, last in zip(*ends, strict=True)]
            rows = rows._replace(loss=rows.loss * torch.cat(weights))
            counts = torch.stack([each.sum() for each in weights])
        objective = rows.loss.mean()
        if self.has_l2:
            objective += l2_penalty(self.model, self.job.settings, users, counts, n_entries=n_anchors)
        self.descend(objective)
        return rows

    def rows_of(
        self, user: Tensor, scores: Tensor, anchors: Tensor, unlabelled: Tensor, disliked: Tensor
    ) -> Rows:
        """The user's anchors as data entries with M and N as large as they can be.

        A disliked item is `dislike_weight` of the N, which is why that must be a whole number here.
        """
        loss, own = self.job.loss, scores[anchors]
        times = torch.where(disliked, int(self.job.settings.dislike_weight), 1)
        columns = torch.repeat_interleave(unlabelled.nonzero()[:, 0], times[unlabelled])
        others = scores[columns]
        if self.weights is not None:
            log_weights = self.weights(user[None], None)[0].masked_fill(disliked, 0.0)[columns]
            return Rows(
                loss.weighted(own, others.expand(len(own), -1), log_weights.expand(len(own), -1)), None
            )
        extra = own.expand(len(own), -1) if loss.uses_extra else own.new_zeros(len(own), 0)
        return loss.rows(own, extra, others.expand(len(own), -1), user.expand(len(own)))


def _start(job: Job) -> FullReferenceTrainer | ReferenceTrainer:
    return FullReferenceTrainer(job) if isinstance(job.sampler, Full) else ReferenceTrainer(job)


def _lacks(job: Job) -> str | None:
    if job.encoder.reads_order:
        return READS_ORDER
    if isinstance(job.sampler, Full) and job.sampler.columns_of(job.interactions.n_items) is not None:
        return "it compares with the whole catalogue, and cannot draw columns of it."
    whole = job.settings.dislike_weight == int(job.settings.dislike_weight)
    if isinstance(job.sampler, Full) and job.interactions.disliked is not None and not whole:
        return "it counts a disliked item a whole number of times; it has dislike_weight=1, 2, …."
    return None


REFERENCE = Engine(start=_start, lacks=_lacks)
