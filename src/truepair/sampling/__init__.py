"""Sampling: interactions -> batches of the paper's data entry (u, i, i₁…i_M, j₁…j_N)."""

from truepair.sampling.batch import Batch as Batch
from truepair.sampling.batch import Matrices as Matrices
from truepair.sampling.batch import pair_scores as pair_scores
from truepair.sampling.draws import Draws as Draws
from truepair.sampling.samplers import BNS as BNS
from truepair.sampling.samplers import DNS as DNS
from truepair.sampling.samplers import DRAWN_COLUMNS as DRAWN_COLUMNS
from truepair.sampling.samplers import MOST_COLUMNS as MOST_COLUMNS
from truepair.sampling.samplers import SAMPLERS as SAMPLERS
from truepair.sampling.samplers import Full as Full
from truepair.sampling.samplers import Popularity as Popularity
from truepair.sampling.samplers import Sampler as Sampler
from truepair.sampling.samplers import Uniform as Uniform
