"""Small interactions that several tests share."""

import numpy as np
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.losses.positive_probability import Posterior


def interactions_of(rows, n_items):
    """Interactions from a list of item lists, one a user."""
    users = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    items = np.concatenate([np.asarray(r, dtype=int) for r in rows])
    return Interactions(users, items, IdMap.range(len(rows)), IdMap.range(n_items))


def two_tastes(n_users=40, n_items=30, each=6, seed=0):
    """Even users like even items, odd users odd ones; all have `each` of their half."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(np.arange(u % 2, n_items, 2), each, replace=False) for u in range(n_users)]
    users = np.repeat(np.arange(n_users), each)
    return Interactions(users, np.concatenate(rows), IdMap.range(n_users), IdMap.range(n_items))


def posterior_of(data, dim=3, seed=0):
    """What a first model with vectors by chance would say, r rising from 0.1 to 8."""
    chance = torch.Generator().manual_seed(seed)
    users, items = (torch.randn(n, dim, generator=chance) for n in (data.n_users, data.n_items))
    scores = users @ items.T
    ratio = torch.linspace(-2.3, 2.1, 64).exp()
    ends = torch.tensor([-2.0, 2.0])
    return Posterior(users, items, scores.mean(dim=1), scores.std(dim=1), ratio, ends)


def distinctive(rows, popularity):
    """Unit vectors without the mean and the main direction of popular items, by singular values."""
    unit = rows.numpy().astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unit -= np.average(unit, axis=0, weights=popularity)
    main = np.linalg.svd(unit * np.sqrt(popularity)[:, None])[2][0]
    unit -= np.outer(unit @ main, main)
    return torch.from_numpy(unit / np.linalg.norm(unit, axis=1, keepdims=True)).float()
