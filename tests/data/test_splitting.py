"""Splits: partitions, sizes, the same on every machine, and notes that hide nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from functools import partial

import numpy as np
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.split_recipes import (
    SPLITS,
    Split,
    k_folds,
    split_given,
    split_leave_last_out,
    split_random,
    split_random_per_user,
    split_temporal,
)
from truepair.errors import InputError

Pair = tuple[object, object]


def pairs(part: Interactions | None) -> set[Pair]:
    """The pairs of a part in outside ids, so that recoding cannot fool a test."""
    if part is None:
        return set()
    table = part.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def given(*rows: Pair, time: list[float] | None = None) -> Interactions:
    """Interactions of the given pairs of outside ids."""
    user_ids, item_ids = IdMap.of([u for u, _ in rows]), IdMap.of([i for _, i in rows])
    users, items = user_ids.codes([u for u, _ in rows]), item_ids.codes([i for _, i in rows])
    return Interactions(users, items, user_ids, item_ids, time=None if time is None else np.array(time))


def grid(n_users: int, n_items: int, keep: int = 1) -> Interactions:
    """Pairs of a full grid, every `keep`-th one of it, with a time, a rating and a weight each."""
    cells = np.arange(0, n_users * n_items, keep)
    users, items = np.divmod(cells, n_items)
    return Interactions(
        users,
        items,
        IdMap.range(n_users),
        IdMap.range(n_items),
        rating=cells / 2,
        weight=cells + 1,
        time=cells * 7919 % 10007 // 10,  # shuffled, with ties
    )


@pytest.fixture
def some() -> Interactions:
    return grid(23, 17, keep=3)


def check_partition(whole: Interactions, split: Split) -> None:
    parts = [pairs(part) for part in split.parts.values()]
    assert sum(map(len, parts)) == len(whole)
    assert set().union(*parts) == pairs(whole)


# --- every recipe ----------------------------------------------------------------------------------

WITH_VALID = {"leave_last_out": {"valid": 1}}


@pytest.mark.parametrize("name", SPLITS)
def test_parts_partition_the_pairs(name: str, some: Interactions) -> None:
    check_partition(some, SPLITS[name](some))
    split = SPLITS[name](some, **WITH_VALID.get(name, {"valid": 0.25}))
    check_partition(some, split)
    assert split.valid is not None
    assert len(split.valid)


@pytest.mark.parametrize("name", SPLITS)
def test_validation_comes_out_of_train_and_never_out_of_test(name: str, some: Interactions) -> None:
    without = SPLITS[name](some)
    split = SPLITS[name](some, **WITH_VALID.get(name, {"valid": 0.25}))
    assert without.valid is None
    assert split.test == without.test
    assert pairs(split.train) | pairs(split.valid) == pairs(without.train)


@pytest.mark.parametrize("name", SPLITS)
def test_columns_and_ids_survive(name: str, some: Interactions) -> None:
    split = SPLITS[name](some, **WITH_VALID.get(name, {"valid": 0.25}))
    for part in split.parts.values():
        cells = part.users * 17 + part.items
        assert part.rating is not None
        assert part.weight is not None
        assert part.time is not None
        np.testing.assert_array_equal(part.rating, cells / 2)
        np.testing.assert_array_equal(part.weight, cells + 1)
        np.testing.assert_array_equal(part.time, cells * 7919 % 10007 // 10)
        assert part.user_ids is some.user_ids
        assert part.item_ids is some.item_ids


@pytest.mark.parametrize("name", SPLITS)
def test_row_order_of_the_input_does_not_matter(name: str, some: Interactions) -> None:
    other = some.take(np.arange(len(some))[::-1])
    assert SPLITS[name](some) == SPLITS[name](other)


@pytest.mark.parametrize("name", SPLITS)
def test_recipe_repeats_the_split(name: str, some: Interactions) -> None:
    split = SPLITS[name](some, **WITH_VALID.get(name, {"valid": 1 / 3}))
    again = eval(split.recipe, {name: partial(SPLITS[name], some)})
    assert again == split
    assert again.recipe == split.recipe


# Written down once: a machine, a NumPy or a rewrite that changes a published split must fail here.
FROZEN: dict[str, tuple[Callable[[Interactions], Split], str]] = {
    "random": (lambda x: split_random(x, 0.2, 0.1, seed=7), "89d7c12ca3b20b6e39a126c7b32f1e36"),
    "random_per_user": (
        lambda x: split_random_per_user(x, 0.2, 0.1, seed=7),
        "12c390a2f0bda2b7430a2565240a2a93",
    ),
    "leave_last_out": (lambda x: split_leave_last_out(x, 1, 1, seed=7), "8c1f054efadb2261153dc6e061fed8b5"),
    "temporal": (lambda x: split_temporal(x, 0.2, 0.1), "6421efed5b5984926f8c4b5d4fca2d34"),
    "k_folds": (lambda x: k_folds(x, 5, 0.1, seed=7)[3], "ce213ceef68d330c9d3886aa389f689b"),
    "given": (
        lambda x: split_given(x.take(x.items > 2), x.take(x.items <= 2), holdout=0.1, seed=7),
        "6967cc12a8b2d1b2912c7da8caddd41b",
    ),
}


@pytest.mark.parametrize("name", FROZEN)
def test_the_same_split_on_every_machine(name: str) -> None:
    make, expected = FROZEN[name]
    assert make(grid(11, 13, keep=2)).hash == expected


def test_the_same_pairs_on_every_machine() -> None:
    split = split_random(grid(4, 5), test=0.2, valid=0.25, seed=7)
    assert split.valid is not None
    assert (split.test.users * 5 + split.test.items).tolist() == [10, 11, 13, 16]
    assert (split.valid.users * 5 + split.valid.items).tolist() == [4, 12, 17, 19]


@pytest.mark.parametrize("name", ["random", "random_per_user"])
def test_seed_changes_the_split(name: str, some: Interactions) -> None:
    hashes = {SPLITS[name](some, seed=seed).hash for seed in range(5)}
    assert len(hashes) == 5


# --- random ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "test", "valid", "sizes"),
    [
        (10, 0.2, 0.0, (8, 0, 2)),
        (10, 0.25, 0.5, (3, 4, 3)),  # 2.5 rounds up to 3, then half of the *remaining* 7 rounds up to 4
        (101, 0.1, 0.1, (82, 9, 10)),
        (3, 0.01, 0.01, (3, 0, 0)),
    ],
)
def test_random_sizes(n: int, test: float, valid: float, sizes: tuple[int, int, int]) -> None:
    split = split_random(grid(1, n), test, valid)
    assert (len(split.train), len(split.valid or ()), len(split.test)) == sizes


def test_random_is_uniform_over_pairs() -> None:
    whole = grid(5, 10)
    hits = np.zeros((5, 10))
    for seed in range(600):
        test = split_random(whole, 0.2, seed=seed).test
        hits[test.users, test.items] += 1
    # χ² with 49 degrees of freedom; without replacement it is a little smaller still. P(> 85) = 0.001
    assert ((hits - 120) ** 2 / (120 * 0.8)).sum() < 85


def test_random_notes_what_train_never_saw() -> None:
    whole = given(("ann", "a"), ("bob", "b"), ("cid", "c"), ("dan", "d"))
    notes = split_random(whole, test=0.5, valid=0.5).notes
    assert notes == (
        "1 valid pair of 1 item that train does not have",
        "1 valid user without a pair in train (1 pair)",
        "2 test pairs of 2 items that train does not have",
        "2 test users without a pair in train (2 pairs)",
    )


def test_empty_parts_are_noted_not_hidden() -> None:
    split = split_random(grid(1, 3), test=0.01, valid=0.01)
    assert split.notes == ("valid is empty", "test is empty")
    assert "note: test is empty" in repr(split)
    assert split_random(grid(1, 3), test=0.01).notes == ("test is empty",)


# --- random per user -------------------------------------------------------------------------------


@pytest.mark.parametrize(("test", "valid"), [(0.2, 0.0), (0.5, 0.3), (0.1, 0.9), (0.99, 0.99)])
def test_per_user_sizes_against_a_loop(test: float, valid: float) -> None:
    users = np.repeat(np.arange(12), np.arange(12))  # user u has u pairs
    items = np.arange(len(users))
    split = split_random_per_user(
        Interactions(users, items, IdMap.range(12), IdMap.range(len(users))), test, valid, seed=3
    )
    for user in range(1, 12):
        n_test = min(int(user * test + 0.5), user - 1)
        n_valid = min(int((user - n_test) * valid + 0.5), user - n_test - 1)
        assert split.test.user_counts[user] == n_test
        assert (split.valid.user_counts[user] if split.valid else 0) == n_valid
        assert split.train.user_counts[user] == user - n_test - n_valid > 0


def test_per_user_notes() -> None:
    split = split_random_per_user(given((1, 1), (2, 1), (2, 2), *((3, item) for item in range(9))))
    assert split.notes[:2] == (
        "1 user with a single pair, which stays in train",
        "1 user with too few pairs to have one in test",
    )


def test_per_user_is_uniform_over_a_users_items() -> None:
    hits = np.zeros(10)
    for seed in range(500):
        hits[split_random_per_user(grid(3, 10), 0.2, seed=seed).test.items_of(1)] += 1
    assert ((hits - 100) ** 2 / (100 * 0.8)).sum() < 28  # χ² with 9 degrees of freedom: P(> 28) = 0.001


# --- leave last out --------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "valid"), [(1, 0), (1, 1), (2, 0), (3, 2), (50, 50)])
def test_leave_last_out_against_a_plain_oracle(last: int, valid: int) -> None:
    whole = replace(some := grid(23, 17, keep=3), time=np.argsort(np.argsort(some.time * 1.0, kind="stable")))
    split = split_leave_last_out(whole, last, valid)
    expected: dict[str, set[Pair]] = {"train": set(), "valid": set(), "test": set()}
    for user in range(23):
        rows = sorted(
            (t, i) for u, i, t in zip(whole.users, whole.items, whole.time, strict=True) if u == user
        )
        for place, (_, item) in enumerate(reversed(rows)):
            room = len(rows) - 1
            part = (
                "test" if place < min(last, room) else "valid" if place < min(last + valid, room) else "train"
            )
            expected[part].add((user, int(item)))
    assert {"train": pairs(split.train), "valid": pairs(split.valid), "test": pairs(split.test)} == expected


def test_leave_last_out_puts_validation_before_test_and_after_train(some: Interactions) -> None:
    split = split_leave_last_out(some, last=2, valid=2)
    assert split.valid is not None
    for user in range(some.n_users):
        train, valid, test = (
            part.time[part.users == user] for part in (split.train, split.valid, split.test)
        )
        assert train.max() <= valid.min()
        assert valid.max() <= test.min()


def test_leave_last_out_breaks_ties_by_the_seed_alone() -> None:
    whole = replace(grid(40, 4), time=np.zeros(160))
    first = split_leave_last_out(whole, seed=1)
    assert first == split_leave_last_out(whole, seed=1)
    assert first != split_leave_last_out(whole, seed=2)
    assert len(np.unique(first.test.items)) == 4  # not always the lowest or the highest code


def test_leave_last_out_without_ties_needs_no_seed() -> None:
    whole = replace(grid(5, 6), time=np.arange(30))
    assert split_leave_last_out(whole, seed=1) == split_leave_last_out(whole, seed=2)


def test_leave_last_out_notes() -> None:
    whole = given((1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), time=[1, 1, 2, 1, 2, 3])
    split = split_leave_last_out(whole, last=1, valid=1)
    assert pairs(split.test) == {(2, 2), (3, 3)}
    assert pairs(split.valid) == {(3, 2)}
    assert split.notes[:2] == (
        "1 user with a single pair, which stays in train",
        "1 user with too few pairs to hold out 2 and keep one in train",
    )


# --- temporal --------------------------------------------------------------------------------------


def line(*times: float) -> Interactions:
    """One user who interacts with item 0, 1, … at the given times."""
    return given(*((0, item) for item in range(len(times))), time=list(times))


def test_temporal_cuts_at_a_share() -> None:
    split = split_temporal(line(5, 3, 1, 2, 4, 9, 8, 7, 6, 0), test=0.3, valid=0.4)
    assert split.valid is not None
    assert sorted(split.test.time) == [7, 8, 9]
    assert sorted(split.valid.time) == [4, 5, 6]  # 0.4 of the remaining 7 rounds to 3
    assert not any("equal times" in note for note in split.notes)


def test_temporal_keeps_ties_together_and_says_so() -> None:
    split = split_temporal(line(0, 1, 1, 1, 2, 2, 2, 3), test=0.25, valid=0.2)
    assert split.valid is not None
    assert sorted(split.test.time) == [2, 2, 2, 3]
    assert sorted(split.valid.time) == [1, 1, 1]
    assert split.notes[:2] == (
        "4 test pairs instead of 2: equal times stay together",
        "3 valid pairs instead of 1: equal times stay together",
    )


DAYS = ("2024-06-14T23:59:59", "2024-06-15", "2024-06-16T12:00", "2024-06-17")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "float"])
@pytest.mark.parametrize(
    "at",
    [
        "2024-06-15", "2024-06-15 00:00", "2024-06-15T02:00+02:00", date(2024, 6, 15),
        datetime(2024, 6, 15), np.datetime64("2024-06-15"), "2024-06-14T23:59:59.5",
    ],
    ids=str,
)  # fmt: skip
def test_temporal_cuts_at_a_date_in_any_unit(unit, at) -> None:
    moments = np.array(DAYS, "datetime64[s]")
    times = moments.astype(float) if unit == "float" else moments.astype(f"datetime64[{unit}]").astype(int)
    split = split_temporal(line(*times), at=at)
    assert [(len(split.train), len(split.test))] == [(1, 3)]


def test_temporal_needs_a_date_that_can_be_compared() -> None:
    with pytest.raises(InputError, match=r"at = 'soon' is no time; give a date such as '2024-06-15'"):
        split_temporal(line(0, 1), at="soon")
    with pytest.raises(InputError, match="needs dates; times are at most"):
        split_temporal(line(0, 1), at="2024-06-15")


def test_temporal_cuts_at_a_moment_that_belongs_to_test() -> None:
    split = split_temporal(line(0, 1, 2, 2, 3), at=2)
    assert sorted(split.test.time) == [2, 2, 3]
    assert split.recipe == "temporal(at=2, valid=0.0)"


def test_temporal_moment_is_exact_for_nanoseconds() -> None:
    start = 2**60
    whole = replace(line(0, 1, 2, 3), time=start + np.arange(4))
    assert sorted(split_temporal(whole, at=start + 1).test.time - start) == [1, 2, 3]


def test_temporal_default_share_is_a_fifth() -> None:
    assert len(split_temporal(line(*range(10))).test) == 2


def test_temporal_empty_test_is_noted() -> None:
    assert split_temporal(line(0, 1, 2), at=3).notes == ("test is empty",)
    assert split_temporal(line(0, 1), test=0.1).notes == ("test is empty",)


# --- folds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 5, 7])
def test_folds_partition_the_pairs(k: int, some: Interactions) -> None:
    folds = k_folds(some, k, valid=0.2, seed=1)
    tests = [pairs(fold.test) for fold in folds]
    assert len(folds) == k
    assert sum(map(len, tests)) == len(some)
    assert set().union(*tests) == pairs(some)
    assert max(map(len, tests)) - min(map(len, tests)) <= 1
    for fold in folds:
        check_partition(some, fold)
        assert fold.valid is not None
        assert len(fold.valid) == int((len(some) - len(fold.test)) * 0.2 + 0.5)


def test_folds_can_leave_one_out_and_name_themselves() -> None:
    folds = k_folds(grid(2, 3), k=6)
    assert all(len(fold.test) == 1 for fold in folds)
    assert [fold.recipe for fold in folds][:2] == [
        "k_folds(k=6, valid=0.0, seed=0)[0]",
        "k_folds(k=6, valid=0.0, seed=0)[1]",
    ]


# --- given -----------------------------------------------------------------------------------------


def test_given_unites_ids_and_keeps_every_pair() -> None:
    train = given(("ann", "x"), ("bob", "y"), time=[1, 2])
    valid = given(("cid", "x"), ("ann", "w"))
    test = given(("bob", "x"), ("zoe", "z"))
    split = split_given(train, test, valid)
    assert split.train.user_ids.ids.to_pylist() == ["ann", "bob", "cid", "zoe"]
    assert split.train.item_ids.ids.to_pylist() == ["w", "x", "y", "z"]
    assert [pairs(part) for part in split.parts.values()] == [pairs(train), pairs(valid), pairs(test)]
    assert split.train.time is not None
    assert split.train.time.tolist() == [1, 2]
    assert split.recipe == "given()"
    assert split.notes == (
        "1 valid pair of 1 item that train does not have",
        "1 valid user without a pair in train (1 pair)",
        "1 test pair of 1 item that train does not have",
        "1 test user without a pair in train (1 pair)",
    )


def test_given_carves_validation_out_of_train() -> None:
    train, test = grid(5, 8).take(np.arange(30)), grid(5, 8).take(np.arange(30, 40))
    split = split_given(train, test, holdout=0.2, seed=4)
    assert split.valid is not None
    assert len(split.valid) == 6
    assert pairs(split.train) | pairs(split.valid) == pairs(train)
    assert pairs(split.test) == pairs(test)
    assert split.recipe == "given(holdout=0.2, seed=4)"
    assert split != split_given(train, test, holdout=0.2, seed=5)


def test_given_overlap_is_an_error_or_dropped_and_noted() -> None:
    train, test = given((1, 1), (1, 2), (2, 1)), given((1, 2), (2, 1), (2, 2))
    with pytest.raises(
        InputError, match=r"^2 test pairs also in train; pass overlap='drop' to drop them from test\.$"
    ):
        split_given(train, test)
    split = split_given(train, test, overlap="drop")
    assert pairs(split.train) == pairs(train)
    assert pairs(split.test) == {(2, 2)}
    assert split.notes == ("2 test pairs also in train: dropped from test",)


def test_given_overlap_with_valid_is_dropped_from_valid() -> None:
    train, test, valid = given((1, 1), (2, 2)), given((1, 2)), given((1, 1), (1, 2), (2, 1))
    with pytest.raises(InputError, match="1 valid pair also in train; pass overlap='drop'"):
        split_given(train, test, valid)
    split = split_given(train, test, valid, overlap="drop")
    assert [pairs(part) for part in split.parts.values()] == [{(1, 1), (2, 2)}, {(2, 1)}, {(1, 2)}]
    assert split.notes == (
        "1 valid pair also in train: dropped from valid",
        "1 valid pair also in test: dropped from valid",
    )


def test_given_without_shared_users_shows_both_kinds_of_ids() -> None:
    message = r"no user of test \('7', '8'\) is in train \('u1', 'u2', 'u3', …\); use the same ids in both"
    with pytest.raises(InputError, match=message):
        split_given(given(("u1", 1), ("u2", 1), ("u3", 1), ("u4", 1)), given(("7", 1), ("8", 1)))


def test_given_ids_of_two_kinds_are_an_error() -> None:
    with pytest.raises(InputError, match="user ids are of type"):
        split_given(given((1, 1)), given(("1", 1)))


def test_given_valid_and_carve_exclude_each_other() -> None:
    with pytest.raises(InputError, match=r"holdout = 0\.5 makes a validation part, and `valid` is given"):
        split_given(given((1, 1)), given((1, 2)), given((1, 3)), holdout=0.5)


def test_given_unknown_overlap_lists_the_choices() -> None:
    with pytest.raises(
        InputError, match=r"overlap = 'dorp' is not known; .*'error', 'drop'.* Did you mean 'drop'"
    ):
        split_given(given((1, 1)), given((1, 2)), overlap="dorp")


def test_given_empty_test_is_noted() -> None:
    whole = given((1, 1), (1, 2))
    assert split_given(whole, whole.take(np.zeros(2, dtype=bool))).notes == ("test is empty",)
    assert split_given(whole, whole, overlap="drop").notes == (
        "2 test pairs also in train: dropped from test",
        "test is empty",
    )


# --- the value itself ------------------------------------------------------------------------------


def test_repr_tells_recipe_sizes_and_notes() -> None:
    split = split_random(given((1, 1), (1, 2), (2, 1), (2, 2)), test=0.25, seed=2)
    assert (
        repr(split)
        == "<Split random(test=0.25, valid=0.0, seed=2): 2 users x 2 items, pairs: train 3, test 1>"
    )


def test_hash_is_about_the_parts_not_the_recipe(some: Interactions) -> None:
    split = split_random(some, valid=0.1)
    assert replace(split, recipe="by hand", remarks=("odd",)).hash == split.hash
    assert hash(replace(split, recipe="by hand")) == hash(split)
    swapped = Split(split.train, split.test, split.valid, split.recipe)
    empty = some.take(np.zeros(len(some), dtype=bool))
    assert (
        len({split.hash, swapped.hash, Split(some, None, empty, "").hash, Split(some, empty, empty, "").hash})
        == 4
    )
    assert split != "split"


def test_remarks_come_before_the_notes_of_the_parts() -> None:
    whole = given((1, 1), (1, 2))
    empty = whole.take(np.zeros(2, dtype=bool))
    assert Split(whole, None, empty, "by hand", ("chosen by hand",)).notes == (
        "chosen by hand",
        "test is empty",
    )


def test_parts_must_share_their_ids() -> None:
    message = r"test and train differ in item ids \(2, 1\); use `split_given`"
    with pytest.raises(InputError, match=message):
        Split(given((1, 1), (2, 1)), None, given((1, 2), (2, 1)), "by hand")
    with pytest.raises(InputError, match=r"valid and train differ in user ids \(1, 1\)"):
        Split(given((1, 1)), given((2, 1)), given((1, 1)), "by hand")


def test_parts_must_be_disjoint(some: Interactions) -> None:
    with pytest.raises(InputError, match=r"^3 pairs are in train and in test; use `split_given"):
        Split(some, None, some.take(np.arange(3)), "by hand")
    with pytest.raises(InputError, match=r"^2 pairs are in valid and in test"):
        Split(some.take(np.arange(9, 12)), some.take(np.arange(5)), some.take(np.arange(3, 8)), "by hand")


# --- errors ----------------------------------------------------------------------------------------

NO_TEST = r"test = {} is out of range; it must be a finite number > 0 and < 1\. It is the share of all pairs"
NO_VALID = (
    r"valid = {} is out of range; it must be a finite number ≥ 0 and < 1\. It is the share of train pairs"
)


@pytest.mark.parametrize("name", ["random", "random_per_user", "temporal"])
@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, float("nan"), "0.2", True])
def test_test_share_must_be_inside(name: str, share: float, some: Interactions) -> None:
    with pytest.raises(InputError, match=NO_TEST.format(repr(share).replace(".", r"\."))):
        SPLITS[name](some, test=share)


@pytest.mark.parametrize("share", [1, -0.1])
def test_valid_share_must_be_inside(share: float, some: Interactions) -> None:
    for split in (split_random, split_random_per_user, split_temporal, k_folds):
        with pytest.raises(InputError, match=NO_VALID.format(share)):
            split(some, valid=share)
    with pytest.raises(InputError, match="holdout = "):
        split_given(some, some, holdout=share)


@pytest.mark.parametrize("seed", [-1, 0.5, "7"])
def test_seed_must_be_whole(seed: int, some: Interactions) -> None:
    for split in (split_random, split_random_per_user, split_leave_last_out, k_folds):
        with pytest.raises(InputError, match=r"seed = .* it must be a whole number from 0 to"):
            split(some, seed=seed)


def test_leave_last_out_counts_pairs(some: Interactions) -> None:
    with pytest.raises(InputError, match="last = 0 is out of range; it must be a whole number ≥ 1"):
        split_leave_last_out(some, last=0)
    with pytest.raises(
        InputError, match=r"valid = 0\.1 .* Here it is a number of pairs per user, not a share"
    ):
        split_leave_last_out(some, valid=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["leave_last_out", "temporal"])
def test_missing_times_are_an_error(name: str) -> None:
    with pytest.raises(InputError, match=f"split_{name} needs the time of each pair; read time=…"):
        SPLITS[name](given((1, 1), (1, 2)))


def test_temporal_wants_one_cut() -> None:
    with pytest.raises(InputError, match=r"test = 0\.2 and at = 3 both say where to split; pass one of them"):
        split_temporal(line(1, 2), test=0.2, at=3)
    with pytest.raises(InputError, match=r"at = nan .* unit of the time column; it ranges from 1.* to 2"):
        split_temporal(line(1, 2), at=float("nan"))


def test_nothing_left_for_train_is_an_error() -> None:
    with pytest.raises(
        InputError, match=r"random\(.*\) leaves no pair for train: train has 0 pairs, test has 2"
    ):
        split_random(grid(1, 2), test=0.9)
    with pytest.raises(
        InputError, match=r"temporal\(.*valid has 1 pairs, test has 1 pairs; hold out fewer pairs"
    ):
        split_temporal(line(1, 2), test=0.5, valid=0.9)
    with pytest.raises(InputError, match=r"temporal\(at=1, .* leaves no pair for train"):
        split_temporal(line(1, 2), at=1)


@pytest.mark.parametrize("name", SPLITS)
def test_nothing_to_split_is_an_error(name: str, some: Interactions) -> None:
    with pytest.raises(InputError, match="leaves no pair for train: train has 0 pairs, test has 0 pairs"):
        SPLITS[name](some.take(np.zeros(len(some), dtype=bool)))


@pytest.mark.parametrize("k", [0, 1, 7, 2.0])
def test_k_is_from_two_to_the_number_of_pairs(k: int) -> None:
    with pytest.raises(InputError, match=f"k = {k} .* whole number from 2 to 6. There are 6 pairs"):
        k_folds(grid(2, 3), k)


def test_folds_of_too_few_pairs() -> None:
    with pytest.raises(InputError, match="leaves no pair for train"):
        k_folds(grid(1, 1), 2)
