"""Blocks of users with all their scores, and the way from gradients by scores back to vectors."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.distributed.cost import CODE, MANY_PAIRS
from truepair.losses import Row
from truepair.models.factor_matrices import free_bytes
from truepair.randomness import random_words
from truepair.sampling import Full, Matrices
from truepair.training.full.losses import RowLosses, has_row_form
from truepair.training.full.pair_sums import PairSums, Totals, UserBlock, pair_sums
from truepair.training.job import Job
from truepair.training.sampled.plan import Floats

_STREAMED_SHARE = 4  # pairs that need more than a 4th of the device's free memory are streamed


class ScoredBlock(NamedTuple):
    """A block, and what leads from gradients by scores to gradients by vectors."""

    block: UserBlock
    items: Tensor  # [A], the rows of `item_vectors` that the anchors' items have
    columns: Tensor | None  # [C], those of the items that were drawn; None if all
    user_vectors: Tensor  # [B, d]
    item_vectors: Tensor  # [n_items, d], or the rows that are needed

    def gradients(self, losses: RowLosses) -> Matrices:
        """By the vectors of users and of items, in the shapes of `user_vectors` and `item_vectors`."""
        users, items, by_score = self.user_vectors, self.item_vectors, losses.by_score
        if self.columns is None:
            places = self.block.rows * len(items) + self.items
            by_score.view(-1).index_add_(0, places, losses.by_pos)
            by_score = by_score[: len(users)]
            return by_score @ items, by_score.T @ users
        by_user = by_score @ items[self.columns]
        by_user.index_add_(0, self.block.rows, losses.by_pos[:, None] * items[self.items])
        by_item = torch.zeros_like(items)
        by_item.index_add_(0, self.columns, by_score.T @ users)
        by_item.index_add_(0, self.items, losses.by_pos[:, None] * users[self.block.rows])
        return by_user, by_item


class Selection(NamedTuple):
    """The users, anchors and columns of a block, before it is scored."""

    users: Tensor  # [B]
    starts: Tensor  # [B + 1], where the anchors of each row begin
    rows: Tensor  # [A], the row of each anchor
    items: Tensor  # [A], the anchors' items
    columns: Tensor | None  # [C], the items that were drawn; None if all
    log_weights: Tensor | None  # [C], log of the columns' weights
    needed: Tensor | None  # the items whose vectors are needed, in order; None if all
    weights: Tensor | None  # [A], the anchors' weights; None if all are 1


class Blocks:
    """The interactions on a device, and blocks of users with their scores."""

    totals: Totals | None = None
    user_counts: Tensor | None = None  # [n_users], if `counts` has only a part of the interactions
    anchor_weights: Tensor | None = None  # [n], those of the interactions as anchors; None: all are 1

    def __init__(
        self, job: Job, device: torch.device, popularity: Codes | None = None, weights: Floats | None = None
    ) -> None:
        """`popularity` [n_items] defaults to that of the job's interactions themselves.

        `weights` [n] are those of the interactions as anchors; None: all are 1.
        """
        assert isinstance(job.sampler, Full)
        data, loss, sampler, negatives = job.interactions, job.loss, job.sampler, job.negatives
        self.device, self.n_items = device, data.n_items
        self.sums = sums_for(job, device)
        counts = data.user_counts
        free = job.n_comparable
        self.negatives = None if negatives is None else torch.tensor(negatives, device=device)
        self.dislike_weight, self.dislikes = job.settings.dislike_weight, None
        if data.dislikes is not None:
            arrays = data.dislikes.user_counts, data.dislikes.indptr, data.dislikes.items
            self.dislikes = [torch.tensor(array, device=device) for array in arrays]
        self.n_unlabelled = torch.tensor(free, device=device)  # [n_users]
        if self.dislikes is not None and self.dislike_weight != 1:
            self.n_unlabelled = self.n_unlabelled.double() + (self.dislike_weight - 1) * self.dislikes[0]
        self.users = torch.as_tensor(((counts > 0) & (free > 0)).nonzero()[0], device=device)
        self.longest = int(counts.max())
        self.n_saturated_users = int(((counts > 0) & (free == 0)).sum())
        self.n_anchors = int(counts[free > 0].sum())
        self.counts = torch.tensor(counts, device=device)
        self.indptr = torch.tensor(data.indptr, device=device)
        self.keep_pairs(data, weights)
        tau = torch.tensor(getattr(loss, "tau", 0.0), dtype=torch.float64, device=device)
        self.tau = tau.expand(data.n_users) if tau.ndim == 0 else tau
        self.weights = loss.item_weights((data.n_users, data.n_items), device)
        self.n_columns = sampler.columns_of(data.n_items)
        popularity = data.item_counts if popularity is None else popularity
        self.chances = None
        if self.n_columns is not None:
            of_items = torch.as_tensor(sampler.item_weights(popularity), device=device)  # float64
            self.chances = column_chances(of_items, self.n_columns)

    def keep_pairs(self, data: Interactions, weights: Floats | None) -> None:
        """Put the items and weights of all pairs on the device."""
        self.items = torch.tensor(data.items, dtype=torch.int64, device=self.device)
        self.anchor_weights = None if weights is None else torch.tensor(weights, device=self.device)

    def select(self, users: Tensor, key: int) -> Selection:
        """The anchors and columns of a block; `key` names the random numbers that choose the columns."""
        counts = self.counts[users]
        starts = F.pad(counts.cumsum(0), (1, 0))
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), counts)
        items, weights = self.anchors(users, rows, starts)
        columns = log_weights = needed = None
        if self.chances is not None:
            columns = self.drawn(key, self.chances)
            log_weights = -self.chances[columns].log().to(torch.float32)
            needed = torch.unique(torch.cat([columns, items]))
        return Selection(users, starts, rows, items, columns, log_weights, needed, weights)

    def anchors(self, users: Tensor, rows: Tensor, starts: Tensor) -> tuple[Tensor, Tensor | None]:
        """The items and weights of a block's anchors. [A]"""
        place = torch.arange(len(rows), device=self.device) - (starts[:-1] - self.indptr[users])[rows]
        weights = None if self.anchor_weights is None else self.anchor_weights[place]
        return self.items[place], weights

    def scored(self, selection: Selection, user_vectors: Tensor, item_vectors: Tensor) -> ScoredBlock:
        """The scores of a block, from the vectors of its users and of the items that are needed."""
        users, rows, items, columns = selection.users, selection.rows, selection.items, selection.columns
        negatives = None if self.negatives is None else self.negatives[users]
        if columns is None or selection.needed is None:
            scores = user_vectors @ item_vectors.T
            own = rows * self.n_items + items
            pos = scores.view(-1)[own]
        else:
            own = self.own_places(rows, items, columns)
            negatives = None if negatives is None else negatives[:, columns]
            items, columns = (torch.searchsorted(selection.needed, some) for some in (items, columns))
            scores = user_vectors @ item_vectors[columns].T
            pos = (user_vectors[rows] * item_vectors[items]).sum(dim=1)
        low, high = -math.inf, math.inf
        if self.device.type == "cpu" and self.sums is not pair_sums:  # which makes a histogram
            low, high = self.range(scores, pos)
        scores.view(-1).index_fill_(0, own, -math.inf)
        if negatives is not None:
            scores.masked_fill_(~negatives, -math.inf)
        idle = None
        if columns is not None:
            best = scores.amax(dim=1) if len(columns) else scores.new_full((len(users),), -math.inf)
            best = best if self.totals is None else self.totals.max(best)
            idle = best == -math.inf
            scores[idle, :1] = low if math.isfinite(low) else 0.0  # whatever comes of it is not used
        block = UserBlock(
            users=users,
            scores=scores,
            pos=pos,
            rows=rows,
            starts=selection.starts,
            n_unlabelled=self.n_unlabelled[users].to(scores.dtype),
            tau=self.tau[users],
            longest=self.longest,
            log_weights=self.log_weights(selection),
            low=low,
            high=high,
            totals=self.totals,
            row_counts=None if self.user_counts is None else self.user_counts[users],
            idle=idle,
        )
        return ScoredBlock(block, items, columns, user_vectors, item_vectors)

    def log_weights(self, selection: Selection) -> Tensor | None:
        """Log of the weight of each column, [C], or [B, C] where it depends on the user."""
        if self.weights is not None:
            own = self.weights(selection.users, selection.columns)
        elif self.dislikes is not None and self.dislike_weight != 1:
            n = self.n_items if selection.columns is None else len(selection.columns)
            own = torch.zeros(len(selection.users), n, device=self.device)
        else:
            return selection.log_weights
        if self.dislikes is not None:
            places = self.disliked_places(selection.users, selection.columns)
            own.view(-1).index_fill_(0, places, math.log(self.dislike_weight))
        return own if selection.log_weights is None else own.add_(selection.log_weights)

    def disliked_places(self, users: Tensor, columns: Tensor | None) -> Tensor:
        """Where users' disliked items stand, as places in [B, C] laid end to end."""
        assert self.dislikes is not None
        all_counts, indptr, all_items = self.dislikes
        counts = all_counts[users]
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), counts)
        first = indptr[users] - (counts.cumsum(0) - counts)
        items = all_items[torch.arange(len(rows), device=self.device) + first[rows]]
        return rows * self.n_items + items if columns is None else self.own_places(rows, items, columns)

    def drawn(self, key: int, chances: Tensor) -> Tensor:
        """Items for columns, each in by its own chance."""
        words = random_words(key, (self.n_items,), self.device)
        columns = (words * 2.0**-63 < chances).nonzero()[:, 0]
        return columns if len(columns) else words.argmin()[None]

    def own_places(self, rows: Tensor, items: Tensor, columns: Tensor) -> Tensor:
        """Where users' own items stand among the drawn columns, as places in [B, C] laid end to end."""
        column_of = torch.full((self.n_items,), -1, device=self.device)
        column_of[columns] = torch.arange(len(columns), device=self.device)
        places = column_of[items]
        return (rows * len(columns) + places)[places >= 0]

    def range(self, scores: Tensor, pos: Tensor) -> tuple[float, float]:
        """Within which all scores lie."""
        low, high = math.inf, -math.inf
        for part in (scores, pos):
            if part.numel():
                least, most = part.aminmax()
                ends = np.minimum(low, float(least)), np.maximum(high, float(most))  # NaN stays NaN
                low, high = map(float, ends)
        if self.totals is not None:
            low, high = self.totals.max(scores.new_tensor([-low, high])).tolist()
            low = -low
        return low, high


