"""Hold-outs: random, the last of each user, after a time; which is like a test part; times until a fit."""

import dataclasses

import numpy as np
import pytest

import truepair as tp
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split_recipes import k_folds, later_pairs
from truepair.errors import InputError
from truepair.recommender.holdout import hold_out, joined, like_test, with_validation
from truepair.spec import HOLD_OUTS, Spec
from truepair.spec.parameters import from_json

QUICK = {"dim": 4, "epochs": 2, "device": "cpu", "metric": "ndcg@5"}


def timed(n_users=12, n_items=30, each=10, kind="clock", seed=0):
    """Users with `each` random items, at times that rise within a user; users start at different times."""
    rng = np.random.default_rng(seed)
    users = np.repeat(np.arange(n_users), each)
    items = np.concatenate([rng.permutation(n_items)[:each] for _ in range(n_users)])
    start = 0 if kind == "order" else 3 * users
    time = start + np.tile(np.arange(each), n_users)
    return Interactions(users, items, IdMap.range(n_users), IdMap.range(n_items), time=time, time_kind=kind)


# --- hold_out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["clock", "order"])
def test_last_takes_the_latest_of_each_user(kind):
    data = timed(n_items=12, kind=kind)
    split = hold_out(data, "last", share=0.25)
    # 10 · .25 rounds to 3; an item's only pair would stay, and here no item is that rare
    assert (split.valid.user_counts == 3).all()
    for user in range(data.n_users):
        held, kept = (part.time[part.users == user] for part in (split.valid, split.train))
        assert held.min() > kept.max()
    assert split.recipe == "hold_out(how='last', share=0.25, seed=0)"
    assert split.valid.time_kind == split.train.time_kind == split.test.time_kind == kind
    assert len(split.test) == 0


def test_last_rounds_and_leaves_a_pair():
    sizes = [1, 2, 4, 5, 14, 15]
    users = np.repeat(np.arange(6), sizes)
    items = np.concatenate([np.arange(size) for size in sizes])
    data = Interactions(users, items, IdMap.range(6), IdMap.range(15), time=-items)
    held_out = {share: data.take(later_pairs(data, "last", share, 0)).user_counts for share in (0.1, 0.9)}
    assert held_out[0.1].tolist() == [0, 0, 0, 1, 1, 2]  # ⌊n/10 + ½⌋
    assert held_out[0.9].tolist() == [0, 1, 3, 4, 13, 14]  # at most all but one


def test_equal_times_are_ordered_by_the_seed():
    data = timed(n_items=12)
    same = Interactions(data.users, data.items, data.user_ids, data.item_ids, time=np.zeros(len(data)))
    parts = [hold_out(same, "last", seed=seed).valid for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]


def test_time_is_one_cut_for_all_users():
    data = timed(n_items=12)
    split = hold_out(data, "time", share=0.2)
    before = split.train.take(split.train.users < 10)  # the others come after the cut: they stay in train
    assert split.valid.time.min() > before.time.max()
    assert len(np.unique(split.valid.users)) < data.n_users  # those who came early have nothing held out
    with pytest.raises(
        InputError,
        match=r"hold_out = 'time' compares times of users, and here they are positions; use hold_out='last'",
    ):
        hold_out(timed(kind="order"), "time")
    with pytest.raises(InputError, match=r"split_temporal compares the times of different users"):
        tp.split_temporal(timed(kind="order"))


@pytest.mark.parametrize("how", ["random", "last", "time"])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_user_and_item_keeps_a_pair(how, seed):
    data = timed(20, 90, 8, seed=seed)  # many items have one pair
    split = hold_out(data, how, 0.3, seed)
    had = np.flatnonzero(data.item_counts)
    assert (split.train.item_counts[had] > 0).all()
    assert (split.train.user_counts > 0).all()
    assert 0 < len(split.valid) < len(data)
    assert joined([split.train, split.valid]) == data


def test_random_is_the_share_that_it_always_was():
    data = timed(n_items=12)
    drawn = tp.split_random(data, 0.1, seed=3).test
    assert hold_out(data, "random", 0.1, 3).valid == drawn


def test_auto_goes_by_time_where_most_users_have_several():
    data = timed()
    assert "'last'" in hold_out(data).recipe
    assert "'last'" in hold_out(timed(kind="order")).recipe
    assert "'random'" in hold_out(data.pairs_only()).recipe
    few = np.where(data.users < 6, data.time, 0)  # 6 of 12 users: not most of them
    assert (
        "'random'"
        in hold_out(Interactions(data.users, data.items, data.user_ids, data.item_ids, time=few)).recipe
    )
    most = np.where(data.users < 7, data.time, 0)
    assert (
        "'last'"
        in hold_out(Interactions(data.users, data.items, data.user_ids, data.item_ids, time=most)).recipe
    )


def test_auto_is_random_where_users_have_too_few_pairs():
    few = timed(60, 12, 4)  # a tenth of 4 pairs is none
    assert "'random'" in hold_out(few).recipe
    assert "'last'" in hold_out(few, share=0.2).recipe


