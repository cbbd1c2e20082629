"""Posteriors that several tests share."""

import torch

from truepair_lab.posterior.positive_probability import Posterior


def posterior_of(data, dim=3, seed=0):
    """What a first model with vectors by chance would say, r rising from 0.1 to 8."""
    chance = torch.Generator().manual_seed(seed)
    users, items = (torch.randn(n, dim, generator=chance) for n in (data.n_users, data.n_items))
    scores = users @ items.T
    ratio = torch.linspace(-2.3, 2.1, 64).exp()
    ends = torch.tensor([-2.0, 2.0])
    return Posterior(users, items, scores.mean(dim=1), scores.std(dim=1), ratio, ends)
