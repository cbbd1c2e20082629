"""The default batch: pairs with samplers that draw, users with the full catalogue."""

from truepair.sampling import Full, Uniform
from truepair.spec.defaults import default_batch_size


def test_a_batch_is_a_64th_of_the_pairs_within_bounds():
    sizes = [default_batch_size(Uniform(), pairs) for pairs in (0, 6_400, 19_200, 10_000_000)]
    assert sizes == [64, 100, 300, 1024]


def test_users_with_the_full_catalogue_one_for_each_1000_pairs_within_bounds():
    sizes = [default_batch_size(Full(), pairs, 1_000) for pairs in (0, 20_000, 100_000, 10_000_000)]
    assert sizes == [8, 20, 100, 128]
    assert default_batch_size(Full(), 1_000_000, 100_000) == 819  # as many as have 8192 pairs
    assert default_batch_size(Full(), 8_000, 8_000) == 500  # a 16th of all
    assert default_batch_size(Full(), 1_000_000, 1_000_000) == 2048
    assert default_batch_size(Full(), 64_000, 2_064) == 129  # just enough to be many
    assert default_batch_size(Full(), 64_000, 2_048) == 64  # not enough: 128


def test_very_many_users_have_larger_blocks():
    users = (262_144, 264_192, 10**6, 10**7, 10**8)
    assert [default_batch_size(Full(), 100 * n, n) for n in users] == [128, 129, 488, 4096, 4096]
