import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.errors import InputError
from truepair.evaluation import CATALOGUE_METRICS, METRICS, Validation, evaluate

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


def interactions(pairs, n_users=4, n_items=6):
    users, items = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return Interactions(users, items, IdMap.range(n_users), IdMap.range(n_items))


# Every user scores the items 5, 4, 3, 2, 1, 0 from the top.
USERS, ITEMS = np.ones((4, 1)), np.arange(6.0)[:, None]
TRAIN_PAIRS = [(0, 5), (1, 5), (1, 4), (2, 0), (3, 1)]
TRAIN = interactions(TRAIN_PAIRS)
VALID = interactions([(0, 4), (1, 2)])
TEST = interactions([(0, 3), (0, 0), (1, 3), (2, 2)])


class Model:
    def __init__(self, users, items):
        self.pair = torch.tensor(users, dtype=torch.float32, requires_grad=True), torch.tensor(items).float()

    def matrices(self):
        return self.pair


# --- evaluate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_by_hand_train_and_validation_excluded_at_test(device):
    users, items = torch.tensor(USERS, device=device), torch.tensor(ITEMS, device=device)
    found = evaluate((users, items), TEST, exclude=[TRAIN, VALID], ks=(1, 3))
    # lists of three: 0: 3 2 1, 1: 3 1 0, 2: 5 4 3
    assert found.users.tolist() == [0, 1, 2]
    assert found.per_user["precision@3"].tolist() == pytest.approx([1 / 3, 1 / 3, 0])
    assert found.per_user["recall@3"].tolist() == [1 / 2, 1, 0]
    assert found.per_user["hit@1"].tolist() == [1, 1, 0]
    assert found.mean("mrr@3") == found.means["mrr@3"] == pytest.approx(2 / 3)
    assert found.mean("coverage@3") == found.catalogue["coverage@3"] == 1
    assert found.mean("coverage@1") == 2 / 6
    assert (found.n_users, found.n_users_without_target, found.ks) == (3, 1, (1, 3))


def test_validation_part_is_not_excluded_at_validation():
    found = evaluate((USERS, ITEMS), Split(TRAIN, VALID, TEST, "given"), on="valid", ks=(1,))
    assert found.per_user["hit@1"].tolist() == [1, 0]  # lists: 0: 4, 1: 3


def test_a_part_of_a_split_excludes_what_came_before():
    ours = evaluate((USERS, ITEMS), Split(TRAIN, VALID, TEST, "given"), ks=(1, 3))
    by_hand = evaluate((USERS, ITEMS), TEST, exclude=[TRAIN, VALID], ks=(1, 3))
    assert ours.means == by_hand.means
    assert ours.catalogue == by_hand.catalogue
    without = evaluate((USERS, ITEMS), Split(TRAIN, None, TEST, "given"), ks=(1, 3))
    assert without.means == evaluate((USERS, ITEMS), TEST, exclude=TRAIN, ks=(1, 3)).means


def test_counts_target_pairs_of_items_nobody_has_in_train():
    found = evaluate((USERS, ITEMS), TEST, exclude=[TRAIN, VALID], ks=(1,))
    assert found.n_unseen_pairs == 3  # items 3, 3 and 2; item 0 is known
    found = evaluate((USERS, ITEMS), TEST, exclude=[VALID], ks=(1,), train=TRAIN)
    assert found.n_unseen_pairs == 3


def test_padding_is_never_a_hit():
    # User 1 has one candidate, item 0. The places after it hold -1; user 0's last item is a target item.
    target = interactions([(0, 5), (1, 0)], 2, 6)
    train = interactions([(0, 0), *((1, i) for i in range(1, 6))], 2, 6)
    found = evaluate((USERS[:2], ITEMS), target, exclude=train, ks=(1, 6))
    assert found.per_user["precision@6"].tolist() == pytest.approx([1 / 6, 1 / 6])
    assert found.per_user["ndcg@6"].tolist() == [1, 1]
    assert found.mean("coverage@6") == 1


