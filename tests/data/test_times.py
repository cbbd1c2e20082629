"""Times at the ends of what 64 bits of microseconds hold: right, or an error; never wrapped."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from truepair.data.ids import IdMap
from truepair.data.interactions import Interactions
from truepair.data.reading import read_interactions
from truepair.errors import InputError

LAST = 2**63 - 1  # microseconds after 1970: in the year 294,247
MILLION = 10**6


def times_of(column):
    return read_interactions({"user": [1, 2], "item": [1, 2], "time": column}).time.tolist()


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        (pa.timestamp("s"), MILLION),
        (pa.timestamp("ms", "Asia/Tokyo"), 1000),
        (pa.timestamp("us"), 1),
        (pa.date32(), 86_400 * MILLION),
        (pa.date64(), 1000),
        ("datetime64[D]", 86_400 * MILLION),
        ("datetime64[s]", MILLION),
    ],
    ids=str,
)
def test_the_first_and_the_last_time_are_right(kind, unit):
    step = 86_400_000 if kind == pa.date64() else 1  # whole days
    ends = [-(LAST // unit // step) * step, LAST // unit // step * step]
    column = np.array(ends, kind) if isinstance(kind, str) else pa.array(ends, kind)
    assert times_of(column) == [end * unit for end in ends]


def test_years_of_python_are_right():
    ends = times_of([datetime(1, 1, 1), datetime(9999, 12, 31)])
    assert ends == times_of([date(1, 1, 1), date(9999, 12, 31)]) == [-62135596800000000, 253402214400000000]


def test_nanoseconds_are_cut_to_microseconds_in_their_order():
    column = pa.array([-LAST, LAST], pa.timestamp("ns"))
    assert times_of(column) == [-(LAST // 1000), LAST // 1000]
    assert times_of(pa.array([-1500, 1500], pa.timestamp("ns"))) == [-1, 1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, LAST // MILLION + 1], pa.timestamp("s")),
        pa.array([0, 2**62], pa.timestamp("s", "Europe/Berlin")),
        pa.array([0, -(2**62)], pa.timestamp("ms")),
        pa.array([0, 2**62], pa.timestamp("ms")).dictionary_encode(),
        pa.chunked_array([pa.array([0, 2**62], pa.timestamp("s"))]),
        pa.array([0, 2**31 - 1], pa.date32()),
        pa.array([0, 86_400_000 * 10**11], pa.date64()),
        np.array([0, 2**62], "datetime64[D]"),
        np.array([0, -(2**62)], "datetime64[s]"),
        pd.Series(np.array([0, 2**48], "datetime64[s]")),
    ],
    ids=["s", "zone", "ms", "categories", "chunks", "date32", "date64", "numpy days", "numpy s", "pandas"],
)
def test_times_beyond_the_range_are_an_error_with_a_remedy(column):
    with pytest.raises(InputError, match=r"the dict: time .*beyond the years .*; correct .*time=False"):
        times_of(column)


def test_missing_times_stay_missing():
    for column in (
        np.array([0, "NaT"], "datetime64[D]"),
        pa.array([0, None], pa.timestamp("s")),
        pa.array([0, None], pa.date32()),
    ):
        table = {"user": [1, 2], "item": [1, 2], "time": column}
        assert len(read_interactions(table, missing="drop")) == 1


def test_whole_numbers_beyond_64_bits_are_an_error():
    with pytest.raises(InputError, match="9223372036854775813"):
        times_of(pa.array([0, 2**63 + 5], pa.uint64()))
    codes, ids = np.array([0, 1]), IdMap.range(2)
    for name in ("rating", "weight", "time"):
        column = {name: np.array([0, 2**63 + 5], np.uint64)}
        with pytest.raises(InputError, match=rf"{name} has values up to 9223372036854775813"):
            Interactions(codes, codes, ids, ids, **column)
    kept = Interactions(codes, codes, ids, ids, time=np.array([0, LAST], np.uint64))
    assert kept.time.tolist() == [0, LAST]
