"""Sequences on CUDA: products in bfloat16 with float32 sums, near the CPU's. Skipped without a device."""

import dataclasses

import numpy as np
import pytest
import torch

from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_leave_last_out
from truepair.evaluation import Validation
from truepair.losses import DPL, SL, InfoNCE
from truepair.models.encoders import Recurrence, SASRec
from truepair.sampling import Full, Uniform
from truepair.training import Job, Settings, fit
from truepair.training.sequences.losses import Columns, softmax_gradients

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("n_columns", [None, 500])
def test_the_softmax_is_near_that_in_float64(n_columns):
    generator = torch.Generator().manual_seed(0)
    states, items = (torch.randn(n, 64, generator=generator, dtype=torch.float64) for n in (700, 3000))
    targets = torch.randint(3000, (700,), generator=generator)
    shares = torch.rand(700, generator=generator, dtype=torch.float64)
    columns = moved = None
    if n_columns:
        columns = Columns(torch.randint(3000, (n_columns,), generator=generator), torch.zeros(n_columns))
        moved = Columns(*(part.cuda() for part in columns))
    wanted = softmax_gradients(states, items, targets, shares, columns=columns)
    on_device = (each.cuda() for each in (states.float(), items.float(), targets, shares.float()))
    found = softmax_gradients(*on_device, columns=moved)
    for name in ("losses", "by_states", "by_items"):
        ours, theirs = getattr(found, name).double().cpu(), getattr(wanted, name)
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


@pytest.mark.parametrize("kind", [SASRec, Recurrence])
@pytest.mark.parametrize(
    ("loss", "sampler"),
    [(InfoNCE(), Full()), (InfoNCE(), Full(columns=12)), (SL(), Full()), (DPL(tau=0.05), Uniform())],
)
def test_the_next_item_is_learnt(kind, loss, sampler, tmp_path):
    starts, steps = np.arange(200)[:, None] % 20, np.arange(8)
    rows = {"user": np.repeat(np.arange(200), 8), "item": ((starts + steps) % 20).ravel()}
    data = read_interactions({**rows, "time": np.tile(steps, 200)})
    split = split_leave_last_out(data)
    settings = Settings(epochs=20, batch_size=16, learning_rate=0.01, device="cuda")
    job = Job(kind(dim=16, dropout=0.1), loss, sampler, split.train, settings)
    validation = Validation(split.test, split.train, "ndcg@5")
    result = fit(job, validation, checkpoint=tmp_path / "c")
    assert validation.score(result.users, result.items) > 0.6
    longer = dataclasses.replace(job, settings=dataclasses.replace(settings, epochs=22))
    assert len(fit(longer, validation, checkpoint=tmp_path / "c").history) == 22
