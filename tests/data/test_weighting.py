"""Weights and dislikes of rows: kinds, counts, half-lives, ratings, repeated pairs, and bad input."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.data.split_recipes import split_given, split_random
from truepair.errors import InputError
from truepair.recommender.holdout import joined

DAY = 86_400
NEWEST = 1_700_000_000


def read(rows, columns=("user", "item", "weight"), **options):
    return read_interactions(pd.DataFrame(rows, columns=list(columns)), **options)


def pairs(found):
    """{(user, item): weight}, in the caller's ids."""
    table = found.to_table()
    rows = zip(*(table[name].to_pylist() for name in ("user", "item", "weight")), strict=True)
    return {(user, item): weight for user, item, weight in rows}


def disliked(found):
    table = found.dislikes.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


# --- kinds -------------------------------------------------------------------------------------------------

KINDS = ("user", "item", "event")
SHOP = [("ann", 1, "view"), ("ann", 1, "buy"), ("ann", 1, "view"), ("ann", 2, "cart"), ("bob", 2, "view")]
NUMBERS = {"view": 1, "cart": 3, "buy": 10}


def test_kinds_have_weights_and_the_strongest_row_of_a_pair_is_kept():
    found = read(SHOP, KINDS, feedback=NUMBERS)
    assert pairs(found) == {("ann", 1): 10, ("ann", 2): 3, ("bob", 2): 1}
    assert "weight by kind: view 1, cart 3, buy 10" in found.report()
    assert pairs(read(SHOP, KINDS, feedback=NUMBERS, duplicates="last"))["ann", 1] == 1
    assert pairs(read(SHOP, KINDS, feedback=NUMBERS, duplicates="sum"))["ann", 1] == 12


def test_the_column_of_kinds_can_be_named_and_weights_multiply():
    rows = [("ann", 1, "buy", 2.0), ("bob", 1, "view", 3.0)]
    found = read(rows, ("user", "item", "what", "n"), feedback=NUMBERS, kind="what", weight="n")
    assert pairs(found) == {("ann", 1): 20, ("bob", 1): 3}


def test_a_kind_with_0_is_left_out_and_one_below_0_is_a_dislike():
    rows = [*SHOP, ("bob", 1, "hide"), ("ann", 9, "ping")]
    found = read(rows, KINDS, feedback={**NUMBERS, "hide": -1, "ping": 0})
    assert disliked(found) == {("bob", 1)}
    assert "kind with the number 0: removed 1 rows" in found.report()
    assert found.item_ids.ids.to_pylist() == [1, 2]


def test_an_item_that_is_only_disliked_is_known():
    found = read([("ann", 1, 2.0), ("ann", 7, -1.0)], dislikes=True)
    assert disliked(found) == {("ann", 7)}
    assert found.item_ids.ids.to_pylist() == [1, 7]


