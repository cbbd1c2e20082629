"""Merging coded rows: the fast order against a plain one, policies, repeats."""

import numpy as np
import pytest

from truepair.data.log import Policy
from truepair.data.rows.pairs import DUPLICATES, codes_of, group, merge, part_dislikes, repeats

POLICIES = [policy for policy in DUPLICATES if policy != "error"]


def rows(seed, n=200):
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 60, n)
    extra = {
        "time": rng.integers(0, 4, n),
        "rating": rng.integers(0, 3, n) * 1.0,
        "weight": rng.random(n) + 0.1,
    }
    return keys, extra


def plain_choice(keys, extra, duplicates):
    """Key -> the row that is kept, by Python's sorting."""
    by = {"max": ("rating", "time"), "strongest": ("weight", "time")}.get(duplicates, ("time",))
    order = sorted(range(len(keys)), key=lambda row: (keys[row], *(extra[name][row] for name in by), row))
    found = {}
    for row in order:
        if duplicates != "first" or int(keys[row]) not in found:
            found[int(keys[row])] = row
    return found


@pytest.mark.parametrize("duplicates", POLICIES)
@pytest.mark.parametrize("high", [0, 2**57])  # too high to be packed with the row
def test_the_kept_row_is_that_of_plain_sorting(duplicates, high):
    keys, extra = rows(1)
    keys += high
    kept = plain_choice(keys, extra, duplicates)
    found = merge(keys.copy(), extra, Policy(duplicates))
    assert found.keys.tolist() == list(kept)
    assert found.removed == len(keys) - len(kept)
    assert found.columns["time"].tolist() == extra["time"][list(kept.values())].tolist()
    if duplicates != "sum":
        assert found.columns["weight"].tolist() == extra["weight"][list(kept.values())].tolist()
    else:
        totals = [extra["weight"][keys == key].sum() for key in kept]
        assert np.allclose(found.columns["weight"], totals)


def test_pairs_without_columns_are_only_sorted():
    keys, _ = rows(2)
    found = merge(keys.copy(), {}, Policy())
    assert found.keys.tolist() == sorted(set(keys.tolist()))
    assert found.removed == len(keys) - len(found.keys)
    assert merge(np.empty(0, np.int64), {}, Policy()).keys.tolist() == []


def test_blocks_give_what_all_rows_give():
    keys, extra = rows(3)
    whole = merge(keys.copy(), extra, Policy("sum"))
    parts = []
    for low, high in ((0, 20), (20, 41), (41, 60)):
        some = (keys >= low) & (keys < high)
        columns = {name: column[some] for name, column in extra.items()}
        parts.append(merge(keys[some], columns, Policy("sum")))
    assert np.array_equal(np.concatenate([part.keys for part in parts]), whole.keys)
    for name in extra:
        assert np.array_equal(np.concatenate([part.columns[name] for part in parts]), whole.columns[name])


def test_the_repeated_pair_that_comes_first_is_named():
    assert repeats(np.array([3, 1, 2])) is None
    found = repeats(np.array([5, 1, 7, 1, 5, 5]))
    assert (found.key, found.row, found.rows, found.others) == (5, 0, 3, 1)
    found = repeats(np.array([1, 1, 5, 5, 5]), np.array([8, 9, 2, 3, 4]))  # sorted by pair, as in a block
    assert (found.key, found.row, found.rows, found.others) == (5, 2, 3, 1)


def test_dislikes_of_a_pair_are_what_its_deciding_row_says():
    keys, times = np.array([1, 1, 2, 2, 3]), {"time": np.array([1, 2, 2, 1, 0])}
    disliked = np.array([False, True, False, True, True])
    liked, of = part_dislikes(keys, times, disliked, "last")
    assert liked.tolist() == [False, False, True, False, False]
    assert of.tolist() == [1, 3]
    liked, of = part_dislikes(keys, times, disliked, "first")
    assert liked.tolist() == [True, False, False, False, False]
    assert of.tolist() == [2, 3]


def test_codes_of_keys():
    keys = np.array([0, 6, 7, 13, 20, 699])
    users, items = codes_of(keys.copy(), 7)
    assert users.tolist() == (keys // 7).tolist()
    assert items.tolist() == (keys % 7).tolist()


def test_groups_are_stable():
    order, ordered, starts = group(np.array([2, 1, 2, 1, 1]), {}, "last")
    assert order.tolist() == [1, 3, 4, 0, 2]
    assert ordered.tolist() == [1, 1, 1, 2, 2]
    assert starts.tolist() == [0, 3]
