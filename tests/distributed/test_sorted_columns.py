"""Ratings, weights, times and splits of sorted rows: the arrays and the report of `prepare`."""

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("duckdb")

import truepair as tp
from truepair.data.preparing.parts import Shares
from truepair.data.preparing.row_files import whole_users
from truepair.data.preparing.sorted_pairs import write_sorted_pairs
from truepair.data.rows.options import ReadOptions
from truepair.errors import InputError

IDS = {
    "int": lambda k: pa.array(k * 7 - 20, pa.int32()),
    "uint64": lambda k: pa.array([2**63 + int(x) if x % 2 else int(x) for x in k], pa.uint64()),
    "text": lambda k: pa.array([["ä", "b", "a\0b", "zz", "Z", " x", "10", "9", "007"][x] for x in k]),
    "bytes": lambda k: pa.array([bytes([255 - x, 0]) for x in k.tolist()]),
}
DAYS = np.datetime64("2024-05-01", "us")


def as_text(k):
    return pa.array([f"2024-05-0{x + 1}" if x else "2024-05-01 10:00:00.5" for x in k])


TIMES = {
    "none": None,
    "integers": lambda k: pa.array(1_700_000_000 + k),
    "floats": lambda k: pa.array(k + 0.5),
    "timestamps": lambda k: pa.array(DAYS + k.astype("timedelta64[h]")),
    "zoned": lambda k: pa.array(DAYS + k.astype("timedelta64[h]")).cast(pa.timestamp("us", "Europe/Berlin")),
    "nanoseconds": lambda k: pa.array((DAYS + k.astype("timedelta64[h]")).astype("datetime64[ns]")),
    "dates": lambda k: pa.array((DAYS + k.astype("timedelta64[D]")).astype("datetime64[D]")),
    "text": as_text,
}


def random_rows(seed, user="int", item="text", times="integers", n=300):
    """Rows in the order of a source, in which pairs repeat, often with equal times."""
    rng = np.random.default_rng(seed)
    made = {"user": IDS[user](rng.integers(0, 9, n)), "item": IDS[item](rng.integers(0, 9, n))}
    made["rating"] = pa.array(rng.integers(1, 6, n), pa.int8())
    made["weight"] = pa.array(rng.choice([0.1, 1.0, 2.5, 3.3], n))
    if TIMES[times] is not None:
        made["time"] = TIMES[times](rng.integers(0, 4, n))
    return pa.table(made)


def in_pieces(rows, size):
    """What a cluster gives: sorted by pair, then in the order of the source, a table at a time."""
    numbered = rows.append_column("row", pa.array(np.arange(len(rows))))
    order = [(name, "ascending") for name in ("user", "item", "row")]
    ordered = numbered.sort_by(order).drop_columns(["row"])
    return lambda: (ordered.slice(first, size) for first in range(0, len(ordered), size))


def write(rows, folder, size=50, shares=None, **options):
    return write_sorted_pairs(in_pieces(rows, size), folder, "the rows", ReadOptions(**options), shares)


def assert_same_folder(made, expected):
    """The arrays of pairs are the same; the log and the places of events are not written."""
    names = [
        sorted(file.relative_to(folder) for file in folder.rglob("*.npy")) for folder in (made, expected)
    ]
    assert names[0] == [name for name in names[1] if name.parts[0] != "log" and name.stem != "places"]
    for name in names[0]:
        assert (made / name).read_bytes() == (expected / name).read_bytes(), name
    inside = [{path.name for path in folder.iterdir()} for folder in (made, expected)]
    assert inside[0] == inside[1] - {"log"}


@pytest.mark.parametrize("times", TIMES)
def test_the_arrays_are_those_of_prepare(tmp_path, times):
    users = list(IDS)[list(TIMES).index(times) % len(IDS)]
    rows = random_rows(7, users, "text" if users == "int" else "int", times, n=200)
    made = write(rows, tmp_path / "made", 7)
    expected = tp.prepare_interactions(rows, tmp_path / "expected")
    assert_same_folder(tmp_path / "made", tmp_path / "expected")
    assert made.report() == expected.report()
    assert tp.open_prepared(tmp_path / "made", verify=True) == expected


@pytest.mark.parametrize("seed", range(24))
def test_random_tables_give_what_reading_gives(tmp_path, seed):
    rng = np.random.default_rng(seed)
    kinds = [str(rng.choice(list(kinds))) for kinds in (IDS, IDS, TIMES)]
    rows = random_rows(seed, *kinds, n=int(rng.integers(1, 400)))
    dropped = [name for name in ("rating", "weight", "time") if rng.random() < 0.3]
    rows = rows.select([name for name in rows.column_names if name not in dropped])
    policies = ["last", "first", "strongest", "sum", *(["max"] if "rating" in rows.column_names else [])]
    options = {"duplicates": str(rng.choice(policies))} if rng.random() < 0.7 else {}
    options |= {"min_rating": 3.5} if "rating" in rows.column_names and rng.random() < 0.5 else {}
    made = write(rows, tmp_path / "made", int(rng.integers(1, 80)), **options)
    expected = tp.read_interactions(rows, **options)
    assert made.hash == expected.hash
    assert made.report() == expected.report()