def test_users_with_all_items_masked_and_no_target_do_not_matter():
    train = interactions([*TRAIN_PAIRS, *((3, i) for i in range(6) if i != 1)])
    assert evaluate((USERS, ITEMS), TEST, exclude=train, ks=(2,)).n_users == 3


def test_names_are_every_metric_at_every_k_once():
    found = evaluate((USERS, ITEMS), TEST, exclude=TRAIN, ks=(3, 1, 3))
    assert list(found.per_user) == [f"{name}@{k}" for name in METRICS for k in (1, 3)]
    assert list(found.catalogue) == [f"{name}@{k}" for name in CATALOGUE_METRICS for k in (1, 3)]
    assert all(values.shape == (3,) and values.dtype == np.float64 for values in found.per_user.values())


def test_an_evaluation_is_frozen_and_tells_what_it_holds():
    found = evaluate((USERS, ITEMS), TEST, exclude=[TRAIN, VALID], ks=(1, 3))
    with pytest.raises(FrozenInstanceError):
        found.ks = (1,)
    with pytest.raises(ValueError, match="read-only"):
        found.per_user["ndcg@1"][0] = 1
    assert repr(found) == "<Evaluation: 3 users, ndcg@3 0.5377, recall@3 0.5000, K = 1, 3>"
    lines = found.table().splitlines()
    assert lines[0].split() == ["@1", "@3"]
    assert lines[2].split() == ["recall", "0.5000", "0.5000"]
    assert lines[-1] == (
        "3 users evaluated, 1 without a target item; 3 target interactions of items unseen in training"
    )


def test_interval_holds_the_mean_and_follows_the_seed():
    rng = np.random.default_rng(0)
    train, target = (
        interactions({(u, int(rng.integers(a, a + 20))) for u in range(50)}, 50, 40) for a in (0, 20)
    )
    found = evaluate((rng.normal(size=(50, 3)), rng.normal(size=(40, 3))), target, exclude=train)
    low, high = found.interval("ndcg@20")
    assert low < found.mean("ndcg@20") < high
    assert found.interval("ndcg@20") == (low, high) != found.interval("ndcg@20", seed=1)
    assert found.interval("ndcg@20", level=0.5)[0] > low


# --- a constant scorer ---------------------------------------------------------------------------------


def test_a_constant_scorer_looks_like_chance_though_low_codes_are_popular():
    rng = np.random.default_rng(0)
    n_users, n_items = 400, 500
    chance = np.linspace(0.2, 0.0, n_items)  # popularity falls with the code
    train, target = rng.random((2, n_users, n_items)) < chance * np.array([0.8, 0.2])[:, None, None]
    ids = IdMap.range(n_users), IdMap.range(n_items)
    train, target = Interactions(*np.nonzero(train), *ids), Interactions(*np.nonzero(target & ~train), *ids)

    def ndcg(users, items):
        return evaluate((users, items), target, exclude=train).mean("ndcg@20")

    constant = ndcg(np.ones((n_users, 1)), np.ones((n_items, 1)))
    random = np.mean([ndcg(rng.normal(size=(n_users, 8)), rng.normal(size=(n_items, 8))) for _ in range(5)])
    popular = ndcg(np.ones((n_users, 1)), train.item_counts[:, None])
    assert constant == pytest.approx(random, rel=0.2)
    assert popular > 1.5 * constant


# --- Validation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METRICS)
def test_validation_is_the_mean_of_its_metric(name):
    validation = Validation(VALID, TRAIN, metric=f"{name}@3")
    assert validation.metric == f"{name}@3"
    found = validation(Model(USERS, ITEMS))
    assert isinstance(found, float)
    assert found == evaluate((USERS, ITEMS), VALID, exclude=TRAIN, ks=(3,)).mean(f"{name}@3")


