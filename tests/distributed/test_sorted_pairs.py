"""Prepared folders of sorted pairs equal those of `prepare`, and rows out of order are refused."""

import random

import pyarrow as pa
import pytest

pytest.importorskip("duckdb")

from truepair.data.prepared.opening import open_prepared
from truepair.data.preparing import sorted_rows
from truepair.data.preparing.prepare import prepare_interactions
from truepair.data.preparing.sorted_pairs import write_sorted_pairs
from truepair.errors import InputError, StorageError

MAKERS = {
    "int": lambda n: n - 20,
    "text": lambda n: f"{n:x}é" if n % 3 else f"Ω{n}",
    "bytes": lambda n: bytes([n % 256, 255]),
    "uint": lambda n: 2**63 + n,
}


def rows_of(user, item, seed=0, n=400):
    chance = random.Random(seed)
    rows = [(MAKERS[user](chance.randrange(60)), MAKERS[item](chance.randrange(90))) for _ in range(n)]
    types = {"uint": pa.uint64(), "int": pa.int32()}
    users, items = zip(*rows, strict=True)
    return pa.table({"user": pa.array(users, types.get(user)), "item": pa.array(items, types.get(item))})


def pieces(table, n):
    return lambda: (table.slice(first, n) for first in range(0, len(table), n))


@pytest.mark.parametrize(
    ("user", "item"), [("int", "text"), ("text", "int"), ("bytes", "uint"), ("uint", "bytes")]
)
@pytest.mark.parametrize("n", [7, 1000])
def test_the_folder_is_that_of_prepare(tmp_path, monkeypatch, user, item, n):
    monkeypatch.setattr(sorted_rows, "_MANY", 50)
    rows = rows_of(user, item)
    ordered = rows.sort_by([("user", "ascending"), ("item", "ascending")])
    made = write_sorted_pairs(pieces(ordered, n), tmp_path / "made", "rows")
    expected = prepare_interactions(rows, tmp_path / "expected")
    assert made == expected
    assert made.hash == expected.hash
    assert open_prepared(tmp_path / "made", verify=True) == expected
    for file in (tmp_path / "expected").rglob("*.npy"):
        assert file.read_bytes() == (tmp_path / "made" / file.relative_to(tmp_path / "expected")).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["expected", "made"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"user": [2, 1], "item": [1, 1]}, "rows is not sorted by user, then item"),
        ({"user": [1, 1], "item": [2, 1]}, "rows is not sorted by user, then item"),
        ({"user": [1, 2, 3, 4, 1], "item": [2, 1, 1, 1, 1]}, "rows is not sorted"),
        ({"user": [1, None], "item": [2, 1]}, "user has missing ids"),
        ({"user": [1.0, float("nan")], "item": [2, 1]}, "user has missing ids"),
        ({"user": [1, 1], "item": ["", "a"]}, r"item has missing ids .* drop their rows"),
        ({"user": [1, 2], "thing": [2, 1]}, "rows has no column 'item'; it has user, thing"),
        ({"user": pa.array([], pa.int64()), "item": pa.array([], pa.int64())}, "rows has no rows"),
    ],
)
@pytest.mark.parametrize("n", [1, 10])
def test_what_cannot_be_written_leaves_nothing(tmp_path, rows, message, n):
    with pytest.raises(InputError, match=message):
        write_sorted_pairs(pieces(pa.table(rows), n), tmp_path / "made", "rows")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_kept(tmp_path):
    (tmp_path / "made").mkdir()
    with pytest.raises(StorageError, match="exists; remove it"):
        write_sorted_pairs(pieces(rows_of("int", "int"), 10), tmp_path / "made", "rows")
