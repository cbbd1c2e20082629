"""FeatureMap: from the features of an item to its trained vector, by ridge regression.

    W = argmin Σ_i ‖t_i − (x_i W + b)‖² + l2 · ‖W‖²

t_i is the trained vector of item i, x_i its features. An item that nobody has yet gets x W + b. The l2 is
chosen by the mean cosine of predicted and trained vectors, on trained items that are held out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from truepair.data.tables.features import FeatureEncoding, Features
from truepair.models.factor_matrices import check_room
from truepair.randomness import random_order

L2 = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_HELD_OUT = 5  # every fifth item, in random order
_LEAST = 20  # items; with fewer, none are held out and l2 is 1
_KEY = 0x6D6170  # of the order: a map is a function of the features and the vectors
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """How features become rows of a model's items."""

    encoding: FeatureEncoding
    weights: Tensor  # [features + 1, d], float32; the last row is b
    l2: float
    cosine: float | None
    """Mean cosine of predicted and trained vectors of held-out items; None with too few items."""

    @staticmethod
    def fitted(features: Features, rows: Tensor, chosen_by: slice) -> FeatureMap:
        """The map to these rows [n, d]; the l2 is chosen by the columns `chosen_by`, the trained vectors."""
        x, targets = features.matrix.astype(np.float64), rows.double().cpu().numpy()
        room = 8 * (2 * x.shape[1] ** 2 + 2 * x.shape[1] * targets.shape[1])
        remedy = "leave out columns with many values"
        check_room(f"A map from {x.shape[1]:,} features", room, torch.device("cpu"), remedy)
        l2, cosine = _chosen_l2(x, targets[:, chosen_by])
        weights = torch.from_numpy(_solved(x, targets, [l2])[0]).float()
        return FeatureMap(features.encoding, weights, l2, cosine)

    def rows(self, features: sp.csr_array) -> Tensor:
        """The predicted rows. [n, d]"""
        return torch.from_numpy(features @ self.weights[:-1].numpy()) + self.weights[-1]


def _chosen_l2(x: sp.csr_array, targets: Floats) -> tuple[float, float | None]:
    n = x.shape[0]
    if n < _LEAST:
        return 1.0, None
    held_out = np.zeros(n, dtype=bool)
    held_out[random_order(_KEY, n)[::_HELD_OUT]] = True
    tried = _solved(sp.csr_array(x[~held_out]), targets[~held_out], L2)
    test = sp.csr_array(x[held_out])
    scores = [_mean_cosine(test @ w[:-1] + w[-1], targets[held_out]) for w in tried]
    best = int(np.argmax(scores))
    return L2[best], float(scores[best])


def _solved(x: sp.csr_array, targets: Floats, l2s: tuple[float, ...] | list[float]) -> list[Floats]:
    """[features + 1, d] for each l2; features and targets are centred, so that b is not penalised."""
    n, mean, middle = x.shape[0], np.asarray(x.mean(axis=0)), targets.mean(axis=0)
    gram = (x.T @ x).toarray() - n * np.outer(mean, mean)  # [f, f]
    products = x.T @ targets - n * np.outer(mean, middle)  # [f, d]
    found = []
    for l2 in l2s:
        weights = np.linalg.solve(gram + l2 * np.eye(len(gram)), products)
        found.append(np.vstack([weights, middle - mean @ weights]))
    return found


def _mean_cosine(predicted: Floats, targets: Floats) -> float:
    lengths = np.linalg.norm(predicted, axis=1) * np.linalg.norm(targets, axis=1)
    return float(np.mean((predicted * targets).sum(axis=1) / np.maximum(lengths, 1e-30)))