def test_a_kind_without_a_number_is_named_with_its_row(tmp_path):
    with pytest.raises(InputError, match=r"kind 'buy' at row 2 .*has no number in feedback .*0 to leave"):
        read(SHOP, KINDS, feedback={"view": 1, "cart": 3})
    path = tmp_path / "log.csv"
    path.write_text("user,item,event\nann,1,view\n\nann,2,\nann,3,buy\n")
    with pytest.raises(InputError, match="kind 'buy' at line 5"):
        read_interactions(path, feedback={"view": 1}, missing="drop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": {}}, "must map kinds to numbers"),
        ({"feedback": "view"}, "must map kinds to numbers"),
        ({"feedback": {"view": math.nan}}, r"feedback\['view'\] = nan"),
        ({"feedback": {1: 1}}, "kinds are text"),
        ({"feedback": {"view": 0, "buy": -1}}, "nothing is a like"),
        ({"kind": "event"}, "has no effect without feedback"),
        ({"feedback": NUMBERS, "kind": "nothing"}, "no such column"),
        ({"counts": "log"}, "needs a weight column"),
        ({"dislikes": True}, "needs a weight column"),
        ({"dislikes": 1}, "dislikes is a int"),
        ({"max_disliked_rating": 2}, "needs a rating column"),
        ({"half_life": "90d"}, "needs a time column"),
        ({"half_life": "90 days"}, "is no time; give one such as '90d' \\(units: s, min, h, d, w\\)"),
        ({"half_life": "0d"}, "is no time"),
        ({"half_life": "-1d"}, "is no time"),
        ({"half_life": "1e9d"}, "is no time"),
        ({"half_life": 90}, "is no time"),
        ({"half_life": "9" * 400 + "d"}, "is no time"),
        ({"now": 5}, "has no effect without half_life"),
        ({"counts": "root"}, "is not known; use 'log'"),
        ({"counts": "cap:0"}, "is not known"),
        ({"counts": "cap:nan"}, "is not known"),
        ({"counts": 5}, "is not known"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        read(SHOP, KINDS, **options)


# --- weights and counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0.0, -2.0])
def test_a_weight_that_is_not_above_0_is_named_with_its_row(bad):
    rows = [("ann", 1, None), ("ann", 1, 1.0), ("bob", 2, bad)]
    with pytest.raises(InputError, match=rf"weight {bad:g} at row 3 .* above 0; .* With dislikes=True"):
        read(rows, missing="drop")
    assert len(read(rows, weight=False)) == 2


def test_a_weight_that_is_nan_is_named_with_its_row():
    rows = [("ann", 1, 1.0), ("ann", 2, math.nan), ("bob", 2, math.inf)]
    with pytest.raises(InputError, match=r"2 of 3 rows have no weight .*the first at row 2"):
        read(rows)


def test_weights_of_interactions_are_above_0():
    with pytest.raises(InputError, match="1 weights are not above 0 \\(-1, …\\)"):
        Interactions(
            np.array([0, 0]), np.array([0, 1]), IdMap.range(1), IdMap.range(2), weight=np.array([1, -1])
        )


def test_counts_by_logarithm_and_cap():
    plays = [("ann", 1, 1.0), ("ann", 2, 100.0), ("bob", 1, 7.5)]
    assert pairs(read(plays, counts="log"))["ann", 2] == pytest.approx(1 + math.log(100))
    assert pairs(read(plays, counts="log"))["ann", 1] == 1
    assert pairs(read(plays, counts="cap:10")) == {("ann", 1): 1, ("ann", 2): 10, ("bob", 1): 7.5}
    assert "weight: 1 + log(count)" in read(plays, counts="log").report()
    assert "weight: count, at most 10" in read(plays, counts="cap:10").report()
    with pytest.raises(InputError, match=r"counts of 1 or more, not 0\.5"):
        read([("ann", 1, 0.5)], counts="log")


def test_counts_are_those_of_the_pair_where_rows_are_summed():
    rows = [("ann", 1)] * 5 + [("bob", 1)]
    found = read(rows, ("user", "item"), counts="log", duplicates="sum")
    assert pairs(found) == {("ann", 1): pytest.approx(1 + math.log(5)), ("bob", 1): 1}


# --- half-lives --------------------------------------------------------------------------------------------

TIMED = [("ann", 1, NEWEST), ("ann", 2, NEWEST - 90 * DAY), ("bob", 1, NEWEST - 45 * DAY)]
COLUMNS = ("user", "item", "time")
HALVED = {("ann", 1): 1, ("ann", 2): 0.5, ("bob", 1): pytest.approx(0.5**0.5)}


@pytest.mark.parametrize("scale", [1, 1000, 10**6, 10**9])
def test_a_half_life_halves_weights_whatever_the_unit_of_times(scale):
    rows = [(user, item, time * scale) for user, item, time in TIMED]
    found = read(rows, COLUMNS, half_life="90d")
    assert pairs(found) == HALVED
    assert "weight halved for every 90d before 2023-11-14 22:13:20" in found.report()


def test_dates_have_half_lives_too():
    rows = [(user, item, pd.Timestamp(time, unit="s")) for user, item, time in TIMED]
    assert pairs(read(rows, COLUMNS, half_life="2160h")) == HALVED
    text = [(user, item, time.isoformat()) for user, item, time in rows]
    assert pairs(read(text, COLUMNS, half_life="90d")) == HALVED
    later = read(rows, COLUMNS, half_life="90d", now="2024-02-12 22:13:20")
    assert pairs(later)["ann", 1] == pytest.approx(0.5)


def test_now_can_be_given_and_times_after_it_are_named_with_their_row():
    found = read(TIMED, COLUMNS, half_life="90d", now=NEWEST + 90 * DAY)
    assert pairs(found)["ann", 1] == pytest.approx(0.5)
    with pytest.raises(InputError, match=r"time 1700000000 at row 1 .*is after now = 2023-09"):
        read(TIMED, COLUMNS, half_life="90d", now=NEWEST - 50 * DAY)
    with pytest.raises(InputError, match=r"time 4000000000 at row 2 .*\(2096-10-02 .*is after now"):
        read([TIMED[0], ("bob", 2, 4_000_000_000)], COLUMNS, half_life="90d")


def test_times_that_cannot_be_times_are_refused():
    with pytest.raises(InputError, match="newest time is 5; half_life needs dates"):
        read([("ann", 1, 3), ("ann", 2, 5)], COLUMNS, half_life="90d")
    with pytest.raises(InputError, match="chronological = True gives only an order"):
        read([("ann", 1)], ("user", "item"), half_life="90d", chronological=True, time=None)
    with pytest.raises(InputError, match=r"time 'soon' at row 2"):
        read([("ann", 1, "2024-01-01"), ("ann", 2, "soon")], COLUMNS, half_life="90d")
    with pytest.raises(InputError, match=r"now = .soon. is no time; give a date"):
        read(TIMED, COLUMNS, half_life="90d", now="soon")


def test_rows_that_are_summed_decay_each_by_its_own_time():
    rows = [("ann", 1, NEWEST), ("ann", 1, NEWEST - 90 * DAY), ("ann", 1, NEWEST - 180 * DAY)]
    found = read(rows, COLUMNS, half_life="90d", duplicates="sum")
    assert pairs(found) == {("ann", 1): pytest.approx(1.75)}
    logged = read(rows, COLUMNS, half_life="90d", duplicates="sum", counts="log")
    assert pairs(logged) == {("ann", 1): pytest.approx((1 + math.log(3)) * 1.75 / 3)}


def test_a_very_old_row_keeps_a_weight_above_0():
    assert min(pairs(read([TIMED[0], ("bob", 1, 10**8)], COLUMNS, half_life="1s")).values()) > 0


# --- dislikes ----------------------------------------------------------------------------------------------

RATED = [("ann", 1, 5.0), ("ann", 2, 1.0), ("ann", 3, 3.0), ("bob", 2, 4.0), ("bob", 1, 2.0), ("cat", 1, 1.0)]
RATINGS = ("user", "item", "rating")


def test_low_ratings_are_dislikes():
    found = read(RATED, RATINGS, max_disliked_rating=2, min_rating=4)
    assert disliked(found) == {("ann", 2), ("bob", 1), ("cat", 1)}
    assert (found.n_users, found.n_items, len(found)) == (3, 2, 2)  # cat likes nothing, and is known
    assert "3 pairs are dislikes" in found.report()
    assert len(read(RATED, RATINGS, max_disliked_rating=2)) == 3  # a 3 is a like without min_rating
    with pytest.raises(InputError, match="max_disliked_rating = 4 is not below min_rating = 4"):
        read(RATED, RATINGS, max_disliked_rating=4, min_rating=4)
    with pytest.raises(InputError, match="all 6 rows are dislikes"):
        read(RATED, RATINGS, max_disliked_rating=5)


def test_a_dataset_in_memory_gets_the_same_dislikes():
    whole = read(RATED, RATINGS)
    for least in (4, None):
        found = whole.with_dislikes(2, least)
        expected = read(RATED, RATINGS, max_disliked_rating=2, min_rating=least)
        assert found == expected
    with pytest.raises(InputError, match="nothing is a like"):
        whole.with_dislikes(5)
    with pytest.raises(InputError, match="needs a rating column"):
        whole.pairs_only().with_dislikes(2)


def test_weights_below_0_are_dislikes_if_asked():
    found = read([("ann", 1, 2.0), ("ann", 2, -3.0), ("bob", 2, 1.0)], dislikes=True)
    assert disliked(found) == {("ann", 2)}
    assert pairs(found) == {("ann", 1): 2, ("bob", 2): 1}


@pytest.mark.parametrize(
    ("duplicates", "likes"),
    [("last", {1, 3}), ("first", {2, 3}), ("max", {1, 2, 3}), ("sum", {1, 3}), ("strongest", {1, 3})],
)
def test_a_pair_with_likes_and_dislikes_is_what_its_deciding_row_says(duplicates, likes):
    rows = [
        ("ann", 1, 1.0),
        ("ann", 2, 5.0),
        ("ann", 1, 4.0),
        ("ann", 2, 2.0),
        ("ann", 3, 4.0),
        ("bob", 1, 5.0),
        ("bob", 2, 5.0),
    ]
    found = read(rows, RATINGS, max_disliked_rating=2, duplicates=duplicates)
    assert set(found.item_ids.outside(found.items_of(0)).to_pylist()) == likes
    hated = set() if found.dislikes is None else disliked(found)
    assert hated == {("ann", item) for item in {1, 2, 3} - likes}


def test_dislikes_among_a_catalogue_and_after_a_core():
    found = read(RATED, RATINGS, max_disliked_rating=2, items=[1, 2, 3, 4])
    assert disliked(found) == {("ann", 2), ("bob", 1), ("cat", 1)}
    rows = [*RATED, ("bob", 3, 4.0)]
    rows += [("dan", 9, 5.0), ("dan", 1, 2.0)]
    core = read(rows, RATINGS, max_disliked_rating=2, core=(2, 1))
    assert disliked(core) == {("ann", 2), ("bob", 1)}


# --- where interactions are made from others ---------------------------------------------------------------


@pytest.fixture
def many():
    rng = np.random.default_rng(0)
    rows = [
        (user, item, float(rng.integers(1, 6))) for user in range(30) for item in rng.permutation(25)[:12]
    ]
    return read(rows, RATINGS, max_disliked_rating=2)


def test_parts_of_a_split_keep_all_dislikes(many):
    split = split_random(many, test=0.2, valid=0.1, seed=0)
    for part in split.parts.values():
        assert disliked(part) == disliked(many)
    whole = joined([split.train, split.valid, split.test])
    assert disliked(whole) == disliked(many)
    apart = split_given(
        many.take(many.users < 20), read([(0, 24, 5.0), (77, 99, 3.0)], RATINGS), overlap="drop"
    )
    assert disliked(apart.train) == disliked(many)


def test_subsets_and_catalogues_recode_dislikes(many):
    fewer = many.k_core(7, 2)
    assert fewer.n_users < many.n_users
    users, items = set(fewer.user_ids.ids.to_pylist()), set(fewer.item_ids.ids.to_pylist())
    assert disliked(fewer) == {(u, i) for u, i in disliked(many) if u in users and i in items}
    wider = many.with_items(range(-3, 40))
    assert disliked(wider) == disliked(many)
    assert disliked(many.pairs_only()) == disliked(many)


def test_joined_parts_drop_dislikes_that_another_part_likes():
    ids = IdMap.range(1), IdMap.range(3)
    first = Interactions(np.array([0]), np.array([0]), *ids, disliked=np.array([1, 2]))
    second = Interactions(np.array([0]), np.array([1]), *ids)
    assert joined([first, second]).disliked.tolist() == [2]


def test_the_hash_has_dislikes_only_where_there_are_any(many):
    without = dataclasses.replace(many, disliked=None)
    assert without.hash != many.hash
    assert dataclasses.replace(many, disliked=np.empty(0, np.int64)).hash == without.hash
    assert dataclasses.replace(many, disliked=np.empty(0, np.int64)).disliked is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, 1], "not distinct and rising"),
        ([2, 1], "not distinct"),
        ([0], "both interactions and disliked"),
        ([3], "codes from 3 to 3"),
        ([-1], "codes from -1"),
        ([[1]], "1-D"),
        ([1.5], "1-D array of integers"),
    ],
)
def test_disliked_keys_are_checked(keys, message):
    with pytest.raises(InputError, match=message):
        Interactions(np.array([0]), np.array([0]), IdMap.range(1), IdMap.range(3), disliked=np.array(keys))
