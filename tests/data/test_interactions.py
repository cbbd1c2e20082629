from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions, Step
from truepair.errors import InputError


def pairs(n_users: int, n_items: int, density: float, seed: int) -> Interactions:
    """Random distinct pairs in random row order, with all columns."""
    random = np.random.default_rng(seed)
    users, items = np.nonzero(random.random((n_users, n_items)) < density)
    rows = random.permutation(len(users))
    return Interactions(
        users[rows],
        items[rows],
        IdMap.of([f"u{u:03}" for u in range(n_users)]),
        IdMap.range(n_items),
        rating=random.integers(1, 6, len(rows)).astype(float),
        weight=random.random(len(rows)),
        time=random.integers(0, 100, len(rows)),
    )


def core_by_hand(given: set[tuple[int, int]], least_items: int, least_users: int) -> set[tuple[int, int]]:
    """Throw out one poor user or item at a time until there is none."""
    left = set(given)
    while True:
        poor = [u for u, _ in left if sum(v == u for v, _ in left) < least_items]
        bare = [i for _, i in left if sum(j == i for _, j in left) < least_users]
        if poor:
            left = {(u, i) for u, i in left if u != poor[0]}
        elif bare:
            left = {(u, i) for u, i in left if i != bare[0]}
        else:
            return left


def outside(data: Interactions) -> set[tuple[str, int]]:
    table = data.to_table()
    return set(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("least", [(1, 1), (2, 2), (3, 3), (4, 1), (1, 4), (4, 3)])
def test_k_core_is_that_of_the_oracle(seed: int, least: tuple[int, int]) -> None:
    data = pairs(14, 11, 0.3, seed)
    codes = set(zip(data.users.tolist(), data.items.tolist(), strict=True))
    expected = {(f"u{u:03}", i) for u, i in core_by_hand(codes, *least)}
    if not expected:
        with pytest.raises(InputError, match=f"no row is left of {len(data)} "):
            data.k_core(*least)
        return
    core = data.k_core(*least)
    assert outside(core) == expected
    assert core.user_counts.min() >= least[0]
    assert core.item_counts.min() >= least[1]
    assert core.k_core(*least) is core  # nothing more to remove, and nothing more to tell


def test_k_core_keeps_the_columns_of_its_rows_and_tells_what_went() -> None:
    data = pairs(14, 11, 0.3, seed=0)
    core = data.k_core(3)
    all_rows = {(row["user"], row["item"]): row for row in data.to_table().to_pylist()}
    for row in core.to_table().to_pylist():
        assert row == all_rows[row["user"], row["item"]]
    [step] = core.history
    assert step.rows == len(data) - len(core)
    assert (step.users, step.items) == (data.n_users - core.n_users, data.n_items - core.n_items)
    assert str(step).startswith("outside the core (users ≥ 3 items, items ≥ 3 users): removed ")
    assert core.report().splitlines() == [str(step), repr(core)]


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, "3"])
def test_k_core_wants_whole_numbers(bad: object) -> None:
    with pytest.raises(InputError, match="a whole number ≥ 1"):
        pairs(5, 5, 0.5, 0).k_core(bad)  # type: ignore[arg-type]


def test_rows_are_sorted_by_user_then_item() -> None:
    data = Interactions(
        np.array([1, 0, 1]), np.array([2, 1, 0]), IdMap.range(2), IdMap.range(3), rating=[1, 2, 3]
    )
    assert data.users.tolist() == [0, 1, 1]
    assert data.items.tolist() == [1, 0, 2]
    assert data.rating.tolist() == [2, 3, 1]


@pytest.mark.parametrize("rows", ["mask", "places"])
def test_take_keeps_users_items_and_codes(rows: str) -> None:
    data = pairs(8, 6, 0.5, seed=1)
    mask = np.arange(len(data)) % 3 == 0
    taken = data.take(mask if rows == "mask" else np.flatnonzero(mask)[::-1])
    assert (taken.n_users, taken.n_items) == (data.n_users, data.n_items)
    for name in ("users", "items", "rating", "weight", "time"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(data, name)[mask])


def test_take_nothing() -> None:
    nothing = pairs(3, 3, 0.5, 0).take(np.array([], dtype=np.int64))
    assert len(nothing) == 0
    assert nothing.density == 0
    assert nothing.indptr.tolist() == [0, 0, 0, 0]


def test_with_min_rating() -> None:
    data = pairs(9, 7, 0.4, seed=2)
    liked = data.with_min_rating(4)
    assert liked.rating.min() >= 4
    assert len(liked) == (data.rating >= 4).sum()
    assert liked.history[0].what == "rating below 4"
    assert liked.with_min_rating(4) is liked
    with pytest.raises(InputError, match="no row is left"):
        data.with_min_rating(6)
    with pytest.raises(InputError, match="needs a rating column, but these interactions have none"):
        Interactions([0], [0], IdMap.range(1), IdMap.range(1)).with_min_rating(3)


