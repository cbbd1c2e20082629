"""Folding in: vectors for new users, by the same loss, with the item vectors held fixed."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.encoders import Encoder
from truepair.losses import Loss
from truepair.randomness import stream_key
from truepair.sampling import Draws, Sampler, pair_scores
from truepair.training.settings import Settings

STEPS, RATE = 60, 0.1


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
    weight decay has the strength it had, and nobody's vector depends on who else is folded in.
    """
    device = settings.torch_device()
    items, draws = items.to(device), Draws(history, sampler, device, popularity)
    loss = _of_strangers(loss)
    vectors = nn.Parameter(_means(items, history))
    optimizer = torch.optim.Adam([vectors], lr=RATE, weight_decay=settings.weight_decay)
    m = settings.n_extra if loss.uses_extra else 0
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        matrices = _scaled(vectors, encoder), items
        key = stream_key(settings.seed, step)
        seen_by_sampler = matrices[0].detach(), items
        batch = draws.batch(draws.anchors, m, settings.n_unlabelled, key, seen_by_sampler, by_item=True)
        rows_items = torch.cat([batch.pos[:, None], batch.extra, batch.unlabelled], dim=1)  # [B, 1+M+N]
        scores = pair_scores(matrices, batch.users, rows_items)
        total = loss(scores[:, 0], scores[:, 1 : 1 + m], scores[:, 1 + m :], batch.users).sum()
        total = total + settings.l2_users / 2 * vectors[batch.users].square().sum()
        optimizer.zero_grad()
        (total / float(popularity.sum())).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return _scaled(vectors, encoder).detach().cpu()


def _scaled(vectors: Tensor, encoder: Encoder) -> Tensor:
    return F.normalize(vectors) / encoder.temperature if encoder.scoring == "cosine" else vectors


def _of_strangers(loss: Loss) -> Loss:
    """With one prior per user of training, new people get their mean."""
    tau = getattr(loss, "tau", None)
    return replace(loss, tau=sum(tau) / len(tau)) if isinstance(tau, tuple) else loss  # type: ignore[type-var]


def _means(items: Tensor, history: Interactions) -> Tensor:
    """The mean of each user's items: the right direction at once, and a function of the history alone."""
    users, rows = (torch.tensor(x, device=items.device) for x in (history.users, history.items))
    sums = items.new_zeros(history.n_users, items.shape[1]).index_add_(0, users, items[rows])
    return sums / torch.bincount(users, minlength=history.n_users).clamp(min=1)[:, None]
