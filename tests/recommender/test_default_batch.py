"""The default batch of samplers that draw: a 64th of the pairs, from 64 to 1024."""

from truepair.recommender.defaults import default_batch_size
from truepair.sampling import Uniform


def test_a_batch_is_a_64th_of_the_pairs_within_bounds():
    sizes = [default_batch_size(Uniform(), pairs) for pairs in (0, 6_400, 19_200, 10_000_000)]
    assert sizes == [64, 100, 300, 1024]
