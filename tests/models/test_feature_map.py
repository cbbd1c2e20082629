"""The map from features to vectors: against a closed form written out, and its regularisation."""

import numpy as np
import scipy.sparse as sp
import torch

from truepair.data.tables.feature_columns import Number
from truepair.data.tables.features import FeatureEncoding, Features
from truepair.models.feature_map import L2, FeatureMap


def world(n=200, width=4, dim=3, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    encoding = FeatureEncoding(tuple(Number(f"f{at}", (0.0,), 1.0, False) for at in range(width)))
    x = rng.normal(size=(n, width)).astype(np.float32)
    truth = rng.normal(size=(width + 1, dim))
    vectors = x @ truth[:-1] + truth[-1] + noise * rng.normal(size=(n, dim))
    return Features(sp.csr_array(x), encoding), torch.from_numpy(vectors).float(), truth


def test_a_linear_world_is_learnt():
    features, vectors, truth = world()
    found = FeatureMap.fitted(features, vectors, slice(0, 3))
    assert found.l2 == L2[0]
    assert found.cosine > 0.9999
    np.testing.assert_allclose(found.weights.numpy(), truth, atol=0.01)
    np.testing.assert_allclose(found.rows(features.matrix).numpy(), vectors.numpy(), atol=0.02)


def test_it_is_ridge_regression_with_a_free_intercept():
    features, vectors, _ = world(n=15, noise=1.0)
    found = FeatureMap.fitted(features, vectors, slice(0, 3))
    assert (found.l2, found.cosine) == (1.0, None)  # too few items to hold some out
    x = np.hstack([features.matrix.toarray().astype(np.float64), np.ones((15, 1))])
    penalty = np.diag([1.0] * 4 + [0.0])
    expected = np.linalg.solve(x.T @ x + penalty, x.T @ vectors.numpy().astype(np.float64))
    np.testing.assert_allclose(found.weights.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_features_that_say_nothing_are_regularised_most():
    features, _, _ = world(n=100, width=60)
    vectors = torch.randn(100, 3, generator=torch.Generator().manual_seed(0)) + torch.tensor([5.0, 0.0, 0.0])
    found = FeatureMap.fitted(features, vectors, slice(0, 3))
    assert found.l2 == L2[-1]


def test_l2_is_chosen_by_the_trained_vectors_alone():
    features, vectors, _ = world()
    noise = 1e3 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    found = FeatureMap.fitted(features, torch.cat([noise, vectors], dim=1), slice(5, 8))
    assert found.l2 == L2[0]
    assert found.cosine > 0.9999
    assert found.weights.shape == (5, 8)
