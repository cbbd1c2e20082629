from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from extras import duckdb, pl
from truepair.data.interactions import Interactions, Step
from truepair.data.reading import read_interactions
from truepair.errors import InputError

COLUMNS = {"user": [1, 2, 2], "item": [7, 7, 9], "rating": [4.0, 2.5, 5.0], "time": [30, 10, 20]}
WANTED = read_interactions(COLUMNS)
NAN = float("nan")


def rows_of(data: Interactions) -> list[tuple[Any, ...]]:
    """The rows in the caller's ids, as plain tuples."""
    return [tuple(row.values()) for row in data.to_table().to_pylist()]


# --- sources in memory -----------------------------------------------------------------------------

SOURCES: dict[str, Callable[[], object]] = {
    "dict of lists": lambda: dict(COLUMNS),
    "dict of arrays": lambda: {name: np.array(values) for name, values in COLUMNS.items()},
    "dict of series": lambda: dict(pd.DataFrame(COLUMNS).items()),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas with an index": lambda: pd.DataFrame(COLUMNS).set_index("user"),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "duckdb": lambda: duckdb.connect().from_arrow(pa.table(COLUMNS)).order("item"),
    "arrow table": lambda: pa.table(COLUMNS),
    "arrow batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "arrow reader": lambda: pa.table(COLUMNS).to_reader(max_chunksize=1),
    "array": lambda: np.column_stack([COLUMNS[name] for name in ("user", "item", "rating", "time")]),
    "structured array": lambda: pd.DataFrame(COLUMNS).to_records(index=False),
    "tuple of lists": lambda: tuple(COLUMNS.values()),
    "tuple of arrays": lambda: tuple(np.array(values) for values in COLUMNS.values()),
    "tuple of tensors' arrays": lambda: tuple(
        np.array(values, dtype=np.float32) for values in COLUMNS.values()
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources_in_memory(name: str) -> None:
    found = read_interactions(SOURCES[name]())
    floats = name in ("array", "tuple of tensors' arrays")  # one dtype for all columns: times are floats
    assert found.time.dtype == (np.float64 if floats else np.int64)
    assert rows_of(found) == rows_of(WANTED)
    assert floats or found == WANTED
    assert found.history == ()


def test_arrays_of_two_and_three_columns() -> None:
    both = np.array([[1, 7], [2, 7], [2, 9]])
    assert rows_of(read_interactions(both)) == [(1, 7), (2, 7), (2, 9)]
    assert rows_of(read_interactions(np.c_[both, [4, 2.5, 5]])) == [(1, 7, 4.0), (2, 7, 2.5), (2, 9, 5.0)]
    assert rows_of(read_interactions((both[:, 0], both[:, 1]))) == [(1, 7), (2, 7), (2, 9)]


def test_arrays_of_text() -> None:
    rows = np.array([["ann", "7", "4"], ["bob", "8", "5"]])
    assert rows_of(read_interactions(rows)) == [("ann", "7", 4.0), ("bob", "8", 5.0)]
    rows = np.array([["ann", 7, 4], ["bob", 8, 5]], dtype=object)
    assert rows_of(read_interactions(rows)) == [("ann", 7, 4.0), ("bob", 8, 5.0)]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("kind", [sp.coo_array, sp.coo_matrix])
def test_sparse_matrices(layout: str, kind: type) -> None:
    dense = np.array([[0, 4, 0, 0], [0, 0, 0, 0], [2, 0, 0, 5]])
    found = read_interactions(kind(dense).asformat(layout))
    assert rows_of(found) == [(0, 1, 4.0), (2, 0, 2.0), (2, 3, 5.0)]
    assert [step for step in found.history if step.what != "explicit zero"] == [
        Step("empty row or column of the matrix", 0, 1, 1)
    ]


def test_explicit_zeros_are_dropped_and_told() -> None:
    matrix = sp.csr_array(([4.0, 0.0, 0.0], ([0, 1, 1], [1, 0, 1])), shape=(2, 2))
    found = read_interactions(matrix)
    assert rows_of(found) == [(0, 1, 4.0)]
    assert found.history == (Step("explicit zero", 2, 1, 1),)
    assert matrix.nnz == 3
    with pytest.raises(InputError, match="the matrix has no rows"):
        read_interactions(sp.csr_array((3, 3)))


def test_bad_matrix_values_are_placed() -> None:
    with pytest.raises(
        InputError, match=r"the matrix: 1 of 2 rows have no rating .* row 1, column 2 \(counting"
    ):
        read_interactions(sp.csr_array([[0, 4, 0], [0, 0, NAN]]))


@pytest.mark.parametrize("shape", [(3, 1), (3, 5), (3, 3706)])
def test_a_wide_array_looks_like_a_matrix(shape: tuple[int, int]) -> None:
    with pytest.raises(InputError, match=r"users x items matrix, pass scipy\.sparse\.csr_array\(array\)"):
        read_interactions(np.ones(shape))


@pytest.mark.parametrize("source", [None, 5, [(1, 2)], (1,), ([1],) * 5, object(), {1, 2}])
def test_other_sources_are_refused(source: object) -> None:
    with pytest.raises(
        InputError, match=f"source of type {type(source).__name__} cannot be read; give a path"
    ):
        read_interactions(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.ones(3), r"an array of shape \(3,\) has not 2 to 4 columns"),
        (pd.Series([1]), "the Series cannot be read as a table"),
        (pd.DataFrame({"user": [1], "item": [2], "x": [1j]}), "only the columns needed"),
        ({"user": [1, 2], "item": [1]}, r"the dict: the columns differ in length \(user 2, item 1\)"),
        ({"user": [1, "a"], "item": [1, 2]}, "user ids must be 1-D and of one kind"),
        ({"user": "ann", "item": [1]}, "user ids must be a list or an array, not the single value 'ann'"),
        ({"user": [], "item": []}, "the dict has no rows"),
        (pa.table({"user": [1], "item": [2]})[:0], "the table has no rows"),
        ({}, "the dict has no column that is recognised as the user; its columns are none"),
    ],
)
def test_bad_sources(source: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_interactions(source)


def test_the_callers_data_is_not_changed() -> None:
    frame = pd.DataFrame({**COLUMNS, "user": [2, 1, 1], "note": ["x", None, "z"]})
    before = frame.copy(deep=True)
    read_interactions(frame, min_rating=3, core=1)
    pd.testing.assert_frame_equal(frame, before)
    arrays = {name: np.array(values) for name, values in COLUMNS.items()}
    kept = copy.deepcopy(arrays)
    found = read_interactions(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, kept[name])
        array[:] = 0
    assert found == WANTED


# --- ids -------------------------------------------------------------------------------------------

UUIDS = [uuid.UUID(int=number) for number in (5, 2**100, 7)]


@pytest.mark.parametrize(
    "ids",
    [
        ["b", "a", "c"],
        ["1", "2", "3"],
        ["007", "8", "9"],
        [3, 1, 2],
        [2**63 + 1, 1, 2],
        UUIDS,
        [b"x", b"y", b"z"],
    ],
    ids=["text", "digits stay text", "007", "int", "uint64", "uuid", "bytes"],
)
@pytest.mark.parametrize("kind", ["dict", "pandas", "arrow"])
def test_the_same_ids_come_out(ids: list[Any], kind: str) -> None:
    column = np.array(ids, dtype=np.uint64) if ids[0] == 2**63 + 1 else ids
    source: Any = {"user": column, "item": [1, 2, 3]}
    source = {"dict": dict, "pandas": pd.DataFrame, "arrow": pa.table}[kind](source)
    by_item = {item: user for user, item in rows_of(read_interactions(source))}
    assert [by_item[item] for item in (1, 2, 3)] == ids


@pytest.mark.parametrize("kind", [pd.DataFrame, lambda frame: pl.DataFrame(frame)], ids=["pandas", "polars"])
def test_categoricals(kind: Callable[[pd.DataFrame], object]) -> None:
    frame = pd.DataFrame({"user": ["b", "a"], "item": ["x", "y"]}, dtype="category")
    assert rows_of(read_interactions(kind(frame))) == [("a", "y"), ("b", "x")]


# --- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ("user_id", "item_id", "rating", "timestamp"),
        ("userId", "movieId", "rating", "timestamp"),
        ("User-ID", "ISBN", "Book-Rating", "Date"),
        ("reviewerID", "asin", "overall", "unixReviewTime"),
        ("user_id", "business_id", "stars", "date"),
        ("UID", "Track ID", "Score", "ts"),
        ("customer", "product", "score", "datetime"),
        ("visitorid", "itemid", "rating", "timestamp"),
    ],
)
def test_usual_names_are_found(names: tuple[str, ...]) -> None:
    table = pa.table(dict(zip(names, COLUMNS.values(), strict=True))).append_column("junk", [[None] * 3])
    assert read_interactions(table.select([4, 3, 2, 1, 0])) == WANTED


