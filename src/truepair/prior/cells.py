"""Cells: evidence counted by score and by how much a user has. Every method is a function of these counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truepair.data.ids import Codes
from truepair.prior.evidence import Evidence, Floats

_BINS, _GROUPS, _CLUSTERS = 80, 10, 40


@dataclass(frozen=True, eq=False)
class Cells:
    """How many held-out and unlabelled pairs lie in each cell.

    Users are divided by their number of positives into G groups, and within a group into K clusters: the
    bootstrap draws clusters, so that all pairs of a user come and go together.
    """

    held_out: Floats  # [G, K, B]
    unlabelled: Floats  # [G, K, B]: pairs, where a score may stand for several
    score: Floats  # [B], the mean score in a bin, rising
    log_count: Floats  # [G], the mean of log(1 + n_u) in a group, centred
    drawn: int  # unlabelled scores behind the counts
    centre: float  # what was taken off log(1 + n_u)

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
    """The counts; bins are quantiles of held-out and unlabelled scores in equal parts."""
    edges = _edges(evidence)
    group, cluster = _places(evidence.counts)
    shape = int(group.max()) + 1, _CLUSTERS, len(edges) + 1

    def counted(users: Codes, scores: Floats, weights: Floats | None) -> Floats:
        cell = (group[users] * _CLUSTERS + cluster[users]) * shape[2] + np.searchsorted(
            edges, scores, "right"
        )
        return (
            np.bincount(cell, weights, minlength=shape[0] * shape[1] * shape[2]).reshape(shape).astype(float)
        )

    everything = np.concatenate([evidence.held_out_scores, evidence.scores])
    bins = np.searchsorted(edges, everything, "right")
    log_count = np.log1p(evidence.counts)
    members = np.bincount(group[group >= 0], minlength=shape[0])
    mean = np.bincount(group[group >= 0], log_count[group >= 0], shape[0]) / members
    centre = float(mean.mean())
    return Cells(
        counted(evidence.held_out_users, evidence.held_out_scores, None),
        counted(evidence.users, evidence.scores, evidence.weights),
        np.bincount(bins, everything, shape[2]) / np.maximum(np.bincount(bins, minlength=shape[2]), 1),
        mean - centre,
        len(evidence.scores),
        centre,
    )


def _edges(evidence: Evidence) -> Floats:
    levels = np.linspace(0, 1, _BINS // 2 + 1)[1:-1]
    parts = [np.quantile(scores, levels) for scores in (evidence.held_out_scores, evidence.scores)]
    return np.unique(np.concatenate(parts))


def _places(counts: Codes) -> tuple[Codes, Codes]:
    """The group and the cluster of each user; −1 for a user without training positives."""
    trained = np.flatnonzero(counts > 0)
    order = trained[np.argsort(counts[trained], kind="stable")]
    groups = min(_GROUPS, len(order))
    group, cluster = np.full(len(counts), -1), np.zeros(len(counts), dtype=np.int64)
    group[order] = np.arange(len(order)) * groups // len(order)
    cluster[order] = np.arange(len(order)) % _CLUSTERS
    return group, cluster
