"""Batches of the paper's data entries (u, i, i₁…i_M, j₁…j_N), and the order of an epoch."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import torch
from torch import Tensor

from truepair.randomness import random_words, stream_key

Matrices = tuple[Tensor, Tensor]  # users [n_users, d], items [n_items, d]; a score is their dot product


class Batch(NamedTuple):
    """The paper's data entries, as codes. BPR is M = 0, N = 1."""

    users: Tensor  # [B]
    pos: Tensor  # [B]     the anchor's item
    extra: Tensor  # [B, M]  more items of the same user, with replacement; the anchor may be among them
    unlabelled: Tensor  # [B, N]  items the user has no interaction with


def pair_scores(matrices: Matrices, users: Tensor, items: Tensor) -> Tensor:
    """The scores of users [B] with their items [B, C]: [B, C]."""
    return torch.einsum("bd,bcd->bc", matrices[0][users], matrices[1][items])


def epoch_order(values: Tensor, seed: int, epoch: int) -> Tensor:
    """The values in the order of (seed, epoch), the same on every device."""
    words = random_words(stream_key(seed, epoch), (len(values),), values.device)
    return values[words.argsort(stable=True)]


def epoch_batches(values: Tensor, seed: int, epoch: int, batch_size: int) -> Generator[Tensor]:
    """All values once, in the order of (seed, epoch), in pieces of `batch_size`."""
    order = epoch_order(values, seed, epoch)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]