def test_weights() -> None:
    found = read_interactions({"user": ["a"], "artist": ["b"], "plays": [3]})
    assert found.weight.tolist() == [3.0]
    assert found.rating is None


def test_columns_by_name_position_and_not_at_all() -> None:
    odd = dict(zip("abcd", COLUMNS.values(), strict=True))
    assert read_interactions(odd, user="a", item="b", rating="c", time="d") == WANTED
    assert read_interactions(odd, user=0, item=1, rating=2, time=3) == WANTED
    less = read_interactions(COLUMNS, rating=False, time=False)
    assert (less.rating, less.weight, less.time) == (None, None, None)
    swapped = read_interactions(COLUMNS, user="item", item="user")
    assert rows_of(swapped)[0][:2] == (7, 1)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            ["usr", "item"],
            {},
            "no column that is recognised as the user; .* 'usr', 'item'.*user=<name or .*Did you mean 'usr'",
        ),
        (
            ["user", "thing"],
            {},
            "the dict has no column that is recognised as the item; its columns are 'user', 'thing'",
        ),
        (["user", "item"], {"rating": "ratng"}, "rating = 'ratng': the dict has no such column"),
        (["user", "item", "stars"], {"rating": "star"}, "Did you mean 'stars'?"),
        (
            ["user_id", "userId", "item"],
            {},
            "'user_id' and 'userId' are both recognised as user; .*: user='user_id'",
        ),
        (["user", "item", "movie_id"], {}, "'item' and 'movie_id' are both recognised as item"),
        (
            ["user", "item", "date", "ts"],
            {},
            "'date' and 'ts' are both recognised as time; .*: time='date'",
        ),
        (["user", "item"], {"user": "item", "item": "item"}, "user and item are the same column"),
        (["user", "item"], {"user": 2}, "user = 2 is out of range; .* from 0 to 1"),
        (["user", "item"], {"user": True}, "user = True is out of range"),
        (["user", "item"], {"item": False}, "no column that is recognised as the item"),
        (
            ["user", "item"],
            {"min_rating": 3},
            "min_rating = 3 needs a rating column, and the dict has none.*rating=",
        ),
        (["user", "item"], {"duplicates": "max"}, "duplicates = 'max' needs a rating column"),
    ],
)
def test_columns_that_cannot_be_told(columns: list[str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_interactions({name: [1, 2] for name in columns}, **options)


def test_one_name_twice() -> None:
    table = pa.table([[1], [2], [3]], names=["x", "x", "item"])
    with pytest.raises(InputError, match=r"the table has 2 columns 'x'; pass a position: \[0, 1\]"):
        read_interactions(table, user="x")
    assert rows_of(read_interactions(table, user=1)) == [(2, 3)]


# --- ratings and times -----------------------------------------------------------------------------

MICRO = 1_000_000
HOUR = 3_600 * MICRO
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([30, 10], [30, 10]),
        (np.array([30, 10], dtype=np.uint32), [30, 10]),
        ([1.5, 2.5], [1.5, 2.5]),
        (["30", "10"], [30, 10]),
        (["1.5", " 10 "], [1.5, 10.0]),
        ([date(1970, 1, 2), date(1970, 1, 3)], [DAY, 2 * DAY]),
        ([datetime(1970, 1, 1, 0, 0, 1), datetime(1970, 1, 2)], [MICRO, DAY]),
        ([datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC)], [MICRO, DAY]),
        (np.array(["1970-01-02", "1970-01-03"], dtype="datetime64[D]"), [DAY, 2 * DAY]),
        (np.array([1500, 2999], dtype="datetime64[ns]"), [1, 2]),
        (pd.to_datetime(["1970-01-02", "1970-01-03"]).tz_localize("+01:00"), [DAY - HOUR, 2 * DAY - HOUR]),
        (["1970-01-02", "1970-01-03"], [DAY, 2 * DAY]),
        (["1970-01-01 00:00:01", "1970-01-01T00:00:02.5"], [MICRO, 2_500_000]),
        (["1970-01-01T00:00:01Z", "1970-01-01T01:00:02+01:00"], [MICRO, 2 * MICRO]),
        (["1970-01-01T00:00:01.123456789", "1970-01-02"], [1_123_456, DAY]),
    ],
)
def test_times(times: Any, expected: list[float]) -> None:
    found = read_interactions({"user": [1, 1], "item": [1, 2], "time": times})
    assert found.time.tolist() == expected
    assert found.time.dtype == (np.int64 if isinstance(expected[0], int) else np.float64)