def test_validation_checks_before_the_first_epoch():
    with pytest.raises(
        InputError, match=re.escape("metric = 'ndcg@20', but the catalogue has 6 items; lower K")
    ):
        Validation(VALID, TRAIN)
    with pytest.raises(InputError, match="Did you mean 'ndcg'"):
        Validation(VALID, TRAIN, metric="ndgc@3")
    with pytest.raises(InputError, match="2 of 2 target interactions are also in exclude"):
        Validation(VALID, [TRAIN, VALID], metric="ndcg@3")
    validation = Validation(VALID, TRAIN, metric="ndcg@3")
    assert repr(validation) == "<Validation: ndcg@3 over 2 interactions>"
    with pytest.raises(FrozenInstanceError):
        validation.metric = "hit@3"


def test_validation_of_a_diverged_model_says_so():
    with pytest.raises(InputError, match="4 of 4 rows of users contain NaN or infinity; the model diverged"):
        Validation(VALID, TRAIN, metric="ndcg@3")(Model(USERS * np.nan, ITEMS))


# --- errors --------------------------------------------------------------------------------------------


OTHER_IDS = Interactions(TRAIN.users, TRAIN.items, TRAIN.user_ids, IdMap.of(list("abcdef")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"target": interactions([])},
            "nothing to evaluate: target has no interactions; give the split a larger",
        ),
        (
            {"exclude": [TRAIN, TEST, TEST]},
            "4 of 4 target interactions are also in exclude, so no list can hold them",
        ),
        ({"exclude": interactions([(0, 3), (3, 3)])}, "1 of 4 target interactions are also in exclude"),
        ({"exclude": interactions([(3, 0)])}, "none of the 3 users of target has a training interaction"),
        ({"exclude": ()}, "exclude is empty and train is not given; pass the train part"),
        ({"exclude": interactions([], 4, 7)}, "exclude has 4 users x 7 items, but 4 x 6 are ranked"),
        ({"train": interactions([], 5, 6)}, "train has 5 users x 6 items, but 4 x 6 are ranked"),
        ({"exclude": OTHER_IDS}, "have other ids, so the same code means another user or item"),
        ({"model": (np.ones((9, 1)), ITEMS)}, "target has 4 users x 6 items, but 9 x 6 are ranked"),
        ({"ks": ()}, "ks is empty; give one length of list or more"),
        ({"ks": (0, 5)}, "K = 0 is out of range; it must be a whole number ≥ 1"),
        ({"ks": (5, 20)}, "k = 20 is larger than the catalogue of 6 items; choose k ≤ 6"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    good = {"model": (USERS, ITEMS), "target": TEST, "exclude": TRAIN, "ks": (3,)}
    with pytest.raises(InputError, match=re.escape(message)):
        evaluate(**{**good, **arguments})


def test_errors_of_names_and_parts():
    found = evaluate((USERS, ITEMS), TEST, exclude=TRAIN, ks=(3,))
    with pytest.raises(InputError, match=re.escape("'ndcg@5' was not evaluated; K is one of 3")):
        found.mean("ndcg@5")
    with pytest.raises(InputError, match="metric = 'coverage' is not known"):
        found.interval("coverage@3")  # one figure for all lists has no users to resample
    with pytest.raises(InputError, match=r"on = 'tset' is not known.*Did you mean 'test'"):
        evaluate((USERS, ITEMS), Split(TRAIN, VALID, TEST, "given"), on="tset")
    with pytest.raises(InputError, match="on = 'valid', but the split has no such part"):
        evaluate((USERS, ITEMS), Split(TRAIN, None, TEST, "given"), on="valid")
    with pytest.raises(InputError, match="a split says what to exclude; leave out exclude and train"):
        evaluate((USERS, ITEMS), Split(TRAIN, VALID, TEST, "given"), exclude=TRAIN)
    with pytest.raises(
        InputError, match=r"model is a str, .*; give a fitted Recommender, or \(users, items\)"
    ):
        evaluate("model", TEST, exclude=TRAIN)
    with pytest.raises(InputError, match="model is a tuple of 1, which cannot be evaluated"):
        evaluate((USERS,), TEST, exclude=TRAIN)
