import dataclasses
import re

import numpy as np
import pytest

from truepair.errors import InputError
from truepair.evaluation import Evaluation, compare, compare_all
from truepair.evaluation.statistics import holm


def evaluation(ndcg, recall=None, users=None):
    """An evaluation with these values per user at K = 5."""
    ndcg = np.asarray(ndcg, dtype=np.float64)
    per_user = {"ndcg@5": ndcg, "recall@5": ndcg if recall is None else np.asarray(recall, dtype=np.float64)}
    users = np.arange(len(ndcg)) if users is None else np.asarray(users)
    return Evaluation(users, per_user, {}, ks=(5,), n_users_without_target=0, n_unseen_pairs=0)


@pytest.fixture
def three():
    rng = np.random.default_rng(0)
    base = rng.random(80)
    return {
        "base": evaluation(base),
        "same": evaluation(base + rng.normal(0, 0.01, 80)),
        "better": evaluation(base + rng.normal(0.1, 0.05, 80)),
    }


def test_compare_is_a_less_b(three):
    found = compare(three["better"], three["base"], "ndcg@5")
    assert found.mean_a == pytest.approx(three["better"].mean("ndcg@5"))
    assert found.difference == pytest.approx(found.mean_a - found.mean_b)
    assert 0 < found.low < found.difference < found.high
    assert found.p_value == found.p_corrected == 1 / 10_001
    back = compare(three["base"], three["better"], "ndcg@5")
    assert back.difference == pytest.approx(-found.difference)
    assert back.p_value == found.p_value


def test_pairing_finds_what_unpaired_intervals_hide(three):
    (_, high), (low, _) = three["base"].interval("ndcg@5"), three["better"].interval("ndcg@5")
    assert low < high  # the intervals of the two means overlap
    assert compare(three["better"], three["base"], "ndcg@5").low > 0.05


def test_a_model_does_not_differ_from_itself(three):
    found = compare(three["base"], three["base"], "ndcg@5")
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_compare_all_pairs_with_holm_over_metrics_too(three):
    found = compare_all(three, ["ndcg@5", "recall@5"], flips=500)
    pairs = [("base", "same"), ("base", "better"), ("same", "better")]
    assert [(x.metric, x.a, x.b) for x in found] == [
        (m, a, b) for m in ("ndcg@5", "recall@5") for a, b in pairs
    ]
    assert [x.p_corrected for x in found] == holm([x.p_value for x in found])
    assert found[1].p_corrected == pytest.approx(6 * found[1].p_value)


def test_compare_all_with_a_baseline(three):
    found = compare_all(three, "ndcg@5", baseline="base", flips=500)
    assert [(x.a, x.b) for x in found] == [("same", "base"), ("better", "base")]
    assert found[0].p_corrected > 0.05 > found[1].p_corrected
    assert [x.is_significant for x in found[:2]] == [False, True]
    assert str(found[1]).startswith("ndcg@5: better 0.")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: compare(evaluation([1, 0, 1]), evaluation([1, 0], users=[1, 7]), "ndcg@5"),
            "the users differ: 2 were evaluated in a only, 1 in b only; evaluate both",
        ),
        (
            lambda: compare(evaluation([1]), evaluation([1]), "ndcg@9"),
            "'ndcg@9' was not evaluated; K is one of 5",
        ),
        (lambda: compare(evaluation([1]), evaluation([1]), "gini@5"), "metric = 'gini' is not known"),
        (lambda: compare_all({"a": evaluation([1])}, "ndcg@5"), "1 evaluations cannot be compared; give two"),
        (
            lambda: compare_all({"mf": evaluation([1]), "gcn": evaluation([1])}, "ndcg@5", baseline="fm"),
            "baseline = 'fm' is not known; choose one of 'mf', 'gcn'",
        ),
        (lambda: compare_all({"a": evaluation([1]), "b": evaluation([1])}, []), "metrics is empty"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call()


def test_level_and_flips_are_used(three):
    narrow, wide = (compare(*list(three.values())[:2], "ndcg@5", level=level) for level in (0.5, 0.99))
    assert wide.low < narrow.low
    assert narrow.high < wide.high
    few = compare(evaluation([1.0] * 30), evaluation([0.0] * 30), "ndcg@5", flips=9)
    assert few.p_value == pytest.approx(0.1)


def test_different_targets_are_not_compared():
    a, b = evaluation([0.1, 0.2]), evaluation([0.1, 0.3])
    with pytest.raises(InputError, match="evaluated on different targets"):
        compare(dataclasses.replace(a, target="x"), dataclasses.replace(b, target="y"), "ndcg@5")
    with pytest.raises(InputError, match="an evaluation is a str"):
        compare(a, "b", "ndcg@5")


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5])
def test_seeds_are_checked(seed):
    with pytest.raises(InputError, match="seed = "):
        compare(evaluation([0.1, 0.2]), evaluation([0.1, 0.3]), "ndcg@5", seed=seed)
