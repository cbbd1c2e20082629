"""Small blocks of users with all their scores, and what the losses themselves say of them."""

import math

import torch

from truepair.training.full.losses import row_losses
from truepair.training.full.pair_sums import POWER, SIGMOID, SOFTPLUS, Kernel, UserBlock, pair_sums

KERNELS = [
    Kernel(SIGMOID),
    Kernel(SIGMOID, margin=1.5),
    Kernel(SOFTPLUS),
    Kernel(POWER, 0.4),
    Kernel(POWER, 2.5),
    Kernel(POWER, 2.5, margin=0.5),
]
OPTIONS = [(0.0, False), (0.7, False), (0.0, True), (1.3, True)]  # β, whether columns have weights
TAUS = (0.0, 0.1, 0.3, 0.05, 0.6, 0.2)  # one for each user of a small world


def world(scale=2.0, n_items=14, seed=0):
    """Scores [6, n_items] in float64, and whose items they are: one, all but one, and some."""
    chance = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(6, n_items, generator=chance, dtype=torch.float64)
    known = torch.rand(6, n_items, generator=chance) < 0.3
    known[0], known[1] = False, True
    known[0, 3], known[1, 4], known[2:, 0], known[2:, 1] = True, False, True, False
    return scores, known


def shares_of(known):
    """An anchor's share in the gradient: all different, so that none is taken for another."""
    return 0.01 * torch.arange(1, int(known.sum()) + 1, dtype=torch.float64)


def block_of(scores, known, dtype=torch.float64, tau=TAUS, **changes):
    """The block of these scores."""
    counts = known.sum(dim=1)
    block = UserBlock(
        users=torch.arange(len(scores)),
        scores=scores.masked_fill(known, -math.inf).to(dtype),
        pos=scores[known].to(dtype),
        rows=known.nonzero()[:, 0],
        starts=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        n_unlabelled=(~known).sum(dim=1).to(dtype),
        tau=torch.tensor(tau, dtype=dtype).expand(len(scores)),
        longest=int(counts.max()),
        low=float(scores.to(dtype).min()),
        high=float(scores.to(dtype).max()),
    )
    return block._replace(**changes)


def told(loss, block, known, sums=pair_sums):
    """(loss [A], clamped [A] or None, gradient by all scores [B, C]) by the row forms; the block is kept."""
    share = shares_of(known).to(block.pos.dtype)
    found = row_losses(loss, block._replace(scores=block.scores.clone()), share, sums)
    assert (found.by_score[known] == 0).all()
    gradient = found.by_score.clone()
    gradient[known] = found.by_pos
    return found.loss, found.clamped, gradient


def defined(loss, scores, known):
    """The same by `losses`: each anchor with all of its user's items and all others."""
    scores, rows = scores.clone().requires_grad_(), []
    for user, (row, mask) in enumerate(zip(scores, known, strict=True)):
        own, others = row[mask], row[~mask]
        extra = own.expand(len(own), -1) if loss.uses_extra else own.new_zeros(len(own), 0)
        users = torch.full((len(own),), user)
        rows.append(loss.rows(own, extra, others.expand(len(own), -1), users))
    losses = torch.cat([each.loss for each in rows])
    (gradient,) = torch.autograd.grad((losses * shares_of(known)).sum(), scores)
    clamped = None if rows[0].clamped is None else torch.cat([each.clamped for each in rows])
    return losses.detach(), clamped, gradient


def weighted(block, wanted):
    """The block, with weights for its columns where they are wanted."""
    drawn = torch.randn(block.scores.shape[1], generator=torch.Generator().manual_seed(3))
    return block._replace(log_weights=drawn.to(block.pos.dtype) if wanted else None)


def summed(sums, block, kernel, beta=0.0):
    """F and D over the unlabelled and over the user's own, and both ways back, as one list."""
    block = block._replace(scores=block.scores.clone())
    alpha = shares_of(block.scores == -math.inf).to(block.pos.dtype)  # positive, as all of DPL's and BPR's
    unlabelled, own = sums(block, kernel, beta, True)
    parts = [unlabelled.value, unlabelled.slope, own.value, own.slope]
    return [*parts, own.spread(alpha), unlabelled.spread(alpha)]


def both(scale, wanted=False, n_items=60):
    """The same block in float32 and in float64."""
    scores, known = world(scale, n_items)
    exact = weighted(block_of(scores.float().double(), known), wanted)
    single = block_of(scores, known, torch.float32)
    return single._replace(log_weights=exact.log_weights.float() if wanted else None), exact
