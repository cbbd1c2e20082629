"""Feature tables: columns as numbers, statistics of the training alone, and tables that cannot be used."""

import datetime
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extras import pl
from truepair.data.ids import IdMap
from truepair.data.tables.features import FeatureEncoding, Features
from truepair.data.tables.id_table import IdTable
from truepair.errors import InputError

IDS = IdMap.of(["a", "b", "c", "d"])
ALL = np.ones(4, dtype=bool)
TABLE = {
    "item": ["d", "c", "b", "a"],
    "kind": ["tea", "jam", "tea", "jam"],
    "tags": [["x", "y"], ["x"], [], None],
    "price": [4.0, None, 2.0, None],
    "vector": [[1.0, 0.0], [3.0, 0.0], None, [2.0, 0.0]],
}


def rows(features):
    return dict(zip(features.encoding.names, features.matrix.toarray().T.tolist(), strict=True))


def test_each_kind_of_column_by_hand():
    found = rows(Features.of(TABLE, IDS, ALL))
    assert found["kind=tea"] == [0, 1, 0, 1]
    assert found["kind=jam"] == [1, 0, 1, 0]
    assert found["tags=x"] == [0, 0, 1, 1]  # y is of one row only, and a row's known tags have length 1
    assert found["price"] == [0, -1, 0, 1]
    assert found["price is missing"] == [1, 0, 1, 0]
    scale = np.sqrt(2 / 3)
    np.testing.assert_allclose(found["vector[0]"], [0, 0, 1 / scale, -1 / scale], rtol=1e-6)
    assert found["vector[1]"] == [0, 0, 0, 0]
    assert set(found) == {
        "kind=tea", "kind=jam", "tags=x", "price", "price is missing", "vector[0]", "vector[1]"
    }  # fmt: skip


def test_the_tags_of_a_row_have_length_1():
    table = {"item": ["a", "b", "c", "d"], "tags": [["x", "y"], ["y", "x", "x"], ["x"], []]}
    found = Features.of(table, IDS, ALL).matrix.toarray()
    np.testing.assert_allclose(found, [[0.5**0.5] * 2] * 2 + [[1, 0], [0, 0]], rtol=1e-6)


def test_statistics_are_those_of_the_training_alone():
    trained = np.array([True, True, False, True])
    before = Features.of(TABLE, IDS, trained)
    other = {**TABLE, "kind": ["tea", "new", "tea", "jam"], "price": [4.0, 1e9, 2.0, None]}
    other["vector"] = [[1.0, 0.0], [9e9, 5.0], None, [2.0, 0.0]]
    after = Features.of(other, IDS, trained)
    assert before.encoding == after.encoding
    np.testing.assert_array_equal(before.matrix.toarray()[trained], after.matrix.toarray()[trained])
    assert abs(after.matrix.toarray()).max() <= 5.0  # far outside of what was trained


def test_every_source_gives_the_same(tmp_path):
    table = {"item": ["d", "c", "b", "a"], "kind": ["tea", "jam", "tea", "jam"], "n": [1, 2, 3, 5]}
    arrow = pa.table(table)
    pq.write_table(arrow, tmp_path / "items.parquet")
    pd.DataFrame(table).to_csv(tmp_path / "items.csv", index=False)
    sources = [arrow, pd.DataFrame(table), tmp_path / "items.parquet"]
    sources += [str(tmp_path / "items.csv"), pd.DataFrame(table).astype({"kind": "category"})]
    expected = Features.of(table, IDS, ALL)
    for source in sources:
        assert Features.of(source, IDS, ALL) == expected


def test_a_table_of_polars_gives_the_same():
    table = {"item": ["d", "c", "b", "a"], "kind": ["tea", "jam", "tea", "jam"], "n": [1, 2, 3, 5]}
    assert Features.of(pl.DataFrame(table), IDS, ALL) == Features.of(table, IDS, ALL)


