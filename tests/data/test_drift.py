"""Worlds that drift: the same on every machine, with new users and items, fading items, moving tastes."""

import numpy as np
import pytest

import truepair as tp
from truepair.data.drift import START, WEEK, _World
from truepair.errors import InputError

SMALL = {"n_users": 200, "n_items": 120, "periods": 6, "pairs": 30}


def weeks(world):
    return (world.time - START) // WEEK


def first_weeks(world, codes):
    """The week of each user's or item's first pair."""
    first = np.full(codes.max() + 1, 99)
    np.minimum.at(first, codes, weeks(world))
    return first


def test_the_same_world_on_every_machine():
    world = tp.simulate_drift(**SMALL, seed=3)
    assert world.hash == "9a9193dedcc4f789ccfc6f730ef3b858"
    assert world == tp.simulate_drift(**SMALL, seed=3)
    assert world != tp.simulate_drift(**SMALL, seed=4)


def test_pairs_lie_within_the_weeks():
    world = tp.simulate_drift(**SMALL)
    assert set(weeks(world)) == set(range(6))
    assert world.time.dtype == np.int64
    assert world.history == ()


def test_new_users_and_items_come_in_every_week():
    world = tp.simulate_drift(**SMALL, new_users=0.5, new_items=0.5)
    for codes, n in ((world.users, 200), (world.items, 120)):
        late = np.bincount(first_weeks(world, codes), minlength=6)[1:]
        assert (late >= 0.03 * n).all()
    old = tp.simulate_drift(**SMALL, new_users=0, new_items=0, lifetime=1e9)
    assert (first_weeks(old, old.users) == 0).mean() > 0.9


def test_few_items_have_most_pairs_and_few_users_are_very_active():
    world = tp.simulate_drift(500, 300, pairs=40)
    for counts in (world.item_counts, world.user_counts):
        ordered = np.sort(counts)[::-1]
        assert ordered[: len(ordered) // 5].sum() > 0.4 * ordered.sum()


def test_items_fade_with_a_short_lifetime():
    """The age of what is taken in the last week, for items that were launched in the world."""
    ages = {}
    for lifetime in (0.5, 50):
        world = tp.simulate_drift(**SMALL, lifetime=lifetime)
        taken = world.items[weeks(world) == 5]
        ages[lifetime] = 5 - first_weeks(world, world.items)[taken].mean()
    assert ages[0.5] < ages[50] - 0.5


@pytest.mark.parametrize(("drift", "low", "high"), [(0, 1, 1), (0.3, 0.6, 0.9), (1, -0.1, 0.1)])
def test_tastes_move_by_the_drift_and_keep_their_spread(drift, low, high):
    world = _World(2000, 10, 4, 5, drift, 5.0, 4, 0, 0.0, 0.0)
    before = world.taste
    world.weeks()
    correlation = np.corrcoef(before.ravel(), world.taste.ravel())[0, 1]
    assert low - 1e-12 <= correlation <= high + 1e-12
    assert world.taste.std() == pytest.approx(1, abs=0.03)


def test_nothing_is_taken_before_it_is_launched():
    world = _World(100, 60, 5, 30, 0.2, 5.0, 4, 0, 0.5, 0.8)
    users, items, time = (np.concatenate(parts) for parts in zip(*world.weeks(), strict=True))
    at = (time + 1 - START) / WEEK
    assert (at >= world.launch[items]).all()
    assert (at >= world.arrival[users]).all()
    assert (world.launch[items] > 1).any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_users": 0}, {"n_items": 1}, {"periods": 1}, {"pairs": 0}, {"drift": 1.1}, {"drift": float("nan")},
        {"lifetime": 0}, {"new_users": -0.1}, {"new_items": 2}, {"dim": 0}, {"seed": -1}, {"n_users": 10**9},
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        tp.simulate_drift(**{**SMALL, **wrong})


def test_a_world_without_a_pair_is_an_error():
    with pytest.raises(InputError, match="gave no pair"):
        tp.simulate_drift(1, 2, periods=1000, pairs=1, new_users=1, seed=5)
