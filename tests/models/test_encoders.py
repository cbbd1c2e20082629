"""Encoders against dense matrices, in value and gradient."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.models.encoders import ENCODERS, MF, LightGCN

CPU = torch.device("cpu")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    dense = rng.random((9, 7)) < 0.4
    dense[3], dense[:, 5] = False, False  # a user and an item without interactions
    users, items = np.nonzero(dense)
    return Interactions(users, items, IdMap.range(9), IdMap.range(7))


def dense_lightgcn(data, users, items, hops):
    """Mean of Âᵏ E with the (n_users + n_items)² matrix written out."""
    n = data.n_users + data.n_items
    a = torch.zeros(n, n, dtype=torch.float64)
    r = torch.from_numpy(data.csr().toarray()).double()
    a[: data.n_users, data.n_users :], a[data.n_users :, : data.n_users] = r, r.T
    d = a.sum(1)
    scale = torch.where(d > 0, d, 1.0) ** -0.5
    a = scale[:, None] * a * scale[None, :]
    e = torch.cat([users, items])
    mean = sum(torch.linalg.matrix_power(a, k) @ e for k in range(hops + 1)) / (hops + 1)
    return mean[: data.n_users], mean[data.n_users :]


@pytest.mark.parametrize("hops", [0, 1, 2, 3, 5])
def test_lightgcn_equals_the_dense_matrix_in_value_and_gradient(data, hops):
    started = LightGCN(dim=4, hops=hops).start(data, seed=1, device=CPU)
    users, items = (x.detach().double().requires_grad_() for x in (started.user, started.item))
    weights = [
        torch.randn(x.shape, generator=torch.Generator().manual_seed(2)).double() for x in (users, items)
    ]
    ours, theirs = started(), dense_lightgcn(data, users, items, hops)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)

    def objective(pair):
        return sum((w * x.sin()).sum() for w, x in zip(weights, pair, strict=True))

    mine = torch.autograd.grad(objective(ours), [started.user, started.item])
    oracle = torch.autograd.grad(objective(theirs), [users, items])
    for a, b in zip(mine, oracle, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def test_no_hops_is_mf(data):
    for a, b in zip(
        LightGCN(dim=4, hops=0).start(data, 3, CPU)(), MF(dim=4).start(data, 3, CPU)(), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", [MF, LightGCN])
def test_cosine_scores_are_cosines_over_the_temperature(data, kind):
    plain = kind(dim=4).start(data, 0, CPU)
    cosine = kind(dim=4, scoring="cosine", temperature=0.2).start(data, 0, CPU)
    u, v = (x.detach() for x in plain())
    expected = torch.nn.functional.cosine_similarity(u[:, None], v[None], dim=-1) / 0.2
    users, items = cosine()
    torch.testing.assert_close((users @ items.T).detach(), expected)


def test_cosine_of_a_zero_vector_is_zero_not_nan(data):
    started = MF(dim=4, scoring="cosine").start(data, 0, CPU)
    with torch.no_grad():
        started.user[2] = 0
    assert torch.equal(started()[0][2], torch.zeros(4))


@pytest.mark.parametrize("kind", [MF, LightGCN])
@pytest.mark.parametrize("scoring", ["dot", "cosine"])
def test_popularity_is_added_to_every_score(data, kind, scoring):
    plain = kind(dim=4, scoring=scoring, temperature=0.5)
    popular = dataclasses.replace(plain, popularity=0.3)
    users, items = plain.start(data, 0, CPU)()
    ours, theirs = popular.start(data, 0, CPU)()
    added = 0.3 * np.log1p(data.item_counts.astype(np.float64))
    assert torch.equal(ours, torch.cat([users, torch.ones(9, 1)], dim=1))
    assert torch.equal(theirs, torch.cat([items, torch.from_numpy(added).float()[:, None]], dim=1))
    assert added[5] == 0  # nobody has it
    expected = (users @ items.T).detach().double() + torch.from_numpy(added)
    torch.testing.assert_close((ours @ theirs.T).detach().double(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(popular.scaled(users.detach())[:, 4], torch.ones(9))


@pytest.mark.parametrize("kind", [MF, LightGCN])
def test_rows_that_are_named_have_their_own_addition(data, kind):
    started = kind(dim=4, popularity=-0.2).start(data, 0, CPU)
    some_users, some_items = torch.tensor([8, 0, 8]), torch.tensor([6, 1])
    users, items = started()
    ours, theirs = started(some_users, some_items)
    assert torch.equal(ours, users[some_users])
    assert torch.equal(theirs, items[some_items])


def test_popularity_is_no_parameter_that_is_trained_or_kept(data):
    started = MF(dim=4, popularity=0.3).start(data, 0, CPU)
    assert {name for name, _ in started.named_parameters()} == {"user", "item"} == set(started.state_dict())
    assert MF(dim=4).start(data, 0, CPU)()[0].shape == (9, 4)


@pytest.mark.parametrize("scoring", ["dot", "cosine"])
def test_the_gradient_with_popularity_is_that_of_the_formula(data, scoring):
    """In float64, against finite differences, and against scores without it to which a constant is added."""
    encoder = MF(dim=3, scoring=scoring, temperature=0.5, popularity=0.3)
    started = encoder.start(data, 0, CPU).double()
    weights = torch.randn(9, 7, generator=torch.Generator().manual_seed(3)).double()

    def objective(user, item):
        ours, theirs = torch.func.functional_call(started, {"user": user, "item": item})
        return (weights * torch.sigmoid(ours @ theirs.T)).sum()

    free = [x.detach().clone().requires_grad_() for x in (started.user, started.item)]
    assert torch.autograd.gradcheck(objective, free)
    plain = dataclasses.replace(encoder, popularity=0.0).start(data, 0, CPU).double()
    ours, theirs = torch.func.functional_call(plain, dict(zip(("user", "item"), free, strict=True)))
    added = encoder.addition(data).double().T
    by_hand = (weights * torch.sigmoid(ours @ theirs.T + added)).sum()
    for a, b in zip(*(torch.autograd.grad(f, free) for f in (objective(*free), by_hand)), strict=True):
        torch.testing.assert_close(a, b)


def test_start_is_xavier_normal_and_a_function_of_the_seed():
    big = Interactions(np.array([0]), np.array([0]), IdMap.range(3000), IdMap.range(2000))
    users, items = MF(dim=50).start(big, 0, CPU)()
    assert users.std().item() == pytest.approx(math.sqrt(2 / 3050), rel=0.02)
    assert items.std().item() == pytest.approx(math.sqrt(2 / 2050), rel=0.02)
    assert torch.equal(users, MF(dim=50).start(big, 0, CPU)()[0])
    assert not torch.equal(users, MF(dim=50).start(big, 1, CPU)()[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MF(dim=0), "dim = 0 .* ≥ 1"),
        (lambda: MF(dim=2.5), "dim = 2.5"),
        (lambda: MF(scoring="cosin"), "Did you mean 'cosine'"),
        (lambda: MF(temperature=0), "temperature = 0"),
        (lambda: MF(popularity=float("inf")), "popularity = inf"),
        (lambda: LightGCN(popularity="much"), "popularity = 'much'"),
        (lambda: LightGCN(hops=-1), "hops = -1 .* ≥ 0"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_registry():
    assert set(ENCODERS) == {"mf", "lightgcn", "hybrid", "sasrec", "recurrence"}
