"""Full-catalogue training: blocks of users against all items, on the CPU and on CUDA.

A step scores a block of users, lets `full.losses` turn scores into gradients by scores, and takes those back
to the parameters: three products of matrices, and an update of every parameter. Nothing of the size
users × items or anchors × items is ever stored. With many users, a step costs what its own users cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from truepair.distributed.cost import step_work
from truepair.models.encoders import StartedEncoder
from truepair.sampling import Matrices
from truepair.storage.compiled_code import announce_compilation
from truepair.training.full.large.streaming import StreamedBlocks
from truepair.training.full.large.table_adam import TableAdam
from truepair.training.full.losses import RowLosses, row_losses
from truepair.training.full.scoring import Blocks, ScoredBlock, is_streamed
from truepair.training.job import EpochTotals, Job
from truepair.training.module_trainer import ModuleTrainer, l2_penalty


class FullTrainer(ModuleTrainer):
    """Every encoder, loss and optimizer, with the sampler `Full`."""

    streams = True  # pairs may stay in main memory

    def __init__(
        self, job: Job, model: StartedEncoder | None = None, blocks: Blocks | None = None, n_ranks: int = 1
    ) -> None:
        """`model` and `blocks` are those of one of `n_ranks` processes; by default, of all interactions."""
        super().__init__(job, model)
        if blocks is None:
            kind = StreamedBlocks if self.streams and is_streamed(job.interactions, self.device) else Blocks
            blocks = kind(self.job, self.device, weights=job.anchor_weights)
        if isinstance(blocks, StreamedBlocks):
            self.prefetched = blocks.streamed
        self.blocks, self.entries = blocks, blocks.users
        self.n_anchors, self.n_saturated_users = blocks.n_anchors, blocks.n_saturated_users
        self.sums = blocks.sums
        data = job.interactions
        size = data.n_users // n_ranks, data.n_items // n_ranks, len(data) // n_ranks
        self.work = step_work(*size, job.settings.batch_size, job.encoder.dim)

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
        losses = row_losses(self.job.loss, scored.block, share, self.sums)
        self.optimizer.zero_grad()
        if self.has_l2:
            of_users = scored.block.sum(share)[: len(places)]
            penalty = l2_penalty(self.model, self.job.settings, places, of_users)
            penalty.backward()  # type: ignore[no-untyped-call]
        torch.autograd.backward([user_vectors, item_vectors], scored.gradients(losses))
        self.optimizer.step()
        return losses


_ROWS = 1 << 16  # users whose vectors are scaled at a time
_USERS, _ITEMS = "optimizer.0.", "optimizer.1."  # where the optimizer's state of each side is stored


class ManyUsersTrainer(FullTrainer):
    """Adam with one free vector for each user: the model holds the users of the current step only."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.table = self.new_table(self.model.user.detach())
        self.model.user = nn.Parameter(self.table.weights[:0])
        self.optimizer = self.optimizer_of([self.model.item])
        self.step = 0  # of the epoch

    def new_table(self, weights: Tensor) -> TableAdam:
        """The users' vectors with Adam's state, which is kept where the settings say."""
        decay, state = self.job.settings.weight_decay, self.job.settings.optimizer_state
        if self.device.type == "cpu" and state != "half":
            from truepair.training.full.large import row_adam  # imports Numba

            announce_compilation([row_adam.catch_up_rows, row_adam.update_rows])
            return TableAdam(weights, decay, state, (row_adam.catch_up, row_adam.update), torch.float64)
        if self.device.type == "cuda" and find_spec("triton") is not None:
            from truepair.training.full.large import gpu_table_adam

            return TableAdam(weights, decay, state, (gpu_table_adam.catch_up, gpu_table_adam.update))
        return TableAdam(weights, decay, state)

    def train(self, epoch: int, rate: float, advance: Callable[[int], None]) -> EpochTotals:
        """All anchors once."""
        self.table.start_epoch(rate, self.steps)
        self.step = 0
        totals = super().train(epoch, rate, advance)
        self.table.end_epoch()
        return totals

    def train_step(self, users: Tensor, key: int, places: Tensor | None = None) -> RowLosses:
        """Score, differentiate, update; the rows of the users are put into the model."""
        self.model.user = nn.Parameter(self.table.rows(users, self.step))
        found = super().train_step(users, key, torch.arange(len(users), device=self.device))
        assert self.model.user.grad is not None
        self.table.update(users, self.model.user.grad, self.step)
        self.step += 1
        return found

    @torch.no_grad()
    def matrices(self) -> Matrices:
        """Copies of the two matrices."""
        weights, scaled = self.table.weights, self.job.encoder.scaled
        users = weights.new_empty(len(weights), scaled(weights[:1]).shape[1])
        for start in range(0, len(weights), _ROWS):
            users[start : start + _ROWS] = scaled(weights[start : start + _ROWS])
        return users, self.model()[1].detach().clone()

    def is_finite(self) -> bool:
        """Whether every parameter is a finite number."""
        sides = (self.table.weights, self.model.item.detach())
        return all(bool(bound.isfinite()) for side in sides for bound in side.aminmax())

    def state(self) -> dict[str, Tensor]:
        """As of a `FullTrainer`, which can continue from it."""
        table = self.table
        state = {name.replace(_USERS, _ITEMS): value for name, value in super().state().items()}
        if table.steps:
            means = {"exp_avg": table.first, "exp_avg_sq": table.second}
            means["step"] = torch.tensor(float(table.steps))
            state |= {f"{_USERS}{name}": value for name, value in means.items()}
        return state | {"user": table.weights}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        table = self.table
        self.model.user = nn.Parameter(table.weights[:0])
        of_items = {n.replace(_ITEMS, _USERS): value for n, value in state.items() if _USERS not in n}
        super().restore(of_items | {"user": table.weights[:0]})
        table.weights.copy_(state["user"])
        if f"{_USERS}step" in state:
            table.means.first.copy_(state[f"{_USERS}exp_avg"])
            table.means.second.copy_(state[f"{_USERS}exp_avg_sq"])
            table.steps = int(state[f"{_USERS}step"])
