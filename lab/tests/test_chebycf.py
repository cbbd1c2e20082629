"""ChebyCF against its definition, by eigendecomposition in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.evaluation import evaluate
from truepair_lab.paper import chebycf
from truepair_lab.paper.baselines import solved
from truepair_lab.paper.chebycf import ChebyCF, ItemGraph
from worlds import two_tastes

SETTINGS = [ChebyCF(vectors=5), ChebyCF(3, 4.0, 0, 0.3, 0.0), ChebyCF(1, 0.5, 7, 1.0, 0.7)]


@pytest.fixture(scope="module")
def data() -> Interactions:
    pairs = two_tastes(n_users=40, n_items=30, each=6)
    return pairs.take(pairs.items != 3)  # an item without a user


def oracle(settings: ChebyCF, data: Interactions) -> np.ndarray:
    """Scores of all users: every step in float64, by the eigenvectors of the Laplacian."""
    x = np.zeros((data.n_users, data.n_items))
    x[data.users, data.items] = 1
    users, items = np.maximum(x.sum(1), 1), np.maximum(x.sum(0), 1)
    normalised = x / np.sqrt(users[:, None]) / np.sqrt(items)
    values, vectors = np.linalg.eigh(np.eye(data.n_items) - normalised.T @ normalised)
    k = settings.order
    wanted = []
    for j in range(k + 1):
        place = np.cos(np.pi * (k - j) / k)
        half = 0.5 * abs(place) ** settings.flatness
        wanted.append(0.5 + half if place < 0 else 0.5 - half)
    zeros = np.sort(np.polynomial.chebyshev.chebroots([0] * (k + 1) + [1]))
    polynomial = np.polynomial.Polynomial.fit(zeros, wanted, k)  # degree k through k + 1 points
    response = vectors * polynomial(2 * values - 1) @ vectors.T
    low = vectors[:, : settings.vectors]
    passed = response + settings.ideal * low @ low.T
    return (x / items**settings.power) @ passed * items**settings.power


@pytest.mark.parametrize("dense", [True, False], ids=["spectrum", "products"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_scores_are_those_of_the_definition(
    settings: ChebyCF, dense: bool, data: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not dense:
        monkeypatch.setattr(chebycf, "_DENSE", 0)
        monkeypatch.setattr(chebycf, "_BLOCK", 7)
        monkeypatch.setattr(chebycf, "_MORE", 6)
    found = torch.from_numpy(data.csr().toarray()) @ ItemGraph(data).weights(settings)
    np.testing.assert_allclose(found.numpy(), oracle(settings, data), atol=2e-5)


def test_the_plateau_falls_from_one_to_zero() -> None:
    values = np.polynomial.chebyshev.chebval(np.linspace(-1, 1, 9), ChebyCF(16, 3.0).coefficients())
    assert values[0] == pytest.approx(1, abs=0.1)
    assert values[4] == pytest.approx(0.5, abs=1e-9)
    assert values[-1] == pytest.approx(0, abs=0.1)
    assert (np.diff(values) < 0.02).all()


def test_the_graph_keeps_what_trials_share(data: Interactions) -> None:
    graph, settings = ItemGraph(data), ChebyCF(vectors=5)
    first = graph.weights(settings)
    kept = graph.filter(settings)
    np.testing.assert_array_equal(
        first.numpy(), graph.weights(settings).numpy()
    )  # nothing is changed in place
    assert graph.filter(ChebyCF(vectors=9, power=0.1)) is kept
    for other in (ChebyCF(flatness=3.0), ChebyCF(4, 3.0)):
        torch.testing.assert_close(graph.filter(other), ItemGraph(data).filter(other))


def test_it_is_a_reference_point(data: Interactions) -> None:
    settings = SETTINGS[0]
    parameters = {"order": 8, "flatness": 1.5, "vectors": 5, "ideal": 0.2, "power": 0.4}
    point = solved("chebycf", parameters, data)
    found = evaluate((point.users, point.items), data, exclude=(), train=data)
    scores = torch.from_numpy(np.real(oracle(settings, data))).float()
    by_hand = evaluate((scores, torch.eye(data.n_items)), data, exclude=(), train=data)
    assert found.mean("ndcg@20") == pytest.approx(by_hand.mean("ndcg@20"), abs=1e-6)


def test_wrong_parameters_are_told() -> None:
    with pytest.raises(InputError, match="flatness = 0 is out of range"):
        ChebyCF(flatness=0)
    with pytest.raises(InputError, match="order = 0 is out of range"):
        ChebyCF(order=0)