@pytest.mark.parametrize("ratings", [[1, 2], ["1", " 2.0 "], pd.Series(["1", "2"], dtype="category")])
def test_ratings_are_floats(ratings: Any) -> None:
    found = read_interactions({"user": [1, 1], "item": [1, 2], "rating": ratings})
    assert found.rating.dtype == np.float64
    assert found.rating.tolist() == [1.0, 2.0]


def test_decimals_and_booleans_are_ratings() -> None:
    relation = duckdb.connect().sql(
        "select 1 as user, 2 as item, 3.5::decimal(4,1) as rating, true as weight"
    )
    assert rows_of(read_interactions(relation)) == [(1, 2, 3.5, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,rating\n1,2,3\n\n1,3,good\n", r"rating 'good' at line 4 is not a number; .*rating=False"),
        (
            "user,item,time\n1,2,1970-01-01\n1,3,1970-13-01\n",
            r"time '1970-13-01' at line 3 is not a number or an ISO",
        ),
        ("user,item,time\n1,2,yesterday\n1,3,5\n", r"time 'yesterday' at line 2 is not"),
        (
            'user,item,note,rating\n1,"2\n2",x,3\n1,3,"y\ny",\n',
            r"1 of 2 rows have no rating .*, the first at line 4",
        ),
        (
            "user,item,rating\n1,2,3\n1,3,nan\n",
            r"1 of 2 rows have no rating \(null, NaN, infinite or empty\), the first at line 3",
        ),
        ("user,item,time\n1,2,\n1,3,5\n", r"1 of 2 rows have no time .*, the first at line 2"),
        ("user,item\n1,2\n,3\n,4\n", r"2 of 3 rows have no user .*, the first at line 3; .*missing='drop'"),
        ("1,2\n3,\n", r"1 of 2 rows have no item .*, the first at line 2"),
    ],
)
def test_bad_cells_are_placed_on_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.csv: " + message):
        read_interactions(path)