@pytest.mark.parametrize("valid", [0.0, 0.25])
def test_a_split_is_that_of_prepare(tmp_path, valid):
    rows = random_rows(3)
    made = write(rows, tmp_path / "made", shares=Shares(0.3, valid, 5), min_rating=2)
    split = {"test": 0.3, "valid": valid, "seed": 5}
    expected = tp.prepare_interactions(rows, tmp_path / "expected", min_rating=2, **split)
    assert_same_folder(tmp_path / "made", tmp_path / "expected")
    assert made == expected
    assert made.recipe == expected.recipe
    assert tp.open_prepared(tmp_path / "made", verify=True) == expected


def test_a_column_of_the_wrong_kind_of_number_is_converted(tmp_path):
    rows = pa.table({"user": [1, 1, 2], "item": [1, 2, 1], "rating": ["4", " 2.5", "1"], "weight": [3, 2, 1]})
    made = write(rows, tmp_path / "made", 1)
    assert made.rating.tolist() == [4.0, 2.5, 1.0]
    assert made.weight.dtype == np.float64


def test_a_pair_may_have_more_rows_than_a_table(tmp_path):
    rows = pa.table({"user": [1] * 20 + [2], "item": [5] * 20 + [5], "weight": np.arange(1.0, 22.0)})
    made = write(rows, tmp_path / "made", 3, duplicates="sum")
    assert made.weight.tolist() == [210.0, 21.0]


@pytest.mark.parametrize(
    ("least", "ends"), [(0, [[1, 1, 1, 2], [3, 4, 5, 5, 5], [6]]), (6, [[1, 1, 1, 2, 3, 4, 5, 5, 5], [6]])]
)
def test_blocks_end_with_users(least, ends):
    blocks = [[1, 1], [1], [2, 3], [4], [5, 5], [5, 6]]
    rows = [{"users": np.array(users), "time": np.array(users) * 10} for users in blocks]
    found = list(whole_users(rows, least))
    assert [block["users"].tolist() for block in found] == ends
    assert all((block["time"] == block["users"] * 10).all() for block in found)


# --- bad input -------------------------------------------------------------------------------------------

GOOD = {"user": ["ann", "bob", "bob"], "item": [7, 5, 7]}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"rating": [1.0, None, 2.0]}, {}, "the row of user 'bob' and item 5 has no rating"),
        ({"rating": [1.0, 2.0, float("nan")]}, {"min_rating": 2}, "user 'bob' and item 7 has no rating"),
        ({"rating": [1.0, 2.0, float("inf")]}, {}, r"has no rating \(null, NaN, infinite or empty\)"),
        ({"weight": [1.0, None, 2.0]}, {}, "no weight .* leave the column out: weight=False"),
        ({"time": pa.array([None, 2, 3])}, {}, "the row of user 'ann' and item 7 has no time"),
        ({"time": ["2024-05-01", "", "2024-05-02"]}, {}, "the row of user 'bob' and item 5 has no time"),
        ({"weight": [1.0, 2.0, -3.0]}, {}, "weight -3 at the row of user 'bob' and item 7 is not above 0"),
        ({"weight": [0, 2, 3]}, {}, "weight 0 at the row of user 'ann' and item 7 is not above 0"),
        (
            {"rating": ["4", "good", "2"]},
            {},
            "rating 'good' at the row of user 'bob' and item 5 is not a num",
        ),
        ({"time": ["2024-05-01", "may", "1"]}, {}, "time 'may' at the row of user 'bob' and item 5 is not"),
        ({"rating": [1, 2, 1]}, {"min_rating": 3}, "no row is left, all 3 rows have a rating below 3"),
    ],
)
@pytest.mark.parametrize("size", [1, 10])
def test_values_that_cannot_be_used_are_named(tmp_path, columns, options, message, size):
    with pytest.raises(InputError, match=f"the rows: .*{message}"):
        write(pa.table({**GOOD, **columns}), tmp_path / "made", size, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [1, 10])
def test_a_weight_is_checked_in_rows_that_are_not_kept(tmp_path, size):
    rows = pa.table({"user": [1, 1], "item": [1, 1], "weight": [-1.0, 2.0], "rating": [1, 5]})
    with pytest.raises(InputError, match="weight -1 at the row of user 1 and item 1"):
        write(rows, tmp_path / "made", size, min_rating=3)


def test_repeated_pairs_may_be_an_error(tmp_path):
    rows = pa.table({"user": ["a", "a", "b", "b", "b", "c"], "item": [1, 1, 2, 2, 2, 3]})
    with pytest.raises(InputError, match="user 'a' and item 1 occur in 2 rows, and 1 other pairs"):
        write(rows, tmp_path / "made", 1, duplicates="error")
    with pytest.raises(InputError, match="leave no pair for train"):
        write(rows, tmp_path / "made", shares=Shares(0.99))
    assert list(tmp_path.iterdir()) == []