def is_streamed(data: Interactions, device: torch.device) -> bool:
    """Whether the pairs stay in main memory or in their files."""
    if len(data) >= MANY_PAIRS and is_mapped(data.items):
        return True
    free = None if device.type == "cpu" else free_bytes(device)
    return free is not None and len(data) * CODE > free // _STREAMED_SHARE


def is_mapped(array: object) -> bool:
    """Whether an array is part of a mapped file."""
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None


def column_chances(weights: Tensor, n: int) -> Tensor:
    """The chance of each column to be in: in proportion to its weight, 1 at most, `n` expected in all."""
    chances = (weights * (n / weights.sum())).clamp(max=1.0)
    for _ in range(64):  # columns that are surely in leave more of `n` to the others
        sure = chances >= 1
        left = n - sure.sum()
        if left <= 0 or bool(sure.all()):
            break
        chances = torch.where(sure, 1.0, weights * (left / weights[~sure].sum())).clamp(max=1.0)
        if bool(((chances >= 1) == sure).all()):
            break
    return chances


def sums_for(job: Job, device: torch.device) -> PairSums:
    """How a job's loss compares anchors and scores."""
    rows = Row.MEAN, Row.LOG_MEAN, Row.DEBIASED_MEAN, Row.DEBIASED_HALF
    sums_pairs = has_row_form(job.loss) and job.loss.family.row in rows
    if not sums_pairs or job.weighs_dislikes:  # columns then weigh differently for each user
        return pair_sums
    if device.type == "cuda" and find_spec("triton") is not None:
        from truepair.training.full.gpu_pair_sums import gpu_sums

        return gpu_sums
    if device.type == "cpu" and isinstance(job.sampler, Full) and job.sampler.step:
        from truepair.training.full.histogram import HistogramSums

        return HistogramSums(job.sampler.step)
    return pair_sums
