"""The identity σ(a) + σ(−a) = 1, and what follows: at the level of the AUC the correction is an affine map.

Over all ordered pairs of positives, an item with itself included, the mean of σ(s − s') is ½, whatever the
model. So AUC_PU = τ/2 + (1−τ)·AUC_PN, and AUC_PN = (AUC_PU − τ/2)/(1−τ) orders models as AUC_PU does. The
loss takes a logarithm for each anchor first, and that is not affine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.special import expit

from truepair.errors import InputError, check_number, check_whole
from truepair.losses import DPL
from truepair.randomness import stream_key
from truepair_lab.theory.probability import whole
from truepair_lab.theory.results import Identity, Weight
from truepair_lab.theory.scores import Array, uniforms

POSITIVES, NEGATIVES, DIM = 30, 70, 6  # all positives are among the unlabelled: τ = 0.3
WEIGHT_TAUS = (0.0, 0.05, 0.1, 0.3)
_MEANS = np.round(np.arange(0.02, 0.99, 0.02), 2)
_SHOWN = 60  # models in the figure
EXACT = 1e-12
"""What rounding may make of an identity."""


def smooth_auc(positives: Array, others: Array) -> float:
    """The mean of σ(s − s') over all pairs."""
    a, b = np.asarray(positives, float), np.asarray(others, float)
    if not (a.size and b.size and np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError(
            f"an AUC needs finite scores on both sides; got {a.size} and {b.size}, or some not finite."
        )
    return float(expit(a[:, None] - b).mean())


def corrected_auc(auc_pu: float, tau: float) -> float:
    """AUC_PN = (AUC_PU − τ/2)/(1−τ).

    >>> round(corrected_auc(0.7, 0.2), 6)
    0.75
    """
    tau = check_number("tau", tau, 0, 1, open_high=True)
    return (check_number("auc_pu", auc_pu, 0, 1) - tau / 2) / (1 - tau)


def run_identity(models: int, seed: int) -> Identity:
    """Random models: scores are dot products of random vectors, and some know the positives."""
    models, tau = check_whole("models", models, 2), POSITIVES / (POSITIVES + NEGATIVES)
    scores = [_scores(seed, at) for at in range(models)]
    parts = [(s[:POSITIVES], s[POSITIVES:]) for s in scores]
    pu = np.array([smooth_auc(pos, s) for (pos, _), s in zip(parts, scores, strict=True)])
    pn = np.array([smooth_auc(pos, neg) for pos, neg in parts])
    half = max(abs(smooth_auc(pos, pos) - 0.5) for pos, _ in parts)
    affine = max(abs(b - corrected_auc(float(a), tau)) for a, b in zip(pu, pn, strict=True))
    uncorrected = np.array([_loss(pos, s, 0.0) for (pos, _), s in zip(parts, scores, strict=True)])
    debiased = np.array([_loss(pos, s, tau) for (pos, _), s in zip(parts, scores, strict=True)])
    swaps = _swaps(pu, pn), _swaps(uncorrected, debiased)
    weights = tuple(Weight(t, tuple(_MEANS.tolist()), anchor_weights(_MEANS, t)) for t in WEIGHT_TAUS)
    shown = [tuple(each[:_SHOWN].tolist()) for each in (pu, pn, uncorrected, debiased)]
    return Identity(
        models, half, float(affine), swaps[0], swaps[1], models * (models - 1) // 2, tau,
        shown[0], shown[1], shown[2], shown[3], weights,
    )  # fmt: skip


def anchor_weights(means: Array | Sequence[float], tau: float) -> tuple[float, ...]:
    """The weight of an anchor in the gradient of the shipped loss, as a ratio to τ = 0, by mean_n σ(s⁺−s_n).

    ∂loss/∂mean = −1/(mean − τ·mean_m σ(s⁺−s'_m)), so the ratio is mean/(mean − τ/2) where the extra
    positives' mean is ½, and 0 where the floor binds.
    """
    at = np.asarray(means, dtype=np.float64)
    zero = np.zeros(len(at))
    scores = torch.from_numpy(whole(zero, at)).requires_grad_()
    pos, extra = torch.from_numpy(zero), torch.zeros(len(at), 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(DPL(tau=tau)(pos, extra, scores).sum(), scores)
    slope = at * (1 - at)  # σ' at the score
    return tuple((gradient.numpy()[:, 0] / slope * at + 0.0).tolist())


def _scores(seed: int, at: int) -> Array:
    """Scores of positives, then negatives, by a random model: how much it knows, how sure it is."""
    vectors = 2 * uniforms(stream_key(seed, 5, at), POSITIVES + NEGATIVES + 1, DIM) - 1
    known, scale = uniforms(stream_key(seed, 6, at), 2).tolist()
    scores = vectors[:-1] @ vectors[-1] + 2 * known * (np.arange(POSITIVES + NEGATIVES) < POSITIVES)
    return np.asarray(scores * 10.0 ** (1.2 * scale - 0.4))


def _loss(positives: Array, unlabelled: Array, tau: float) -> float:
    """The shipped loss with every pair there is: each positive is an anchor, M and N are whole sets."""
    pos = torch.from_numpy(np.ascontiguousarray(positives))
    rows = [torch.from_numpy(np.tile(part, (len(pos), 1))) for part in (positives, unlabelled)]
    return float(DPL(tau=tau)(pos, *rows).mean())


def _swaps(a: Array, b: Array) -> int:
    """How many pairs of models a and b put in different order."""
    order = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
    return int((np.triu(order, 1) < 0).sum())
