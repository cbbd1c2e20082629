"""A rank's part of a run: its users, its items, their optimizer, and its part of every step.

A step gathers the vectors of the block's users. Each rank scores them against its own items and adds up with
the others what a row needs of all items. The gradients of users are summed and sent back to the ranks that
have them; those of items stay where they are. LightGCN does the same with vectors that are averaged over the
graph; then the vectors and gradients of all rows are gathered for each hop.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from truepair.models.encoders import Encoder, StartedEncoder
from truepair.models.start import Side, Start
from truepair.sampling import Matrices
from truepair.training.distributed.blocks import ShardBlocks, ShardedSums
from truepair.training.distributed.collectives import ProcessGroup
from truepair.training.distributed.graph import ShardGraph, hops_of, places
from truepair.training.distributed.shards import Exchange, Parts, Shard, first_vectors
from truepair.training.full.losses import RowLosses, row_losses
from truepair.training.full.trainer import FullTrainer
from truepair.training.job import EpochTotals, Job
from truepair.training.module_trainer import l2_penalty


class ShardModel(StartedEncoder):
    """The vectors of a rank's users and items; with a graph, calling it is a matter of all ranks."""

    def __init__(
        self, encoder: Encoder, user: Tensor, item: Tensor, addition: Tensor | None, graph: ShardGraph | None
    ) -> None:
        nn.Module.__init__(self)  # the vectors of all users and items may not fit
        self.encoder, self.graph, self.hops = encoder, graph, hops_of(encoder)
        self.register_buffer("addition", addition, persistent=False)
        self.user, self.item = nn.Parameter(user), nn.Parameter(item)


class ShardTrainer(FullTrainer):
    """One rank of a run, with the sampler `Full`."""

    def __init__(self, job: Job, group: ProcessGroup) -> None:
        data, self.group = job.interactions, group
        self.user_shard = Shard(data.n_users, group.size, group.rank)
        self.item_shard = Shard(data.n_items, group.size, group.rank)
        device = job.settings.torch_device()
        blocks = ShardBlocks(job, self.item_shard, group, device, job.anchor_weights)
        super().__init__(job, self.started(job, device), blocks, group.size)
        self.sums, self.user_counts = ShardedSums(group, self.sums), blocks.user_counts

    def started(self, job: Job, device: torch.device) -> StartedEncoder:
        """The model of this rank with its first parameters: rows of those of one process."""
        encoder, data = job.encoder, job.interactions
        vectors = first_vectors(self.user_shard, self.item_shard, encoder.dim, job.settings.seed)
        addition = encoder.addition(data)
        addition = None if addition is None else self.item_shard.take(addition).clone()
        graph = None
        if hops_of(encoder):
            graph = ShardGraph(data, self.user_shard, self.item_shard, self.group, device)
        return ShardModel(encoder, *vectors, addition, graph).to(device)

    # --- an epoch ----------------------------------------------------------------------------------

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once; the totals are those of all ranks."""
        part = super().train(epoch, rate, advance)
        clamped = None if part.clamped is None else int(self.group.sum(torch.tensor(part.clamped)))
        return EpochTotals(self.group.sum(part.losses), clamped)

    def train_step(self, users: Tensor, key: int, places: Tensor | None = None) -> RowLosses:
        """Score, differentiate, update; the losses are those of the rank's own anchors."""
        selection = self.blocks.select(users, key)
        exchange = Exchange(self.group, self.user_shard, users)
        own_vectors, item_vectors = self.model(exchange.rows, selection.needed)  # [own, d], [items, d]
        user_vectors = exchange.gather(own_vectors.detach())  # [B, d]
        scored = self.blocks.scored(selection, user_vectors, item_vectors.detach())
        n_anchors = int(self.user_counts[users].sum())
        share = torch.full_like(scored.block.pos, 1 / n_anchors)
        share = share if selection.weights is None else share * selection.weights
        losses = row_losses(self.job.loss, scored.block, share, self.sums)
        by_user, by_item = scored.gradients(losses)
        self.optimizer.zero_grad()
        if self.has_l2:
            of_users = scored.block.sum(share)[exchange.mine]
            penalty = l2_penalty(self.model, self.job.settings, exchange.rows, of_users)
            penalty.backward()  # type: ignore[no-untyped-call]
        torch.autograd.backward(
            [own_vectors, item_vectors], [exchange.reduce(by_user, len(own_vectors)), by_item]
        )
        self.optimizer.step()
        return losses if selection.weights is None else losses._replace(loss=losses.loss * selection.weights)

    # --- all ranks ---------------------------------------------------------------------------------

    @torch.no_grad()
    def parts(self) -> Matrices:
        """Copies of the rank's own rows of the two matrices; all ranks must ask."""
        return super().matrices()

    def matrices(self) -> Matrices:
        """Copies of the two matrices, whole, on every rank; all ranks must ask."""
        return self.whole(self.parts())

    def whole(self, parts: Matrices) -> Matrices:
        """The two matrices of all ranks, from the parts of each."""
        users, items = parts
        return self._joined(users, self.user_shard), self._joined(items, self.item_shard)

    def is_finite(self) -> bool:
        """Whether every parameter of every rank is a finite number."""
        return not int(self.group.max(torch.tensor(int(not super().is_finite()))))

    def begin(self, start: Start) -> None:
        """Start from the rank's own rows of these vectors and moments."""
        own = (np.arange(shard.first, shard.last) for shard in (self.user_shard, self.item_shard))
        super().begin(start.take(*own))

    def reached(self) -> Start:
        """The vectors and moments now, whole, on every rank."""
        part = super().reached()
        users = [self._joined(table, self.user_shard) for table in part.users if table is not None]
        items = [self._joined(table, self.item_shard) for table in part.items if table is not None]
        return Start(Side(*users), Side(*items), part.steps)

    def _joined(self, part: Tensor, shard: Shard) -> Tensor:
        """The whole table, from the rank's own rows."""
        rows = torch.from_numpy(places(shard, np.arange(shard.n))).to(part.device)
        return Parts(self.group, shard.longest, rows).gather(part)
