"""Losses of positions and their gradients, in chunks: scores of all positions are never in memory at once.

A row is a position: its vector is a state, its anchor the item of the next event. Gradients are computed with
the values, chunk by chunk, so that nothing is kept for a backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor

from truepair.losses import Loss, Rows

CELLS = 1 << 25  # scores, or numbers of vectors, that are in memory at once


class Gradients(NamedTuple):
    """Of each position its loss, and whether it met the loss's floor; gradients of Σ share · loss."""

    losses: Tensor  # [R]
    clamped: Tensor | None  # [R]
    by_states: Tensor  # [R, d]
    by_items: Tensor  # [n_items, d]


class Columns(NamedTuple):
    """Sampled items that represent the catalogue, and the logs of their weights in its sum."""

    items: Tensor  # [C]
    log_weights: Tensor  # [C]


def chunks(n: int, width: int, cells: int = CELLS) -> Iterator[slice]:
    """Rows of this width, as many at a time as have `cells` numbers."""
    size = max(1, cells // max(width, 1))
    for start in range(0, n, size):
        yield slice(start, start + size)


def softmax_gradients(
    states: Tensor,
    items: Tensor,
    targets: Tensor,
    shares: Tensor,
    temperature: float = 1.0,
    columns: Columns | None = None,
    cells: int = CELLS,
) -> Gradients:
    """InfoNCE of each state with its target against all other items: log Σ_i e^{s_i/t} − s⁺/t.

    With `columns`, sampled items stand for all but the target, each with its weight. On CUDA products are in
    bfloat16 with float32 sums.
    """
    low = torch.bfloat16 if states.device.type == "cuda" else states.dtype
    candidates = (items if columns is None else items[columns.items]).to(low)  # [C, d]
    losses, by_states = states.new_empty(len(states)), torch.empty_like(states)
    by_candidates = items.new_zeros(candidates.shape)
    anchors = items[targets]  # [R, d]
    own = (states * anchors).sum(dim=1) / temperature  # [R]
    own_share = torch.empty_like(own)  # of the sum
    for part in chunks(len(states), len(candidates), cells):
        some, target = states[part].to(low), targets[part, None]
        scores = (some @ candidates.T).to(states.dtype).div_(temperature)  # [r, C]
        if columns is None:
            scores.scatter_(1, target, -math.inf)
        else:
            scores.add_(columns.log_weights).masked_fill_(columns.items == target, -math.inf)
        highest = torch.maximum(scores.amax(dim=1), own[part])
        scores.sub_(highest[:, None]).exp_()
        anchor = (own[part] - highest).exp()
        total = scores.sum(dim=1) + anchor
        losses[part] = total.log() + highest - own[part]
        own_share[part] = anchor / total
        scores.mul_((shares[part] / temperature / total)[:, None])
        weights = scores.to(low)
        by_states[part] = (weights @ candidates).to(states.dtype)
        by_candidates += (weights.T @ some).to(states.dtype)
    by_own = ((own_share - 1) * shares / temperature)[:, None]  # [R, 1]
    by_states += by_own * anchors
    by_items = by_candidates
    if columns is not None:
        by_items = torch.zeros_like(items).index_add_(0, columns.items, by_candidates)
    return Gradients(losses, None, by_states, by_items.index_add_(0, targets, by_own * states))


def row_gradients(
    states: Tensor,
    items: Tensor,
    shares: Tensor,
    width: int,
    rows_of: Callable[[slice, Tensor, Tensor], Rows],
) -> Gradients:
    """Any loss, by autograd: `rows_of` gives the losses of a slice of states, which has `width` numbers a row
    in memory."""
    losses, by_states, by_items = (
        shares.new_empty(len(states)),
        torch.empty_like(states),
        torch.zeros_like(items),
    )
    clamped: list[Tensor] = []
    leaf = items.detach().requires_grad_()
    for part in chunks(len(states), width, CELLS // 4):
        some = states[part].detach().requires_grad_()
        rows = rows_of(part, some, leaf)
        of_states, of_items = torch.autograd.grad((rows.loss * shares[part]).sum(), (some, leaf))
        losses[part], by_states[part] = rows.loss.detach(), of_states
        by_items += of_items
        clamped += [] if rows.clamped is None else [rows.clamped]
    return Gradients(losses, torch.cat(clamped) if clamped else None, by_states, by_items)


def catalogue_rows(loss: Loss, states: Tensor, items: Tensor, targets: Tensor, users: Tensor) -> Rows:
    """The losses of states against all items but their targets."""
    scores = states @ items.T
    others = torch.arange(scores.shape[1] - 1, device=scores.device).expand(len(scores), -1)
    others = others + (others >= targets[:, None])
    return loss.rows(scores.gather(1, targets[:, None])[:, 0], None, scores.gather(1, others), users)


def sampled_rows(
    loss: Loss, states: Tensor, items: Tensor, candidates: Tensor, m: int, users: Tensor
) -> Rows:
    """The losses of states with their target, m later items and sampled ones: candidates [r, 1 + M + N]."""
    scores = torch.einsum("rd,rcd->rc", states, F.embedding(candidates, items))
    return loss.rows(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], users)
