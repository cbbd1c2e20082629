import re
from itertools import product

import numpy as np
import pytest

from truepair.errors import InputError
from truepair.evaluation import statistics
from truepair.evaluation.statistics import bootstrap_interval, holm, sign_flip_test

# --- bootstrap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 20, 60, 300])
def test_bootstrap_interval_covers_the_true_mean_as_often_as_it_says(n):
    rng = np.random.default_rng(0)
    samples = rng.beta(0.8, 1.2, size=(1000, n))  # plain percentiles cover .890 and .919 at n = 10 and 20
    found = [bootstrap_interval(x, resamples=400) for x in samples]
    assert 0.925 < np.mean([low <= 0.4 <= high for low, high in found]) < 0.965


@pytest.mark.parametrize("n", [60, 300])
def test_bootstrap_interval_covers_a_mean_of_mostly_zeros(n):
    rng = np.random.default_rng(1)
    samples = rng.beta(1, 2, size=(1000, n)) * (
        rng.random((1000, n)) < 0.1
    )  # expanded percentiles: .896 at 60
    found = [bootstrap_interval(x, resamples=400) for x in samples]
    assert 0.93 < np.mean([low <= 0.1 / 3 <= high for low, high in found]) < 0.975


def test_only_the_end_of_the_long_tail_moves():
    skewed = np.array([0.0] * 18 + [0.5, 1.0])
    low, high = bootstrap_interval(skewed)
    assert bootstrap_interval(-skewed) == pytest.approx((-high, -low), abs=0.03)  # other quantiles of a few
    symmetric = np.tile([0.0, 1.0], 10)
    (low, high), spread = bootstrap_interval(symmetric), symmetric.std(ddof=1) / np.sqrt(20)
    assert high - 0.5 == pytest.approx(0.5 - low, abs=0.01)
    assert high - 0.5 == pytest.approx(2.1 * spread, rel=0.1)


def test_bootstrap_interval_of_any_level_and_size_of_values():
    for values in ([0.0, 0.0, 1.0], [0.0] * 50 + [1.0]):
        low, high = bootstrap_interval(values, 0.9999)
        assert low <= np.mean(values) <= high <= 1
        assert bootstrap_interval(1e200 * np.array(values), 0.9999) == pytest.approx(
            (1e200 * low, 1e200 * high)
        )


def test_bootstrap_interval_has_the_width_of_the_normal_one():
    values = np.random.default_rng(1).normal(3, 2, 5_000)
    low, high = bootstrap_interval(values)
    error = values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


def test_bootstrap_interval_is_a_function_of_the_seed():
    values = np.random.default_rng(2).random(30)
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)
    assert bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
    wide, narrow = bootstrap_interval(values, 0.99), bootstrap_interval(values, 0.5)
    assert wide[0] < narrow[0] < values.mean() < narrow[1] < wide[1]


def test_one_user_has_no_width():
    assert bootstrap_interval([0.25]) == (0.25, 0.25)


def test_blocks_stay_small_and_differ(monkeypatch):
    monkeypatch.setattr(statistics, "_BLOCK", 64)
    sizes, keys = [], []
    draw = statistics.random_bits

    def watched(key, n):
        sizes.append(n)
        keys.append(key)
        return draw(key, n)

    monkeypatch.setattr(statistics, "random_bits", watched)
    bootstrap_interval(np.arange(10.0), resamples=100)
    assert max(sizes) <= 64
    assert sum(sizes) == 1000
    assert len(set(keys)) == len(keys)


# --- sign flips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_sign_flip_p_equals_the_enumeration_of_all_signs(seed):
    differences = np.random.default_rng(seed).normal(0.4, 1, 8)
    signs = np.array(list(product([-1, 1], repeat=8)))
    exact = (np.abs(signs @ differences) >= abs(differences.sum()) - 1e-12).mean()
    error = np.sqrt(exact * (1 - exact) / 10_000)
    assert sign_flip_test(differences) == pytest.approx(exact, abs=4 * error + 1e-4)


def test_equal_sums_count_as_as_extreme():
    differences = np.full(8, 0.1)  # sums in another order differ in the last bit; |sum| = 0.8 in 2 of 256
    assert sign_flip_test(differences) == pytest.approx(2 / 256, abs=0.004)
    assert sign_flip_test([0.3]) == 1.0


def test_sign_flip_p_is_uniform_when_nothing_differs():
    rng = np.random.default_rng(3)
    p = [sign_flip_test(x, flips=400) for x in rng.normal(size=(300, 40))]
    assert 0.01 < np.mean(np.less_equal(p, 0.05)) < 0.09
    assert 0.45 < np.mean(p) < 0.55


def test_sign_flip_p_is_smallest_for_a_clear_difference_and_never_0():
    assert sign_flip_test(np.full(100, 0.1), flips=999) == 1 / 1000
    assert sign_flip_test(np.zeros(5)) == 1.0


def test_sign_flip_ignores_users_without_a_difference_and_the_direction():
    differences = np.random.default_rng(4).normal(0.2, 1, 70)
    p = sign_flip_test(differences)
    assert sign_flip_test(np.concatenate([np.zeros(30), differences])) == p
    assert sign_flip_test(-differences) == p


# --- Holm ----------------------------------------------------------------------------------------------


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval([]), "an array of shape (0,) with 0 values that are not finite"),
        (lambda: bootstrap_interval([1.0, np.nan]), "shape (2,) with 1 values that are not finite"),
        (lambda: bootstrap_interval([[1.0]]), "give a 1-D array of one or more finite numbers"),
        (
            lambda: bootstrap_interval([1.0], level=1),
            "level = 1 is out of range; it must be a finite number > 0",
        ),
        (lambda: bootstrap_interval([1.0], resamples=0), "resamples = 0 is out of range"),
        (lambda: sign_flip_test([1.0], flips=0), "flips = 0 is out of range"),
        (lambda: holm([0.5, 1.5]), "p-values go from 0.5 to 1.5; they must lie in [0, 1]"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call()