def test_a_text_file_has_tags_between_bars(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("item,genres\na,War|Drama\nb,Drama\nc,War\nd,\n")
    found = rows(Features.of(path, IDS, ALL))
    np.testing.assert_allclose(found["genres=War"], [0.5**0.5, 0, 1, 0], rtol=1e-6)
    assert set(found) == {"genres=War", "genres=Drama"}


def test_dates_flags_and_tokens_can_be_features():
    day = datetime.date(2020, 1, 1)
    table = {
        "item": ["a", "b", "c", "d"],
        "day": [day, day, day, day + datetime.timedelta(days=1)],
        "flag": [True, False, True, False],
        "tokens": [[1, 2], [2], [1], [7]],
    }
    found = rows(Features.of(table, IDS, ALL))
    assert set(found) == {"day", "flag", "tokens=1", "tokens=2"}
    np.testing.assert_allclose(found["day"], np.array([-1, -1, -1, 3]) / 3**0.5, rtol=1e-6)
    assert found["flag"] == [1, -1, 1, -1]


def test_items_beyond_the_training_need_no_row():
    table = {"item": ["a", "b", "zzz"], "kind": ["x", "x", "x"]}
    found = Features.of(table, IDS, np.array([True, True, False, False]))
    assert found.matrix.toarray().tolist() == [[1], [1], [0], [0]]


def test_the_encoding_survives_json():
    encoding = Features.of(TABLE, IDS, ALL).encoding
    again = FeatureEncoding.from_json(json.loads(json.dumps(encoding.as_json())))
    assert again == encoding
    assert again.names == encoding.names


def test_new_rows_are_encoded_with_what_was_trained():
    encoding = Features.of(TABLE, IDS, ALL).encoding
    new = {"item": ["n"], "kind": ["other"], "tags": [["x", "new"]], "price": [3.0], "vector": [None]}
    found = encoding.matrix(IdTable.read(new, IDS, "item", "items"), np.array([0]))
    assert dict(zip(encoding.names, found.toarray()[0].tolist(), strict=True)) == {
        "kind=jam": 0, "kind=tea": 0, "tags=x": 1, "price": 0, "price is missing": 0,
        "vector[0]": 0, "vector[1]": 0,
    }  # fmt: skip


BAD = {
    "no column that is recognised as the item": {"kind": ["x"] * 4},
    "several rows for 1 items: 'a'": {"item": ["a", "a", "b", "c"], "kind": ["x"] * 4},
    "no row for 1 items of the interactions: 'd'; add them": {"item": ["a", "b", "c"], "kind": ["x"] * 3},
    "no item id at row 2": {"item": ["a", None, "c", "d"], "kind": ["x"] * 4},
    "'price' holds NaN or infinity for item 'b'": {"item": ["a", "b", "c", "d"], "price": [1, np.inf, 2, 3]},
    "'v' holds NaN or infinity for item 'c'": {
        "item": ["a", "b", "c", "d"], "v": [[1.0], [2.0], [float("nan")], [3.0]]
    },
    "'v' has 2 numbers for item 'b', not 1": {
        "item": ["a", "b", "c", "d"], "v": [[1.0], [2.0, 3.0], [4.0], [5.0]]
    },
    "the numbers of 'price' are too large": {
        "item": ["a", "b", "c", "d"], "price": [1e308, -1e308, 1e308, 0]
    },
    "has no column that gives features; beside the item, it has 'title', 'same'": {
        "item": ["a", "b", "c", "d"], "title": ["p", "q", "r", "s"], "same": [1, 1, 1, 1]
    },
    "it has none. Give text": {"item": ["a", "b", "c", "d"]},
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_a_table_that_cannot_be_used_is_an_error(message):
    with pytest.raises(InputError) as error:
        Features.of(BAD[message], IDS, ALL)
    assert message in str(error.value)


@pytest.mark.parametrize("source", [None, 3, [1, 2], np.zeros((4, 2))])
def test_what_is_no_table_is_an_error(source):
    with pytest.raises(InputError, match=r"item_features is .*; give a path"):
        Features.of(source, IDS, ALL)


def test_columns_of_the_same_name_are_an_error():
    table = pa.table([IDS.ids, pa.array([1, 2, 3, 4]), pa.array([1, 2, 3, 4])], names=["item", "n", "n"])
    with pytest.raises(InputError, match="2 columns 'n'; rename"):
        Features.of(table, IDS, ALL)


def test_a_column_that_is_gone_or_of_another_type_is_an_error():
    encoding = Features.of(TABLE, IDS, ALL).encoding
    for change, message in (
        ({"kind": None}, "no column 'kind' of the model"),
        ({"price": ["cheap"]}, "'price' is of type large_string, and as a number it cannot be read"),
        ({"vector": [[1.0]]}, "'vector' has 1 numbers for item 'n', not 2"),
    ):
        new = {"item": ["n"], "kind": ["tea"], "tags": [["x"]], "price": [3.0], "vector": [None]} | change
        table = IdTable.read({k: v for k, v in new.items() if v is not None}, IDS, "item", "items")
        with pytest.raises(InputError, match=message):
            encoding.matrix(table, np.array([0]))


@pytest.mark.parametrize(
    "stored",
    [
        None, {}, [1], [{}], [{"kind": "category", "name": 3, "values": []}], [{"kind": "code", "name": "x"}],
        [{"kind": "category", "name": "x", "values": [1]}],
        [{"kind": "tags", "name": "x", "values": ["b", "a"]}],
        [{"kind": "number", "name": "x", "mean": [1], "scale": 0, "missing": True}],
        [{"kind": "number", "name": "x", "mean": ["1"], "scale": 1, "missing": True}],
        [{"kind": "vector", "name": "x", "mean": [1], "scale": 1, "missing": 1}],
    ],
)  # fmt: skip
def test_a_stored_encoding_is_checked(stored):
    with pytest.raises(InputError):
        FeatureEncoding.from_json(stored)


def test_equal_tables_are_equal_and_other_numbers_are_not():
    one, same = Features.of(TABLE, IDS, ALL), Features.of(TABLE, IDS, ALL)
    assert one == same
    assert hash(one) == hash(same)
    assert one.take(np.array([0, 1])) != one
    assert one != Features.of({**TABLE, "price": [5.0, None, 2.0, None]}, IDS, ALL)
    assert repr(one).startswith("<Features of 4 rows, 7 from kind, tags, price, vector")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_day_is_the_same_as_date_as_time_and_as_text_of_a_file(unit, tmp_path):
    days = [datetime.date(2021, 6, 1), datetime.date(2022, 1, 1), datetime.date(2023, 1, 1), None]
    fitted = Features.of({"item": ["a", "b", "c", "d"], "day": days}, IDS, ALL)
    assert fitted.encoding.names == ("day",)
    path = tmp_path / "new.csv"
    path.write_text("item,day\nn,2021-06-01\n")
    new = {"item": ["n"], "day": pa.array([datetime.datetime(2021, 6, 1)], pa.timestamp(unit))}
    zoned = {"item": ["n"], "day": pa.array([datetime.datetime(2021, 6, 1)], pa.timestamp(unit, "UTC"))}
    for source in (new, zoned, {"item": ["n"], "day": days[:1]}, path):
        found = fitted.encoding.matrix(IdTable.read(source, IDS, "item", "items"), np.array([0]))
        np.testing.assert_allclose(found.toarray(), fitted.matrix.toarray()[:1], rtol=1e-6)


def test_dates_of_a_text_file_are_numbers_and_other_text_is_not(tmp_path):
    days = ["2021-06-01", "2021-06-01T12:00:00", "", "2021-06-03"]
    pd.DataFrame({"item": ["a", "b", "c", "d"], "day": days, "word": ["x", "x", "2021-06-01", ""]}).to_csv(
        tmp_path / "items.csv"
    )
    encoding = Features.of(tmp_path / "items.csv", IDS, ALL).encoding
    assert encoding.names == ("day", "word=x")
    assert FeatureEncoding.from_json(json.loads(json.dumps(encoding.as_json()))) == encoding
    table = IdTable.read({"item": ["n"], "day": [1622505600], "word": ["x"]}, IDS, "item", "items")
    with pytest.raises(InputError, match="'day' is of type int64, and as a time"):
        encoding.matrix(table, np.array([0]))


def test_the_index_of_a_pandas_table_is_no_feature_unless_it_has_a_name(tmp_path):
    table = {"item": ["d", "c", "b", "a"], "kind": ["tea", "jam", "tea", "jam"]}
    expected, frame = Features.of(table, IDS, ALL), pd.DataFrame(table).sort_values("item")
    frame.to_parquet(tmp_path / "items.parquet")
    frame.to_csv(tmp_path / "items.csv")
    pd.read_csv(tmp_path / "items.csv").to_csv(tmp_path / "again.csv")
    mixed = frame.set_axis([1, "b", None, 2.5], axis=0)
    sources = [frame, mixed, frame.set_index("item"), pa.Table.from_pandas(frame)]
    for source in [*sources, *(tmp_path / name for name in ("items.parquet", "items.csv", "again.csv"))]:
        assert Features.of(source, IDS, ALL) == expected
    ids = IdMap.range(4)  # pandas keeps such an index as a range, and Arrow then leaves it out
    numbered = pd.DataFrame({"item": [0, 1, 2, 3], "kind": table["kind"]})
    assert Features.of(numbered.set_index("item"), ids, ALL) == Features.of(numbered, ids, ALL)


def test_a_date_is_no_number_that_an_earlier_model_had():
    stored = [{"kind": "number", "name": "day", "mean": [1.6e9], "scale": 1e7, "missing": False}]
    table = IdTable.read({"item": ["n"], "day": [datetime.date(2021, 6, 1)]}, IDS, "item", "items")
    with pytest.raises(InputError, match=r"'day' is of type date32.* as a number it cannot be read"):
        FeatureEncoding.from_json(stored).matrix(table, np.array([0]))
