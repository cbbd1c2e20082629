"""Held-out pairs unlike train are noted, random ones are not; the moments are those of all random choices."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from truepair.data import exchangeability
from truepair.data.exchangeability import Difference, differences, unlike_train
from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split import Split
from truepair.data.split_recipes import (
    k_folds,
    split_given,
    split_leave_last_out,
    split_random,
    split_random_per_user,
)


def world(
    n_users: int = 300, n_items: int = 150, each: int = 12, seed: int = 0, kind: str = "clock"
) -> Interactions:
    """Skewed popularity, users of different sizes, and items that come up one after another."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(n_users):
        size = 2 + rng.poisson(each - 2)
        taken = rng.choice(n_items, size, replace=False, p=_skewed(n_items))
        rows += [(user, item, 3 * user + place) for place, item in enumerate(np.sort(taken))]
    users, items, time = np.array(rows).T
    ids = IdMap.range(n_users), IdMap.range(n_items)
    return Interactions(users, items, *ids, time=time, time_kind=kind)  # type: ignore[arg-type]


def _skewed(n: int) -> np.ndarray:
    weights = np.random.default_rng(1).permutation(1 / (1 + np.arange(n)) ** 0.8)
    return np.asarray(weights / weights.sum())


def of(split: Split) -> dict[str, Difference]:
    return {each.statistic: each for each in differences(split.train, split.test)}


def held_out(data: Interactions, rows: np.ndarray) -> Split:
    return Split(data.take(~rows), None, data.take(rows), "by hand")


# --- the null distribution -------------------------------------------------------------------------


def test_mean_and_deviation_are_those_of_all_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchangeability, "LEAST_PAIRS", 1)
    monkeypatch.setattr(exchangeability, "LEAST_POPULARITY", 1)
    users, items = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2]), np.array([0, 1, 2, 3, 0, 1, 4, 0, 2])
    time = np.array([4, 1, 1, 3, 9, 2, 5, 7, 6])
    data = Interactions(users, items, IdMap.range(3), IdMap.range(5), time=time)
    choices = product(combinations(range(4), 2), combinations(range(4, 7), 1), combinations(range(7, 9), 1))
    found = []
    for choice in choices:
        rows = np.zeros(len(data), dtype=bool)
        rows[np.concatenate([np.array(those) for those in choice])] = True
        found.append(of(held_out(data, rows)))
    assert len(found) == 6 * 3 * 2
    assert list(found[0]) == ["popular items", "log popularity", "place in history", "first appearance"]
    for name in found[0]:
        z, observed, expected = (
            np.array([getattr(each[name], part) for each in found]) for part in ("z", "observed", "expected")
        )
        np.testing.assert_allclose(expected, observed.mean())  # the same for every choice
        np.testing.assert_allclose(z.mean(), 0, atol=1e-12)
        np.testing.assert_allclose((z**2).mean(), 1)


def test_p_is_two_sided_and_corrected() -> None:
    assert exchangeability._p(1.959964, 1) == pytest.approx(0.05)
    assert exchangeability._p(-1.959964, 4) == pytest.approx(0.2)
    assert exchangeability._p(0.0, 4) == 1


@pytest.mark.parametrize("kind", ["random", "per user", "fold", "small", "without unknown items"])
def test_random_splits_are_exchangeable(kind: str) -> None:
    make = {
        "random": lambda seed: split_random(data, seed=seed),
        "per user": lambda seed: split_random_per_user(data, seed=seed),
        "fold": lambda seed: k_folds(data, 4, seed=seed)[1],
        "small": lambda seed: split_random(data, test=0.05, seed=seed),
        "without unknown items": lambda seed: _without_unknown_items(split_random(data, test=0.3, seed=seed)),
    }[kind]
    data = world(n_items=1500 if "unknown" in kind else 150)  # many of the 1500 are rare
    found = [make(seed) for seed in range(60)]
    z = np.array([each.z for split in found for each in differences(split.train, split.test)])
    assert len(z) == 60 * 4
    assert sum("is unlike train" in note for split in found for note in split.notes) == 0
    assert 0.8 < z.std() < 1.2
    assert abs(z.mean()) < 0.2


def _without_unknown_items(split: Split) -> Split:
    """As most published splits: test has no item that train does not have."""
    known = split.train.item_counts[split.test.items] > 0
    return split_given(split.train, split.test.take(known))


