"""Small interactions that several tests share."""

import numpy as np
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions


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


def distinctive(rows, popularity):
    """Unit vectors without the mean and the main direction of popular items, by singular values."""
    unit = rows.numpy().astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unit -= np.average(unit, axis=0, weights=popularity)
    main = np.linalg.svd(unit * np.sqrt(popularity)[:, None])[2][0]
    unit -= np.outer(unit @ main, main)
    return torch.from_numpy(unit / np.linalg.norm(unit, axis=1, keepdims=True)).float()
