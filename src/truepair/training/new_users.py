"""Folding in: vectors for new users by the same loss, while the item vectors stay fixed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.losses import InfoNCE, Loss
from truepair.models.encoders import Encoder
from truepair.randomness import stream_key
from truepair.sampling import Full, Sampler, pair_scores
from truepair.training.dislikes import draws_of, weights_at, with_dislikes
from truepair.training.full.losses import row_losses
from truepair.training.full.scoring import Blocks
from truepair.training.job import Job
from truepair.training.module_trainer import l2_of_users
from truepair.training.settings import Settings

STEPS, RATE = 60, 0.1
AT_ONCE = 256  # users whose scores are in memory at once
FEW = 16  # users; for more, the products of a block are faster than one row after the other


def fold_in(
    items: Tensor,
    encoder: Encoder,
    loss: Loss,
    sampler: Sampler,
    history: Interactions,
    settings: Settings,
    popularity: Codes,
) -> Tensor:
    """The vectors [n_users, d] of the users of `history`, whose item codes are the rows of `items`.

    Works for any encoder: whatever made the items, a user's scores are dot products with them. `popularity`
    is that of training, and its sum the number of pairs there: the losses' sum is divided by it, so that
    weight decay has the strength it had, and nobody's vector depends on who else is folded in. The weight of
    a pair counts relative to the mean weight of the user's own history, for the same reason.
    """
    device = settings.torch_device()
    job = with_dislikes(Job(encoder, loss.for_new_users(), sampler, history, settings))
    loss = job.loss
    items = items.to(device)
    width = items.shape[1] - bool(encoder.popularity)  # not encoder.dim, which may have been changed since
    rates, n_pairs = [RATE * (1 - step / STEPS) for step in range(STEPS)], float(popularity.sum())
    all_columns = isinstance(sampler, Full) and sampler.columns_of(len(items)) is None
    few = history.n_users <= FEW and items.device.type == "cpu"
    if type(loss) is InfoNCE and all_columns and few:
        from truepair.training.full.new_user_rows import fold_in_rows  # it loads Numba

        rows = fold_in_rows(items.numpy(), job, loss.temperature, n_pairs, rates)
        return encoder.scaled(torch.from_numpy(rows))
    vectors = nn.Parameter(_means(items, history)[:, :width])
    optimizer = torch.optim.Adam([vectors], lr=RATE, weight_decay=settings.weight_decay)
    of_kind = _from_rows if isinstance(sampler, Full) else _from_samples
    gradient = of_kind(items, job, popularity)
    counts = torch.tensor(history.user_counts, device=device)
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        scaled = encoder.scaled(vectors)
        by_scaled = gradient(scaled.detach(), 1 / n_pairs, stream_key(settings.seed, step))
        optimizer.zero_grad()
        penalty = l2_of_users(settings.l2_users, vectors, counts, n_pairs)
        torch.autograd.backward([scaled, penalty], [by_scaled, torch.ones_like(penalty)])
        optimizer.step()
    return encoder.scaled(vectors).detach().cpu()


# (vectors [n_users, d], share of a loss, key) -> gradient [n_users, d]
Gradient = Callable[[Tensor, float, int], Tensor]


def _from_samples(items: Tensor, job: Job, popularity: Codes) -> Gradient:
    loss, settings, history = job.loss, job.settings, job.interactions
    draws, m = draws_of(job, items.device, popularity), settings.n_extra * loss.uses_extra
    weights = weights_at(draws, history.weight_in_history)

    def gradient(vectors: Tensor, share: float, key: int) -> Tensor:
        batch = draws.batch(draws.anchors, m, settings.n_unlabelled, key, (vectors, items), by_item=True)
        rows_items = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)  # [B, 1+M+N]
        vectors.requires_grad_()
        scores = pair_scores((vectors, items), batch.users, rows_items)
        losses = loss(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], batch.users)
        total = (losses if weights is None else losses * weights[draws.anchors]).sum() * share
        return torch.autograd.grad(total, vectors)[0]

    return gradient


def _from_rows(items: Tensor, job: Job, popularity: Codes) -> Gradient:
    blocks = Blocks(job, items.device, popularity, job.interactions.weight_in_history)

    def gradient(vectors: Tensor, share: float, key: int) -> Tensor:
        found = torch.zeros_like(vectors)
        for users in torch.split(blocks.users, AT_ONCE) if len(blocks.users) else ():
            selection = blocks.select(users, key)
            item_vectors = items if selection.needed is None else items[selection.needed]
            scored = blocks.scored(selection, vectors[users], item_vectors)
            shares = torch.full_like(scored.block.pos, share)
            if selection.weights is not None:
                shares *= selection.weights
            found[users] = scored.gradients(row_losses(job.loss, scored.block, shares, blocks.sums))[0]
        return found

    return gradient


def _means(items: Tensor, history: Interactions) -> Tensor:
    """The mean of each user's items: the right direction at once, and a function of the history alone."""
    codes = history.users, history.items
    users, rows = (torch.tensor(x, dtype=torch.int64, device=items.device) for x in codes)
    sums = items.new_zeros(history.n_users, items.shape[1]).index_add_(0, users, items[rows])
    return sums / torch.bincount(users, minlength=history.n_users).clamp(min=1)[:, None]