# --- what is unlike --------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "word"), [(0.5, "more"), (0.05, "less")])
def test_popular_items_held_out_too_often_or_too_seldom(share: float, word: str) -> None:
    data = world().pairs_only()
    popular = exchangeability._popular(data.item_counts)[data.items] > 0
    draws = np.random.default_rng(0).random(len(data))
    split = held_out(data, draws < np.where(popular, share, 0.2))
    [note] = split.notes
    assert note.startswith(f"test is unlike train: popular items are held out {word} often than at random (")
    assert note.endswith(
        "; a random validation part may choose the wrong settings: validate on a part that is like test"
    )
    assert "its items are" not in note  # the same, said once
    shares = [float(text.split("%")[0]) / 100 for text in note.split("(")[1].split(" against ")]
    assert shares[0] == pytest.approx(
        split.test.item_counts[np.unique(data.items[popular])].sum() / popular.sum(), abs=1e-3
    )
    assert abs(shares[1] - 0.2) < 0.05


def test_the_popularity_of_items_that_are_not_at_the_top() -> None:
    data = world().pairs_only()
    rare = data.item_counts[data.items] < np.median(data.item_counts[data.items])
    draws = np.random.default_rng(0).random(len(data))
    popular = exchangeability._popular(data.item_counts)[data.items] > 0
    split = held_out(data, draws < np.where(rare, 0.4, np.where(popular, 0.28, 0.1)))
    [note] = [note for note in split.notes if "unlike" in note]
    assert "its items are less popular than at random (" in note
    assert "popular items are held out" not in note


def test_the_last_pairs_of_each_user() -> None:
    data = world()
    data = replace(data, time=data.items)  # one item after another
    last = split_leave_last_out(data, last=2)
    [note] = [note for note in last.notes if "unlike" in note]
    assert "its pairs are later in their user's history (9" in note
    assert "its items appeared later for the first time (" in note
    assert note.endswith("use hold_out='last' or 'time'")


def test_the_first_pairs_of_each_user() -> None:
    data = world()
    first = split_leave_last_out(
        Interactions(data.users, data.items, data.user_ids, data.item_ids, time=-data.time), 2
    )
    parts = [data.take(part.has(data.users, data.items)) for part in (first.train, first.test)]
    [note] = [note for note in split_given(*parts).notes if "unlike" in note]
    assert "its pairs are earlier in their user's history" in note


def test_positions_are_not_compared_between_parts() -> None:
    order = world(kind="order")
    assert list(of(split_random(order))) == ["popular items", "log popularity"]
    popular = exchangeability._popular(order.item_counts)[order.items] > 0
    split = held_out(order, popular & (np.random.default_rng(0).random(len(order)) < 0.5))
    assert split.notes[0].endswith("use hold_out='last'")


def test_equal_times_share_a_place() -> None:
    users, time = np.array([0, 1, 0, 0, 1, 0]), np.array([5.0, 1.0, 5.0, 9.0, 1.0, 2.0])
    places = exchangeability._place_in_history(users, time)
    np.testing.assert_allclose(places, [0.5, 0.5, 0.5, 1, 0.5, 0])


# --- what is not compared ----------------------------------------------------------------------------


def test_too_few_pairs_say_nothing() -> None:
    data = world(40)
    assert differences(data, data.take(data.users < 0)) == ()
    few = np.arange(len(data)) % 5 == 0
    assert few.sum() < 100
    assert unlike_train("test", data.take(~few), data.take(few)) == ()


def test_items_of_equal_popularity_do_not_differ() -> None:
    users, items = np.divmod(np.arange(30 * 20), 20)
    data = Interactions(users, items, IdMap.range(30), IdMap.range(20))
    found = of(held_out(data, items < 5))
    assert {each.z for each in found.values()} == {0.0}
    assert not any(each.significant for each in found.values())


def test_of_many_pairs_every_other_user_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    data = world()
    split = split_leave_last_out(data, last=3)
    whole = of(split)
    monkeypatch.setattr(exchangeability, "MOST_PAIRS", len(data) // 2 + 1)
    half = of(split)
    assert all(abs(half[name].z) < abs(whole[name].z) for name in ("place in history", "log popularity"))
    assert half["place in history"].significant
    np.testing.assert_allclose(
        half["place in history"].z ** 2, whole["place in history"].z ** 2 / 2, rtol=0.1
    )
