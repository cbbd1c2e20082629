"""`write_prepared` of Ray and Spark gives the folder of `prepare`: with stand-ins, and with real clusters."""

import time
import types
from datetime import UTC
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb")

from truepair.data.prepared.opening import manifest_of
from truepair.data.preparing.prepare import prepare_interactions
from truepair.distributed import ray as on_ray
from truepair.distributed import spark as on_spark
from truepair.errors import InputError, StorageError


def many_ratings(n=600):
    """Rows of which most repeat a pair, at few times, so that the order of rows decides what is kept."""
    rng = np.random.default_rng(0)
    moments = np.array(["2024-05-01", "2024-05-01T10:00:00.000001", "2500-01-01"], "datetime64[us]")
    columns = {
        "who": pa.array([f"{x}é" for x in rng.integers(0, 15, n)]),
        "what.id": pa.array(rng.integers(0, 12, n)),
        "stars": pa.array(rng.integers(1, 6, n).astype(float)),
        "plays": pa.array(rng.integers(1, 1000, n) / 7),
        "at": pa.array(moments[rng.integers(0, 3, n)]),
        "second": pa.array(1_700_000_000 + rng.integers(0, 3, n)),
    }
    return pa.table(columns)


PAIR = {"user": "who", "item": "what.id"}
RATED = {**PAIR, "rating": "stars", "weight": "plays"}
NO_COLUMNS = {"rating": False, "weight": False}
CALLS = {
    "timestamps": {**RATED, "time": "at"},
    "integers": {**RATED, "time": "second", "min_rating": 2, "test": 0.2, "valid": 0.1, "seed": 3},
    "sums of é, 50%20": {**RATED, "duplicates": "sum"},
    "found by name": PAIR,
    "counts": {"user": 0, "item": 1, **NO_COLUMNS, "duplicates": "sum"},
    "pairs": {**PAIR, **NO_COLUMNS},
    "half-lives and dislikes": {
        **RATED,
        "time": "second",
        "half_life": "1s",
        "max_disliked_rating": 1,
        "core": 2,
    },
}
"""Options of `write_prepared` and of `prepare_interactions`."""


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    for name, options in CALLS.items():
        prepare_interactions(many_ratings(), folder / name, **options)
    return folder


def assert_writes_what_prepare_writes(write, expected, tmp_path):
    for name, options in CALLS.items():
        write(tmp_path / name, **options)
        files = sorted(file.relative_to(expected / name) for file in (expected / name).rglob("*.npy"))
        assert files == sorted(file.relative_to(tmp_path / name) for file in (tmp_path / name).rglob("*.npy"))
        for file in files:
            assert (tmp_path / name / file).read_bytes() == (expected / name / file).read_bytes(), file
        assert manifest_of(tmp_path / name).history == manifest_of(expected / name).history
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(CALLS)


# --- without a cluster -----------------------------------------------------------------------------------


def new_context():
    return types.SimpleNamespace(execution_options=types.SimpleNamespace(preserve_order=False))


class Dataset:
    """Stands for a dataset of Ray. Blocks are not in their order unless that is preserved."""

    def __init__(self, tables, context=None):
        self.tables, self.context = list(tables), new_context() if context is None else context

    def columns(self):
        return self.tables[0].column_names if self.tables else None

    def iter_batches(self, batch_size, batch_format):
        assert batch_format == "pyarrow"
        tables = self.tables if self.context.execution_options.preserve_order else self.tables[::-1]
        return (table.slice(first, 50) for table in tables for first in range(0, len(table), 50))


