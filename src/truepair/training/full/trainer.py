"""A run with exact sampling: blocks of users against the whole catalogue, on the CPU and on CUDA.

A step scores a block, lets `rows_losses` turn scores into gradients of scores, and takes those back to the
parameters: three products of matrices, and an update of every parameter. Nothing of size users × items or
anchors × items is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.randomness import stream_key
from truepair.sampling import Full
from truepair.training.full.losses import RowLosses
from truepair.training.full.scoring import Blocks, ScoredBlock, sums_for
from truepair.training.reference.trainer import ModelTrainer
from truepair.training.result import Job
from truepair.training.trainer import EpochTotals

_POSTERIOR = "posterior."


class FullTrainer(ModelTrainer):
    """Every encoder, loss and optimizer, with exact sampling."""

    def __init__(self, job: Job) -> None:
        assert isinstance(job.sampler, Full)
        super().__init__(job)
        self.blocks = Blocks(job.interactions, job.loss, job.sampler, self.device)
        self.n_anchors, self.n_saturated_users = self.blocks.n_anchors, self.blocks.n_saturated_users
        self.steps = math.ceil(len(self.blocks.users) / job.settings.batch_size)
        self.sums = sums_for(job.sampler, self.device)

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        settings = self.job.settings
        self.set_rate(rate)
        losses: list[Tensor] = []
        clamped: list[Tensor] = []
        for step, users in enumerate(self.blocks.epoch(settings.seed, epoch, settings.batch_size)):
            chosen = self.blocks.chosen(users, stream_key(settings.seed, epoch, step))
            ours, items = self.model(users, chosen.needed)  # [B, d], [n_items or fewer, d]
            held = self.blocks.scored(chosen, ours.detach(), items.detach())
            told = self.descend(ours, items, held, torch.full_like(held.block.pos, 1 / len(held.items)))
            losses.append(told.loss.sum())
            clamped += [told.clamped.sum()] if told.clamped is not None else []
            advance(1)
        return EpochTotals(torch.stack(losses), int(torch.stack(clamped).sum()) if clamped else None)

    def state(self) -> dict[str, Tensor]:
        """With a first model's posterior, if there is one: trained again elsewhere, its bits may differ."""
        weights = self.blocks.weights
        parts = {} if weights is None else weights.posterior.tensors()
        return super().state() | {f"{_POSTERIOR}{name}": value for name, value in parts.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """What `state` gave."""
        parts = {n.removeprefix(_POSTERIOR): v for n, v in state.items() if n.startswith(_POSTERIOR)}
        super().restore({n: v for n, v in state.items() if not n.startswith(_POSTERIOR)})
        if self.blocks.weights is not None:
            self.blocks.weights = self.blocks.weights.restored(parts)

    def descend(self, ours: Tensor, items: Tensor, held: ScoredBlock, share: Tensor) -> RowLosses:
        """Differentiate and update; an anchor counts by its share [A]."""
        told = held.losses(self.job.loss, share, self.sums)
        penalty = self.penalty(held.block.users, held.block.sum(share)[: len(held.block.users)])
        self.optimizer.zero_grad()
        if isinstance(penalty, Tensor):
            penalty.backward()  # type: ignore[no-untyped-call]
        torch.autograd.backward([ours, items], held.gradients(told))
        self.optimizer.step()
        return told

    def penalty(self, users: Tensor, shares: Tensor) -> Tensor | float:
        """½·l2·‖e‖² of every row that an anchor touches, mean over the anchors: all items, each time."""
        settings, terms = self.job.settings, []
        if settings.l2_users:
            norms = F.embedding(users, self.model.user).square().sum(dim=1)
            terms.append(settings.l2_users * (norms * shares).sum())
        if settings.l2_items:
            terms.append(settings.l2_items * self.model.item.square().sum())
        return torch.stack(terms).sum() / 2 if terms else 0.0
