"""Samplers: frozen descriptions of how the unlabelled items of a data entry are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from truepair.data.ids import Codes
from truepair.distributed.cost import columns_of
from truepair.errors import InputError, check_number, check_whole, settle
from truepair.sampling.draws import Batch, Draws, Matrices, Sampler, pair_scores

LARGEST_POOL = 2_000_000
"""Twice the largest `n_unlabelled`."""


@dataclass(frozen=True)
class Uniform(Sampler):
    """Uniform over the items the user has no interaction with."""


class _ByPopularity(Sampler):
    """Items weigh popularity^alpha."""

    alpha: float

    def item_weights(self, popularity: Codes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """popularity^alpha, relative to the most popular item's."""
        log = np.log(np.maximum(popularity, 1))
        return np.asarray(np.exp(self.alpha * (log - log.max())))


@dataclass(frozen=True)
class Popularity(_ByPopularity):
    """Proportional to popularity^alpha over the user's unlabelled items; alpha = 0 is uniform.

    An item never seen in training counts as seen once.
    """

    alpha: float = 0.75

    def __post_init__(self) -> None:
        settle(self, alpha=check_number("alpha", self.alpha, 0))


@dataclass(frozen=True)
class _Pooled(Sampler):
    """The N best, by score, of `pool` uniform unlabelled candidates."""

    needs_scores: ClassVar[bool] = True
    pool: int

    def __post_init__(self) -> None:
        settle(self, pool=check_whole("pool", self.pool, 2, LARGEST_POOL))

    def candidates(self, n: int) -> int:
        """The pool."""
        if n >= self.pool:
            raise InputError(
                f"n_unlabelled = {n} of a pool of {self.pool} is no choice; raise pool, or lower "
                "n_unlabelled."
            )
        return self.pool


@dataclass(frozen=True)
class DNS(_Pooled):
    """Dynamic sampling: of `pool` uniform unlabelled candidates, the N with the highest scores."""

    pool: int = 32

    def choose(self, pairs: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The hardest: highest scores first."""
        scores = pair_scores(matrices, batch.users, batch.unlabelled)
        return _best(-scores, batch.unlabelled, n)


@dataclass(frozen=True)
class BNS(_Pooled):
    """Bayesian sampling: of `pool` uniform candidates l, the N with the least info·(1 − (1+λ)·unbias).

    info = 1 − σ(s⁺ − s_l);  unbias = (1−F)(1−p) / (1 − F − p + 2Fp), the posterior chance that l is a true
    negative; F = share of the user's unlabelled items that score ≤ s_l;  p = popularity_l / Σ popularity.
    With `in_batch` F is estimated on one candidate of each row of the batch instead of the whole catalogue.
    """

    pool: int = 5
    weight: float = 5.0  # λ
    in_batch: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, weight=check_number("weight", self.weight, 0))

    def choose(self, pairs: Draws, batch: Batch, n: int, matrices: Matrices) -> Tensor:
        """The least risk."""
        users, candidates = batch.users, batch.unlabelled
        scores = pair_scores(matrices, users, candidates)  # [B, C]
        info = torch.sigmoid(scores - pair_scores(matrices, users, batch.pos[:, None]))
        others = candidates[:, 0] if self.in_batch else torch.arange(pairs.n_items, device=users.device)
        other_scores = matrices[0][users] @ matrices[1][others].T  # [B, R]
        known = pairs.known(users[:, None], others) if self.in_batch else pairs.known_mask(users)  # [B, R]
        below = torch.where(known, torch.inf, other_scores)
        f = torch.stack(
            [  # an item counts itself, whatever the last bit of the two ways to score it says
                ((below <= s[:, None]) | (others == item[:, None])).sum(dim=1)
                for s, item in zip(scores.unbind(dim=1), candidates.unbind(dim=1), strict=True)
            ],
            dim=1,
        )
        f = f / (~known).sum(dim=1, keepdim=True)
        p = pairs.popularity[candidates]
        negative, positive = (1 - f) * (1 - p), f * p
        # 0/0 (the top score on an item nobody has): the two pieces of evidence cancel
        unbias = torch.where(negative + positive > 0, negative / (negative + positive), 0.5)
        return _best(info * (1 - (1 + self.weight) * unbias), candidates, n)


@dataclass(frozen=True)
class Full(_ByPopularity):
    """The full catalogue: nothing is drawn, and a user's anchors are compared with all items at once.

    The extra positives are all of the user's items, the unlabelled ones all others, whatever `n_extra` and
    `n_unlabelled` say. A batch is a block of users with all their items, so that `batch_size` counts users.

    columns  for a large catalogue: the number of items that are drawn for each block to represent all;
             None: the whole catalogue up to MOST_COLUMNS items, else DRAWN_COLUMNS of them
    alpha    columns are drawn in proportion to popularity^alpha, and weighted by the inverse
    step     on the CPU, pairwise losses use a histogram of each user's scores with cells of this width, in
             units of the score (PSL: of its temperature, if that is below 1); the relative error of a sum
             is about step²/4, and more at low temperatures: see docs/full-catalogue.md. 0 computes every pair
    """

    columns: int | None = None
    alpha: float = 0.75
    step: float = 1 / 32

    def __post_init__(self) -> None:
        if self.columns is not None:
            settle(self, columns=check_whole("columns", self.columns, 1))
        settle(self, alpha=check_number("alpha", self.alpha, 0), step=check_number("step", self.step, 0, 1))

    def columns_of(self, n_items: int) -> int | None:
        """How many columns to draw of a catalogue; None if all are used."""
        n_columns = columns_of(n_items, self.columns)
        return n_columns if n_columns < n_items else None


def _best(criterion: Tensor, candidates: Tensor, n: int) -> Tensor:
    """The `n` candidates of least criterion; of equal ones the first drawn."""
    return candidates.gather(1, criterion.argsort(dim=1, stable=True)[:, :n])


SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "popularity": Popularity,
    "dns": DNS,
    "bns": BNS,
    "full": Full,
}
