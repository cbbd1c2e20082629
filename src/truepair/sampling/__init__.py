"""Sampling: interactions -> batches of the paper's data entry (u, i, i₁…i_M, j₁…j_N)."""

from truepair.sampling.batch import Batch, Matrices, pair_scores
from truepair.sampling.draws import Draws
from truepair.sampling.samplers import (
    BNS,
    DNS,
    DRAWN_COLUMNS,
    MOST_COLUMNS,
    SAMPLERS,
    Full,
    Popularity,
    Sampler,
    Uniform,
)

__all__ = [
    "BNS",
    "DNS",
    "DRAWN_COLUMNS",
    "MOST_COLUMNS",
    "SAMPLERS",
    "Batch",
    "Draws",
    "Full",
    "Matrices",
    "Popularity",
    "Sampler",
    "Uniform",
    "pair_scores",
]