class DataFrame:
    """Stands for a DataFrame of Spark, which writes several files, with times in 96 bits."""

    def __init__(self, table):
        self.table, self.columns = table, table.column_names
        self.write = types.SimpleNamespace(parquet=self._write)

    def toDF(self, *names):  # noqa: N802
        return DataFrame(self.table.rename_columns(list(names)))

    def select(self, *names):
        return DataFrame(self.table.select(list(names)))

    def _write(self, uri):
        folder = Path(uri.removeprefix("file://"))  # as it is: Hadoop does not unquote
        folder.mkdir()
        for part in range(3):
            some = self.table.slice(part * 200, 200)
            path = folder / f"part-{part:05}-a.parquet"
            pq.write_table(some, path, use_deprecated_int96_timestamps=True)


@pytest.fixture
def stand_ins(monkeypatch):
    """Modules of Ray and Spark that work in this process."""
    context = new_context()
    ray = types.SimpleNamespace(DataContext=types.SimpleNamespace(get_current=lambda: context))
    monkeypatch.setattr(on_ray, "_ray", lambda name: ray)


@pytest.mark.usefixtures("stand_ins")
def test_rows_of_ray_are_read_in_their_order(tmp_path, expected):
    rows = many_ratings()
    dataset = Dataset([rows.slice(first, 170) for first in range(0, len(rows), 170)])
    assert_writes_what_prepare_writes(partial(on_ray.write_prepared, dataset), expected, tmp_path)
    assert not dataset.context.execution_options.preserve_order
    with pytest.raises(InputError, match=r"a dataset of Ray has no column .* its columns are none"):
        on_ray.write_prepared(Dataset([]), tmp_path / "made")


def test_rows_of_spark_are_read_in_their_order(tmp_path, expected):
    write = partial(on_spark.write_prepared, DataFrame(many_ratings()))
    assert_writes_what_prepare_writes(write, expected, tmp_path)
    (tmp_path / "made.rows").mkdir()
    with pytest.raises(StorageError, match=r"made.rows exists; remove it"):
        write(tmp_path / "made", **PAIR)
    assert (tmp_path / "made.rows").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"raitng": "x"}, "'raitng' is no option of prepare_interactions. Did you mean 'rating'"),
        ({"user": "id"}, "user = 'id': a DataFrame of Spark has no such column; its columns are 'who'"),
        (
            {**PAIR, "rating": False, "min_rating": 3},
            "min_rating = 3 needs a rating column, and a DataFrame of",
        ),
        ({"test": 2}, "test = 2 is out of range"),
    ],
)
def test_options_are_checked_before_the_cluster_begins(tmp_path, options, message):
    table = DataFrame(many_ratings())
    table.toDF = None
    with pytest.raises(InputError, match=message):
        on_spark.write_prepared(table, tmp_path / "made", **options)
    with pytest.raises(StorageError, match="exists; remove it"):
        on_spark.write_prepared(table, tmp_path)


# --- clusters --------------------------------------------------------------------------------------------


def slow_at_first(table):
    """The first block ends after later ones, so that it is not in its place unless the order is preserved."""
    time.sleep(2.0 if table["plays"][0] == many_ratings()["plays"][0] else 0.0)
    return table


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_ray_writes_the_folder_of_prepare(tmp_path, expected, ray_cluster):
    rows = many_ratings()
    blocks = ray_cluster.data.from_arrow([rows.slice(first, 170) for first in range(0, len(rows), 170)])
    dataset = blocks.map_batches(slow_at_first, batch_format="pyarrow", batch_size=None)
    assert_writes_what_prepare_writes(partial(on_ray.write_prepared, dataset), expected, tmp_path)
    assert not dataset.context.execution_options.preserve_order


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_spark_writes_the_folder_of_prepare(tmp_path, expected, spark_session, kind):
    rows = many_ratings()
    zone = UTC if kind == "timestamp" else None
    values = [
        (*row[:4], row[4].replace(tzinfo=zone), row[5])
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True)
    ]
    schema = f"who string, `what.id` bigint, stars double, plays double, at {kind}, second bigint"
    write = partial(on_spark.write_prepared, spark_session.createDataFrame(values, schema))
    assert_writes_what_prepare_writes(write, expected, tmp_path)