def test_what_cannot_be_held_out():
    with pytest.raises(
        InputError, match=r"hold_out = 'first' is not known; choose one of 'auto', 'random', 'last', 'time'"
    ):
        hold_out(timed(), "first")
    with pytest.raises(InputError, match=r"share = 0 "):
        hold_out(timed(), share=0)
    with pytest.raises(
        InputError, match=r"hold_out = 'last' needs the time of each pair.*chronological=True"
    ):
        hold_out(timed().pairs_only(), "last")
    with pytest.raises(
        InputError, match=r"hold_out = 'last' with validation = 0.1 of 48 pairs is none that can"
    ):
        hold_out(timed(12, 12, 4), "last")


# --- a hold-out like the test part -----------------------------------------------------------------------


def test_a_validation_part_is_made_like_the_test_part():
    data, order = timed(), timed(kind="order")
    assert like_test(tp.split_random(data)) == "random"
    assert like_test(tp.split_random_per_user(data)) == "random"
    assert like_test(k_folds(data)[1]) == "random"
    assert like_test(tp.split_leave_last_out(data)) == like_test(tp.split_leave_last_out(order)) == "last"
    assert like_test(tp.split_temporal(data)) == "time"
    last = tp.split_leave_last_out(data)
    assert like_test(tp.split_given(last.train, last.test)) == "auto"


def test_with_validation_keeps_the_test_part():
    data = timed(n_items=12)
    for split, how in ((tp.split_leave_last_out(data), "last"), (tp.split_temporal(data), "time")):
        found = with_validation(split, 0.1, 0)
        assert f"hold_out(how={how!r}" in found.recipe
        assert found.test == split.test
        assert found.valid == hold_out(split.train, how).valid
    drawn = with_validation(tp.split_random(data, seed=2), 0.1, 2)
    assert drawn == tp.split_random(data, valid=0.1, seed=2)  # the same pairs as ever
    assert with_validation(drawn, 0.0, 0) is drawn


# --- times on the way to a fit ---------------------------------------------------------------------------


def test_joined_keeps_times_of_one_kind():
    data = timed(kind="order")
    part, rest = data.take(data.users < 5), data.take(data.users >= 5)
    whole = joined([part, rest])
    np.testing.assert_array_equal(whole.time, data.time)
    assert whole.time_kind == "order"
    assert joined([part, rest.pairs_only()]).time is None
    clock = timed()
    assert joined([part, clock.take(clock.users >= 5)]).time is None


def test_joined_keeps_weights_that_only_one_part_has():
    data = timed().pairs_only()
    part, rest = data.take(data.users < 5), data.take(data.users >= 5)
    found = joined([dataclasses.replace(part, weight=np.full(len(part), 3.0)), rest])
    assert set(found.weight[found.users < 5]) == {3}
    assert set(found.weight[found.users >= 5]) == {1}
    assert joined([part, rest]).weight is None


def test_the_recommender_holds_out_as_it_is_asked():
    data = timed(n_items=12)
    table = data.to_table()
    last = tp.Recommender(validation=0.1, **QUICK).fit(table)
    asked = tp.Recommender(validation=0.1, hold_out="last", **QUICK).fit(data)
    drawn = tp.Recommender(validation=0.1, hold_out="random", **QUICK).fit(data)
    assert last.facts_["data"] == asked.facts_["data"] == hold_out(data, "last").train.hash
    assert drawn.facts_["data"] == hold_out(data, "random").train.hash
    assert last.seen_.time is None  # what a model file has
    for name in HOLD_OUTS:
        assert tp.Recommender.of({"hold_out": name}).hold_out == name
    with pytest.raises(InputError, match="hold_out = 'newest'"):
        _ = tp.Recommender(hold_out="newest").spec
    with pytest.raises(InputError, match="hold_out = last has no effect: encoder"):
        _ = tp.Recommender(encoder="ease", hold_out="last").spec
    without = {k: v for k, v in tp.Recommender().get_params().items() if k != "hold_out"}
    older = Spec.of(from_json(without), unused="drop")  # of a file that is older than this parameter
    assert older.hold_out == "auto"


def test_a_search_holds_out_as_it_is_asked():
    pytest.importorskip("optuna")
    options = {"trials": 1, **QUICK}
    data = timed(n_items=12)
    found = {how: tp.tune(data, hold_out=how, **options) for how in ("auto", "random", "last")}
    scores = {how: each.best.score for how, each in found.items()}
    assert scores["auto"] == scores["last"] != scores["random"]
    assert "hold_out" not in found["last"].parameters()
    ease = tp.tune(data, encoder="ease", hold_out="last", trials=1, metric="ndcg@5")
    assert ease.recommender().fit(data).spec.closed_form is not None
    with pytest.raises(InputError, match="hold_out = 'newest'"):
        tp.tune(data, hold_out="newest", **options)