@pytest.mark.parametrize("column", ["rating", "time"])
def test_types_that_are_no_numbers(column: str) -> None:
    with pytest.raises(InputError, match=f"the dict: {column} of type list.* cannot be used"):
        read_interactions({"user": [1], "item": [2], column: [[3]]})


# --- missing values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "rest"),
    [
        (["a", None, "c"], ["a", "c"]),
        (["a", NAN, "c"], ["a", "c"]),
        (["a", "", "c"], ["a", "c"]),
        ([1, None, 3], [1, 3]),
        ([1, NAN, 3], [1, 3]),
        (np.array([1, NAN, 3]), [1, 3]),
        ([UUIDS[0], None, UUIDS[2]], [UUIDS[0], UUIDS[2]]),
        (pd.Series([1, None, 3], dtype="Int64"), [1, 3]),
        (pd.Series(["a", None, "c"], dtype="category"), ["a", "c"]),
    ],
)
@pytest.mark.parametrize("role", ["user", "item"])
def test_missing_ids(users: Any, rest: list[Any], role: str) -> None:
    source = {
        role: users,
        {"user": "item", "item": "user"}[role]: [7, 8, 9],
        "rating": [1, 2, 3],
        "time": [1, 2, 3],
    }
    message = rf"the dict: 1 of 3 rows have no {role} \(null, NaN, infinite or empty\), the first at row 2 "
    with pytest.raises(
        InputError, match=message + r"\(counting from 1\); correct them, or pass missing='drop'"
    ):
        read_interactions(source)
    found = read_interactions(source, missing="drop")
    assert getattr(found, f"{role}_ids").ids.to_pylist() == rest
    assert found.history == (Step(f"missing {role}", 1, int(role == "item"), int(role == "user")),)


