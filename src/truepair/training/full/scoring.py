"""Blocks of users with all their scores, and the way from gradients of scores back to vectors."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.losses import Loss
from truepair.randomness import random_words, stream_key
from truepair.sampling import Full, Matrices
from truepair.training.full.block import Block
from truepair.training.full.losses import RowLosses, row_losses
from truepair.training.full.pair_sums import PairSums, pair_sums
from truepair.training.item_weights import weights_of


class ScoredBlock(NamedTuple):
    """A block, and what leads from gradients of scores to gradients of vectors."""

    block: Block
    items: Tensor  # [A], the rows of `theirs` that the anchors' items have
    columns: Tensor | None  # [C], those of the items that were drawn; None if all
    ours: Tensor  # [B, d]
    theirs: Tensor  # [n_items, d], or the rows that are needed
    idle: Tensor | None = None  # [B], users of whom no unlabelled item was drawn: they wait for another block

    def losses(self, loss: Loss, share: Tensor, sums: PairSums) -> RowLosses:
        """Those of the block's anchors, with gradients by scores."""
        told = row_losses(loss, self.block, share, sums)
        if self.idle is None:
            return told
        idle = self.idle[self.block.rows]
        told.by_score[self.idle] = 0.0
        clamped = None if told.clamped is None else told.clamped & ~idle
        loss_now, by_pos = (values.masked_fill(idle, 0.0) for values in (told.loss, told.by_pos))
        return RowLosses(loss_now, clamped, by_pos, told.by_score)

    def gradients(self, told: RowLosses) -> Matrices:
        """By the users' vectors, and by the items'. As `ours` and `theirs`."""
        rows, items, by_score = self.block.rows, self.items, told.by_score
        if self.columns is None:
            by_score.view(-1).index_add_(0, rows * len(self.theirs) + items, told.by_pos)
            by_score = by_score[: len(self.ours)]
            return by_score @ self.theirs, by_score.T @ self.ours
        by_ours = by_score @ self.theirs[self.columns]
        by_ours.index_add_(0, rows, told.by_pos[:, None] * self.theirs[items])
        by_theirs = torch.zeros_like(self.theirs)
        by_theirs.index_add_(0, self.columns, by_score.T @ self.ours)
        by_theirs.index_add_(0, items, told.by_pos[:, None] * self.ours[rows])
        return by_ours, by_theirs


class Chosen(NamedTuple):
    """A block before it is scored."""

    users: Tensor  # [B]
    counts: Tensor  # [B]
    starts: Tensor  # [B + 1], where the anchors of each row begin
    rows: Tensor  # [A], the row of each anchor
    items: Tensor  # [A], the anchors' items
    columns: Tensor | None  # [C], the items that were drawn; None if all
    log_weights: Tensor | None  # [C], log of the columns' weights
    needed: Tensor | None  # the items whose vectors are needed, in order; None if all


