"""Cells: the evidence, count by score and by user activity. Every method is a function of these counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from truepair.data.ids import Codes
from truepair.prior.holdout_scores import Evidence, Floats

_BINS, _GROUPS, _CLUSTERS = 80, 10, 40


@dataclass(frozen=True, eq=False)
class Cells:
    """The numbers of held-out and unlabelled pairs in each cell.

    Users are divided into G groups by their number of positives, and each group into K clusters. The
    bootstrap draws clusters, which keeps the pairs of a user together.
    """

    held_out: Floats  # [G, K, B]
    unlabelled: Floats  # [G, K, B]: pairs; one score may represent several
    score: Floats  # [B], the mean score in a bin, increasing
    log_count: Floats  # [G], the mean of log(1 + n_u) in a group, centred
    drawn: int  # the number of unlabelled scores in the counts
    centre: float  # the mean that was subtracted from log(1 + n_u)

    @property
    def by_group(self) -> tuple[Floats, Floats]:
        """(held_out, unlabelled), [G, B] each."""
        return self.held_out.sum(axis=1), self.unlabelled.sum(axis=1)

    @property
    def by_score(self) -> tuple[Floats, Floats]:
        """(held_out, unlabelled), [B] each."""
        return self.held_out.sum(axis=(0, 1)), self.unlabelled.sum(axis=(0, 1))

    def resampled(self, rng: np.random.Generator) -> Cells:
        """Clusters drawn with replacement within each group."""
        groups, clusters, _ = self.held_out.shape
        drawn = rng.integers(0, clusters, size=(groups, clusters))
        rows = np.arange(groups)[:, None]
        return replace(self, held_out=self.held_out[rows, drawn], unlabelled=self.unlabelled[rows, drawn])


def count_cells(evidence: Evidence) -> Cells:
    """Count the evidence; half of the bin edges are quantiles of held-out, half of unlabelled scores."""
    edges = _edges(evidence)
    group, cluster = _groups_and_clusters(evidence.counts)
    shape = int(group.max()) + 1, _CLUSTERS, len(edges) + 1

    def count(users: Codes, scores: Floats, weights: Floats | None) -> Floats:
        bins = np.searchsorted(edges, scores, "right")
        cell = np.ravel_multi_index((group[users], cluster[users], bins), shape)
        return np.bincount(cell, weights, minlength=math.prod(shape)).reshape(shape).astype(float)

    everything = np.concatenate([evidence.held_out_scores, evidence.scores])
    bins = np.searchsorted(edges, everything, "right")
    log_count = np.log1p(evidence.counts)
    members = np.bincount(group[group >= 0], minlength=shape[0])
    mean = np.bincount(group[group >= 0], log_count[group >= 0], shape[0]) / members
    centre = float(mean.mean())
    return Cells(
        count(evidence.held_out_users, evidence.held_out_scores, None),
        count(evidence.users, evidence.scores, evidence.weights),
        np.bincount(bins, everything, shape[2]) / np.maximum(np.bincount(bins, minlength=shape[2]), 1),
        mean - centre,
        len(evidence.scores),
        centre,
    )


def _edges(evidence: Evidence) -> Floats:
    levels = np.linspace(0, 1, _BINS // 2 + 1)[1:-1]
    parts = [np.quantile(scores, levels) for scores in (evidence.held_out_scores, evidence.scores)]
    return np.unique(np.concatenate(parts))


def _groups_and_clusters(counts: Codes) -> tuple[Codes, Codes]:
    """The group and the cluster of each user; −1 for a user without training positives."""
    trained = np.flatnonzero(counts > 0)
    order = trained[np.argsort(counts[trained], kind="stable")]
    groups = min(_GROUPS, len(order))
    group, cluster = np.full(len(counts), -1), np.zeros(len(counts), dtype=np.int64)
    group[order] = np.arange(len(order)) * groups // len(order)
    cluster[order] = np.arange(len(order)) % _CLUSTERS
    return group, cluster