@pytest.mark.parametrize("role", ["rating", "weight", "time"])
@pytest.mark.parametrize("nothing", [None, NAN])
def test_missing_values(role: str, nothing: object) -> None:
    source = {"user": [1, 2, 3], "item": [7, 7, 7], role: [1.0, 2.0, nothing]}
    with pytest.raises(InputError, match=f"1 of 3 rows have no {role} .*, the first at row 3"):
        read_interactions(source)
    found = read_interactions(source, missing="drop")
    assert rows_of(found) == [(1, 7, 1.0), (2, 7, 2.0)]
    assert found.history == (Step(f"missing {role}", 1, 1, 0),)
    assert len(read_interactions(source, **{role: False})) == 3


def test_infinite_ratings_are_missing() -> None:
    with pytest.raises(InputError, match="1 of 2 rows have no rating"):
        read_interactions({"user": [1, 2], "item": [1, 1], "rating": [1, np.inf]})


def test_all_missing() -> None:
    source = {"user": [None, None], "item": [1, 2]}
    with pytest.raises(InputError, match="2 of 2 rows have no user"):
        read_interactions(source)
    with pytest.raises(InputError, match="no row is left, all 2 have a missing user"):
        read_interactions(source, missing="drop")


# --- repeated pairs --------------------------------------------------------------------------------

REPEATED = {
    "user": ["a", "b", "a", "a", "b"],
    "item": ["x", "x", "x", "x", "y"],
    "rating": [3.0, 1.0, 5.0, 4.0, 2.0],
    "time": [30, 1, 10, 20, 2],
}


@pytest.mark.parametrize(
    ("policy", "with_time", "expected"),
    [
        ("last", True, (3.0, 30)),
        ("first", True, (5.0, 10)),
        ("max", True, (5.0, 10)),
        ("sum", True, (3.0, 3.0, 30)),
        ("last", False, (4.0,)),
        ("first", False, (3.0,)),
        ("max", False, (5.0,)),
        ("sum", False, (4.0, 3.0)),
    ],
)
def test_policies(policy: Any, with_time: bool, expected: tuple[float, ...]) -> None:
    found = read_interactions(REPEATED, duplicates=policy, time=None if with_time else False)
    assert rows_of(found)[0] == ("a", "x", *expected)
    assert [row[:2] for row in rows_of(found)] == [("a", "x"), ("b", "x"), ("b", "y")]
    assert found.history == (Step(f"repeated pair ({policy} kept)", 2),)


