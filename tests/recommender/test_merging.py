"""Known and new interactions as one."""

import numpy as np
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.errors import InputError
from truepair.recommender.updating.merging import merged


def of(pairs, **columns):
    users, items = zip(*pairs, strict=True)
    user_ids, item_ids = IdMap.of(list(users)), IdMap.of(list(items))
    columns = {name: np.array(values) for name, values in columns.items() if values is not None}
    return Interactions(
        user_ids.codes(list(users)), item_ids.codes(list(items)), user_ids, item_ids, **columns
    )


def pairs_of(data):
    table = data.to_table().to_pylist()
    return {(row.pop("user"), row.pop("item")): row for row in table}


def test_the_newer_values_of_a_pair_win():
    known = of([("b", "y"), ("a", "x")], rating=[1.0, 2.0], time=[5, 6])
    new = of([("a", "x"), ("a", "z"), ("0", "y")], rating=[3.0, 4.0, 5.0], time=[7, 8, 9])
    assert pairs_of(merged(known, new)) == {
        ("b", "y"): {"rating": 1.0, "time": 5},
        ("a", "x"): {"rating": 3.0, "time": 7},
        ("a", "z"): {"rating": 4.0, "time": 8},
        ("0", "y"): {"rating": 5.0, "time": 9},
    }


def test_a_pair_without_a_weight_has_one():
    found = pairs_of(merged(of([("a", "x"), ("a", "y")]), of([("a", "x")], weight=[3.0])))
    assert found == {("a", "x"): {"weight": 3.0}, ("a", "y"): {"weight": 1.0}}
    found = pairs_of(merged(of([("a", "x"), ("a", "y")], weight=[3.0, 2.0]), of([("a", "x")])))
    assert found == {("a", "x"): {"weight": 1.0}, ("a", "y"): {"weight": 2.0}}


def test_columns_of_one_part_only_are_left_out():
    assert pairs_of(merged(of([("a", "x")]), of([("b", "x")], time=[1]))) == {("a", "x"): {}, ("b", "x"): {}}


def test_items_of_the_catalogue_stay():
    known = of([("a", "x")]).with_items(["x", "never"])
    assert merged(known, of([("a", "new")])).item_ids.ids.to_pylist() == ["never", "new", "x"]


@pytest.mark.parametrize("side", ["user", "item"])
def test_ids_of_two_types(side):
    new = [(1, "x")] if side == "user" else [("a", 1)]
    with pytest.raises(InputError, match=rf"known {side} ids are of type large_string.*int64, such as 1"):
        merged(of([("a", "x")]), of(new))


def disliked_of(data):
    """The disliked pairs, in ids."""
    if data.disliked is None:
        return None
    users, items = np.divmod(data.disliked, data.n_items)
    names = data.user_ids.outside(users).to_pylist(), data.item_ids.outside(items).to_pylist()
    return set(zip(*names, strict=True))


def test_what_is_new_counts_among_likes_and_dislikes():
    known = of([("a", "x"), ("b", "y"), ("b", "z")], disliked=[1])  # a dislikes y
    new = of([("a", "y"), ("c", "x"), ("b", "w")], disliked=None)
    assert disliked_of(known) == {("a", "y")}
    assert disliked_of(merged(known, new)) is None  # liked now
    assert ("a", "y") in pairs_of(merged(known, new))
    other = of([("b", "z"), ("d", "y")], disliked=[0])  # b dislikes y now
    found = merged(known, other)
    assert disliked_of(other) == {("b", "y")}
    assert disliked_of(found) == {("a", "y"), ("b", "y")}
    assert set(pairs_of(found)) == {("a", "x"), ("b", "z"), ("d", "y")}
    assert merged(of([("a", "x")]), of([("b", "y")])).disliked is None
