"""The encoder Hybrid: against dense matrices, equal in both engines, MF without features, resumed."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from truepair.data.tables.features import FeatureEncoding, Features
from truepair.errors import InputError, StorageError
from truepair.losses import BPR, DPL, InfoNCE
from truepair.models.encoders import MF, Hybrid
from truepair.sampling import DNS, Full, Uniform
from truepair.training import Job, Settings, choose_engine, fit
from truepair.training.full.trainer import FullTrainer
from worlds import two_tastes

CPU = torch.device("cpu")
NOTHING = FeatureEncoding(())
SETTINGS = Settings(
    epochs=3, batch_size=8, n_extra=2, n_unlabelled=3, learning_rate=0.02, seed=3, device="cpu"
)


def random_features(n, width, seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((n, width)) < 0.4, rng.normal(size=(n, width)), 0.0).astype(np.float32)
    return Features(sp.csr_array(dense), NOTHING)


@pytest.fixture(scope="module")
def data():
    return two_tastes(n_users=40, n_items=30, each=6)


@pytest.fixture(scope="module")
def hybrid():
    return Hybrid(dim=8, user_features=random_features(40, 3, 1), item_features=random_features(30, 5, 2))


def test_vectors_and_gradients_are_those_of_dense_matrices(data, hybrid):
    for changes in ({}, {"scoring": "cosine", "temperature": 0.3, "popularity": 0.5}):
        encoder = dataclasses.replace(hybrid, **changes)
        started = encoder.start(data, 1, CPU)
        names = ["user", "item", "user_features", "item_features"]
        assert [name for name, _ in started.named_parameters()] == names
        mine = [started.get_parameter(name) for name in names]
        exact = [one.detach().double().requires_grad_() for one in mine]
        tables = [
            torch.from_numpy(some.matrix.toarray()).double()
            for some in (hybrid.user_features, hybrid.item_features)
        ]
        users, items = (exact[side] + tables[side] @ exact[side + 2] for side in (0, 1))
        if encoder.scoring == "cosine":
            users = torch.nn.functional.normalize(users) / 0.3
            items = torch.nn.functional.normalize(items)
        scores = users @ items.T
        if encoder.popularity:
            scores = scores + 0.5 * torch.tensor(data.item_counts, dtype=torch.float64).log1p()
        found = started()
        torch.testing.assert_close((found[0] @ found[1].T).double(), scores, rtol=1e-5, atol=1e-5)
        weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(2)).double()
        ours = torch.autograd.grad((weights.float() * (found[0] @ found[1].T).sin()).sum(), mine)
        oracle = torch.autograd.grad((weights * scores.sin()).sum(), exact)
        for a, b in zip(ours, oracle, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", [InfoNCE(), BPR(), DPL(tau=0.05)], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("changes", [{}, {"l2_items": 0.01, "l2_users": 0.02}], ids=["plain", "l2"])
def test_the_full_engine_equals_the_reference(data, hybrid, loss, changes):
    encoder = dataclasses.replace(hybrid, scoring="cosine", temperature=0.5, popularity=0.4)
    settings = dataclasses.replace(SETTINGS, **changes)
    one, other = (
        fit(
            Job(encoder, loss, Full(step=0.0) if not isinstance(loss, InfoNCE) else Full(), data, settings),
            engine=name,
        )
        for name in ("reference", "full")
    )
    torch.testing.assert_close(one.users, other.users, rtol=2e-3, atol=2e-4)
    torch.testing.assert_close(one.items, other.items, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    "sampler", [Full(), Uniform(), DNS(pool=8)], ids=lambda sampler: type(sampler).__name__
)
def test_without_feature_columns_it_is_mf(data, sampler):
    empty = [Features(sp.csr_array((n, 0), dtype=np.float32), NOTHING) for n in (40, 30)]
    engine = "full" if isinstance(sampler, Full) else "reference"
    results = [
        fit(Job(encoder, InfoNCE(), sampler, data, SETTINGS), engine=engine)
        for encoder in (MF(dim=8), Hybrid(dim=8), Hybrid(8, user_features=empty[0], item_features=empty[1]))
    ]
    for other in results[1:]:
        assert torch.equal(results[0].users, other.users)
        assert torch.equal(results[0].items, other.items)


def test_it_learns_from_features_what_free_vectors_cannot_know(data, hybrid):
    """Items of one taste share a feature: its vector alone tells them apart from the others."""
    taste = np.zeros((30, 2), np.float32)
    taste[np.arange(30), np.arange(30) % 2] = 1
    encoder = Hybrid(dim=8, item_features=Features(sp.csr_array(taste), NOTHING))
    trainer = FullTrainer(Job(encoder, InfoNCE(), Full(), data, dataclasses.replace(SETTINGS, epochs=20)))
    for epoch in range(20):
        trainer.train(epoch, 0.05, lambda steps: None)
    users = trainer.matrices()[0]
    even, odd = trainer.model.get_parameter("item_features").detach()
    likes_even = (users @ (even - odd) > 0).numpy()
    assert (likes_even == (np.arange(40) % 2 == 0)).mean() > 0.95


def test_fused_engines_refuse_it_and_name_those_that_work(data, hybrid):
    job = Job(hybrid, BPR(), Uniform(), data, SETTINGS)
    by_sgd = dataclasses.replace(job, settings=dataclasses.replace(SETTINGS, optimizer="sgd"))
    with pytest.raises(InputError, match=r"no encoder Hybrid; .* Use reference, or 'auto'"):
        choose_engine(by_sgd, "cpu")
    assert choose_engine(job) == "reference"
    assert choose_engine(dataclasses.replace(job, sampler=Full())) == "full"


def test_features_of_other_interactions_are_an_error(data, hybrid):
    wrong = dataclasses.replace(hybrid, item_features=random_features(29, 5, 2))
    with pytest.raises(InputError, match="features of 29 items, and the interactions have 30"):
        wrong.start(data, 0, CPU)


def test_an_interrupted_run_goes_on_to_the_bit_and_not_with_other_features(tmp_path, data, hybrid):
    settings = dataclasses.replace(SETTINGS, epochs=4, schedule="constant")
    whole = fit(Job(hybrid, InfoNCE(), Full(), data, settings))
    short = Job(hybrid, InfoNCE(), Full(), data, dataclasses.replace(settings, epochs=2))
    fit(short, checkpoint=tmp_path / "c")
    again = fit(Job(hybrid, InfoNCE(), Full(), data, settings), checkpoint=tmp_path / "c")
    assert torch.equal(whole.items, again.items)
    assert torch.equal(whole.users, again.users)
    other = dataclasses.replace(hybrid, item_features=random_features(30, 5, 9))
    with pytest.raises(StorageError, match=r"another run: encoder\.item_features was"):
        fit(Job(other, InfoNCE(), Full(), data, settings), checkpoint=tmp_path / "c")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_cuda_is_equal_up_to_rounding(data, hybrid):
    encoder = dataclasses.replace(hybrid, scoring="cosine", temperature=0.5, popularity=0.4)
    one, other = (
        fit(
            Job(encoder, InfoNCE(), Full(), data, dataclasses.replace(SETTINGS, device=device)), engine="full"
        )
        for device in ("cpu", "cuda")
    )
    torch.testing.assert_close(one.items, other.items, rtol=5e-3, atol=5e-4)
    torch.testing.assert_close(one.users, other.users, rtol=5e-3, atol=5e-4)