def test_ties_go_by_row_order() -> None:
    source = {
        "user": [1, 1, 1],
        "item": [1, 1, 1],
        "rating": [2, 2, 1],
        "time": [5, 5, 5],
        "weight": [1, 2, 3],
    }
    assert read_interactions(source, duplicates="last").weight.tolist() == [3]
    assert read_interactions(source, duplicates="first").weight.tolist() == [1]
    assert read_interactions(source, duplicates="max").weight.tolist() == [2]


def test_sum_adds_weights() -> None:
    found = read_interactions({**REPEATED, "weight": [1, 2, 3, 4, 5]}, duplicates="sum")
    assert found.weight.tolist() == [8.0, 2.0, 5.0]
    distinct = read_interactions({"user": [1, 2], "item": [1, 1]}, duplicates="sum")
    assert distinct.weight.tolist() == [1.0, 1.0]
    assert distinct.history == ()


def test_sum_against_an_oracle() -> None:
    random = np.random.default_rng(0)
    users, items, weight = random.integers(0, 9, 500), random.integers(0, 9, 500), random.integers(1, 5, 500)
    totals: dict[tuple[int, int], float] = {}
    for user, item, amount in zip(users.tolist(), items.tolist(), weight.tolist(), strict=True):
        totals[user, item] = totals.get((user, item), 0) + amount
    found = read_interactions({"user": users, "item": items, "weight": weight}, duplicates="sum")
    assert {(user, item): amount for user, item, amount in rows_of(found)} == totals


def test_all_rows_are_one_pair() -> None:
    source = {"user": ["ann"] * 100, "item": ["hat"] * 100}
    found = read_interactions(source)
    assert rows_of(found) == [("ann", "hat")]
    assert found.history == (Step("repeated pair (last kept)", 99),)
    with pytest.raises(InputError, match=r"user 'ann' and item 'hat' occur in 100 rows, and 0 other pairs"):
        read_interactions(source, duplicates="error")


def test_error_names_the_first_repeated_pair() -> None:
    source = {"user": ["z", "b", "a", "b", "a", "b"], "item": [1, 2, 1, 2, 1, 2], "time": [9, 8, 7, 6, 5, 4]}
    with pytest.raises(
        InputError, match=r"user 'b' and item 2 occur in 3 rows, and 1 other pairs .*'last', 'first'"
    ):
        read_interactions(source, duplicates="error")
    assert len(read_interactions({"user": [1, 1], "item": [1, 2]}, duplicates="error")) == 2


# --- the order of cleaning -------------------------------------------------------------------------


def test_every_step_that_removes_something_is_told_in_order() -> None:
    source = {
        "user": [None, 1, 1, 1, 1, 2, 2, 3, 3],
        "item": [9, 1, 1, 2, 3, 1, 2, 8, 1],
        "rating": [5, 5, 4, 5, 1, 5, 5, 1, 5],
    }
    found = read_interactions(source, missing="drop", min_rating=4, core=2)
    assert [(step.what, step.rows, step.users, step.items) for step in found.history] == [
        ("missing user", 1, 0, 1),
        ("rating below 4", 2, 0, 2),
        ("repeated pair (last kept)", 1, 0, 0),
        ("outside the core (users ≥ 2 items, items ≥ 2 users)", 1, 1, 0),
    ]
    assert rows_of(found) == [(1, 1, 4.0), (1, 2, 5.0), (2, 1, 5.0), (2, 2, 5.0)]
    assert len(found.report().splitlines()) == 5