class Blocks:
    """The interactions on a device, and blocks of users with their scores."""

    def __init__(
        self,
        data: Interactions,
        loss: Loss,
        sampler: Full,
        device: torch.device,
        popularity: Codes | None = None,
    ) -> None:
        """`popularity` [n_items] defaults to that of the interactions themselves."""
        self.device, self.n_items = device, data.n_items
        self.on_cpu = device.type == "cpu"
        counts = data.user_counts
        self.users = torch.as_tensor(((counts > 0) & (counts < data.n_items)).nonzero()[0], device=device)
        self.longest = int(counts.max())
        self.n_saturated_users = int((counts == data.n_items).sum())
        self.n_anchors = int(counts[counts < data.n_items].sum())
        self.counts, self.indptr = (torch.tensor(x, device=device) for x in (counts, data.indptr))
        self.items = torch.tensor(data.items, device=device)
        tau = torch.tensor(getattr(loss, "tau", 0.0), dtype=torch.float64, device=device)
        self.tau = tau.expand(data.n_users) if tau.ndim == 0 else tau
        self.weights = weights_of(loss, device)
        n_columns = sampler.columns_of(data.n_items)
        popularity = data.item_counts if popularity is None else popularity
        weights = torch.as_tensor(sampler.item_weights(popularity), device=device)  # float64
        self.chances = None if n_columns is None else column_chances(weights, n_columns)

    def epoch(self, seed: int, epoch: int, batch_size: int) -> list[Tensor]:
        """All users who have anchors once, in the order of (seed, epoch), in pieces."""
        words = random_words(stream_key(seed, epoch), (len(self.users),), self.device)
        return list(torch.split(self.users[words.argsort(stable=True)], batch_size))

    def chosen(self, users: Tensor, key: int) -> Chosen:
        """The anchors and columns of a block; `key` names the random numbers that choose the columns."""
        counts = self.counts[users]
        starts = F.pad(counts.cumsum(0), (1, 0))
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), counts)
        place = torch.arange(len(rows), device=self.device) - (starts[:-1] - self.indptr[users])[rows]
        items = self.items[place]
        columns, log_weights = self.drawn(key)
        needed = None if columns is None else torch.unique(torch.cat([columns, items]))
        return Chosen(users, counts, starts, rows, items, columns, log_weights, needed)

    def scored(self, chosen: Chosen, ours: Tensor, theirs: Tensor) -> ScoredBlock:
        """The scores of a block, from the vectors of its users and of the items that are needed."""
        users, rows, items, columns, idle = chosen.users, chosen.rows, chosen.items, chosen.columns, None
        if columns is None or chosen.needed is None:
            scores = ours @ theirs.T
            own = rows * self.n_items + items
            pos = scores.view(-1)[own]
        else:
            own = self.own_places(rows, items, columns)
            items, columns = (torch.searchsorted(chosen.needed, some) for some in (items, columns))
            scores = ours @ theirs[columns].T
            pos = (ours[rows] * theirs[items]).sum(dim=1)
        low, high = self.range(scores, pos)
        scores.view(-1).index_fill_(0, own, -math.inf)
        if columns is not None:
            idle = scores.amax(dim=1) == -math.inf
            scores[idle, 0] = low if self.on_cpu else 0.0  # whatever comes of it is not used
        block = Block(
            users=users,
            scores=scores,
            pos=pos,
            rows=rows,
            starts=chosen.starts,
            n_unlabelled=(self.n_items - chosen.counts).to(scores.dtype),
            tau=self.tau[users],
            longest=self.longest,
            log_weights=self.log_weights(chosen),
            low=low,
            high=high,
        )
        return ScoredBlock(block, items, columns, ours, theirs, idle)

    def log_weights(self, chosen: Chosen) -> Tensor | None:
        """What each column weighs, [C], or [B, C] where users weigh them differently."""
        if self.weights is None:
            return chosen.log_weights
        own = self.weights.log_weights(chosen.users, chosen.columns)
        return own if chosen.log_weights is None else own.add_(chosen.log_weights)

    def drawn(self, key: int) -> tuple[Tensor | None, Tensor | None]:
        """Items for columns, each in by its own chance, and the log of the inverse chances."""
        if self.chances is None:
            return None, None
        words = random_words(key, (self.n_items,), self.device)
        columns = (words * 2.0**-63 < self.chances).nonzero()[:, 0]
        if not len(columns):
            columns = words.argmin()[None]
        return columns, -self.chances[columns].log().to(torch.float32)

    def own_places(self, rows: Tensor, items: Tensor, columns: Tensor) -> Tensor:
        """Where users' own items stand among the drawn columns, as places in [B, C] laid end to end."""
        column_of = torch.full((self.n_items,), -1, device=self.device)
        column_of[columns] = torch.arange(len(columns), device=self.device)
        places = column_of[items]
        drawn = places >= 0
        return (rows * len(columns) + places)[drawn]

    def range(self, scores: Tensor, pos: Tensor) -> tuple[float, float]:
        """Within which all scores lie; known on the CPU alone, where histograms are made."""
        if not self.on_cpu:
            return -math.inf, math.inf
        low, high = zip(*(part.aminmax() for part in (scores, pos)), strict=True)
        return min(map(float, low)), max(map(float, high))


def column_chances(weights: Tensor, n: int) -> Tensor:
    """The chance of each column to be in: in proportion to its weight, 1 at most, `n` expected in all."""
    chances = (weights * (n / weights.sum())).clamp(max=1.0)
    for _ in range(64):  # those that are surely in leave more for the others
        sure = chances >= 1
        left = n - sure.sum()
        if left <= 0 or bool(sure.all()):
            break
        chances = torch.where(sure, 1.0, weights * (left / weights[~sure].sum())).clamp(max=1.0)
        if bool(((chances >= 1) == sure).all()):
            break
    return chances


def sums_for(sampler: Full, device: torch.device) -> PairSums:
    """How pairwise losses compare anchors and scores."""
    if device.type == "cuda" and find_spec("triton") is not None:
        from truepair.training.full.gpu_pair_sums import gpu_sums

        return gpu_sums
    if device.type == "cpu" and sampler.step:
        from truepair.training.full.histogram import HistogramSums, announce

        announce()
        return HistogramSums(sampler.step)
    return pair_sums
