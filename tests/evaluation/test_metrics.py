import re

import numpy as np
import pytest

from truepair.errors import InputError
from truepair.evaluation.metrics import CATALOGUE_METRICS, METRICS, coverage, gini, novelty, parse_metric

# Three users, lists of four: hits at places 1 and 3 of two target items; none; at place 4 of six.
HITS = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]], dtype=bool)
N_TARGET = np.array([2, 3, 6])

BY_HAND = {
    "precision": [2 / 4, 0, 1 / 4],
    "recall": [2 / 2, 0, 1 / 6],
    "ndcg": [
        (1 + 1 / 2) / (1 + 1 / np.log2(3)),
        0,
        (1 / np.log2(5)) / (1 + 1 / np.log2(3) + 1 / 2 + 1 / np.log2(5)),
    ],
    "hit": [1, 0, 1],
    "mrr": [1, 0, 1 / 4],
    "map": [(1 + 2 / 3) / 2, 0, (1 / 4) / 6],
}


@pytest.mark.parametrize("name", METRICS)
def test_by_hand(name):
    np.testing.assert_allclose(METRICS[name](HITS, N_TARGET), BY_HAND[name], rtol=1e-14)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("k", [1, 5])
def test_lies_in_0_to_1_and_a_perfect_list_is_1_where_it_can_be(name, k):
    rng = np.random.default_rng(k)
    n_target = rng.integers(1, 9, 50)
    perfect = np.arange(k) < n_target[:, None]
    some = perfect & (rng.random(perfect.shape) < 0.5)
    values = METRICS[name](some, n_target)
    assert values.shape == (50,)
    assert values.dtype == np.float64
    assert ((values >= 0) & (values <= METRICS[name](perfect, n_target) + 1e-12)).all()
    if name in ("ndcg", "hit", "mrr"):
        np.testing.assert_allclose(METRICS[name](perfect, n_target), 1)


def test_no_users_give_no_values():
    empty = np.zeros((0, 3), dtype=bool), np.zeros(0, dtype=np.int64)
    assert all(metric(*empty).shape == (0,) for metric in METRICS.values())


# --- over all lists ------------------------------------------------------------------------------------

POPULARITY = np.array([3, 1, 0, 0])  # with one added: 4, 2, 1, 1 of 8


def test_coverage_counts_items_in_any_list_and_skips_padding():
    assert coverage(np.array([[0, 1], [0, -1]]), POPULARITY) == 2 / 4


def test_novelty_is_the_mean_surprise_of_listed_items():
    listed = np.array([[0, 1], [2, -1]])  # shares 1/2, 1/4, 1/8: surprises 1, 2, 3
    assert novelty(listed, POPULARITY) == pytest.approx((1 + 2 + 3) / 3)
    assert novelty(np.array([[3]]), POPULARITY) == pytest.approx(3)  # never seen, still finite


def test_gini_is_0_for_equal_and_nearly_1_for_one_item():
    assert gini(np.array([[0, 1], [2, 3]]), POPULARITY) == 0
    assert gini(np.array([[0], [0]]), POPULARITY) == pytest.approx(3 / 4)  # (n - 1) / n
    # times listed 0, 0, 1, 2: mean absolute difference over all pairs / (2 · mean)
    times = np.array([0, 0, 1, 2])
    expected = np.abs(times[:, None] - times).mean() / (2 * times.mean())
    assert gini(np.array([[0, 1], [0, -1]]), POPULARITY) == pytest.approx(expected)


# --- names ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*METRICS, *CATALOGUE_METRICS])
def test_names_of_all_metrics_parse(name):
    assert parse_metric(f"{name}@7", [*METRICS, *CATALOGUE_METRICS]) == (name, 7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndgc@20", "metric = 'ndgc' is not known; choose one of 'precision', 'recall', 'ndcg'"),
        ("ndgc@20", "Did you mean 'ndcg'?"),
        ("ndcg", "metric = 'ndcg' is not of the form name@K, such as 'ndcg@20'; names are precision, recall"),
        ("ndcg@0", "is not of the form name@K"),
        ("ndcg@-1", "is not of the form name@K"),
        ("ndcg@20 ", "is not of the form name@K"),
        (20, "metric = 20 is not of the form name@K"),
        ("coverage@20", "metric = 'coverage' is not known"),
        ("ndcg@50", "metric = 'ndcg@50' was not evaluated; K is one of 5, 20. Evaluate with ks=(5, 20, 50)."),
    ],
)
def test_wrong_names_are_told(name, message):
    with pytest.raises(InputError, match=re.escape(message)):
        parse_metric(name, ks=(5, 20))