def test_min_rating_comes_before_duplicates() -> None:
    source = {"user": [1, 1], "item": [1, 1], "rating": [5, 1]}
    assert read_interactions(source, min_rating=4).rating.tolist() == [5.0]
    with pytest.raises(InputError, match="no row is left, all 2 have a rating below 6"):
        read_interactions(source, min_rating=6)


def test_core_of_two_numbers() -> None:
    source = {"user": [1, 1, 2], "item": [1, 2, 1]}
    assert len(read_interactions(source, core=(1, 2))) == 2
    assert read_interactions(source, core=1).history == ()
    with pytest.raises(InputError, match="the dict: no row is left of 3 "):
        read_interactions(source, core=(3, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"duplicates": "lst"},
            "duplicates = 'lst' is not known; choose one of 'last', .*Did you mean 'last'?",
        ),
        ({"missing": "skip"}, "missing = 'skip' is not known; choose one of 'error', 'drop'"),
        ({"min_rating": "4"}, "min_rating = '4' is out of range"),
        ({"min_rating": NAN}, "min_rating = nan is out of range"),
        ({"core": 0}, "core = 0 is out of range; .*Pass one number, or"),
        ({"core": (1, 2, 3)}, r"core = \(1, 2, 3\) is out of range"),
        ({"format": "xml"}, "format = 'xml' is not known"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_interactions(COLUMNS, **options)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rows_give_equal_interactions(seed: int) -> None:
    random = np.random.default_rng(seed)
    n = 200
    frame = pd.DataFrame(
        {
            "user": [f"u{u}" for u in random.integers(0, 20, n)],
            "item": random.integers(0, 30, n),
            "rating": random.integers(1, 6, n),
            "time": random.permutation(n),  # distinct, so that which row is the last is known
        }
    )
    options: dict[str, Any] = {"min_rating": 2, "core": 2}
    mixed = frame.sample(frac=1, random_state=seed)
    for policy in ("last", "first", "max", "sum"):
        one, other = (read_interactions(data, duplicates=policy, **options) for data in (frame, mixed))
        assert one == other
        assert one.history == other.history


# --- real data -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "users", "items", "pairs", "columns"),
    [
        ("ml-1m/ratings_notime.dat", 6040, 3706, 1_000_209, ["rating"]),
        ("ml-100k/u.data", 943, 1682, 100_000, ["rating", "time"]),
        ("ml-100k-paper-split/100k_train.csv", 943, 1647, 80_000, ["rating"]),
        ("gowalla/train.txt", 29_858, 40_981, 810_128, []),
        ("gowalla/test.txt", 29_858, None, 217_242, []),
        ("yelp2018/train.txt", 31_668, 38_048, 1_237_259, []),
        ("yelp2018/test.txt", None, None, 324_147, []),
        ("kuairec/small_matrix_positives.csv", 1411, None, 217_175, []),
    ],
)
def test_public_datasets(
    real_data: Path, name: str, users: int | None, items: int | None, pairs: int, columns: list[str]
) -> None:
    found = read_interactions(real_data / name)
    assert len(found) == pairs
    assert users in (None, found.n_users)
    assert items in (None, found.n_items)
    assert found.to_table().column_names == ["user", "item", *columns]
    assert pa.types.is_integer(found.user_ids.ids.type)
    assert sum(step.rows for step in found.history) == 0


@pytest.mark.parametrize("word", ["NULL", "null", "NaN", "nan", "NA", "N/A", "None", "<NA>", " ", ""])
@pytest.mark.parametrize("side", ["user", "item"])
def test_files_spell_missing_ids_in_many_ways(tmp_path: Path, word: str, side: str) -> None:
    path = tmp_path / "clicks.csv"
    row = f"{word},3" if side == "user" else f"3,{word}"
    path.write_text(f"user,item\n1,2\n{row}\n4,5\n")
    with pytest.raises(InputError, match=rf"1 of 3 rows have no {side} .* the first at line 3"):
        read_interactions(path)
    assert rows_of(read_interactions(path, missing="drop")) == [(1, 2), (4, 5)]


