"""Sampling: interactions -> batches of the paper's data entry (u, i, i₁…i_M, j₁…j_N)."""

from truepair.sampling.draws import Batch as Batch
from truepair.sampling.draws import Draws as Draws
from truepair.sampling.draws import Matrices as Matrices
from truepair.sampling.draws import Sampler as Sampler
from truepair.sampling.draws import pair_scores as pair_scores
from truepair.sampling.samplers import BNS as BNS
from truepair.sampling.samplers import DNS as DNS
from truepair.sampling.samplers import SAMPLERS as SAMPLERS
from truepair.sampling.samplers import Full as Full
from truepair.sampling.samplers import Popularity as Popularity
from truepair.sampling.samplers import Uniform as Uniform