def test_views_agree_with_the_pairs() -> None:
    data = pairs(9, 7, 0.4, seed=3)
    dense = np.zeros((9, 7))
    dense[data.users, data.items] = 1
    np.testing.assert_array_equal(data.csr().toarray(), dense)
    np.testing.assert_array_equal(data.user_counts, dense.sum(axis=1))
    np.testing.assert_array_equal(data.item_counts, dense.sum(axis=0))
    for user in range(9):
        np.testing.assert_array_equal(data.items_of(user), np.flatnonzero(dense[user]))
    assert data.density == pytest.approx(dense.mean())
    assert repr(data).startswith(f"<Interactions: 9 users x 7 items, {len(data)} pairs, density ")
    assert repr(data).endswith("%, rating, weight, time>")


def test_nothing_can_be_written() -> None:
    data = pairs(5, 5, 0.5, seed=4)
    names = ("users", "items", "rating", "weight", "time", "user_counts", "item_counts", "indptr")
    for array in (getattr(data, name) for name in names):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        data.users = data.items  # type: ignore[misc]


def test_the_callers_arrays_stay_theirs() -> None:
    users, items, rating = np.array([1, 0]), np.array([0, 1]), np.array([1.0, 2.0])
    data = Interactions(users, items, IdMap.range(2), IdMap.range(2), rating=rating)
    assert (users.tolist(), items.tolist(), rating.tolist()) == ([1, 0], [0, 1], [1.0, 2.0])
    before = data.hash
    for array in (users, items, rating):
        array[:] = 0  # still writable, and no longer seen
    assert (
        Interactions(data.users, data.items, data.user_ids, data.item_ids, rating=data.rating).hash == before
    )


def shuffled(data: Interactions, seed: int) -> Interactions:
    rows = np.random.default_rng(seed).permutation(len(data))
    columns: dict[str, npt.NDArray[np.float64]] = {
        name: getattr(data, name)[rows] for name in ("rating", "weight", "time")
    }
    return Interactions(data.users[rows], data.items[rows], data.user_ids, data.item_ids, **columns)


def test_the_hash_does_not_depend_on_row_order() -> None:
    data = pairs(9, 7, 0.4, seed=5)
    for seed in range(5):
        assert shuffled(data, seed) == data
        assert hash(shuffled(data, seed)) == hash(data)


def test_the_hash_does_not_change_between_versions() -> None:
    data = Interactions(
        [1, 0], [0, 2], IdMap.of(["ann", "bob"]), IdMap.range(3), rating=[4.5, 3.0], time=[7, 8]
    )
    assert data.hash == "377cb743dcecbeca5bc7a0b813737822"


def test_the_hash_changes_with_anything() -> None:
    data = pairs(9, 7, 0.4, seed=6)
    parts = {
        name: getattr(data, name)
        for name in ("users", "items", "user_ids", "item_ids", "rating", "weight", "time")
    }
    kept = np.arange(len(data)) > 0
    fewer = {name: part[kept] if isinstance(part, np.ndarray) else part for name, part in parts.items()}
    changed = [
        {"user_ids": IdMap.range(9)},
        {"item_ids": IdMap.of([f"i{i}" for i in range(7)])},
        {"item_ids": IdMap.range(8)},
        {"rating": data.rating + 1},
        {"rating": None},
        {"weight": data.weight * 2},
        {"weight": None},
        {"time": data.time + 1},
        {"time": data.time.astype(float)},
        {"time": None},
        {"rating": data.weight, "weight": data.rating},
        fewer,
    ]
    hashes = {Interactions(**{**parts, **change}).hash for change in changed}
    assert len(hashes) == len(changed)
    assert data.hash not in hashes
    assert Interactions(**parts, history=(Step("nothing", 0),)).hash == data.hash  # how it came is no content


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"users": [0, 2]}, "users has codes from 0 to 2; allowed are 0 to 1"),
        ({"items": [-1, 0]}, "items has codes from -1 to 0; allowed are 0 to 2"),
        ({"users": [0]}, "1 users but 2 items"),
        ({"users": [0.0, 1.0]}, "users must be a 1-D array of integers, not 1-D float64"),
        (
            {"users": [0, 0], "items": [1, 1]},
            "1 rows repeat a .user, item. pair; `read_interactions` merges them",
        ),
        ({"rating": [1.0]}, "rating has 1 values for 2 rows"),
        ({"rating": ["a", "b"]}, "rating must be a 1-D array of numbers"),
        ({"weight": [[1.0], [2.0]]}, "weight must be a 1-D array of numbers, not 2-D float64"),
        ({"time": [1.0, np.nan]}, "time has 1 values that are NaN or infinite"),
    ],
)
def test_wrong_states_cannot_exist(columns: dict[str, object], message: str) -> None:
    good = {"users": [0, 1], "items": [0, 1], "user_ids": IdMap.range(2), "item_ids": IdMap.range(3)}
    with pytest.raises(InputError, match=message):
        Interactions(**{**good, **columns})
