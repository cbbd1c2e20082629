"""Folding in one person at a time gives the vectors of the steps in PyTorch."""

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.losses import InfoNCE
from truepair.models.encoders import MF
from truepair.sampling import Full
from truepair.training import Settings, new_users


def history(weights=False, dislikes=False):
    rng = np.random.default_rng(3)
    users, items = np.nonzero(rng.random((4, 30)) < 0.2)
    weight = rng.uniform(0.5, 4, len(users)) if weights else None
    keys = users * 30 + items
    disliked = np.setdiff1d(np.array([1, 7, 31, 65, 66, 110]), keys) if dislikes else None
    return Interactions(users, items, IdMap.range(4), IdMap.range(30), weight=weight, disliked=disliked)


@pytest.mark.parametrize(
    ("encoder", "settings", "data"),
    [
        (MF(dim=5), {}, {}),
        (MF(dim=5, scoring="cosine", temperature=0.15), {}, {}),
        (MF(dim=5, scoring="cosine", temperature=0.2, popularity=0.6), {}, {"weights": True}),
        (MF(dim=5, popularity=0.3), {"weight_decay": 1e-3, "l2_users": 0.05}, {}),
        (
            MF(dim=5, scoring="cosine", temperature=0.2),
            {"dislike_weight": 3.0},
            {"dislikes": True, "weights": True},
        ),
        (MF(dim=5), {"dislike_weight": 1.0}, {"dislikes": True}),
    ],
    ids=str,
)
def test_rows_are_those_of_the_steps_in_pytorch(encoder, settings, data, monkeypatch):
    pairs = history(**data)
    popularity = np.arange(1, 31) * 3
    items = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    if encoder.scoring == "cosine":
        items = torch.nn.functional.normalize(items)
    if encoder.popularity:
        items = torch.cat(
            [items, torch.from_numpy(popularity).float().log1p()[:, None] * encoder.popularity], 1
        )
    job = (
        items,
        encoder,
        InfoNCE(temperature=0.8),
        Full(),
        pairs,
        Settings(device="cpu", **settings),
        popularity,
    )
    found = new_users.fold_in(*job)
    monkeypatch.setattr(new_users, "FEW", 0)
    expected = new_users.fold_in(*job)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=2e-4), (found - expected).abs().max()


def test_nobodys_row_depends_on_others():
    pairs, items = history(), torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    rest = MF(dim=5, scoring="cosine", temperature=0.15), InfoNCE(), Full()
    together = new_users.fold_in(items, *rest, pairs, Settings(device="cpu"), np.ones(30, int))
    own = pairs.items_of(2)
    one = Interactions(np.zeros(len(own), int), own, IdMap.range(1), IdMap.range(30))
    alone = new_users.fold_in(items, *rest, one, Settings(device="cpu"), np.ones(30, int))
    assert torch.equal(together[2], alone[0])