def test_typed_tables_keep_such_words_as_ids() -> None:
    assert rows_of(read_interactions({"user": ["NA", "FR"], "item": [1, 2]})) == [("FR", 2), ("NA", 1)]


def test_spaces_around_ids_in_files_are_not_part_of_them(tmp_path: Path) -> None:
    (tmp_path / "clicks.csv").write_text("user, item\n1, 2\n 1, 3\nann , 2\n")
    assert rows_of(read_interactions(tmp_path / "clicks.csv")) == [("1", 2), ("1", 3), ("ann", 2)]


def test_a_quote_that_is_never_closed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    path.write_text('user,item,title\n1,10,a\n2,11,"b\n3,12,c\n4,13,d\n')
    with pytest.raises(InputError, match="a quote after line 2 is open; close it"):
        read_interactions(path)
    path.write_text('user,item,title\n1,10,5" disk\n2,11,b\n')
    assert len(read_interactions(path)) == 2


def test_masked_arrays_are_refused() -> None:
    with pytest.raises(InputError, match="a masked array cannot be read"):
        read_interactions(np.ma.masked_equal(np.array([[1, 2], [3, 4]]), 4))


# --- a catalogue ---------------------------------------------------------------------------------------


def test_items_that_nobody_has_are_kept_if_a_catalogue_is_given(tmp_path) -> None:
    rows = {"user": ["a", "b"], "item": ["x", "z"]}
    found = read_interactions(rows, items=["z", "y", "x", "w"])
    assert found.item_ids.ids.to_pylist() == ["w", "x", "y", "z"]
    assert found.item_ids.outside(found.items).to_pylist() == ["x", "z"]
    assert (found.n_items, found.density) == (4, 0.25)
    assert found.item_counts.tolist() == [0, 1, 0, 1]
    (tmp_path / "items").write_text("x\n\nz\r\nw \n", encoding="utf-8-sig")
    assert read_interactions(rows, items=tmp_path / "items").item_ids.ids.to_pylist() == ["w", "x", "z"]
    numbers = read_interactions({"user": [1], "item": [7]}, items=[9, 7])
    assert numbers.item_ids.ids.to_pylist() == [7, 9]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([7], "the catalogue of 1 items lacks 1 of the interactions; add 9"),
        ([7, None, 9], "1 item ids are missing"),
        (["7", "9"], "item ids are of type"),
        ("no such file", "cannot read the items in no such file"),
        ("a\0b", "cannot read the items"),
    ],
)
def test_catalogues_that_cannot_be_used(items, message) -> None:
    with pytest.raises(InputError, match=message):
        read_interactions({"user": [1, 1], "item": [7, 9]}, items=items)


def test_a_file_of_items_of_another_type_or_of_none(tmp_path) -> None:
    listed = tmp_path / "items"
    for text, message in (("seven\n", "no item ids of type int64"), ("\n", "names no item")):
        listed.write_text(text)
        with pytest.raises(InputError, match=message):
            read_interactions({"user": [1, 1], "item": [7, 9]}, items=listed)


def test_an_unknown_option_is_named_with_the_function():
    with pytest.raises(TypeError, match=r"^read_interactions\(\) got an unexpected keyword .* 'raitng'"):
        read_interactions({"user": [1], "item": [1]}, raitng="x")


def test_an_index_of_pandas_is_read_where_it_has_a_name():
    frame = pd.DataFrame({"user": [5, 6, 5], "item": [0, 1, 2], "rating": [5.0, 1.0, 4.0]})
    expected = read_interactions(frame)
    mixed = frame.set_axis([1, "b", None], axis=0)
    for source in (
        frame.sort_values("rating"),
        mixed,
        frame.set_index("item"),
        frame.set_index(["user", "item"]),
    ):
        assert read_interactions(source) == expected
