"""People without a trained pair: the policies, against a slow count by hand."""

import numpy as np
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import Validation, compare, evaluate
from truepair.evaluation.task import COLD

N_USERS, N_ITEMS, NEW = 30, 25, 22  # users from NEW on have no pair in train
RNG = np.random.default_rng(3)
VECTORS = RNG.normal(size=(N_USERS, 4)), RNG.normal(size=(N_ITEMS, 4))
OTHER = RNG.normal(size=(N_USERS, 4)), RNG.normal(size=(N_ITEMS, 4))


def part(mask):
    return Interactions(*np.nonzero(mask), IdMap.range(N_USERS), IdMap.range(N_ITEMS))


def make_split():
    """Popularity is distinct, so that no tie is broken; new people have pairs in valid and test."""
    train = np.zeros((N_USERS, N_ITEMS), dtype=bool)
    for item in range(N_ITEMS):
        train[RNG.permutation(NEW)[: max(0, item - 4)], item] = True
    rest = np.where(train, 0, RNG.random((N_USERS, N_ITEMS)))
    return Split(part(train), part(rest > 0.93), part((rest > 0.8) & (rest <= 0.93)), "by hand")


SPLIT = make_split()


def recalls(split, vectors, k, cold_by_model=False):
    """Recall of each test user, one user and one item at a time."""
    found = {}
    popularity = split.train.item_counts
    for user in range(N_USERS):
        target = set(split.test.items_of(user).tolist())
        if not target:
            continue
        known = {*split.train.items_of(user).tolist(), *split.valid.items_of(user).tolist()}
        scores = vectors[1] @ vectors[0][user] if user < NEW or cold_by_model else popularity
        best = sorted((i for i in range(N_ITEMS) if i not in known), key=lambda i: -scores[i])[:k]
        found[user] = len(target & set(best)) / len(target)
    return found


@pytest.mark.parametrize("cold", ["popular", "separate", "model"])
def test_each_policy_is_the_count_by_hand(cold):
    found = evaluate(VECTORS, SPLIT, ks=(1, 5), cold=cold)
    by_hand = recalls(SPLIT, VECTORS, 5, cold == "model")
    warm = [value for user, value in by_hand.items() if user < NEW]
    new = [value for user, value in by_hand.items() if user >= NEW]
    counted = warm if cold == "separate" else [*warm, *new]
    assert found.values("recall@5") == pytest.approx(counted)
    assert found.mean("recall@5") == pytest.approx(np.mean(counted))
    assert found.users.tolist() == [user for user in by_hand if user < NEW or cold != "separate"]
    assert found.cold_users.tolist() == [user for user in by_hand if user >= NEW]
    assert found.groups["with history"]["users"] == len(warm)
    assert found.groups["without history"]["users"] == len(new) > 3
    assert found.groups["with history"]["recall@5"] == pytest.approx(np.mean(warm))
    assert found.groups["without history"]["recall@5"] == pytest.approx(np.mean(new))
    lines = found.table().splitlines()
    assert [line.split()[:3] for line in lines[-4:-2]] == [
        ["with", "history", str(len(warm))],
        ["without", "history", str(len(new))],
    ]
    assert f"{np.mean(new):.4f}" in lines[-3]
    assert lines[-2] == f"users without history: {COLD[cold]}"
    assert found.interval("recall@5")[0] <= np.mean(counted) <= found.interval("recall@5")[1]


def test_lists_of_people_with_history_do_not_change_by_a_bit():
    found = {cold: evaluate(VECTORS, SPLIT, cold=cold) for cold in ("popular", "separate", "model")}
    warm = found["model"].users < NEW
    for name, values in found["separate"].per_user.items():
        np.testing.assert_array_equal(values, found["model"].values(name)[warm])
        np.testing.assert_array_equal(values, found["popular"].values(name)[warm])
    assert found["separate"].catalogue != found["popular"].catalogue  # over the lists that count


def test_one_trained_pair_is_a_history():
    train = Interactions([0, 0, 1], [0, 1, 1], IdMap.range(3), IdMap.range(4))
    target = Interactions([1, 2], [2, 3], IdMap.range(3), IdMap.range(4))
    assert evaluate((np.eye(3), np.ones((4, 3))), target, exclude=train, ks=(1,)).cold_users.tolist() == [2]


def test_an_error_says_how_many():
    with pytest.raises(InputError, match=r"8 of 28 users have no trained pair.*cold='popular'.*'separate'"):
        evaluate(VECTORS, SPLIT, cold="error")
    warm = SPLIT.test.take(SPLIT.test.users < NEW)
    found = evaluate(VECTORS, warm, exclude=SPLIT.train, cold="error")
    assert found.groups["without history"] == {"users": 0}
    assert "without history" not in found.table()
    with pytest.raises(InputError, match=r"cold = 'poplar' is not known.*Did you mean 'popular'"):
        evaluate(VECTORS, SPLIT, cold="poplar")


def test_without_anybody_with_history_there_is_nothing_to_evaluate():
    new = SPLIT.test.take(SPLIT.test.users >= NEW)
    with pytest.raises(InputError, match="none of the 8 users of target has a training interaction"):
        evaluate(VECTORS, new, exclude=SPLIT.train)


@pytest.mark.parametrize("cold", ["popular", "separate", "model"])
def test_validation_measures_what_evaluate_measures(cold):
    validation = Validation(SPLIT.valid, SPLIT.train, "ndcg@5", cold=cold)
    assert validation.score(*VECTORS) == evaluate(VECTORS, SPLIT, "valid", ks=(5,), cold=cold).mean("ndcg@5")
    by_default = Validation(SPLIT.valid, SPLIT.train, "ndcg@5")
    assert (by_default.identity == validation.identity) == (cold != "separate")
    if cold == "popular":
        assert by_default.score(*VECTORS) == validation.score(*VECTORS)


def test_untrained_vectors_have_no_say_in_the_choice_of_an_epoch():
    """Two epochs that differ in the vectors of new people only have equal scores."""
    changed = VECTORS[0].copy()
    changed[NEW:] = RNG.normal(size=(N_USERS - NEW, 4))
    validation = Validation(SPLIT.valid, SPLIT.train, "ndcg@5")
    assert validation.score(*VECTORS) == validation.score(changed, VECTORS[1])
    by_model = Validation(SPLIT.valid, SPLIT.train, "ndcg@5", cold="model")
    assert by_model.score(*VECTORS) != by_model.score(changed, VECTORS[1])


def test_two_models_are_compared_over_the_same_people():
    a, b = (evaluate(vectors, SPLIT, ks=(5,)) for vectors in (VECTORS, OTHER))
    difference = a.values("recall@5") - b.values("recall@5")
    assert (difference[a.users >= NEW] == 0).all()  # both give them the same lists
    assert compare(a, b, "recall@5").difference == pytest.approx(difference.mean())
    apart = [evaluate(vectors, SPLIT, ks=(5,), cold="separate") for vectors in (VECTORS, OTHER)]
    warm = a.users < NEW
    assert compare(*apart, "recall@5").difference == pytest.approx(difference[warm].mean())
    assert (
        compare(*apart, "recall@5").p_value == compare(a, b, "recall@5").p_value
    )  # of equal lists, none counts
    with pytest.raises(InputError, match="the users differ: 8 were evaluated in a only"):
        compare(a, apart[1], "recall@5")
    with pytest.raises(InputError, match="cold = 'popular' in a and 'model' in b"):
        compare(a, evaluate(OTHER, SPLIT, ks=(5,), cold="model"), "recall@5")
