"""What the estimator should find, by float64 sums over a distribution's nodes, without any draw."""

from __future__ import annotations

import functools

import numpy as np
from scipy.special import expit, logit

from truepair_lab.theory.scores import Array, Population, Scores

_BLOCK = 256  # anchors at a time: blocks of [256, 1361] stay in the cache


def preference(anchors: Array, others: Scores) -> Array:
    """P(s⁺) = E_{s ~ others} σ(s⁺ − s), for each anchor s⁺."""
    values, weights = others.nodes()
    blocks = [anchors[at : at + _BLOCK] for at in range(0, len(anchors), _BLOCK)]
    return np.concatenate([expit(block[:, None] - values) @ weights for block in blocks])


@functools.cache
def auc(population: Population) -> float:
    """E_{s⁺} P(s⁺): the smooth AUC of positives against true negatives."""
    values, weights = population.positives.nodes()
    return float(weights @ preference(values, population.negatives))


def supervised_loss(population: Population) -> float:
    """L_sup = −E_{s⁺} log P(s⁺), the limit that Lemma 2 speaks of."""
    values, weights = population.positives.nodes()
    return float(-weights @ np.log(preference(values, population.negatives)))


def supervised_bpr(population: Population) -> float:
    """−E_{s⁺, s⁻} log σ(s⁺ − s⁻): BPR with true negatives, which by Jensen is never below L_sup."""
    (anchors, outer), (values, inner) = population.positives.nodes(), population.negatives.nodes()
    return float(outer @ (np.logaddexp(0, values - anchors[:, None]) @ inner))


def whole(anchors: Array, mean: Array) -> Array:
    """One score for each anchor with σ(s⁺ − score) = mean: it stands for infinitely many of that mean."""
    return np.asarray(anchors - logit(mean))[:, None]
